//! Each guard taken away is found. The number is the length of the shortest trace.

use outboxd_model::guards::Guards;
use outboxd_model::properties::{
    BACKOFF_IS_KEPT, CALLS_HAVE_WITNESSES, CANCEL_KEEPS_ITS_WORD, EPOCHS_RISE, KEYS_ARE_IN_ORDER,
    KEYS_BELONG_TO_TOPICS, NOTHING_IS_LOST, ONE_LIVE_ROW_PER_KEY, QUEUED_HAS_WORK, SENT_IS_FINAL, SUCCESS_WINS,
};
use outboxd_model::protocol::Protocol;
use outboxd_model::scope::Event::{
    Cancel, Crash, Delay, Expiry, Fallback, Loss, Missed, PutBack, Refusal, Retry, Stall,
};
use outboxd_model::scope::{App, KEYED, KEYED_ELSEWHERE, KEYED_INSERT, PLAIN, Queue, Scope};

use crate::{assert_breaks, assert_finds, assert_holds, world};

/// The same without the last net, which would save what the mutant loses.
#[track_caller]
fn assert_finds_without_net(scope: Scope, mutation: impl FnOnce(&mut Guards), property: &str, steps: usize) {
    let without_net = |guards: &mut Guards| guards.orphans_are_found = false;
    assert_holds("with the guard", &Protocol::with(scope, without_net));
    let mutant = Protocol::with(scope, |guards| {
        without_net(guards);
        mutation(guards);
    });
    assert_breaks("without it", &mutant, property, steps);
}

#[test]
fn a_claim_without_the_epoch_ends_the_backoff() {
    let scope = world(&[PLAIN], 2, &[(Delay, 1), (Refusal, 1)]);
    assert_finds(scope, |guards| guards.claim_checks_epoch = false, BACKOFF_IS_KEPT, 11);
}

#[test]
fn a_claim_by_id_alone_calls_twice() {
    let by_id = |guards: &mut Guards| (guards.claim_checks_epoch, guards.claim_checks_state) = (false, false);
    assert_finds(world(&[PLAIN], 1, &[(Delay, 1)]), by_id, CALLS_HAVE_WITNESSES, 9);
}

#[test]
fn a_claim_that_does_not_raise_the_epoch_leaves_copies_alive() {
    let scope = world(&[PLAIN], 2, &[(Delay, 1), (Refusal, 1)]);
    assert_finds(scope, |guards| guards.claim_raises_epoch = false, BACKOFF_IS_KEPT, 11);
}

#[test]
fn a_confirmation_before_the_push_loses_the_row() {
    let scope = world(&[PLAIN], 1, &[(Crash, 1)]);
    assert_finds_without_net(scope, |guards| guards.push_comes_before_confirm = false, NOTHING_IS_LOST, 4);
}

#[test]
fn a_relay_without_full_scans_loses_what_the_fast_path_missed() {
    let scope = world(&[PLAIN], 1, &[(Missed, 1)]);
    assert_finds(scope, |guards| guards.relay_scans = false, NOTHING_IS_LOST, 1);
}

#[test]
fn a_failure_without_the_token_ends_another_attempt() {
    let scope = Scope { attempts_max: 3, ..world(&[PLAIN], 2, &[(Expiry, 1), (Refusal, 1)]) };
    assert_finds(scope, |guards| guards.failure_checks_token = false, CALLS_HAVE_WITNESSES, 20);
}

#[test]
fn a_late_failure_that_overwrites_is_found() {
    let scope = world(&[PLAIN], 2, &[(Expiry, 1), (Refusal, 1)]);
    assert_finds(scope, |guards| guards.failure_spares_ended = false, SENT_IS_FINAL, 16);
}

#[test]
fn a_late_success_that_needs_its_token_is_forgotten() {
    let scope = world(&[PLAIN], 1, &[(Expiry, 1)]);
    assert_finds(scope, |guards| guards.late_success_wins = false, SUCCESS_WINS, 10);
}

#[test]
fn a_late_success_that_leaves_work_behind_is_found() {
    let scope = world(&[PLAIN], 3, &[(Stall, 1), (Cancel, 1), (Retry, 1)]);
    assert_finds(scope, |guards| guards.late_success_drops_work = false, QUEUED_HAS_WORK, 14);
}

#[test]
fn an_undo_without_the_token_takes_anothers_claim() {
    let scope = Scope { attempts_max: 3, ..world(&[PLAIN], 1, &[(Stall, 1)]) };
    assert_finds(scope, |guards| guards.undo_checks_token = false, CALLS_HAVE_WITNESSES, 20);
}

