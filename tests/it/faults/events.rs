//! When Redis loses events that were appended: they are appended again from Postgres, in order.

use std::time::Duration;

use crate::support::redis::{RedisPair, RedisServer};
use crate::support::sql::Sql;
use crate::support::stream::{self, Entry};
use crate::support::wait;
use crate::support::world::World;

/// How soon what was lost is there again.
const BACK: Duration = Duration::from_secs(10);

struct Scene {
    world: World,
    key: String,
}

impl Scene {
    async fn on(redis_url: &str) -> Scene {
        let world = World::over(redis_url, "stream").await;
        Scene { key: stream::key(&world.prefix, "order"), world }
    }

    /// Publishes events on three keys, each in a transaction of its own; waits until all are appended.
    async fn publish(&self, count: i32) {
        for n in 1..=count {
            self.world.run(&format!("SELECT outboxd.publish('order', 'k{}', '{{}}')", n % 3)).await;
        }
        self.world.until_count(0, "event_outbox").await;
    }

    /// The check of what was lost: its level and value.
    async fn health(&self) -> (String, String) {
        let check = "SELECT level, value FROM outboxd.health WHERE name = 'event_streams'";
        let row = self.world.app.query_one(check, &[]).await.expect("the check has its row");
        (row.get(0), row.get(1))
    }

    async fn ids(&self) -> Vec<i64> {
        self.world.values("SELECT id FROM outboxd.event ORDER BY id").await
    }
}

fn ids(entries: &[Entry]) -> Vec<i64> {
    entries.iter().map(|entry| entry.id).collect()
}

#[tokio::test]
async fn events_that_a_flushall_took_are_back_in_order_within_10_s() {
    let redis = RedisServer::forgetful();
    let scene = Scene::on(redis.url()).await;
    let _instance = scene.world.setup.start().await;
    scene.publish(30).await;
    stream::wait_for(&redis, &scene.key, 30, BACK).await;
    redis.run::<String>("FLUSHALL").await;
    let back = stream::wait_for(&redis, &scene.key, 30, BACK).await;
    assert_eq!(ids(&back), scene.ids().await);
}

#[tokio::test]
async fn events_that_a_redis_without_persistence_forgot_are_back_within_10_s() {
    let mut redis = RedisServer::forgetful();
    let scene = Scene::on(redis.url()).await;
    let _instance = scene.world.setup.start().await;
    scene.publish(30).await;
    stream::wait_for(&redis, &scene.key, 30, BACK).await;
    redis.kill();
    redis.restart();
    let back = stream::wait_for(&redis, &scene.key, 30, BACK).await;
    assert_eq!(ids(&back), scene.ids().await);
}

#[tokio::test]
async fn the_tail_of_events_that_a_failover_lost_is_appended_again() {
    let mut pair = RedisPair::start().await;
    let scene = Scene::on(&pair.url()).await;
    let _instance = scene.world.setup.start().await;
    scene.publish(20).await;
    stream::wait_for(&pair.primary, &scene.key, 20, BACK).await;
    pair.primary.replicated_to(&pair.replica).await;
    pair.stop_replication().await;
    scene.publish(10).await;
    stream::wait_for(&pair.primary, &scene.key, 30, BACK).await;
    pair.primary.kill();
    // Sentinel's own time to promote comes first.
    let back = stream::wait_for(&pair.replica, &scene.key, 30, BACK * 2).await;
    assert_eq!(ids(&back), scene.ids().await, "the tail once, and nothing of what was still there");
}

#[tokio::test]
async fn a_loss_of_events_is_told_once_in_the_log_and_shown_in_health() {
    let redis = RedisServer::forgetful();
    let scene = Scene::on(redis.url()).await;
    let mut instance = scene.world.setup.start().await;
    let _other = scene.world.setup.start().await;
    scene.publish(5).await;
    stream::wait_for(&redis, &scene.key, 5, BACK).await;
    assert_eq!(scene.health().await, ("ok".into(), "nothing was lost".into()));
    redis.run::<String>("FLUSHALL").await;
    instance.wait_for_log("what Redis lost is back").await;
    scene.publish(5).await;
    stream::wait_for(&redis, &scene.key, 10, BACK).await;
    let log = instance.log();
    assert_eq!(log.matches("Redis lost events of its streams").count(), 1, "{log}");
    assert_eq!(log.matches("what Redis lost is back").count(), 1, "{log}");
    let (level, value) = scene.health().await;
    assert_eq!(level, "warn");
    assert!(value.starts_with("lost events at 20") && value.contains("; 5 appended again until 20"), "{value}");
    let past = "UPDATE outboxd.event_progress SET lost_at = lost_at - interval '2 h', restored_at = restored_at - interval '2 h'";
    scene.world.run(past).await;
    assert_eq!(scene.health().await.0, "ok", "after an hour it is history");
}

#[tokio::test]
async fn events_lost_while_nobody_ran_come_before_those_published_since() {
    let redis = RedisServer::forgetful();
    let scene = Scene::on(redis.url()).await;
    let first = scene.world.setup.start().await;
    scene.publish(10).await;
    scene.world.until_count(0, "events_waiting").await;
    assert_eq!(first.drain().await, 0);
    redis.run::<String>("FLUSHALL").await;
    scene.world.run("SELECT outboxd.publish('order', 'k1', '{}') FROM generate_series(1, 5)").await;
    let mut second = scene.world.setup.start().await;
    let back = stream::wait_for(&redis, &scene.key, 15, BACK).await;
    assert_eq!(ids(&back), scene.ids().await);
    second.wait_for_log("what Redis lost is back").await;
}

