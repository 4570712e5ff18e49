//! What was called too late: only the time in which nothing was broken counts.

use super::{Wait, waits};
use crate::evidence::{Answer, Evidence, Micros, Span, Subject};
use crate::plan::Kind;
use crate::providers::CHANNELS;
use crate::verdict::{Rule, Violation};
use crate::world::Happened;

/// I8 for instances as they are configured here: a lost Redis and a Postgres that is back within 10 s, a missed
/// publication and a dead worker (heartbeats of 4 s) sooner.
const LATE_AFTER: Micros = 10_000_000;
/// A provider is down for at most 12 s. Its circuit opens for 2, 4 and 8 s; the last of them may begin just before it
/// is back. A probe that the provider then refuses by chance doubles it.
const CIRCUIT_OPEN: Micros = 8_000_000;

/// Notifications that were due, waited behind no key, and were not called within 10 s of health.
pub(crate) fn find(happened: &[Happened], evidence: &Evidence) -> Vec<Violation> {
    let broken = broken(happened, evidence);
    let late = |wait: Wait| {
        let within = |span: &Span| span.until.min(wait.called).saturating_sub(span.from.max(wait.committed));
        let healthy = wait.called.saturating_sub(wait.committed) - broken.iter().map(within).sum::<Micros>();
        let id = evidence.rows.get(&Subject::Number(wait.number)).map(|row| row.id);
        let [committed, called, healthy_s] = [wait.committed, wait.called, healthy].map(|at| at as f64 / 1e6);
        let known = format!(
            "committed at {committed:.3} s, called at {called:.3} s; nothing was broken for {healthy_s:.1} s of that"
        );
        (healthy > LATE_AFTER).then_some(Violation { rule: Rule::Late, number: Some(wait.number), id, known })
    };
    waits(evidence).into_iter().filter_map(late).collect()
}

/// When something was broken, or a circuit still open after it: spans in order that do not meet.
fn broken(happened: &[Happened], evidence: &Evidence) -> Vec<Span> {
    let span = |fault: &Happened| {
        let until = fault.healed.map_or(Micros::MAX, |healed| match fault.fault.kind {
            Kind::ProviderDown => circuit_closes(fault.fault.dice as usize, healed, evidence),
            _ => healed,
        });
        Span { from: fault.began, until }
    };
    let mut spans: Vec<Span> = happened.iter().map(span).collect();
    spans.sort_by_key(|span| span.from);
    let mut joined: Vec<Span> = Vec::new();
    for span in spans {
        match joined.last_mut() {
            Some(last) if last.until >= span.from => last.until = last.until.max(span.until),
            _ => joined.push(span),
        }
    }
    joined
}

/// When the circuit of a channel whose provider is back closes: with the first call that it does not refuse, if the
/// calls come in time.
fn circuit_closes(channel: usize, healed: Micros, evidence: &Evidence) -> Micros {
    let channel = CHANNELS[channel % CHANNELS.len()];
    let (mut wait, mut until) = (CIRCUIT_OPEN, healed + CIRCUIT_OPEN);
    let calls = evidence.arrivals.iter().filter(|call| call.channel == channel && call.at >= healed);
    for call in calls {
        if call.at > until {
            break;
        }
        match call.answer {
            Answer::Refused(503) | Answer::Cut => (wait, until) = (wait * 2, call.at + wait * 2),
            Answer::Accepted | Answer::Refused(_) => return call.at,
        }
    }
    until
}

#[cfg(test)]
mod tests {
    use super::super::tests::{called, happened};
    use super::*;

    const S: Micros = 1_000_000;

    /// Committed at 1 s, called then; with these faults.
    fn is_late(called_at: Micros, faults: &[Happened]) -> bool {
        let mut evidence = Evidence::default();
        called(&mut evidence, 7, S, called_at);
        let found = find(faults, &evidence);
        assert!(found.iter().all(|late| (late.rule, late.number) == (Rule::Late, Some(7))));
        !found.is_empty()
    }

    #[test]
    fn only_more_than_10_s_in_which_nothing_was_broken_is_late() {
        assert!(is_late(12 * S, &[]));
        assert!(!is_late(11 * S, &[]));
        let two = [happened(0, 5 * S, 1), happened(4 * S, 9 * S, 2)];
        assert!(!is_late(19 * S, &two));
        assert!(is_late(20 * S, &two), "broken until 9 s, counted once");
        let between = [happened(3 * S, 5 * S, 1), happened(12 * S, 15 * S, 2)];
        assert!(!is_late(16 * S, &between));
        assert!(is_late(17 * S, &between), "2, 7 and 2 s");
    }

    #[test]
    fn a_circuit_may_be_open_until_a_call_that_is_made_in_time_succeeds() {
        let mut fault = happened(0, 5 * S, 1);
        assert!(is_late(20 * S, &[fault.clone()]));
        fault.fault.kind = Kind::ProviderDown;
        assert!(!is_late(20 * S, &[fault.clone()]));
        assert!(is_late(24 * S, &[fault.clone()]), "8 s after it is back a probe is due");
        let mut evidence = Evidence::default();
        called(&mut evidence, 1, S, 12 * S);
        called(&mut evidence, 2, S, 26 * S);
        assert_eq!(find(&[fault.clone()], &evidence).len(), 1, "closed at 12 s");
        evidence.arrivals[0].answer = Answer::Cut;
        assert_eq!(find(&[fault], &evidence), [], "open for 16 s more");
    }
}
