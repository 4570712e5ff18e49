//! Between the queue and the record.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::provider::Reply;
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World};

const SOON: Duration = Duration::from_secs(20);

async fn killed_at(carrier: Carrier, failpoint: &str) -> World {
    let world = World::new(carrier).await;
    let mut first = world.setup.clone().failpoints(failpoint).start().await;
    world.notify(20).await;
    first.exit_code().await;
    world
}

#[tokio::test]
async fn a_worker_killed_before_the_claim_loses_nothing_and_repeats_nothing() {
    for carrier in [Carrier::Memory, Carrier::List, Carrier::Stream] {
        let world = killed_at(carrier, "after_take=abort").await;
        let _second = world.setup.start().await;
        world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
    }
}

#[tokio::test]
async fn a_worker_killed_after_the_claim_and_before_the_call_leaves_unknown_outcomes() {
    for carrier in [Carrier::Memory, Carrier::List, Carrier::Stream] {
        let world = killed_at(carrier, "after_claim=abort").await;
        let _second = world.setup.start().await;
        world.until_ended().await.assert_nothing_lost().assert_duplicates_explained();
        let unknown: i64 = world.count("attempts WHERE outcome = 'unknown'").await;
        assert!(unknown > 0, "each claim without an outcome is visible");
    }
}

#[tokio::test]
async fn a_worker_killed_mid_request_repeats_at_most_what_was_in_flight() {
    let world = World::new(Carrier::Stream).await;
    world.provider.answer(Reply::hang());
    let first = world.setup.clone().set("worker.concurrency", 64).start().await;
    world.notify(200).await;
    // A few calls are left to other topics.
    world.provider.wait_for(50, SOON).await;
    first.kill().await;
    world.provider.answer(Reply::ok());
    let _second = world.setup.start().await;
    let verdict = world.until_ended().await;
    verdict.assert_nothing_lost().assert_duplicates_explained();
    assert!((50..=64).contains(&verdict.repeated.len()), "{verdict:?}");
}

#[tokio::test]
async fn a_worker_killed_after_the_2xx_and_before_the_record_repeats_with_an_explanation() {
    let world = killed_at(Carrier::Stream, "after_call=abort").await;
    let _second = world.setup.start().await;
    let verdict = world.until_ended().await;
    verdict.assert_nothing_lost().assert_duplicates_explained();
    assert!(!verdict.repeated.is_empty(), "the first call was made and not recorded");
}

#[tokio::test]
async fn a_worker_killed_after_the_record_and_before_the_ack_repeats_nothing() {
    for carrier in [Carrier::List, Carrier::Stream] {
        let world = World::new(carrier).await;
        // A single row: whatever else was in flight at the abort would be unknown.
        let mut first = world.setup.clone().failpoints("after_record=abort").start().await;
        world.notify(1).await;
        first.exit_code().await;
        assert_eq!(world.value::<String>("SELECT status FROM outboxd.notifications").await, "SENT");
        let _second = world.setup.start().await;
        world.notify(5).await;
        world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
    }
}

#[tokio::test]
async fn a_worker_killed_before_it_records_a_failure_loses_nothing() {
    let world = World::new(Carrier::Stream).await;
    world.provider.answer(Reply::status(503));
    let mut first = world.setup.clone().failpoints("after_call=abort").start().await;
    world.notify(20).await;
    first.exit_code().await;
    world.provider.answer(Reply::ok());
    let _second = world.setup.start().await;
    world.until_ended().await.assert_nothing_lost().assert_duplicates_explained();
}

#[tokio::test]
async fn a_worker_stopped_beyond_its_lease_cannot_undo_what_happened_since() {
    let world = World::new(Carrier::Stream).await;
    world.provider.script([Reply::status(500).after(Duration::from_millis(800))]);
    let mut first = world.setup.start().await;
    world.notify(1).await;
    world.provider.wait_for(1, SOON).await;
    first.signal(Signal::SIGSTOP);
    let mut second = world.setup.start().await;
    world.until("SELECT status = 'SENT' FROM outboxd.notifications").await;
    second.wait_for_log("an instance is dead; its leases end").await;
    first.signal(Signal::SIGCONT);
    first.wait_for_log("this process stood still").await;
    world.until_count(1, "attempts WHERE outcome = 'late failure'").await;
    let verdict = world.until_ended().await;
    verdict.assert_nothing_lost().assert_duplicates_explained();
    assert_eq!(world.value::<String>("SELECT status FROM outboxd.notifications").await, "SENT");
    assert_eq!(second.log().matches("an instance is dead").count(), 1, "told once: {}", second.log());
    assert!(!second.log().contains("Counts {"), "counts are fields: {}", second.log());
}

#[tokio::test]
async fn a_sigterm_with_a_slow_provider_finishes_what_is_in_flight() {
    let world = World::new(Carrier::Stream).await;
    world.provider.answer(Reply::ok().after(Duration::from_millis(600)));
    let first = world.setup.start().await;
    world.notify(100).await;
    world.provider.wait_for(10, SOON).await;
    assert_eq!(first.drain().await, 0);
    world.provider.answer(Reply::ok());
    let _second = world.setup.start().await;
    world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
}

#[tokio::test]
async fn a_drain_that_takes_too_long_exits_75_and_records_what_it_cut_off_as_unknown() {
    let world = World::new(Carrier::Stream).await;
    world.provider.answer(Reply::hang());
    let setup = world.setup.clone().set("worker.drain", "300ms").set("channels.webhook.timeout", "6s");
    let first = setup.start().await;
    world.notify(1).await;
    world.provider.wait_for(1, SOON).await;
    assert_eq!(first.drain().await, 75);
    let outcome: String = world.value("SELECT outcome FROM outboxd.attempts").await;
    assert_eq!(outcome, "unknown");
    world.provider.answer(Reply::ok());
    let _second = setup.start().await;
    world.until_ended().await.assert_nothing_lost().assert_duplicates_explained();
}

#[tokio::test]
async fn a_job_that_always_kills_its_worker_ends_failed() {
    let world = World::new(Carrier::Stream).await;
    world.notify(1).await;
    let deadly = world.setup.clone().failpoints("after_claim=abort");
    for _ in 0..4 {
        deadly.start().await.exit_code().await;
    }
    let _healthy = world.setup.start().await;
    world.until("SELECT status = 'FAILED' FROM outboxd.notifications").await;
    assert_eq!(world.count("attempts WHERE outcome = 'unknown'").await, 4);
    assert_eq!(world.provider.count(), 0);
}

#[tokio::test]
async fn what_was_in_a_process_that_died_days_ago_is_sent_by_the_next() {
    let world = World::new(Carrier::Memory).await;
    world.notify(5).await;
    let died = "INSERT INTO outboxd.instance (heartbeat_at, ttl, pid, roles, queue_kind, host, version)
                VALUES (now() - interval '3 days', '3 s', 1, '{relay,worker}', 'memory', 'old', '0');
                UPDATE outboxd.outbox SET state = 'published', published_at = now() - interval '3 days',
                                          instance = (SELECT id FROM outboxd.instance)";
    world.run(died).await;
    let _next = world.setup.start().await;
    world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
}
