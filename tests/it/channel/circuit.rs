//! The circuit and its circuits: when calls stop, who tries again, and what other instances are told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use outboxd::channel::circuit::{CircuitChange, OpenReason, Pass, Verdict};
use outboxd::channel::circuits::{Circuits, Freed, ORIGINS_MAX, SharedCircuit};
use outboxd::channel::{CHANNEL_WIDE, Cause, Failed, Outcome};
use outboxd::retry::Failure;

use super::config;

const OPEN_FOR: Duration = Duration::from_secs(30);

/// A circuits of the channel `push` and made-up time.
struct Table {
    circuits: Circuits,
    origin: Arc<str>,
    now: Instant,
}

impl Table {
    fn new() -> Table {
        let channels = BTreeMap::from([("push".to_owned(), config("https://a.example/"))]);
        Table { circuits: Circuits::new(&channels), origin: Arc::from(CHANNEL_WIDE), now: Instant::now() }
    }

    fn verdict(&self) -> Verdict {
        self.circuits.may_call("push", &self.origin, self.now)
    }

    fn report(&self, pass: Pass, outcome: &Outcome) -> Option<CircuitChange> {
        self.circuits.on_outcome("push", &self.origin, pass, self.now, outcome)
    }

    fn reports(&self, count: usize, outcome: &Outcome) -> Option<CircuitChange> {
        (0..count).map(|_| self.report(Pass::Normal, outcome)).last().flatten()
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    fn shared(&self, left: Duration, reason: OpenReason) -> SharedCircuit {
        SharedCircuit {
            channel: "push".to_owned(),
            origin: self.origin.to_string(),
            left,
            reason: Some(reason),
            changed_at: None,
            openings: 1,
            probe_elsewhere: None,
        }
    }
}

fn sent() -> Outcome {
    Outcome::Sent { status: 200, duration: Duration::ZERO, provider_id: None }
}

fn status(status: u16, failure: Failure, retry_after: Option<u64>) -> Outcome {
    Outcome::Failed(Failed {
        failure,
        cause: Cause::Status,
        status: Some(status),
        error: String::new(),
        excerpt: None,
        provider_id: None,
        retry_after: retry_after.map(Duration::from_secs),
        duration: Duration::ZERO,
    })
}

fn down() -> Outcome {
    status(503, Failure::Transient, None)
}

fn unauthorized() -> Outcome {
    status(401, Failure::Permanent, None)
}

fn template_error() -> Outcome {
    let Outcome::Failed(failed) = status(0, Failure::Permanent, None) else { unreachable!() };
    Outcome::Failed(Failed { cause: Cause::Template, status: None, ..failed })
}

fn opens(wait: Duration, reason: OpenReason, openings: u32) -> Option<CircuitChange> {
    Some(CircuitChange::Open { wait, reason, openings })
}

#[test]
fn failures_in_a_row_open_the_circuit_and_one_probe_closes_it() {
    let mut table = Table::new();
    assert_eq!(table.reports(4, &down()), None);
    assert_eq!(table.verdict(), Verdict::Go);
    assert_eq!(table.report(Pass::Normal, &down()), opens(OPEN_FOR, OpenReason::Failures, 1));
    assert_eq!(table.verdict(), Verdict::OpenUntil(table.now + OPEN_FOR));
    table.pass(OPEN_FOR);
    assert_eq!(table.verdict(), Verdict::Probe);
    assert!(matches!(table.verdict(), Verdict::OpenUntil(_)), "one probe at a time");
    assert_eq!(table.report(Pass::Probe, &sent()), Some(CircuitChange::Close));
    assert_eq!(table.verdict(), Verdict::Go);
    assert!(table.circuits.open().is_empty());
}

#[test]
fn a_success_or_a_refusal_in_between_breaks_the_streak() {
    for in_between in [sent(), status(404, Failure::Permanent, None)] {
        let table = Table::new();
        for _ in 0..10 {
            assert_eq!(table.reports(4, &down()), None);
            assert_eq!(table.report(Pass::Normal, &in_between), None);
        }
        assert_eq!(table.verdict(), Verdict::Go);
    }
}

#[test]
fn a_failed_probe_opens_for_longer_up_to_a_limit() {
    let mut table = Table::new();
    table.reports(5, &down());
    table.pass(OPEN_FOR);
    for (openings, factor) in (2..).zip([2, 4, 8, 10, 10, 10]) {
        assert_eq!(table.verdict(), Verdict::Probe);
        assert_eq!(table.report(Pass::Probe, &down()), opens(OPEN_FOR * factor, OpenReason::Failures, openings));
        table.pass(OPEN_FOR * factor);
    }
}

#[test]
fn stragglers_neither_reopen_nor_prolong_an_open_circuit() {
    let mut table = Table::new();
    table.reports(5, &down());
    table.pass(Duration::from_secs(1));
    assert_eq!(table.reports(100, &down()), None);
    assert_eq!(table.report(Pass::Normal, &status(404, Failure::Permanent, None)), None);
    assert_eq!(table.verdict(), Verdict::OpenUntil(table.now + OPEN_FOR - Duration::from_secs(1)));
    assert_eq!(table.report(Pass::Normal, &sent()), Some(CircuitChange::Close), "a late success is good news");
}

#[test]
fn a_streak_of_unauthorized_opens_the_circuit() {
    let table = Table::new();
    assert_eq!(table.reports(2, &unauthorized()), None);
    assert_eq!(table.report(Pass::Normal, &unauthorized()), opens(OPEN_FOR, OpenReason::Unauthorized, 1));
}

#[test]
fn what_says_nothing_about_the_provider_changes_nothing() {
    let mut table = Table::new();
    assert_eq!(table.reports(100, &template_error()), None);
    assert_eq!(table.verdict(), Verdict::Go);
    table.reports(5, &down());
    table.pass(OPEN_FOR);
    assert_eq!(table.verdict(), Verdict::Probe);
    assert_eq!(table.report(Pass::Probe, &template_error()), Some(CircuitChange::ProbeAgain));
    assert_eq!(table.verdict(), Verdict::Probe);
    table.circuits.give_back_probe("push", CHANNEL_WIDE);
    assert_eq!(table.verdict(), Verdict::Probe);
}

#[test]
fn a_probe_that_never_reports_is_made_again() {
    let mut table = Table::new();
    table.reports(5, &down());
    table.pass(OPEN_FOR);
    assert_eq!(table.verdict(), Verdict::Probe);
    table.pass(Duration::from_secs(9));
    assert!(matches!(table.verdict(), Verdict::OpenUntil(_)), "its timeout of 5 s and some slack");
    table.pass(Duration::from_secs(1));
    assert_eq!(table.verdict(), Verdict::Probe);
}

#[test]
fn retry_after_opens_without_a_probe_and_many_of_them_open_once() {
    let mut table = Table::new();
    let busy = status(429, Failure::Transient, Some(20));
    let twenty = Duration::from_secs(20);
    assert_eq!(table.report(Pass::Normal, &busy), opens(twenty, OpenReason::RetryAfter, 0));
    table.pass(Duration::from_millis(100));
    assert_eq!(table.reports(50, &busy), None);
    assert_eq!(table.report(Pass::Normal, &sent()), None, "a success does not shorten what was asked for");
    assert!(matches!(table.verdict(), Verdict::OpenUntil(_)));
    let longer = status(429, Failure::Transient, Some(60));
    assert_eq!(table.report(Pass::Normal, &longer), opens(Duration::from_secs(60), OpenReason::RetryAfter, 0));
    table.pass(Duration::from_secs(60));
    assert_eq!(table.verdict(), Verdict::Go);
    assert_eq!(table.verdict(), Verdict::Go);
}

#[test]
fn retry_after_prolongs_an_open_circuit() {
    let table = Table::new();
    table.reports(4, &down());
    let asked = Duration::from_secs(300);
    let change = table.report(Pass::Normal, &status(503, Failure::Transient, Some(300)));
    assert_eq!(change, opens(asked, OpenReason::Failures, 1));
    assert_eq!(table.verdict(), Verdict::OpenUntil(table.now + asked));
}

#[test]
fn origins_are_held_one_by_one() {
    let table = Table::new();
    table.reports(5, &down());
    assert!(matches!(table.verdict(), Verdict::OpenUntil(_)));
    assert_eq!(table.circuits.may_call("push", "https://other:443", table.now), Verdict::Go);
    assert_eq!(table.circuits.may_call("unheard-of", CHANNEL_WIDE, table.now), Verdict::Go);
}

#[test]
fn circuits_opened_elsewhere_are_open_here_and_close_with_them() {
    let mut table = Table::new();
    let left = Duration::from_secs(12);
    table.circuits.apply(&[table.shared(left, OpenReason::Failures)], table.now);
    assert_eq!(table.verdict(), Verdict::OpenUntil(table.now + left));
    table.pass(left);
    let over = SharedCircuit {
        probe_elsewhere: Some(Duration::from_secs(7)),
        ..table.shared(Duration::ZERO, OpenReason::Failures)
    };
    table.circuits.apply(&[over], table.now);
    let soon = Duration::from_secs(1);
    assert_eq!(table.verdict(), Verdict::OpenUntil(table.now + soon), "another one probes, for 7 s at most");
    assert_eq!(table.circuits.held_for("push", CHANNEL_WIDE, table.now), Some(soon), "nothing is published meanwhile");
    assert!(table.circuits.apply(&[], table.now).has_closed, "what waited may go");
    assert_eq!(table.verdict(), Verdict::Go, "its probe succeeded");
}

#[test]
fn a_failed_probe_here_counts_the_openings_elsewhere() {
    let mut table = Table::new();
    table.circuits.apply(&[table.shared(Duration::ZERO, OpenReason::Failures)], table.now);
    table.pass(Duration::from_secs(1));
    assert_eq!(table.verdict(), Verdict::Probe);
    assert_eq!(table.report(Pass::Probe, &down()), opens(OPEN_FOR * 2, OpenReason::Failures, 2));
}

#[test]
fn older_news_does_not_undo_what_was_just_decided() {
    let mut table = Table::new();
    table.reports(5, &down());
    table.pass(Duration::from_secs(1));
    table.circuits.apply(&[], table.now);
    assert!(matches!(table.verdict(), Verdict::OpenUntil(_)), "our word is not written yet");
    assert_eq!(table.report(Pass::Normal, &sent()), Some(CircuitChange::Close));
    table.circuits.apply(&[table.shared(OPEN_FOR, OpenReason::Failures)], table.now);
    assert_eq!(table.verdict(), Verdict::Go, "our release is not written yet");
    table.pass(Duration::from_secs(4));
    table.circuits.apply(&[table.shared(OPEN_FOR, OpenReason::Failures)], table.now);
    assert!(matches!(table.verdict(), Verdict::OpenUntil(_)), "others insist");
}

#[test]
fn what_an_operator_does_after_our_own_decision_counts_at_once() {
    let closed = |table: &Table, at| SharedCircuit {
        reason: None,
        changed_at: Some(at),
        ..table.shared(Duration::ZERO, OpenReason::Failures)
    };
    let mut table = Table::new();
    let before = table.now;
    table.pass(Duration::from_millis(1));
    table.reports(5, &down());
    table.pass(Duration::from_millis(100));
    assert!(!table.circuits.apply(&[closed(&table, before)], table.now).is_some());
    assert!(matches!(table.verdict(), Verdict::OpenUntil(_)), "he closed another one");
    let probe = SharedCircuit { changed_at: Some(table.now), ..table.shared(Duration::ZERO, OpenReason::Failures) };
    assert!(!table.circuits.apply(&[probe], table.now).probed.is_empty(), "it may be probed");
    assert_eq!(table.verdict(), Verdict::Probe);
    assert_eq!(table.report(Pass::Probe, &down()), opens(OPEN_FOR * 2, OpenReason::Failures, 2));
    table.pass(Duration::from_millis(100));
    let freed = table.circuits.apply(&[closed(&table, table.now)], table.now);
    assert!(freed.has_closed && freed.closed_early.contains("push"), "it may go on: {freed:?}");
    assert_eq!(table.verdict(), Verdict::Go);
    // A streak that begins after that is not forgotten with each snapshot.
    for _ in 0..4 {
        assert_eq!(table.report(Pass::Normal, &down()), None);
        assert_eq!(table.circuits.apply(&[closed(&table, table.now)], table.now), Freed::default());
    }
    assert_eq!(table.report(Pass::Normal, &down()), opens(OPEN_FOR, OpenReason::Failures, 1));
}

#[test]
fn a_circuit_closed_before_its_time_is_told_once_by_whoever_closed_or_learned_it() {
    let (mut here, mut there) = (Table::new(), Table::new());
    here.reports(5, &down());
    there.circuits.apply(&[there.shared(OPEN_FOR, OpenReason::Failures)], there.now);
    for table in [&mut here, &mut there] {
        table.pass(Duration::from_secs(1));
        let probe = SharedCircuit { changed_at: Some(table.now), ..table.shared(Duration::ZERO, OpenReason::Failures) };
        assert!(table.circuits.apply(&[probe], table.now).probed.contains("push"));
    }
    assert_eq!(here.verdict(), Verdict::Probe);
    assert_eq!(here.report(Pass::Probe, &sent()), Some(CircuitChange::Close));
    for table in [&here, &there] {
        assert!(table.circuits.apply(&[], table.now).closed_early.contains("push"));
        assert_eq!(table.circuits.apply(&[], table.now), Freed::default(), "once");
    }
}

#[test]
fn a_circuit_that_closes_at_its_time_leaves_nobody_waiting_for_longer() {
    let mut table = Table::new();
    table.reports(5, &down());
    table.pass(OPEN_FOR);
    assert_eq!(table.verdict(), Verdict::Probe);
    assert_eq!(table.report(Pass::Probe, &sent()), Some(CircuitChange::Close));
    assert!(table.circuits.apply(&[], table.now).closed_early.is_empty());
}

#[test]
fn calls_under_way_do_not_keep_away_what_others_opened() {
    let table = Table::new();
    table.reports(2, &down());
    table.circuits.apply(&[table.shared(OPEN_FOR, OpenReason::Failures)], table.now);
    assert!(matches!(table.verdict(), Verdict::OpenUntil(_)));
    assert_eq!(table.report(Pass::Normal, &down()), None);
    table.circuits.apply(&[], table.now);
    assert_eq!(table.verdict(), Verdict::Go);
}

#[test]
fn healthy_origins_take_no_memory_and_failing_ones_are_bounded() {
    let table = Table::new();
    let origin = |n: usize| Arc::from(format!("https://{n}:443"));
    for n in 0..2 * ORIGINS_MAX {
        table.circuits.on_outcome("push", &origin(n), Pass::Normal, table.now, &sent());
    }
    assert_eq!(table.circuits.len(), 0);
    for n in 0..2 * ORIGINS_MAX {
        table.circuits.on_outcome("push", &origin(n), Pass::Normal, table.now, &down());
    }
    assert!((ORIGINS_MAX / 2..=ORIGINS_MAX).contains(&table.circuits.len()), "{}", table.circuits.len());
}

#[test]
fn of_too_many_failing_origins_those_are_forgotten_that_failed_longest_ago() {
    let mut table = Table::new();
    let origin = |n: usize| -> Arc<str> { Arc::from(format!("https://{n}:443")) };
    let busy = status(429, Failure::Transient, Some(3600));
    for _ in 0..4 {
        table.report(Pass::Normal, &down());
    }
    for n in 0..ORIGINS_MAX + 10 {
        table.pass(Duration::from_millis(1));
        table.circuits.on_outcome("push", &origin(n), Pass::Normal, table.now, &busy);
    }
    let is_held = |circuits: &Circuits, n| circuits.held_for("push", &origin(n), table.now).is_some();
    assert!(!is_held(&table.circuits, 0) && is_held(&table.circuits, ORIGINS_MAX) && is_held(&table.circuits, ORIGINS_MAX + 9));
    assert_eq!(table.report(Pass::Normal, &down()), opens(OPEN_FOR, OpenReason::Failures, 1), "the channel is kept");
    // The others see them still: what is old there is old here.
    let shared = |n: usize, ago: u64| SharedCircuit {
        origin: origin(n).to_string(),
        changed_at: table.now.checked_sub(Duration::from_millis(ago)),
        ..table.shared(OPEN_FOR, OpenReason::RetryAfter)
    };
    let seen: Vec<SharedCircuit> = (0..ORIGINS_MAX).map(|n| shared(n, 20_000 - n as u64)).collect();
    table.circuits.apply(&seen, table.now);
    for n in 0..5 {
        table.circuits.on_outcome("push", &Arc::from("https://honest:443"), Pass::Normal, table.now, &down());
        assert_eq!(table.circuits.held_for("push", "https://honest:443", table.now).is_some(), n == 4);
    }
}
