//! What the model says beyond "it holds": limits of what is promised, and guards that stand twice.

use outboxd_model::explore::{Report, check};
use outboxd_model::guards::Guards;
use outboxd_model::properties::{CANCEL_KEEPS_ITS_WORD, NOTHING_IS_LOST};
use outboxd_model::protocol::Protocol;
use outboxd_model::scope::Event::{Cancel, Crash, Cut, Delay, Expiry, Loss, Refusal, Retry, Stall};
use outboxd_model::scope::{PLAIN, Queue, Scope};

use crate::{assert_breaks, assert_holds, world};

/// An instance that looked dead, went on under its old number and died must be dealt with again: in-process queues have
/// no other net.
#[test]
fn an_instance_that_looked_dead_once_is_dealt_with_again_when_it_dies() {
    let scope = Scope { queue: Queue::InProcess, ..world(&[PLAIN], 2, &[(Stall, 1), (Crash, 1)]) };
    let forgetful = Protocol::with(scope, |guards| guards.the_dead_are_dealt_with_again = false);
    assert_breaks("dealt with once", &forgetful, NOTHING_IS_LOST, 8);
    let events = [(Crash, 2), (Stall, 2), (Delay, 1), (Expiry, 1), (Cut, 1), (Refusal, 1)];
    let scope = Scope { queue: Queue::InProcess, ..world(&[PLAIN], 3, &events) };
    assert_holds("today", &Protocol::today(scope));
}

/// A worker that is stopped between its last check of the clock and its request sends it when it goes on. By then
/// the attempt is recorded as unknown, and `cancel()` may have answered "canceled".
#[test]
fn a_request_of_an_attempt_recorded_as_unknown_may_follow_a_cancel() {
    let strict = |scope| Protocol { cancel_is_strict: true, ..Protocol::today(scope) };
    let scope = world(&[PLAIN], 2, &[(Stall, 1), (Cancel, 1)]);
    assert_holds("as promised", &Protocol::today(scope));
    assert_breaks("stricter", &strict(scope), CANCEL_KEEPS_ITS_WORD, 11);
    let events = [(Cancel, 1), (Crash, 2), (Delay, 1), (Loss, 1), (Cut, 1), (Refusal, 2), (Retry, 1)];
    assert_holds("stricter, without stalls", &strict(world(&[PLAIN], 3, &events)));
}

/// What is taken for one state has one future: the same is found without that, among many more states.
#[test]
fn the_reduction_hides_nothing() {
    let events = [(Delay, 1), (Expiry, 1), (Refusal, 1)];
    let scope = Scope { attempts_max: 3, ..world(&[PLAIN], 2, &events) };
    let mutations: [fn(&mut Guards); 8] = [
        |_| {},
        |guards| guards.claim_checks_epoch = false,
        |guards| guards.claim_raises_epoch = false,
        |guards| guards.failure_checks_token = false,
        |guards| (guards.sweep_checks_token, guards.sweep_checks_lease) = (false, false),
        |guards| guards.failure_spares_ended = false,
        |guards| guards.recall_checks_state = false,
        |guards| guards.late_success_wins = false,
    ];
    for mutation in mutations {
        let reduced = Protocol::with(scope, mutation);
        let [short, long] = [reduced, Protocol { is_reduced: false, ..reduced }].map(|protocol| check(&protocol));
        println!("reduced: {short}\nnot reduced: {long}");
        let found = |report: &Report| report.counterexample.as_ref().map(|found| (found.property, found.trace.len()));
        assert_eq!(found(&short), found(&long));
        assert!(short.states < long.states, "{} < {}", short.states, long.states);
    }
}

/// The counter tells each process of a loss once. If that process then dies, or Postgres refuses the statement, only
/// the search for orphans is left.
#[test]
fn a_loss_known_only_to_the_dead_is_found_by_the_last_net() {
    let scope = world(&[PLAIN], 3, &[(Loss, 1), (Crash, 2), (Cut, 2)]);
    assert_holds("with the net", &Protocol::today(scope));
    let without_net = Protocol::with(scope, |guards| guards.orphans_are_found = false);
    assert_breaks("without it", &without_net, NOTHING_IS_LOST, 6);
}

#[test]
fn a_recall_may_raise_the_epoch_or_not() {
    let scope = world(&[PLAIN], 3, &[(Delay, 2), (Crash, 1), (Stall, 1), (Expiry, 1), (Refusal, 1)]);
    assert_holds("raised", &Protocol::with(scope, |guards| guards.recall_keeps_epoch = false));
}

#[test]
fn a_republish_may_leave_the_epoch_alone() {
    let scope = world(&[PLAIN], 3, &[(Loss, 1), (Delay, 1), (Crash, 1), (Stall, 1), (Expiry, 1), (Refusal, 1)]);
    assert_holds("kept", &Protocol::with(scope, |guards| guards.republish_raises_epoch = false));
}

#[test]
fn the_claims_check_of_the_state_is_its_second_guard() {
    let scope = world(&[PLAIN], 2, &[(Loss, 1), (Delay, 1), (Crash, 1), (Stall, 1), (Expiry, 1), (Refusal, 1)]);
    assert_holds("epoch alone", &Protocol::with(scope, |guards| guards.claim_checks_state = false));
}
