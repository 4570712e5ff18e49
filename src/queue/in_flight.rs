//! What is in flight: taken by a consumer, and not yet known to be acknowledged.
//!
//! Redis remembers what a consumer took, even when the reply never arrived. Comparing Redis's list with
//! this one finds what was moved while nobody waited, and delivers nothing twice that is being worked on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Delivery, Handle};

/// Counts of messages in flight by the name Redis knows them under: equal elements of a list count one each.
pub(super) type Counts = HashMap<Arc<str>, usize>;

/// Shared by a consumer and its ackers.
#[derive(Debug, Clone, Default)]
pub(super) struct InFlight {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    counts: Counts,
    /// Acknowledgements that Redis has not confirmed; they go along with the next ones.
    unconfirmed: Vec<Arc<str>>,
}

impl InFlight {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, name: &Arc<str>) {
        *self.lock().counts.entry(Arc::clone(name)).or_default() += 1;
    }

    pub(super) fn counts(&self) -> Counts {
        self.lock().counts.clone()
    }

    /// Of `found` in Redis, what was not in flight when Redis was asked (`before`) nor is now. What was before and is
    /// not now has been acknowledged in between.
    pub(super) fn unknown(&self, before: &Counts, found: Vec<String>) -> Vec<String> {
        let inner = self.lock();
        let mut known: HashMap<String, usize> = HashMap::new();
        let in_flight = |name: &str| {
            let count = |counts: &Counts| counts.get(name).copied().unwrap_or(0);
            count(before).max(count(&inner.counts))
        };
        let new = |name: &String| {
            let left = known.entry(name.clone()).or_insert_with(|| in_flight(name));
            let is_new = *left == 0;
            *left = left.saturating_sub(1);
            is_new
        };
        found.into_iter().filter(new).collect()
    }

    /// Starts acknowledging `deliveries` and whatever is still unconfirmed.
    pub(super) fn start_ack(&self, deliveries: &[Delivery]) -> Acknowledging {
        let mut names = std::mem::take(&mut self.lock().unconfirmed);
        names.extend(deliveries.iter().filter_map(|delivery| match &delivery.handle {
            Handle::Name(name) => Some(Arc::clone(name)),
            Handle::Tag(_) => None,
        }));
        Acknowledging { in_flight: self.clone(), names }
    }

    /// Forgets everything: the consumer gave it all back.
    pub(super) fn clear(&self) {
        *self.lock() = Inner::default();
    }
}

/// Acknowledgements under way. Dropped without [`Acknowledging::confirmed`], they are kept for the next call.
#[derive(Debug)]
pub(super) struct Acknowledging {
    in_flight: InFlight,
    pub names: Vec<Arc<str>>,
}

impl Acknowledging {
    /// Redis has them.
    pub(super) fn confirmed(mut self) {
        let mut inner = self.in_flight.lock();
        for name in std::mem::take(&mut self.names) {
            if let Some(count) = inner.counts.get_mut(&name) {
                *count -= 1;
                if *count == 0 {
                    inner.counts.remove(&name);
                }
            }
        }
    }
}

impl Drop for Acknowledging {
    fn drop(&mut self) {
        if !self.names.is_empty() {
            self.in_flight.lock().unconfirmed.append(&mut self.names);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Message;
    use super::*;

    fn delivery(name: &str) -> Delivery {
        let message = Message { id: 1, epoch: 1, route_step: 0, topic: "orders".into() };
        Delivery { message, times_delivered: 1, handle: Handle::Name(name.into()) }
    }

    #[test]
    fn only_what_was_never_in_flight_is_found_again() {
        let in_flight = InFlight::default();
        in_flight.add(&Arc::from("a"));
        in_flight.add(&Arc::from("b"));
        let before = in_flight.counts();
        in_flight.start_ack(&[delivery("b")]).confirmed();
        assert_eq!(in_flight.unknown(&before, ["a", "b", "c", "a"].map(String::from).into()), ["c", "a"]);
    }

    #[test]
    fn an_unconfirmed_acknowledgement_goes_along_with_the_next() {
        let in_flight = InFlight::default();
        in_flight.add(&Arc::from("a"));
        drop(in_flight.start_ack(&[delivery("a")]));
        assert_eq!(in_flight.counts().get("a"), Some(&1));
        let again = in_flight.start_ack(&[]);
        assert_eq!(again.names, [Arc::<str>::from("a")]);
        again.confirmed();
        assert!(in_flight.counts().is_empty());
    }
}
