//! Every process killed in the middle of each lease: whoever comes next finishes the work, and does none of it twice.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::schedule;
use crate::support::instance::Setup;
use crate::support::provider::Reply;
use crate::support::redis::RedisServer;
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World};

const SOON: Duration = Duration::from_secs(20);

/// Runs an instance that dies at the point; nobody else runs then.
async fn dies_at(setup: &Setup, point: &str) {
    let died = setup.clone().failpoints(point).spawn().exit_code().await;
    assert_eq!(died, 128 + Signal::SIGABRT as i32, "it died at {point}");
}

#[tokio::test]
async fn retention_goes_on_where_a_killed_instance_left_it() {
    let world = World::new(Carrier::Memory).await;
    let old = "INSERT INTO outboxd.notification_log (status, created_at, finished_at, topic, recipient, payload)
               SELECT 'SENT', now() - interval '9 days', now() - interval '8 days', 't', 'old', '{}' FROM generate_series(1, 5000);
               INSERT INTO outboxd.attempt (notification_id, token, outcome) SELECT id, 1, 'failed' FROM outboxd.notification_log";
    world.run(old).await;
    world.notify(5).await;
    dies_at(&world.setup, "after_retention_step=abort@2").await;
    let left = "SELECT concat_ws(' ', count(*) FILTER (WHERE recipient = 'old'), (SELECT count(*) FROM outboxd.attempt WHERE outcome = 'failed'))
                  FROM outboxd.notification_log";
    assert_eq!(world.value::<String>(left).await, "3000 3000", "two steps of a thousand were done");
    let mut second = world.setup.start().await;
    world.until(&format!("SELECT ({left}) = '0 0'")).await;
    second.wait_for_log("\"deleted\":3000").await;
    world.until_ended().await.assert_nothing_lost();
    assert_eq!(world.count("notification_log").await, 5);
}

#[tokio::test]
async fn a_campaign_whose_every_instance_is_killed_at_each_step_reaches_everybody_once() {
    let world = World::new(Carrier::Stream).await;
    let client = schedule::app(&world.database, 2_000).await;
    schedule::create_late(&client, "campaign", "-3 min", "").await;
    // Nobody calls a provider yet: what an abort would leave unknown is another test's matter.
    let planner = world.setup.clone().roles("producer,relay,scheduler");
    for point in ["after_copy", "after_release", "after_finish"] {
        dies_at(&planner, &format!("{point}=abort")).await;
    }
    let _last = world.setup.start().await;
    world.provider.wait_for(2_000, SOON).await;
    schedule::run_is(&client, "campaign", "released").await;
    world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
    assert_eq!(schedule::rows_of(&client, "campaign").await, (2_000, 2_000));
    let counts = "SELECT concat_ws(' ', recipients, prepared, released) FROM outboxd.schedule_runs";
    assert_eq!(client.value::<String>(counts).await, "2000 2000 2000");
}

#[tokio::test]
async fn a_bulk_retry_is_finished_by_the_next_instance_and_retries_nobody_twice() {
    let world = World::new(Carrier::Stream).await;
    let dead = "INSERT INTO outboxd.notification_log (topic, recipient, payload, status, finished_at, failed_at, error)
                SELECT 'orders', 'r' || n, '{}', 'FAILED', now() - n * interval '1 s', now() - n * interval '1 s', 'refused' FROM generate_series(1, 2000) n";
    world.run(dead).await;
    world.run("SELECT outboxd.retry_dead('orders')").await;
    dies_at(&world.setup.clone().roles("producer,relay"), "after_bulk_step=abort").await;
    let done: i64 = world.value("SELECT done FROM outboxd.bulk_actions").await;
    assert!(done > 0 && done < 2_000, "it died in the middle: {done}");
    let _second = world.setup.start().await;
    world.until("SELECT state = 'finished' AND done = 2000 FROM outboxd.bulk_actions").await;
    world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
    assert_eq!(world.provider.count(), 2_000);
    assert_eq!(world.count("audit WHERE action = 'bulk_retry_finished' AND affected = 2000").await, 1);
}

