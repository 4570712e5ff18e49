//! The bytes that payloads may take while they are sent, over all calls of the instance.
//!
//! The claim brings small payloads along. A large one is read by its call once there are bytes for it, so whatever is
//! claimed, no more is in memory. Until then its call waits, and nobody else's. Topics share the bytes: one may have
//! half of what others leave to it, so that some are left whatever their number. A payload larger than that goes when
//! its topic has no other.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, Semaphore};

use crate::store::claim::LARGE_BYTES;

/// Large payloads that are read at the same time: claims and outcomes need the connections as well.
const READS_MAX: usize = 4;

/// The payloads of one instance.
#[derive(Debug)]
pub(super) struct Payloads {
    bytes_max: usize,
    held: Mutex<Held>,
    freed: Notify,
    pub(super) reads: Semaphore,
}

#[derive(Debug, Default)]
struct Held {
    bytes: usize,
    /// Only of topics that hold some.
    topics: HashMap<Arc<str>, usize>,
}

/// Bytes of a payload, and later of the body that is made of it; dropping it gives them back.
#[derive(Debug)]
pub(super) struct PayloadBytes {
    payloads: Arc<Payloads>,
    topic: Arc<str>,
    bytes: usize,
}

impl Payloads {
    pub(super) fn new(bytes_max: usize) -> Arc<Payloads> {
        let (held, freed) = Default::default();
        Arc::new(Payloads { bytes_max, held, freed, reads: Semaphore::new(READS_MAX) })
    }

    /// Waits until there are bytes for one more payload of this topic. Small ones count as none.
    pub(super) async fn acquire(self: &Arc<Self>, topic: &Arc<str>, bytes: usize) -> PayloadBytes {
        let bytes = counted(bytes);
        loop {
            // Before it is asked, so that nothing is missed in between.
            let freed = self.freed.notified();
            if self.lock().try_add(topic, bytes, self.bytes_max) {
                return PayloadBytes { payloads: Arc::clone(self), topic: Arc::clone(topic), bytes };
            }
            freed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn try_add(&mut self, topic: &Arc<str>, bytes: usize, bytes_max: usize) -> bool {
        let of_topic = self.topics.get(topic).copied().unwrap_or(0);
        let not_others = bytes_max.saturating_sub(self.bytes - of_topic);
        // The first of a topic, and small ones, of which only the bodies may count.
        let is_free = (of_topic == 0 || bytes == 0) && self.bytes < bytes_max;
        if !is_free && of_topic + bytes > not_others / 2 {
            return false;
        }
        self.change(topic, 0, bytes);
        true
    }

    fn change(&mut self, topic: &Arc<str>, before: usize, after: usize) {
        if before == after {
            return;
        }
        self.bytes = self.bytes - before + after;
        let of_topic = self.topics.entry(Arc::clone(topic)).or_default();
        *of_topic = *of_topic - before + after;
        if *of_topic == 0 {
            self.topics.remove(topic);
        }
    }
}

impl PayloadBytes {
    /// From now on it is so many.
    pub(super) fn resize(&mut self, bytes: usize) {
        let (before, after) = (self.bytes, counted(bytes));
        self.bytes = after;
        if before != after {
            self.payloads.lock().change(&self.topic, before, after);
        }
        if after < before {
            self.payloads.freed.notify_waiters();
        }
    }
}

impl Drop for PayloadBytes {
    fn drop(&mut self) {
        self.resize(0);
    }
}

fn counted(bytes: usize) -> usize {
    if bytes > LARGE_BYTES { bytes } else { 0 }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const KIB: usize = 1 << 10;

    /// So many payloads of this size that the topic may have, beside what others have.
    fn fill(payloads: &Arc<Payloads>, topic: &str, bytes: usize) -> Vec<PayloadBytes> {
        let topic = Arc::from(topic);
        std::iter::from_fn(|| payloads.acquire(&topic, bytes).now_or_never()).take(1_000).collect()
    }

    #[test]
    fn a_topic_may_have_half_of_what_the_others_leave() {
        let payloads = Payloads::new(800 * KIB);
        let first = fill(&payloads, "first", 100 * KIB);
        let second = fill(&payloads, "second", 100 * KIB);
        let third = fill(&payloads, "third", 100 * KIB);
        assert_eq!((first.len(), second.len(), third.len()), (4, 2, 1));
        assert_eq!(fill(&payloads, "first", 8 * KIB).len(), 1_000, "small ones count as none");
        drop(first);
        assert_eq!(fill(&payloads, "second", 100 * KIB).len(), 1, "three of the seven that the third leaves");
    }

    #[test]
    fn what_is_larger_than_all_bytes_goes_alone() {
        let payloads = Payloads::new(64 * KIB);
        let huge = fill(&payloads, "first", 200 * KIB);
        assert_eq!((huge.len(), fill(&payloads, "second", 20 * KIB).len()), (1, 0));
        drop(huge);
        assert_eq!(fill(&payloads, "second", 20 * KIB).len(), 1);
    }

    #[test]
    fn a_body_counts_instead_of_its_payload() {
        let payloads = Payloads::new(400 * KIB);
        let mut held = fill(&payloads, "first", 100 * KIB);
        held[0].resize(10 * KIB);
        assert_eq!(fill(&payloads, "first", 100 * KIB).len(), 1);
        held[0].resize(500 * KIB);
        assert!(fill(&payloads, "second", 20 * KIB).is_empty(), "until the bodies of the first are gone");
    }
}
