//! What a consumer holds: taken, and not yet known to be acknowledged.
//!
//! Redis remembers what a consumer took, even when the reply never arrived. Comparing Redis's list with
//! this one finds what was moved while nobody waited, and delivers nothing twice that is being worked on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts of held messages by the name Redis knows them under: equal elements of a list count one each.
pub(super) type Counts = HashMap<Arc<str>, usize>;

/// Shared by a consumer and its ackers.
#[derive(Debug, Clone, Default)]
pub(super) struct Hand {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    held: Counts,
    /// Acknowledgements that Redis has not confirmed; they go along with the next ones.
    unconfirmed: Vec<Arc<str>>,
}

impl Hand {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn hold(&self, name: &Arc<str>) {
        *self.lock().held.entry(Arc::clone(name)).or_default() += 1;
    }

    pub(super) fn held(&self) -> Counts {
        self.lock().held.clone()
    }

    /// Of `found` in Redis, what was not held when the question was asked (`before`) nor is now. What was
    /// held before and is not now has been acknowledged in between.
    pub(super) fn not_held(&self, before: &Counts, found: Vec<String>) -> Vec<String> {
        let inner = self.lock();
        let mut known: HashMap<String, usize> = HashMap::new();
        let held = |name: &str| {
            let count = |counts: &Counts| counts.get(name).copied().unwrap_or(0);
            count(before).max(count(&inner.held))
        };
        let new = |name: &String| {
            let left = known.entry(name.clone()).or_insert_with(|| held(name));
            let is_new = *left == 0;
            *left = left.saturating_sub(1);
            is_new
        };
        found.into_iter().filter(new).collect()
    }

    /// Starts acknowledging `names` and whatever is still unconfirmed.
    pub(super) fn start_ack(&self, names: impl Iterator<Item = Arc<str>>) -> Acknowledging {
        let mut inner = self.lock();
        let mut all = std::mem::take(&mut inner.unconfirmed);
        all.extend(names);
        Acknowledging { hand: self.clone(), names: all }
    }

    /// Forgets everything: the consumer gave it all back.
    pub(super) fn clear(&self) {
        *self.lock() = Inner::default();
    }
}

/// Acknowledgements under way. Dropped without [`Acknowledging::confirmed`], they are kept for the next call.
#[derive(Debug)]
pub(super) struct Acknowledging {
    hand: Hand,
    pub names: Vec<Arc<str>>,
}

impl Acknowledging {
    /// Redis has them.
    pub(super) fn confirmed(mut self) {
        let mut inner = self.hand.lock();
        for name in std::mem::take(&mut self.names) {
            if let Some(count) = inner.held.get_mut(&name) {
                *count -= 1;
                if *count == 0 {
                    inner.held.remove(&name);
                }
            }
        }
    }
}

impl Drop for Acknowledging {
    fn drop(&mut self) {
        if !self.names.is_empty() {
            self.hand.lock().unconfirmed.append(&mut self.names);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&'static str]) -> impl Iterator<Item = Arc<str>> {
        names.iter().map(|name| Arc::from(*name))
    }

    #[test]
    fn only_what_was_never_held_is_found_again() {
        let hand = Hand::default();
        hand.hold(&Arc::from("a"));
        hand.hold(&Arc::from("b"));
        let before = hand.held();
        hand.start_ack(names(&["b"])).confirmed();
        assert_eq!(hand.not_held(&before, ["a", "b", "c", "a"].map(String::from).into()), ["c", "a"]);
    }

    #[test]
    fn an_unconfirmed_acknowledgement_goes_along_with_the_next() {
        let hand = Hand::default();
        hand.hold(&Arc::from("a"));
        drop(hand.start_ack(names(&["a"])));
        assert_eq!(hand.held().get("a"), Some(&1));
        let again = hand.start_ack(std::iter::empty());
        assert_eq!(again.names, names(&["a"]).collect::<Vec<_>>());
        again.confirmed();
        assert!(hand.held().is_empty());
    }
}
