//! An instance starts while Redis is away: a deploy during an outage takes no deliveries away.

use std::time::Duration;

use super::fallback::{BACK, LEFT, times, world_on};
use crate::support::http;
use crate::support::instance::Instance;
use crate::support::proxy::{Fault, Proxy};
use crate::support::redis::RedisServer;
use crate::support::sql::Sql;
use crate::support::{stream, wait};

const AWAY: &str = "Redis is away at the start";

async fn readyz(instance: &mut Instance) -> u16 {
    http::get(instance.http_addr().await, "/readyz", &[]).await.status
}

#[tokio::test]
async fn a_start_without_redis_delivers_and_goes_through_it_when_it_answers() {
    for kind in ["stream", "list"] {
        let mut server = RedisServer::forgetful();
        let world = world_on(server.url(), kind, "1s").await;
        server.kill();
        world.notify(50).await;
        let mut instance = world.setup.start().await;
        assert_eq!(times(&instance, AWAY), 1, "{}", instance.log());
        world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
        assert_eq!(times(&instance, LEFT), 1);
        assert_eq!(readyz(&mut instance).await, 200);
        let said: String = world.value("SELECT value FROM outboxd.health WHERE name = 'queue'").await;
        assert!(said.starts_with("1 of 1 instance without Redis"), "{said}");
        // An event waits for it.
        world.run("SELECT outboxd.publish('order', 'k', '{}')").await;
        server.restart();
        instance.wait_for_log(BACK).await;
        world.notify(50).await;
        world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
        wait::until("messages go through Redis", async || instance.metric("outboxd_queue_fallback", &[]).await == 0.0)
            .await;
        stream::wait_for(&server, &stream::key(&world.prefix, "order"), 1, Duration::from_secs(15)).await;
        world.until("SELECT level = 'ok' FROM outboxd.health WHERE name = 'queue'").await;
        assert_eq!(instance.drain().await, 0);
    }
}

#[tokio::test]
async fn a_silent_redis_holds_up_a_start_for_seconds_only() {
    let server = RedisServer::forgetful();
    let proxy = Proxy::start(server.port()).await;
    proxy.set(Fault::BlackHole);
    let world = world_on(&format!("redis://127.0.0.1:{}", proxy.port()), "stream", "1s").await;
    let instance = world.setup.start().await;
    assert_eq!(times(&instance, AWAY), 1);
    world.notify(20).await;
    world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
}

#[tokio::test]
async fn what_a_redis_lost_before_a_start_without_it_is_published_again() {
    let mut server = RedisServer::forgetful();
    let world = world_on(server.url(), "stream", "never").await;
    // Published into Redis, and nobody there to take it.
    let relay = world.setup.clone().roles("producer,relay").start().await;
    world.notify(100).await;
    world.until_count(100, "outbox WHERE state = 'published'").await;
    world.until_count(0, "publication").await;
    world.until("SELECT max(queue_counter) > 0 FROM outboxd.instance").await;
    assert_eq!(relay.drain().await, 0);
    server.kill();
    let mut instance = world.setup.start().await;
    world.notify(20).await;
    server.restart();
    instance.wait_for_log("the queue lost messages").await;
    world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
}

#[tokio::test]
async fn with_never_or_split_roles_an_instance_starts_without_redis_and_waits() {
    let mut server = RedisServer::forgetful();
    let world = world_on(server.url(), "stream", "never").await;
    server.kill();
    let mut whole = world.setup.start().await;
    let worker = world.setup.clone().set("queue.fallback_after", "1s").roles("worker").start().await;
    for instance in [&whole, &worker] {
        assert!(times(instance, "deliveries wait for Redis") >= 1, "{}", instance.log());
    }
    world.notify(20).await;
    assert_eq!(readyz(&mut whole).await, 503);
    world.until("SELECT level = 'critical' FROM outboxd.health WHERE name = 'queue'").await;
    assert_eq!(world.provider.count(), 0);
    server.restart();
    world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
    wait::until("ready", async || readyz(&mut whole).await == 200).await;
}

#[tokio::test]
async fn an_instance_that_never_saw_redis_stops_cleanly() {
    for fallback_after in ["1s", "never", "1h"] {
        let mut server = RedisServer::forgetful();
        let world = world_on(server.url(), "stream", fallback_after).await;
        server.kill();
        let mut instance = world.setup.start().await;
        if fallback_after == "1s" {
            instance.wait_for_log(LEFT).await;
        }
        assert_eq!(instance.drain().await, 0, "{fallback_after}");
        let signed_off = "SELECT bool_and(stopped_at IS NOT NULL) FROM outboxd.instance";
        assert!(world.value::<bool>(signed_off).await, "{fallback_after}");
    }
}

#[tokio::test]
async fn a_redis_that_may_evict_is_not_used_when_it_answers_later() {
    let mut server = RedisServer::start(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    let world = world_on(server.url(), "stream", "1s").await;
    server.kill();
    let mut instance = world.setup.start().await;
    instance.wait_for_log(LEFT).await;
    server.restart();
    instance.wait_for_log("maxmemory-policy is allkeys-lru").await;
    let why = "SELECT value LIKE '%maxmemory-policy is allkeys-lru; set it to noeviction%' FROM outboxd.health WHERE name = 'queue'";
    world.until(why).await;
    world.notify(20).await;
    world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
    assert_eq!(times(&instance, BACK), 0);
    server.run::<::redis::Value>("CONFIG SET maxmemory-policy noeviction").await;
    instance.wait_for_log(BACK).await;
}

#[tokio::test]
async fn a_redis_that_refuses_the_password_at_the_start_is_bad_configuration() {
    let server = RedisServer::start(&["--requirepass", "secret"]);
    let world = world_on(&format!("redis://:wrong@127.0.0.1:{}", server.port()), "stream", "1s").await;
    let mut instance = world.setup.spawn();
    assert_eq!(instance.exit_code().await, 78, "{}", instance.log());
}
