//! The bytes that payloads and bodies may take while they are sent, over all calls of the instance.
//!
//! The claim brings small payloads along. A large one is read by its call once there are bytes for it, and a body that
//! is longer goes out only if there are bytes for that, so whatever is claimed, no more is in memory. Until then its
//! call waits, with its topic's share of the calls and nothing that others need.
//!
//! Topics share the bytes: one may have half of what others leave to it, so that some are left whatever their number;
//! and so do the hosts of a topic. A payload larger than that goes when its topic has no other. Small payloads do not
//! wait, unless the bodies of their topic are large.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, Semaphore};

use crate::channel::CHANNEL_WIDE;
use crate::store::claim::LARGE_BYTES;

/// Large payloads that are read, and made a body of, at the same time: claims and outcomes need the connections as well,
/// and parsed they take many times their bytes.
const READS_MAX: usize = 4;
/// Batches whose destinations are, likewise.
const DESTINATIONS_MAX: usize = 2;

/// The payloads of one instance.
#[derive(Debug)]
pub(super) struct Payloads {
    bytes_max: usize,
    held: Mutex<Held>,
    freed: Notify,
    pub(super) reads: Semaphore,
    pub(super) destinations: Semaphore,
}

#[derive(Debug, Default)]
struct Held {
    bytes: usize,
    /// Only of topics that hold some.
    topics: HashMap<Arc<str>, Topic>,
}

#[derive(Debug, Default)]
struct Topic {
    bytes: usize,
    origins: HashMap<Arc<str>, usize>,
    /// By how much a body was longer than its payload that had to wait for that: so much the next ask for at once.
    /// Otherwise they would take what the first waits for.
    growth: usize,
}

/// Bytes of a payload, and later of the body that is made of it; dropping it gives them back.
#[derive(Debug)]
pub(super) struct PayloadBytes {
    payloads: Arc<Payloads>,
    topic: Arc<str>,
    origin: Arc<str>,
    bytes: usize,
    /// Of the payload alone.
    of_payload: usize,
}

impl Payloads {
    pub(super) fn new(bytes_max: usize) -> Arc<Payloads> {
        let (held, freed) = Default::default();
        let (reads, destinations) = (Semaphore::new(READS_MAX), Semaphore::new(DESTINATIONS_MAX));
        Arc::new(Payloads { bytes_max, held, freed, reads, destinations })
    }

    /// The bytes of one more payload of this topic for this origin, if they are there.
    pub(super) fn try_acquire(
        self: &Arc<Self>,
        topic: &Arc<str>,
        origin: &Arc<str>,
        bytes: usize,
    ) -> Option<PayloadBytes> {
        let growth = self.lock().topics.get(topic).map_or(0, |topic| topic.growth);
        let (payloads, topic, origin) = (Arc::clone(self), Arc::clone(topic), Arc::clone(origin));
        let mut held = PayloadBytes { payloads, topic, origin, bytes: 0, of_payload: bytes };
        held.try_resize(bytes + growth).then_some(held)
    }