#[tokio::test]
async fn an_owner_killed_in_the_middle_of_a_repair_leaves_the_rest_to_the_next() {
    let redis = RedisServer::forgetful();
    let scene = Scene::on(redis.url()).await;
    let first = scene.world.setup.start().await;
    // Over several batches: 1,500 events take three.
    for _ in 0..3 {
        scene.world.run("SELECT outboxd.publish('order', 'k' || n % 3, '{}') FROM generate_series(1, 500) n").await;
        scene.world.until_count(0, "events_waiting").await;
    }
    first.drain().await;
    redis.run::<String>("FLUSHALL").await;
    scene.world.setup.clone().failpoints("after_append=abort@2").spawn().exit_code().await;
    assert!(scene.health().await.1.ends_with("500 back, more to come"), "{:?}", scene.health().await);
    let mut second = scene.world.setup.start().await;
    second.wait_for_log("what Redis lost is back").await;
    assert!(!second.log().contains("Redis lost events"), "told by the first: {}", second.log());
    assert_eq!(ids(&stream::read(&redis, &scene.key).await), scene.ids().await, "each once");
}

#[tokio::test]
async fn events_lost_over_and_over_under_load_arrive_in_order_of_each_key() {
    let redis = RedisServer::forgetful();
    let scene = Scene::on(redis.url()).await;
    let _instances = [scene.world.setup.start().await, scene.world.setup.start().await];
    let load = async {
        for n in 0..200 {
            scene.world.run(&format!("SELECT outboxd.publish('order', 'k{}', '{{}}')", n % 10)).await;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let flush = async {
        for _ in 0..4 {
            tokio::time::sleep(Duration::from_millis(400)).await;
            redis.run::<String>("FLUSHALL").await;
        }
    };
    tokio::join!(load, flush);
    let back = stream::wait_for(&redis, &scene.key, 200, BACK).await;
    assert_eq!(stream::first_arrivals(&back), scene.ids().await);
}

#[tokio::test]
async fn a_stream_that_was_lost_gets_back_what_it_keeps_and_no_more() {
    let redis = RedisServer::forgetful();
    let mut scene = Scene::on(redis.url()).await;
    scene.world.setup = scene.world.setup.clone().toml("[events]\nstream_max = 100\n");
    let mut instance = scene.world.setup.start().await;
    scene.world.run("SELECT outboxd.publish('rare', 'k', '{}')").await;
    for _ in 0..10 {
        scene.world.run("SELECT outboxd.publish('order', 'k' || n % 3, '{}') FROM generate_series(1, 50) n").await;
        scene.world.until_count(0, "event_outbox").await;
    }
    redis.run::<String>("FLUSHALL").await;
    instance.wait_for_log("what Redis lost is back").await;
    let restored: i64 = scene.world.value("SELECT restored FROM outboxd.event_progress").await;
    assert!((101..=151).contains(&restored), "{restored}: the newest 100 of order, by publications, and rare's");
    let back = ids(&stream::read(&redis, &scene.key).await);
    let all: Vec<i64> = scene.world.values("SELECT id FROM outboxd.event WHERE topic = 'order' ORDER BY id").await;
    assert!(all.ends_with(&back) && back.len() >= 100, "{back:?}");
    let rare = scene.key.replace("order", "rare");
    assert_eq!(stream::read(&redis, &rare).await.len(), 1, "a quiet topic is not cut by a loud one");
}

#[tokio::test]
async fn what_retention_removed_is_not_waited_for_after_a_loss() {
    let redis = RedisServer::forgetful();
    let scene = Scene::on(redis.url()).await;
    let mut instance = scene.world.setup.start().await;
    scene.publish(5).await;
    scene.world.until_count(0, "events_waiting").await;
    scene.world.run("DELETE FROM outboxd.event; DELETE FROM outboxd.event_publication").await;
    redis.run::<String>("FLUSHALL").await;
    instance.wait_for_log("what Redis lost is back").await;
    scene.publish(1).await;
    assert_eq!(ids(&stream::wait_for(&redis, &scene.key, 1, BACK).await), scene.ids().await);
}

#[tokio::test]
async fn a_database_set_back_to_an_earlier_time_still_gets_its_events_appended() {
    let redis = RedisServer::forgetful();
    let scene = Scene::on(redis.url()).await;
    let first = scene.world.setup.start().await;
    scene.publish(5).await;
    scene.world.until_count(0, "events_waiting").await;
    first.drain().await;
    let back = "DELETE FROM outboxd.event_publication; DELETE FROM outboxd.event;
                UPDATE outboxd.event_progress SET newest = 0, appended = 0; UPDATE outboxd.event_stream SET position = 0";
    scene.world.run(back).await;
    let _second = scene.world.setup.start().await;
    scene.publish(3).await;
    let found = stream::wait_for(&redis, &scene.key, 8, BACK).await;
    assert_eq!(ids(&found)[5..], scene.ids().await);
}

#[tokio::test]
async fn a_key_of_another_type_in_the_way_holds_events_up_and_repeats_none() {
    let redis = RedisServer::forgetful();
    let scene = Scene::on(redis.url()).await;
    let mut instance = scene.world.setup.start().await;
    let wrong = scene.key.replace("order", "wrong");
    redis.run::<String>(&format!("SET {wrong} x")).await;
    scene.world.run("SELECT outboxd.publish(t, 'k', '{}') FROM unnest('{order,wrong}'::text[]) t").await;
    instance.wait_for_log("appending events waits").await;
    wait::until("it is tried a few times", async || redis.errors("WRONGTYPE").await >= 3).await;
    let exists: i64 = redis.run(&format!("EXISTS {}", scene.key)).await;
    assert_eq!(exists, 0, "all or none");
    redis.run::<i64>(&format!("DEL {wrong}")).await;
    for key in [&scene.key, &wrong] {
        assert_eq!(stream::wait_for(&redis, key, 1, BACK).await.len(), 1);
    }
}
