//! When Redis fails or forgets.

use std::time::Duration;

use crate::support::provider::Reply;
use crate::support::redis::{RedisPair, RedisServer};
use crate::support::sql::Sql;
use crate::support::world::World;

const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_redis_killed_without_persistence_costs_seconds_and_no_message() {
    let mut redis = RedisServer::forgetful();
    let world = World::over(redis.url(), "stream").await;
    world.provider.answer(Reply::ok().after(Duration::from_millis(50)));
    let _instance = world.setup.start().await;
    world.notify(500).await;
    world.provider.wait_for(50, SOON).await;
    redis.kill();
    redis.launch();
    world.until_ended().await.assert_nothing_lost().assert_duplicates_explained();
}

#[tokio::test]
async fn a_flushall_with_a_full_queue_costs_no_message_nor_retry_nor_dead_letter() {
    let redis = RedisServer::forgetful();
    let world = World::over(redis.url(), "stream").await;
    world.provider.answer_with(|call| match call.recipient().as_str() {
        "r1" => Reply::status(400),
        "r2" => Reply::status(503),
        _ => Reply::ok().after(Duration::from_millis(50)),
    });
    let _instance = world.setup.start().await;
    world.notify(500).await;
    world.provider.wait_for(50, SOON).await;
    redis.run::<String>("FLUSHALL").await;
    world.until_count(498, "notification_log WHERE status = 'SENT'").await;
    let verdict = world.until_ended().await;
    verdict.assert_nothing_lost().assert_duplicates_explained();
    assert_eq!(world.count("dead_letters").await, 2);
}

#[tokio::test]
async fn a_flushall_with_all_workers_killed_costs_no_message() {
    let redis = RedisServer::forgetful();
    let world = World::over(redis.url(), "stream").await;
    world.provider.answer(Reply::ok().after(Duration::from_millis(50)));
    let first = world.setup.start().await;
    world.notify(300).await;
    world.provider.wait_for(30, SOON).await;
    first.kill().await;
    redis.run::<String>("FLUSHALL").await;
    let _second = world.setup.start().await;
    world.until_ended().await.assert_nothing_lost().assert_duplicates_explained();
}

#[tokio::test]
async fn a_failover_that_loses_acknowledged_writes_costs_no_message() {
    let mut pair = RedisPair::start().await;
    let world = World::over(&pair.url(), "stream").await;
    world.provider.answer(Reply::ok().after(Duration::from_millis(50)));
    let _instance = world.setup.start().await;
    world.notify(100).await;
    world.provider.wait_for(20, SOON).await;
    pair.primary.replicated_to(&pair.replica).await;
    pair.stop_replication().await;
    world.notify(300).await;
    world.until_count(0, "outbox WHERE state = 'ready'").await;
    pair.primary.kill();
    world.until_ended().await.assert_nothing_lost().assert_duplicates_explained();
}

#[tokio::test]
async fn a_redis_that_is_away_holds_up_nothing_but_delivery() {
    let mut redis = RedisServer::forgetful();
    let world = World::over(redis.url(), "stream").await;
    let _instance = world.setup.start().await;
    redis.kill();
    // The app's commits go on.
    world.notify(100).await;
    redis.launch();
    world.until_ended().await.assert_nothing_lost().assert_duplicates_explained();
}
