//! Today's guards hold, in worlds of different shape.

use outboxd_model::protocol::Protocol;
use outboxd_model::scope::Event::{
    Cancel, Crash, Cut, Delay, Expiry, Fallback, Loss, Missed, PutBack, Refusal, Retry, Stall, Undo,
};
use outboxd_model::scope::{App, Event, KEYED, KEYED_ELSEWHERE, KEYED_INSERT, PLAIN, Queue, Scope};

use crate::{assert_holds, world};

/// Everything that can happen with Redis, once or twice each.
const ALL: [(Event, u8); 12] = [
    (Crash, 2),
    (Loss, 1),
    (Delay, 1),
    (Stall, 1),
    (Expiry, 1),
    (Cut, 1),
    (Missed, 1),
    (Refusal, 2),
    (Undo, 1),
    (PutBack, 1),
    (Cancel, 1),
    (Retry, 1),
];

#[test]
fn one_row_survives_any_three_events() {
    assert_holds("one row", &Protocol::today(world(&[PLAIN], 3, &ALL)));
}

#[test]
fn two_rows_of_a_key_survive_any_two_events_in_order() {
    assert_holds("two rows of a key", &Protocol::today(world(&[KEYED, KEYED], 2, &ALL)));
}

#[test]
fn a_plain_row_beside_two_of_a_key_survives_any_event() {
    assert_holds("three rows", &Protocol::today(world(&[PLAIN, KEYED, KEYED], 1, &ALL)));
}

#[test]
fn the_same_key_in_another_topic_is_another_key_whatever_happens() {
    assert_holds("a key of two topics", &Protocol::today(world(&[KEYED, KEYED_ELSEWHERE, KEYED], 1, &ALL)));
}

#[test]
fn rows_that_commit_out_of_order_never_share_a_turn() {
    let scope = Scope { app: App::AtOnce, ..world(&[KEYED, KEYED], 1, &ALL) };
    assert_holds("two transactions at once", &Protocol::today(scope));
}

#[test]
fn rows_that_the_producer_releases_keep_their_order() {
    let events = [(Crash, 1), (Stall, 1), (Delay, 1), (Refusal, 2), (Cancel, 1), (Retry, 1)];
    assert_holds("released rows", &Protocol::today(world(&[KEYED_INSERT, KEYED_INSERT], 2, &events)));
}

#[test]
fn an_operator_at_a_bad_moment_breaks_nothing() {
    let events = [(Stall, 1), (Expiry, 1), (Delay, 1), (Refusal, 1), (Cancel, 1), (Retry, 1)];
    assert_holds("operators", &Protocol::today(world(&[PLAIN], 4, &events)));
}

#[test]
fn in_process_queues_survive_crashes_delays_and_cuts() {
    let events = [(Crash, 2), (Delay, 1), (Expiry, 1), (Cut, 1), (Refusal, 1), (Cancel, 1), (Retry, 1)];
    let scope = Scope { queue: Queue::InProcess, ..world(&[PLAIN], 3, &events) };
    assert_holds("in-process queues", &Protocol::today(scope));
}

#[test]
fn two_rows_of_a_key_keep_their_order_in_process() {
    let events = [(Crash, 1), (Delay, 1), (Expiry, 1), (Refusal, 1), (Cancel, 1)];
    let scope = Scope { queue: Queue::InProcess, ..world(&[KEYED, KEYED], 2, &events) };
    assert_holds("a key in process", &Protocol::today(scope));
}

#[test]
fn falling_back_to_in_process_queues_and_returning_loses_nothing() {
    let events = [(Crash, 1), (Loss, 1), (Stall, 1), (Fallback, 2)];
    assert_holds("fallback", &Protocol::today(world(&[PLAIN], 3, &events)));
}
