//! The comparison of what was pushed with what Redis shows. Pure: no Redis, no clock.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::super::Loss;

/// Bits of the counter that count pushes; the generation has the rest, enough until 2092.
pub(super) const PUSHED_BITS: u32 = 24;

pub(super) fn counter(generation: i64, pushed: i64) -> i64 {
    (generation << PUSHED_BITS) + pushed
}

/// Generation and pushes of a counter.
pub(super) fn parts(counter: i64) -> (i64, i64) {
    (counter >> PUSHED_BITS, counter & ((1 << PUSHED_BITS) - 1))
}

/// What the server remembers.
#[derive(Debug)]
pub(super) struct Found {
    pub generation: i64,
    pub pushed: i64,
    ended: HashMap<i64, i64>,
}

impl Found {
    pub(super) fn read(fields: &HashMap<String, String>) -> Option<Found> {
        let number = |name: &str| fields.get(name).and_then(|value| value.parse().ok());
        let ended = fields
            .iter()
            .filter_map(|(name, value)| Some((name.strip_prefix("ended:")?.parse().ok()?, value.parse().ok()?)));
        Some(Found { generation: number("generation")?, pushed: number("pushed").unwrap_or(0), ended: ended.collect() })
    }

    /// Where the count of a generation stands; `None`: never heard of it.
    fn reached(&self, generation: i64) -> Option<i64> {
        if generation == self.generation { Some(self.pushed) } else { self.ended.get(&generation).copied() }
    }
}

/// What this side knows was pushed, by generation. Pure.
#[derive(Debug, Default)]
pub(super) struct Watch {
    seen: BTreeMap<i64, i64>,
    /// Generations whose loss has been told. One by one: while two Redis servers are in use side by side
    /// (a deployment that changes `redis_url`), the other's generations say nothing about our own.
    told: BTreeSet<i64>,
}

/// A copy of what was seen at one time.
#[derive(Debug)]
pub(super) struct Seen(BTreeMap<i64, i64>);

/// Told generations that are remembered; older ones are not mentioned any more.
const TOLD_MAX: usize = 100;

impl Watch {
    /// The newest generation heard of.
    pub(super) fn newest(&self) -> i64 {
        let seen = self.seen.last_key_value().map(|(generation, _)| *generation);
        seen.max(self.told.last().copied()).unwrap_or(0)
    }

    pub(super) fn has_told(&self, generation: i64) -> bool {
        self.told.contains(&generation)
    }

    pub(super) fn note(&mut self, generation: i64, pushed: i64) {
        if generation > 0 && !self.has_told(generation) {
            let seen = self.seen.entry(generation).or_default();
            *seen = pushed.max(*seen);
        }
    }

    /// What is known to have been pushed by now; to be taken before Redis is asked.
    pub(super) fn seen(&self) -> Seen {
        Seen(self.seen.clone())
    }

    /// The worst loss not yet told. `before` was taken before `found` was read: what was pushed in between is in
    /// neither and is judged the next time.
    pub(super) fn judge(&mut self, before: &Seen, found: &Found) -> Option<Loss> {
        let mut worst = None;
        for (&generation, &pushed) in &before.0 {
            if self.has_told(generation) {
                continue;
            }
            let loss = match found.reached(generation) {
                Some(reached) if reached >= pushed => continue,
                Some(reached) => Loss::Tail { seen: counter(generation, pushed), found: counter(generation, reached) },
                None => Loss::All,
            };
            self.told.insert(generation);
            if worst != Some(Loss::All) {
                worst = Some(loss);
            }
        }
        while self.told.len() > TOLD_MAX {
            self.told.pop_first();
        }
        // Only the current generation can still grow; the others have just been judged.
        let told = &self.told;
        self.seen.retain(|generation, _| {
            !told.contains(generation) && (*generation == found.generation || !before.0.contains_key(generation))
        });
        worst
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(generation: i64, pushed: i64, ended: &[(i64, i64)]) -> Found {
        Found { generation, pushed, ended: ended.iter().copied().collect() }
    }

    fn watch(seen: &[(i64, i64)]) -> Watch {
        let mut watch = Watch::default();
        seen.iter().for_each(|(generation, pushed)| watch.note(*generation, *pushed));
        watch
    }

    impl Watch {
        fn judge_now(&mut self, found: &Found) -> Option<Loss> {
            self.judge(&self.seen(), found)
        }
    }

    fn tail(generation: i64, seen: i64, found: i64) -> Option<Loss> {
        Some(Loss::Tail { seen: counter(generation, seen), found: counter(generation, found) })
    }

    #[test]
    fn nothing_seen_is_nothing_lost() {
        assert_eq!(watch(&[(0, 0)]).judge_now(&found(5, 0, &[])), None);
    }

    #[test]
    fn a_count_that_goes_on_is_no_loss_even_across_a_failover() {
        assert_eq!(watch(&[(5, 10)]).judge_now(&found(5, 12, &[])), None);
        assert_eq!(watch(&[(5, 10)]).judge_now(&found(6, 3, &[(5, 10)])), None);
    }

    #[test]
    fn a_tail_lost_in_a_failover_is_told_although_the_count_has_long_passed_it() {
        assert_eq!(watch(&[(5, 10)]).judge_now(&found(6, 900, &[(5, 8)])), tail(5, 10, 8));
        assert_eq!(watch(&[(5, 10), (6, 900)]).judge_now(&found(6, 900, &[(5, 8)])), tail(5, 10, 8));
    }

    #[test]
    fn a_generation_the_server_never_heard_of_means_all_is_gone() {
        assert_eq!(watch(&[(5, 10)]).judge_now(&found(6, 0, &[])), Some(Loss::All));
        assert_eq!(watch(&[(5, 10)]).judge_now(&found(4, 0, &[])), Some(Loss::All));
    }

    #[test]
    fn a_loss_is_told_once_and_the_next_one_again() {
        let mut watch = watch(&[(5, 10)]);
        assert!(watch.judge_now(&found(6, 0, &[])).is_some());
        watch.note(5, 11);
        assert_eq!(watch.judge_now(&found(6, 0, &[])), None);
        watch.note(6, 4);
        assert_eq!(watch.judge_now(&found(6, 4, &[])), None);
        assert_eq!(watch.judge_now(&found(7, 0, &[(6, 3)])), tail(6, 4, 3));
    }

    #[test]
    fn a_newer_queue_used_side_by_side_is_told_once_and_hides_nothing_of_ours() {
        let mut watch = watch(&[(5, 10), (9, 3)]);
        assert_eq!(watch.judge_now(&found(5, 10, &[])), Some(Loss::All));
        watch.note(9, 70);
        watch.note(5, 12);
        assert_eq!(watch.judge_now(&found(5, 12, &[])), None);
        assert_eq!(watch.judge_now(&found(10, 0, &[(5, 11)])), tail(5, 12, 11));
    }

    #[test]
    fn a_count_that_fell_within_its_generation_is_a_tail() {
        assert_eq!(watch(&[(5, 10)]).judge_now(&found(5, 9, &[])), tail(5, 10, 9));
    }

    #[test]
    fn what_is_pushed_while_redis_is_asked_is_judged_the_next_time() {
        let mut watch = watch(&[(5, 10)]);
        let before = watch.seen();
        watch.note(5, 20);
        watch.note(6, 4);
        assert_eq!(watch.judge(&before, &found(5, 10, &[])), None);
        assert_eq!(watch.judge_now(&found(6, 3, &[(5, 20)])), tail(6, 4, 3));
    }
}
