//! What is missing is told; what Redis loses and gets back is neither missed nor heard twice.

use crate::support::redis::RedisServer;
use crate::support::sql::Sql;
use crate::support::stream;
use crate::support::world::World;

use super::Scene;
use super::client::{Client, positions};

async fn on(redis: &RedisServer) -> (Scene, String) {
    let scene = Scene::on(World::over(redis.url(), "stream").await).await;
    let key = stream::key(&scene.world.prefix, "order");
    (scene, key)
}

#[tokio::test]
async fn what_the_stream_no_longer_holds_is_told_as_a_gap() {
    let redis = RedisServer::forgetful();
    let (scene, key) = on(&redis).await;
    scene.publish_many("order", 30).await;
    scene.appended().await;
    redis.run::<i64>(&format!("XTRIM {key} MAXLEN = 10")).await;
    let mut client = scene.connect("topic=order&after=5").await;
    let gap = client.message().await;
    assert_eq!(gap, serde_json::json!({ "type": "gap", "topic": "order", "after": 5, "position": 21 }));
    assert_eq!(positions(&client.events(10).await), (21..=30).collect::<Vec<i64>>());
    client.ready().await;
    let mut whole = scene.connect("topic=order&after=20").await;
    assert_eq!(positions(&whole.events(10).await), (21..=30).collect::<Vec<i64>>(), "nothing is missing after 20");
    let mut ahead = scene.connect("topic=order&after=99").await;
    assert_eq!(ahead.message().await["type"], "gap", "the stream has never come so far");
    ahead.ready().await;
    scene.publish("order", "k", "{}").await;
    assert_eq!(positions(&ahead.events(1).await), [31]);
}

#[tokio::test]
async fn a_client_that_was_away_for_long_gets_the_newest_thousand() {
    let redis = RedisServer::forgetful();
    let (scene, _) = on(&redis).await;
    scene.world.run("SELECT outboxd.publish('order', 'k', '{}') FROM generate_series(1, 1200)").await;
    scene.appended().await;
    let mut client = scene.connect("topic=order&after=100").await;
    let gap = client.message().await;
    assert_eq!((&gap["type"], &gap["after"], &gap["position"]), (&"gap".into(), &100.into(), &201.into()));
    assert_eq!(positions(&client.events(1_000).await), (201..=1_200).collect::<Vec<i64>>());
    client.ready().await;
}

#[tokio::test]
async fn a_session_outlives_a_flushall_and_hears_each_event_once() {
    let redis = RedisServer::forgetful();
    let (mut scene, key) = on(&redis).await;
    let mut client = scene.connect("topic=order").await;
    client.ready().await;
    scene.publish_many("order", 30).await;
    assert_eq!(positions(&client.events(30).await), (1..=30).collect::<Vec<i64>>());
    redis.run::<String>("FLUSHALL").await;
    scene.instance.wait_for_log("what Redis lost is back").await;
    stream::wait_for(&redis, &key, 30, std::time::Duration::from_secs(10)).await;
    scene.publish_many("order", 5).await;
    assert_eq!(positions(&client.events(5).await), (31..=35).collect::<Vec<i64>>());
    let mut back = scene.connect("topic=order&after=33").await;
    assert_eq!(positions(&back.events(2).await), [34, 35], "positions are the same as before the loss");
}

#[tokio::test]
async fn a_session_outlives_a_restart_of_redis_with_and_without_its_data() {
    for mut redis in [RedisServer::forgetful(), RedisServer::durable()] {
        let (scene, _) = on(&redis).await;
        let mut client = scene.connect("topic=order").await;
        client.ready().await;
        scene.publish_many("order", 10).await;
        assert_eq!(client.events(10).await.len(), 10);
        redis.kill();
        redis.restart();
        scene.publish_many("order", 10).await;
        assert_eq!(positions(&client.events(10).await), (11..=20).collect::<Vec<i64>>());
    }
}

#[tokio::test]
async fn a_stream_whose_ids_begin_below_those_seen_is_heard_too() {
    let redis = RedisServer::forgetful();
    let (scene, key) = on(&redis).await;
    let entry = |id: &str, position: i64, at: &str| {
        format!("XADD {key} {id} id {position} key k payload {{}} headers {{}} created_at {at} position {position}")
    };
    let mut client = scene.connect("topic=order").await;
    client.ready().await;
    redis.run::<String>(&entry("9999999999999-5", 1, "2026-01-01T00:00:00.000001Z")).await;
    assert_eq!(positions(&client.events(1).await), [1]);
    redis.run::<i64>(&format!("DEL {key}")).await;
    redis.run::<String>(&entry("5-1", 1, "2026-01-01T00:00:00.000001Z")).await;
    redis.run::<String>(&entry("5-2", 2, "2026-01-01T00:00:00.000002Z")).await;
    assert_eq!(positions(&client.events(1).await), [2], "the first is known by its position");
    // No event of ours.
    redis.run::<String>(&format!("XADD {key} 5-3 id x")).await;
    redis.run::<String>(&format!("XADD {key} 5-4 id 3 key k payload {{ headers {{}} created_at x position 3")).await;
    redis.run::<String>(&entry("5-5", 4, "2026-01-01T00:00:00.000004Z")).await;
    assert_eq!(positions(&client.events(1).await), [4]);
}

#[tokio::test]
async fn without_redis_a_client_is_told_that_events_need_it() {
    let world = World::new(crate::support::world::Carrier::Memory).await;
    let mut instance = world.setup.start().await;
    let refused = Client::connect(instance.http_addr().await, "topic=order", &[]).await.expect_err("no Redis");
    assert_eq!(refused.status, 501);
    assert!(refused.problem["detail"].as_str().unwrap().contains("events need Redis"), "{refused:?}");
}
