//! How long it took after each fault: pure, from the ledger and the log.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::evidence::{Answer, Asked, Evidence, Micros, Outcome, Subject};
use super::plan::Kind;
use super::world::Happened;

pub(super) mod late;

/// So long after its healing a fault may still be felt by the next one.
const AFTERMATH: Micros = 10_000_000;

/// After one fault, in milliseconds from the moment at which it was healed and nothing else was broken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct Recovery {
    /// Until a notification that was committed after the healing arrived.
    pub(super) probe_ms: Option<u64>,
    /// Until the first of those that waited arrived. `None`: none waited.
    pub(super) moving_ms: Option<u64>,
    /// Until each of those that waited had arrived.
    pub(super) cleared_ms: Option<u64>,
    /// Another fault was under way, or just healed.
    pub(super) is_overlapped: bool,
    /// The probe never arrived, though the database has it.
    pub(super) is_missing: bool,
}

/// The longest of a kind of fault.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct Longest {
    pub(super) faults: usize,
    /// Of those that no other fault overlapped.
    pub(super) alone: Recovery,
    /// Of all.
    pub(super) all: Recovery,
    /// Probes that never arrived.
    pub(super) missing: usize,
}

/// Each fault's, in the order given.
pub(super) fn measure(happened: &[Happened], evidence: &Evidence) -> Vec<Recovery> {
    let waits = waits(evidence);
    let accepted = first_accepted(evidence);
    let measure = |fault: &Happened| {
        let recovery = measure_one(fault, happened, &waits, &accepted);
        // A probe may have gone with the tail that a later failover lost.
        let is_there = fault.probe.is_some_and(|number| evidence.committed.contains(&number));
        Recovery { is_missing: recovery.probe_ms.is_none() && is_there, ..recovery }
    };
    happened.iter().map(measure).collect()
}

fn measure_one(fault: &Happened, all: &[Happened], waits: &[Wait], accepted: &HashMap<&Subject, Micros>) -> Recovery {
    let Some(healed) = fault.healed.map(|at| all_healed(at, all)) else { return Recovery::default() };
    let since = |at: Micros| at.saturating_sub(healed) / 1000;
    let probe = fault.probe.and_then(|number| accepted.get(&Subject::Number(number)).copied());
    let backlog = waits.iter().filter(|wait| wait.committed < healed && wait.called >= healed);
    let arrivals: Vec<Micros> = backlog.map(|wait| wait.called).collect();
    let cleared = arrivals.iter().max().copied();
    let over = probe.into_iter().chain(cleared).max().unwrap_or(healed);
    let overlaps = |other: &&Happened| {
        !std::ptr::eq(*other, fault)
            && other.began <= over
            && other.healed.is_none_or(|at| at + AFTERMATH >= fault.began)
    };
    Recovery {
        probe_ms: probe.map(since),
        moving_ms: arrivals.iter().min().map(|at| since(*at)),
        cleared_ms: cleared.map(since),
        is_overlapped: all.iter().any(|other| overlaps(&other)),
        is_missing: false,
    }
}

/// From then on the first moment at which nothing is broken.
fn all_healed(mut at: Micros, all: &[Happened]) -> Micros {
    let broken = |at: Micros| all.iter().filter(move |other| other.began <= at).filter_map(|other| other.healed);
    while let Some(later) = broken(at).filter(|healed| *healed > at).max() {
        at = later;
    }
    at
}

/// The longest by kind.
pub(super) fn longest(happened: &[Happened], recoveries: &[Recovery]) -> BTreeMap<Kind, Longest> {
    let mut longest: BTreeMap<Kind, Longest> = BTreeMap::new();
    for (fault, recovery) in happened.iter().zip(recoveries) {
        let of_kind = longest.entry(fault.fault.kind).or_default();
        of_kind.faults += 1;
        of_kind.missing += usize::from(recovery.is_missing);
        of_kind.all = of_kind.all.max(*recovery);
        if !recovery.is_overlapped {
            of_kind.alone = of_kind.alone.max(*recovery);
        }
    }
    longest
}

