//! Redis away is not delivery away: instances go on through their own processes, and back.

use std::time::Duration;

use crate::support::http;
use crate::support::instance::Instance;
use crate::support::provider::Reply;
use crate::support::proxy::{Fault, Proxy};
use crate::support::redis::RedisServer;
use crate::support::sql::Sql;
use crate::support::wait;
use crate::support::world::World;

const SOON: Duration = Duration::from_secs(20);
pub(super) const LEFT: &str = "Redis is away; deliveries go on through this process";
pub(super) const BACK: &str = "Redis answers; deliveries go through it again";

/// Instances on this Redis that go on without it after so long.
pub(super) async fn world_on(url: &str, kind: &str, fallback_after: &str) -> World {
    World::over(url, kind).await.set("queue.fallback_after", fallback_after)
}

/// Few calls at a time, so that messages wait in the queue.
fn few_calls(world: &mut World, at_a_time: i32) {
    world.setup = world.setup.clone().set("worker.concurrency", at_a_time);
}

pub(super) fn times(instance: &Instance, text: &str) -> usize {
    instance.log().matches(text).count()
}

async fn until_told(instance: &Instance, text: &str, times_told: usize) {
    wait::until(text, async || times(instance, text) >= times_told).await;
}

async fn health(world: &World) -> (String, String) {
    let row = world.app.query_one("SELECT level, value FROM outboxd.health WHERE name = 'queue'", &[]).await.unwrap();
    (row.get(0), row.get(1))
}

#[tokio::test]
async fn without_redis_deliveries_go_on_each_once() {
    for kind in ["stream", "list"] {
        let mut redis = RedisServer::forgetful();
        let mut world = world_on(redis.url(), kind, "1s").await;
        few_calls(&mut world, 16);
        let mut instance = world.start_in_the_middle(Duration::from_millis(20)).await;
        redis.kill();
        world.notify(200).await;
        // For good: nobody starts it again.
        world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
        assert_eq!(times(&instance, LEFT), 1);
        assert_eq!(instance.metric("outboxd_queue_fallback", &[]).await, 1.0);
        world.until("SELECT count(*) = 0 FROM outboxd.publication").await;
    }
}

#[tokio::test]
async fn a_redis_that_comes_back_with_its_data_has_only_stale_copies() {
    for kind in ["stream", "list"] {
        let mut redis = RedisServer::durable();
        let mut world = world_on(redis.url(), kind, "1s").await;
        few_calls(&mut world, 2);
        let mut instance = world.start_in_the_middle(Duration::from_millis(5)).await;
        redis.kill();
        world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
        redis.restart();
        until_told(&instance, BACK, 1).await;
        world.notify(50).await;
        world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
        wait::until("its copies are worked off", async || {
            instance.metric("outboxd_queue_depth", &[("backend", kind)]).await == 0.0
        })
        .await;
        let dropped = instance.metric("outboxd_claims_total", &[("case", "stale")]).await
            + instance.metric("outboxd_claims_total", &[("case", "sent")]).await;
        assert!(dropped > 0.0, "{dropped}");
        assert_eq!(times(&instance, "the queue lost messages"), 0);
    }
}

#[tokio::test]
async fn a_redis_that_comes_back_empty_costs_no_message() {
    let mut redis = RedisServer::forgetful();
    let mut world = world_on(redis.url(), "stream", "1s").await;
    few_calls(&mut world, 4);
    let instance = world.start_in_the_middle(Duration::from_millis(20)).await;
    redis.kill();
    until_told(&instance, LEFT, 1).await;
    world.notify(300).await;
    let seen = world.provider.count();
    world.provider.wait_for(seen + 20, SOON).await;
    // In the middle of what is in the process.
    redis.restart();
    until_told(&instance, BACK, 1).await;
    world.notify(100).await;
    world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
}

#[tokio::test]
async fn each_way_is_told_once_and_health_shows_and_clears_it() {
    let mut redis = RedisServer::forgetful();
    let world = world_on(redis.url(), "stream", "1s").await;
    let mut instance = world.setup.start().await;
    let since = "SELECT fallback_since IS NOT NULL FROM outboxd.instance";
    redis.kill();
    world.until(since).await;
    world.until("SELECT level = 'warn' FROM outboxd.health WHERE name = 'queue'").await;
    let (_, measured) = health(&world).await;
    assert!(measured.starts_with("1 of 1 instance without Redis, the first since 20"), "{measured}");
    assert_eq!(world.value::<String>("SELECT queue FROM outboxd.workers").await, "memory");
    world.notify(10).await;
    world.provider.wait_for(10, SOON).await;
    assert_eq!(instance.metric("outboxd_queue_fallback", &[]).await, 1.0);
    assert_eq!(http::get(instance.http_addr().await, "/readyz", &[]).await.status, 200);
    redis.restart();
    world.until("SELECT level = 'ok' FROM outboxd.health WHERE name = 'queue'").await;
    assert_eq!(world.value::<String>("SELECT queue FROM outboxd.workers").await, "stream");
    assert_eq!(instance.metric("outboxd_queue_fallback", &[]).await, 0.0);
    world.notify(10).await;
    world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
    for told in [LEFT, BACK, "publishing waits", "publishing goes on", "taking waits", "taking goes on"] {
        assert_eq!(times(&instance, told), 1, "{told}\n{}", instance.log());
    }
}

