//! When Redis fails or forgets.

use std::time::Duration;

use crate::support::provider::Reply;
use crate::support::redis::{RedisPair, RedisServer, unique_prefix};
use crate::support::sql;
use crate::support::world::{Carrier, World};

const SOON: Duration = Duration::from_secs(20);

async fn world_on(redis: &RedisServer) -> World {
    let mut world = World::new(Carrier::Memory).await;
    world.setup = world.setup.clone().redis(redis.url(), "stream", &unique_prefix());
    world
}

#[tokio::test]
async fn a_redis_killed_without_persistence_costs_seconds_and_no_message() {
    let mut redis = RedisServer::forgetful();
    let world = world_on(&redis).await;
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
    let world = world_on(&redis).await;
    world.provider.answer_with(|call| match call.recipient().as_str() {
        "r1" => Reply::status(400),
        "r2" => Reply::status(503),
        _ => Reply::ok().after(Duration::from_millis(50)),
    });
    let _instance = world.setup.start().await;
    world.notify(500).await;
    world.provider.wait_for(50, SOON).await;
    redis.run::<String>("FLUSHALL").await;
    sql::until(&world.app, "SELECT count(*) = 498 FROM outboxd.notification_log WHERE status = 'SENT'").await;
    let verdict = world.until_ended().await;
    verdict.assert_nothing_lost().assert_duplicates_explained();
    assert_eq!(sql::value::<i64>(&world.app, "SELECT count(*) FROM outboxd.dead_letters").await, 2);
}

#[tokio::test]
async fn a_flushall_with_all_workers_killed_costs_no_message() {
    let redis = RedisServer::forgetful();
    let world = world_on(&redis).await;
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
    let mut world = World::new(Carrier::Memory).await;
    world.setup = world.setup.clone().redis(&pair.url(), "stream", &unique_prefix());
    world.provider.answer(Reply::ok().after(Duration::from_millis(50)));
    let _instance = world.setup.start().await;
    world.notify(100).await;
    world.provider.wait_for(20, SOON).await;
    pair.primary.replicated_to(&pair.replica).await;
    pair.stop_replication().await;
    world.notify(300).await;
    sql::until(&world.app, "SELECT count(*) = 0 FROM outboxd.outbox WHERE state = 'ready'").await;
    pair.primary.kill();
    world.until_ended().await.assert_nothing_lost().assert_duplicates_explained();
}

#[tokio::test]
async fn a_redis_that_is_away_holds_up_nothing_but_delivery() {
    let mut redis = RedisServer::forgetful();
    let world = world_on(&redis).await;
    let _instance = world.setup.start().await;
    redis.kill();
    // The app's commits go on.
    world.notify(100).await;
    redis.launch();
    world.until_ended().await.assert_nothing_lost().assert_duplicates_explained();
}