    /// Waits until they are there.
    pub(super) async fn acquire(self: &Arc<Self>, topic: &Arc<str>, origin: &Arc<str>, bytes: usize) -> PayloadBytes {
        loop {
            // Before it is asked, so that nothing is missed in between.
            let freed = self.freed.notified();
            if let Some(held) = self.try_acquire(topic, origin, bytes) {
                return held;
            }
            freed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// Whether there is room for so many bytes instead of those `before`.
    fn has_room(&self, held: &PayloadBytes, before: usize, after: usize, bytes_max: usize) -> bool {
        let topic = self.topics.get(&held.topic);
        let of_topic = topic.map_or(0, |topic| topic.bytes) - before;
        let of_origin = topic.and_then(|topic| topic.origins.get(&held.origin)).map_or(0, |bytes| *bytes) - before;
        let all = self.bytes - before;
        let topic_max = half(bytes_max, all - of_topic);
        let origin_max = half(topic_max, of_topic - of_origin);
        // The first of a topic may be larger than its part.
        let fits_topic = of_topic + after <= topic_max || of_topic == 0 && all < bytes_max;
        // A host that the operator wrote is all that its channel has.
        let fits_origin = of_origin == 0 || of_origin + after <= origin_max || *held.origin == *CHANNEL_WIDE;
        fits_topic && fits_origin
    }

    fn change(&mut self, held: &PayloadBytes, before: usize, after: usize) {
        self.bytes = self.bytes - before + after;
        let topic = self.topics.entry(Arc::clone(&held.topic)).or_default();
        topic.bytes = topic.bytes - before + after;
        let origin = topic.origins.entry(Arc::clone(&held.origin)).or_default();
        *origin = *origin - before + after;
        if *origin == 0 {
            topic.origins.remove(&held.origin);
        }
        if topic.bytes == 0 {
            self.topics.remove(&held.topic);
        }
    }
}

impl PayloadBytes {
    /// From now on it is so many, if there are as many. A little more is not asked for.
    pub(super) fn try_resize(&mut self, bytes: usize) -> bool {
        let (before, after) = (self.bytes, counted(bytes));
        if before == after {
            return true;
        }
        let mut held = self.payloads.lock();
        if after > before + LARGE_BYTES && !held.has_room(self, before, after, self.payloads.bytes_max) {
            if let Some(topic) = held.topics.get_mut(&self.topic) {
                topic.growth = topic.growth.max(after.saturating_sub(self.of_payload));
            }
            return false;
        }
        held.change(self, before, after);
        drop(held);
        self.bytes = after;
        if after < before {
            self.payloads.freed.notify_waiters();
        }
        true
    }
}

impl Drop for PayloadBytes {
    fn drop(&mut self) {
        self.try_resize(0);
    }
}

/// Of what others leave.
fn half(all: usize, others: usize) -> usize {
    all.saturating_sub(others) / 2
}

fn counted(bytes: usize) -> usize {
    if bytes > LARGE_BYTES { bytes } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1 << 10;

    /// So many payloads of this size that the topic may have for a host, beside what others have.
    fn fill_host(payloads: &Arc<Payloads>, topic: &str, origin: &str, bytes: usize) -> Vec<PayloadBytes> {
        let (topic, origin) = (Arc::from(topic), Arc::from(origin));
        std::iter::from_fn(|| payloads.try_acquire(&topic, &origin, bytes)).take(1_000).collect()
    }

    fn fill(payloads: &Arc<Payloads>, topic: &str, bytes: usize) -> Vec<PayloadBytes> {
        fill_host(payloads, topic, CHANNEL_WIDE, bytes)
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
    fn a_host_may_have_half_of_what_the_others_leave_of_its_topic() {
        let payloads = Payloads::new(1600 * KIB);
        let hosts = ["a", "b", "c", "d"].map(|host| fill_host(&payloads, "first", host, 100 * KIB));
        assert_eq!(hosts.each_ref().map(Vec::len), [4, 2, 1, 1], "each has a first as long as its topic has room");
        assert!(fill_host(&payloads, "first", "e", 100 * KIB).is_empty());
        assert_eq!(fill_host(&payloads, "second", "a", 100 * KIB).len(), 2, "another topic's calls are not theirs");
    }

    #[test]
    fn what_is_larger_than_all_bytes_goes_alone_and_small_ones_beside_it() {
        let payloads = Payloads::new(64 * KIB);
        let huge = fill(&payloads, "first", 200 * KIB);
        assert_eq!((huge.len(), fill(&payloads, "second", 20 * KIB).len()), (1, 0));
        assert_eq!(fill(&payloads, "second", 8 * KIB).len(), 1_000);
        drop(huge);
        assert_eq!(fill(&payloads, "second", 20 * KIB).len(), 1);
    }

    #[test]
    fn a_body_counts_instead_of_its_payload_and_grows_only_where_there_is_room() {
        let payloads = Payloads::new(400 * KIB);
        let mut held = fill(&payloads, "first", 100 * KIB);
        assert!(held[0].try_resize(10 * KIB));
        held.extend(fill(&payloads, "first", 100 * KIB));
        assert_eq!(held.len(), 3);
        assert!(!held[1].try_resize(150 * KIB) && !held[0].try_resize(50 * KIB), "the topic has its half");
        assert!(held[1].try_resize(110 * KIB), "a little more");
        held.truncate(2);
        assert!(held[1].try_resize(500 * KIB), "it is the only one of its topic");
        assert!(fill(&payloads, "second", 20 * KIB).is_empty(), "until the bodies of the first are gone");
        drop(held);
        assert_eq!(fill(&payloads, "second", 100 * KIB).len(), 2, "all is given back");
    }

    #[test]
    fn once_a_body_had_to_wait_payloads_ask_for_as_much_as_their_bodies_will() {
        let payloads = Payloads::new(800 * KIB);
        let mut held = fill(&payloads, "first", 100 * KIB);
        assert!(!held[3].try_resize(250 * KIB));
        held.truncate(1);
        assert_eq!(fill(&payloads, "first", 100 * KIB).len(), 1);
        assert_eq!(fill(&payloads, "first", KIB).len(), 1, "the bodies of small ones are large as well");
        assert_eq!(fill(&payloads, "second", 100 * KIB).len(), 3, "another topic's bodies are not theirs");
        drop(held);
        assert_eq!(fill(&payloads, "first", 100 * KIB).len(), 4, "forgotten when none is left");
    }
}
