//! The model, checked. `cargo test -p outboxd-model -- --nocapture` also shows state counts and every trace.

mod holds;
mod limits;
mod mutants;

use outboxd_model::explore::check;
use outboxd_model::guards::Guards;
use outboxd_model::protocol::Protocol;
use outboxd_model::scope::{App, Budget, Event, Kind, Queue, Scope};

/// A world with Redis, whose app writes one row after the other, with two attempts for each.
fn world(rows: &'static [Kind], together: u8, events: &[(Event, u8)]) -> Scope {
    let budget = Budget::new(together, events);
    Scope { rows, app: App::OneAfterAnother, queue: Queue::Shared, attempts_max: 2, budget }
}

/// Every property holds.
#[track_caller]
fn assert_holds(name: &str, protocol: &Protocol) {
    let report = check(protocol);
    println!("{name}: {report}");
    assert!(report.counterexample.is_none(), "{name}: {report}");
}

/// The property does not hold; the shortest way to that has so many steps.
#[track_caller]
fn assert_breaks(name: &str, protocol: &Protocol, property: &str, steps: usize) {
    let report = check(protocol);
    println!("{name}: {report}");
    let found = report.counterexample.as_ref().map(|found| (found.property, found.trace.len()));
    assert_eq!(found, Some((property, steps)), "{name}: {report}");
}

/// The scope holds as it is, and breaks this property without the guards that `mutation` takes away.
#[track_caller]
fn assert_finds(scope: Scope, mutation: impl FnOnce(&mut Guards), property: &str, steps: usize) {
    assert_holds("with the guard", &Protocol::today(scope));
    assert_breaks("without it", &Protocol::with(scope, mutation), property, steps);
}