#[tokio::test]
async fn a_bulk_cancel_is_finished_by_the_next_instance() {
    let world = World::new(Carrier::Stream).await;
    let later =
        "SELECT outboxd.notify('orders', 'r', '{}', send_at => now() + interval '1 day') FROM generate_series(1, 5000)";
    world.run(later).await;
    world.run("SELECT outboxd.cancel_where('{}', dry_run => false)").await;
    dies_at(&world.setup.clone().roles("producer,relay"), "after_bulk_step=abort@3").await;
    let canceled = "notification_log WHERE status = 'CANCELED'";
    let before: i64 = world.count(canceled).await;
    assert!(before > 0 && before < 5_000, "it died in the middle: {before}");
    let _second = world.setup.start().await;
    world.until("SELECT state = 'finished' AND done = 5000 FROM outboxd.bulk_actions").await;
    assert_eq!(world.count(canceled).await, 5_000);
    assert_eq!(world.provider.count(), 0);
}

#[tokio::test]
async fn leases_ended_by_a_sweep_that_dies_are_ended_once_and_free_their_keys() {
    let world = World::new(Carrier::Stream).await;
    world.provider.answer(Reply::hang());
    let holder = world.setup.start().await;
    world.notify(20).await;
    // Its time is over when its holder is dead: the sweep gives it up, and the next of its key may go.
    let keyed = "SELECT outboxd.notify('orders', r, '{}', ordering_key => 'k', expires_at => now() + wait)
                   FROM (VALUES ('head', interval '1 s'), ('next', interval '1 hour')) v(r, wait)";
    world.run(keyed).await;
    world.provider.wait_for(21, SOON).await;
    holder.kill().await;
    dies_at(&world.setup.clone().roles("producer,relay"), "after_leases=abort").await;
    let unknown = "attempts WHERE outcome = 'unknown'";
    assert_eq!(world.count(unknown).await, 21, "each claim of the dead worker");
    world.provider.answer(Reply::ok());
    let _last = world.setup.start().await;
    let verdict = world.until_ended().await;
    verdict.assert_nothing_lost().assert_duplicates_explained();
    assert_eq!(world.count(unknown).await, 21, "and none of them twice");
    assert_eq!(verdict.repeated.len(), 20, "all but the one whose time was over: {verdict:?}");
    let ends = "SELECT string_agg(recipient || ' ' || status, ', ' ORDER BY id) FROM outboxd.notifications WHERE recipient IN ('head', 'next')";
    assert_eq!(world.value::<String>(ends).await, "head FAILED, next SENT");
}

#[tokio::test]
async fn a_loss_that_was_noticed_by_an_instance_that_died_is_noticed_by_the_next() {
    let redis = RedisServer::forgetful();
    let world = World::over(redis.url(), "stream").await;
    let mut first = world.setup.clone().roles("producer,relay").failpoints("after_loss=abort").start().await;
    world.notify(300).await;
    world.until_count(300, "outbox WHERE state = 'published'").await;
    world.until("SELECT max(queue_counter) > 0 FROM outboxd.instance").await;
    redis.run::<String>("FLUSHALL").await;
    first.exit_code().await;
    let published = "SELECT count(*) FROM outboxd.outbox WHERE state = 'published'";
    assert_eq!(world.value::<i64>(published).await, 300, "nobody has published them again yet");
    let _second = world.setup.start().await;
    world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
}

#[tokio::test]
async fn counts_told_by_an_instance_that_dies_are_told_once_and_the_next_goes_on() {
    let world = World::new(Carrier::Stream).await;
    let mut first = world.setup.clone().failpoints("after_counts=abort").start().await;
    world.notify(50).await;
    first.exit_code().await;
    let told = "SELECT coalesce(sum(sent), 0)::bigint FROM outboxd.statistics_topic";
    let by_the_first: i64 = world.value(told).await;
    let sent: i64 = world.count("notification_log WHERE status = 'SENT'").await;
    assert!(by_the_first <= sent, "{by_the_first} of {sent}: what was counted after the last telling died with it");
    let second = world.setup.start().await;
    world.until("SELECT taken_at > (SELECT max(started_at) FROM outboxd.instance) FROM outboxd.snapshot").await;
    world.notify(30).await;
    world.until_ended().await.assert_nothing_lost().assert_duplicates_explained();
    let by_both: i64 = world.count("notification_log WHERE status = 'SENT'").await;
    assert_eq!(second.drain().await, 0);
    let added: i64 = world.value::<i64>(told).await - by_the_first;
    assert_eq!(added, by_both - sent, "the second told exactly what it did");
}