#[tokio::test]
async fn of_two_instances_one_that_is_cut_off_from_redis_goes_on_alone() {
    let redis = RedisServer::forgetful();
    let mut world = world_on(redis.url(), "stream", "1s").await;
    few_calls(&mut world, 4);
    world.provider.answer(Reply::ok().after(Duration::from_millis(10)));
    let proxy = Proxy::start(redis.port()).await;
    let around = format!("redis://127.0.0.1:{}", proxy.port());
    let mut cut_off = world.setup.clone().redis_url(&around).start().await;
    let mut other = world.setup.start().await;
    world.notify(300).await;
    world.provider.wait_for(30, SOON).await;
    proxy.set(Fault::BlackHole);
    until_told(&cut_off, LEFT, 1).await;
    let sent = cut_off.metric("outboxd_sent_total", &[]).await;
    // Whoever is quicker takes them: until some were its own.
    for _ in 0..50 {
        world.notify(100).await;
        world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
        if cut_off.metric("outboxd_sent_total", &[]).await > sent {
            break;
        }
    }
    assert!(cut_off.metric("outboxd_sent_total", &[]).await > sent, "it delivers");
    assert_eq!(other.metric("outboxd_queue_fallback", &[]).await, 0.0);
    assert_eq!(times(&other, LEFT), 0);
    let (level, measured) = health(&world).await;
    assert_eq!(level, "warn");
    assert!(measured.starts_with("1 of 2 instances without Redis"), "{measured}");
    proxy.heal();
    until_told(&cut_off, BACK, 1).await;
    world.notify(300).await;
    world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
}

/// Two instances without their Redis, the first of which has the most rows in its process.
async fn one_of_two_that_holds_rows(world: &World, redis: &mut RedisServer) -> (Instance, Instance) {
    let (first, second) = (world.setup.start().await, world.setup.start().await);
    redis.kill();
    until_told(&first, LEFT, 1).await;
    until_told(&second, LEFT, 1).await;
    world.notify(200).await;
    if world.holder().await == 1 { (first, second) } else { (second, first) }
}

#[tokio::test]
async fn what_a_killed_instance_had_in_its_process_is_delivered_by_another() {
    let mut redis = RedisServer::forgetful();
    let mut world = world_on(redis.url(), "stream", "1s").await;
    few_calls(&mut world, 2);
    world.provider.answer(Reply::ok().after(Duration::from_millis(50)));
    let (dies, _lives) = one_of_two_that_holds_rows(&world, &mut redis).await;
    dies.kill().await;
    world.until_ended().await.assert_nothing_lost().assert_duplicates_explained();
}

#[tokio::test]
async fn an_instance_that_dies_while_it_leaves_redis_loses_nothing() {
    let mut redis = RedisServer::durable();
    let mut world = world_on(redis.url(), "stream", "1s").await;
    few_calls(&mut world, 2);
    world.provider.answer(Reply::ok().after(Duration::from_millis(5)));
    let mut dies = world.setup.clone().failpoints("after_leaving=abort").start().await;
    let _other = world.setup.start().await;
    world.notify(600).await;
    world.provider.wait_for(30, SOON).await;
    redis.kill();
    dies.exit_code().await;
    world.notify(50).await;
    world.until_ended().await.assert_nothing_lost().assert_duplicates_explained();
    redis.restart();
    world.notify(50).await;
    world.until_ended().await.assert_nothing_lost().assert_duplicates_explained();
}

#[tokio::test]
async fn what_a_stopping_instance_has_in_its_process_is_left_to_the_others() {
    let mut redis = RedisServer::forgetful();
    let mut world = world_on(redis.url(), "stream", "1s").await;
    few_calls(&mut world, 2);
    world.provider.answer(Reply::ok().after(Duration::from_millis(50)));
    let (stops, _lives) = one_of_two_that_holds_rows(&world, &mut redis).await;
    assert_eq!(stops.drain().await, 0);
    world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
}

#[tokio::test]
async fn with_never_deliveries_wait_for_redis() {
    let mut redis = RedisServer::forgetful();
    let waits = world_on(redis.url(), "stream", "never").await;
    let goes_on = world_on(redis.url(), "stream", "1s").await;
    let waiting = waits.setup.start().await;
    let _other = goes_on.setup.start().await;
    redis.kill();
    waits.notify(50).await;
    goes_on.notify(50).await;
    // Time enough for the one is time enough for the other.
    goes_on.until_ended().await.assert_nothing_lost().assert_no_duplicate();
    assert_eq!(waits.provider.count(), 0);
    redis.restart();
    waits.until_ended().await.assert_nothing_lost().assert_no_duplicate();
    assert_eq!(times(&waiting, LEFT), 0);
}

#[tokio::test]
async fn a_redis_that_comes_and_goes_costs_no_message_and_repeats_none() {
    let mut redis = RedisServer::durable();
    let mut world = world_on(redis.url(), "stream", "1s").await;
    few_calls(&mut world, 4);
    world.provider.answer(Reply::ok().after(Duration::from_millis(10)));
    let instances = [world.setup.start().await, world.setup.start().await];
    for round in 1..=4 {
        world.notify(150).await;
        redis.kill();
        world.notify(50).await;
        for instance in &instances {
            until_told(instance, LEFT, round).await;
        }
        // Back and away again before anybody has worked off what is in its process, and then for good.
        redis.restart();
        world.notify(50).await;
        redis.kill();
        redis.restart();
        for instance in &instances {
            until_told(instance, BACK, round).await;
        }
    }
    world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
    world.until("SELECT count(fallback_since) = 0 FROM outboxd.instance").await;
}

#[tokio::test]
async fn an_instance_without_relay_or_worker_says_that_it_cannot_go_on() {
    let redis = RedisServer::forgetful();
    let world = world_on(redis.url(), "stream", "1s").await;
    for (roles, says_so) in [("producer,relay", 1), ("worker", 1), ("relay,worker", 0)] {
        let instance = world.setup.clone().roles(roles).start().await;
        assert_eq!(times(&instance, "queue.fallback_after has no effect"), says_so, "{roles}");
    }
}