impl Recovery {
    fn max(self, other: Recovery) -> Recovery {
        Recovery {
            probe_ms: self.probe_ms.max(other.probe_ms),
            moving_ms: self.moving_ms.max(other.moving_ms),
            cleared_ms: self.cleared_ms.max(other.cleared_ms),
            is_overlapped: self.is_overlapped || other.is_overlapped,
            is_missing: self.is_missing || other.is_missing,
        }
    }
}

/// When each notification was accepted for the first time.
pub(super) fn first_arrivals(evidence: &Evidence) -> Vec<Micros> {
    first_accepted(evidence).into_values().collect()
}

/// The same by subject.
fn first_accepted(evidence: &Evidence) -> HashMap<&Subject, Micros> {
    let mut first = HashMap::new();
    for arrival in evidence.arrivals.iter().filter(|arrival| arrival.answer == Answer::Accepted) {
        first.entry(&arrival.subject).or_insert(arrival.at);
    }
    first
}

/// From commit to the first call.
#[derive(Debug, Clone, Copy)]
struct Wait {
    number: i64,
    committed: Micros,
    called: Micros,
}

/// Of what was due at once and waits behind no key: it had only us to wait for.
fn waits(evidence: &Evidence) -> Vec<Wait> {
    let mut called: HashMap<&Subject, Micros> = HashMap::new();
    for arrival in &evidence.arrivals {
        called.entry(&arrival.subject).or_insert(arrival.at);
    }
    let wait = |write: &super::evidence::Write| {
        let is_plain = matches!(write.asked, Asked::Notification { is_delayed: false, .. }) && write.key.is_none();
        let is_ours = is_plain && write.outcome == Outcome::Committed;
        let subject = Subject::Number(write.number);
        let is_retried = evidence.retried.contains(&subject);
        let called = *called.get(&subject).filter(|_| is_ours && !is_retried)?;
        Some(Wait { number: write.number, committed: write.ended, called })
    };
    evidence.writes.iter().filter_map(wait).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::evidence::{Arrival, Write};
    use crate::plan::Fault;

    pub(super) fn happened(began: Micros, healed: Micros, probe: i64) -> Happened {
        let (at, lasts) = (Duration::from_micros(began), Duration::from_micros(healed - began));
        let fault = Fault { at, kind: Kind::RedisAway, target: 0, lasts, dice: 0 };
        Happened { fault, began, healed: Some(healed), probe: Some(probe), error: None }
    }

    /// One that was committed then and accepted at its first call.
    pub(super) fn called(evidence: &mut Evidence, number: i64, committed: Micros, at: Micros) {
        let asked = Asked::Notification { dedup_key: None, is_delayed: false };
        let outcome = Outcome::Committed;
        evidence.writes.push(Write { number, asked, key: None, began: committed, ended: committed, outcome });
        let (subject, channel, webhook_id) = (Subject::Number(number), "push".to_owned(), String::new());
        evidence.arrivals.push(Arrival { at, subject, channel, webhook_id, attempt: 1, answer: Answer::Accepted });
    }

    #[test]
    fn recovery_is_from_the_healing_to_the_probe_and_to_the_backlog() {
        let mut evidence = Evidence::default();
        for (number, committed, arrived) in [(1, 10, 2_000), (2, 500, 52_000), (3, 600, 92_000), (4, 41_000, 53_000)] {
            called(&mut evidence, number, committed, arrived);
        }
        let faults = [happened(1_000, 40_000, 4)];
        let found = measure(&faults, &evidence);
        let expected = Recovery {
            probe_ms: Some(13),
            moving_ms: Some(12),
            cleared_ms: Some(52),
            is_overlapped: false,
            is_missing: false,
        };
        assert_eq!(found, [expected]);
        assert_eq!(longest(&faults, &found)[&Kind::RedisAway].alone.cleared_ms, Some(52));
        let two = [happened(1_000, 40_000, 4), happened(39_000, 46_000, 9)];
        let found = measure(&two, &evidence);
        assert!(found[0].is_overlapped && found[1].is_overlapped);
        assert_eq!(found[0].probe_ms, Some(7), "from the moment at which nothing is broken");
        assert_eq!(longest(&two, &found)[&Kind::RedisAway].missing, 0, "the database does not have it");
        evidence.committed.insert(9);
        assert_eq!(longest(&two, &measure(&two, &evidence))[&Kind::RedisAway].missing, 1);
    }
}