#[test]
fn a_put_back_without_its_guard_takes_a_row_from_its_worker() {
    let scope = world(&[PLAIN], 2, &[(Delay, 1), (PutBack, 1)]);
    assert_finds(scope, |guards| guards.put_back_checks_row = false, CALLS_HAVE_WITNESSES, 12);
}

#[test]
fn a_sweep_that_ends_live_leases_without_the_token_is_found() {
    let scope = Scope { attempts_max: 3, ..world(&[PLAIN], 1, &[(Expiry, 1)]) };
    let blind = |guards: &mut Guards| (guards.sweep_checks_token, guards.sweep_checks_lease) = (false, false);
    assert_finds(scope, blind, CALLS_HAVE_WITNESSES, 18);
}

#[test]
fn a_recall_of_what_is_claimed_calls_twice() {
    let scope = world(&[PLAIN], 1, &[(Crash, 1)]);
    assert_finds(scope, |guards| guards.recall_checks_state = false, CALLS_HAVE_WITNESSES, 13);
}

#[test]
fn a_republish_of_what_is_claimed_calls_twice() {
    let scope = world(&[PLAIN, PLAIN], 1, &[(Loss, 1)]);
    assert_finds(scope, |guards| guards.republish_checks_state = false, CALLS_HAVE_WITNESSES, 16);
}

#[test]
fn a_loss_that_nobody_notices_is_a_loss() {
    let scope = world(&[PLAIN], 1, &[(Loss, 1)]);
    assert_finds_without_net(scope, |guards| guards.loss_is_noticed = false, NOTHING_IS_LOST, 4);
}

#[test]
fn what_a_dead_instance_had_in_process_is_lost_if_nobody_republishes() {
    let scope = Scope { queue: Queue::InProcess, ..world(&[PLAIN], 1, &[(Crash, 1)]) };
    assert_finds(scope, |guards| guards.dead_queues_are_republished = false, NOTHING_IS_LOST, 5);
}

#[test]
fn a_fallback_that_nobody_is_told_of_loses_what_dies_with_it() {
    let scope = world(&[PLAIN], 2, &[(Fallback, 1), (Crash, 1)]);
    assert_finds_without_net(scope, |guards| guards.fallback_is_told = false, NOTHING_IS_LOST, 6);
}

#[test]
fn a_return_that_drops_the_in_process_queue_loses_it() {
    let scope = world(&[PLAIN], 1, &[(Fallback, 1)]);
    assert_finds_without_net(scope, |guards| guards.return_keeps_queue = false, NOTHING_IS_LOST, 5);
}

#[test]
fn without_the_unique_index_two_rows_of_a_key_have_the_turn() {
    let scope = Scope { app: App::AtOnce, ..world(&[KEYED, KEYED], 0, &[]) };
    assert_finds(scope, |guards| guards.one_turn_per_key = false, ONE_LIVE_ROW_PER_KEY, 8);
}

#[test]
fn a_key_that_ignores_its_topic_waits_for_another_topic() {
    let scope = Scope { app: App::AtOnce, ..world(&[KEYED, KEYED_ELSEWHERE], 0, &[]) };
    assert_finds(scope, |guards| guards.key_belongs_to_topic = false, KEYS_BELONG_TO_TOPICS, 8);
}

#[test]
fn a_producer_that_does_not_wait_for_earlier_rows_breaks_the_order() {
    let scope = world(&[KEYED_INSERT, KEYED_INSERT], 0, &[]);
    assert_finds(scope, |guards| guards.release_waits_for_earlier = false, KEYS_ARE_IN_ORDER, 11);
}

#[test]
fn a_cancel_that_takes_what_is_in_flight_breaks_its_word() {
    let scope = world(&[PLAIN], 1, &[(Cancel, 1)]);
    assert_finds(scope, |guards| guards.cancel_spares_processing = false, CANCEL_KEEPS_ITS_WORD, 7);
}

#[test]
fn a_retry_that_resets_the_epoch_is_found() {
    let scope = world(&[PLAIN], 3, &[(Refusal, 2), (Retry, 1)]);
    assert_finds(scope, |guards| guards.retry_raises_epoch = false, EPOCHS_RISE, 14);
}

#[test]
fn a_retry_of_what_is_sent_is_found() {
    let scope = world(&[PLAIN], 1, &[(Retry, 1)]);
    assert_finds(scope, |guards| guards.retry_checks_status = false, SENT_IS_FINAL, 8);
}
