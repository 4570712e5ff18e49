//! Consumer groups of event streams: one that comes close to the stream's cap is told before it loses anything.

use crate::support::redis::{self as redis_support, RedisServer};
use crate::support::sql::Sql;
use crate::support::stream;
use crate::support::world::{Carrier, World};

/// A stream drops whole nodes of 100 entries, so it keeps up to 199.
const STREAM_MAX: i32 = 100;

struct Scene {
    world: World,
    key: String,
    redis: &'static RedisServer,
}

impl Scene {
    async fn new() -> Scene {
        let world = World::new(Carrier::Stream).await.toml(&format!("[events]\nstream_max = {STREAM_MAX}\n"));
        let key = stream::key(&world.prefix, "order");
        Scene { world, key, redis: redis_support::shared() }
    }

    async fn publish(&self, count: i32) {
        self.world.run(&format!("SELECT outboxd.publish('order', 'k', '{{}}') FROM generate_series(1, {count})")).await;
        self.world.until_count(0, "events_waiting").await;
    }

    async fn group(&self) {
        self.redis.run::<String>(&format!("XGROUP CREATE {} billing 0 MKSTREAM", self.key)).await;
    }

    async fn take(&self, count: i32) {
        let take = format!("XREADGROUP GROUP billing me COUNT {count} STREAMS {} >", self.key);
        self.redis.run::<redis::Value>(&take).await;
    }

    /// Waits until the group is this far behind, as an instance sees it.
    async fn seen_behind(&self, behind: i32) {
        self.world.until(&format!("SELECT count(*) = 1 FROM outboxd.event_consumers WHERE behind = {behind}")).await;
    }

    /// Waits until an instance has polled the group twice: the first poll may have begun before this.
    async fn seen_again(&self) {
        for _ in 0..2 {
            let now: String = self.world.value("SELECT clock_timestamp()::text").await;
            self.world.until(&format!("SELECT bool_and(seen_at > '{now}') FROM outboxd.event_group")).await;
        }
    }

    async fn health(&self) -> (String, String, Option<String>) {
        let check = "SELECT level, value, action FROM outboxd.health WHERE name = 'event_consumers'";
        let row = self.world.app.query_one(check, &[]).await.expect("the check has its row");
        (row.get(0), row.get(1), row.get(2))
    }
}

#[tokio::test]
async fn a_group_is_told_at_80_percent_of_the_cap_and_before_it_loses_anything() {
    let scene = Scene::new().await;
    let mut instance = scene.world.setup.start().await;
    scene.group().await;
    scene.publish(79).await;
    scene.seen_behind(79).await;
    let (level, value, _) = scene.health().await;
    assert_eq!(
        (level.as_str(), value.as_str()),
        ("ok", "1 group; billing on order is 79 behind, its stream keeps about 100")
    );
    scene.publish(1).await;
    scene.seen_behind(80).await;
    let (level, _, action) = scene.health().await;
    assert_eq!(level, "warn");
    assert!(action.unwrap().contains("events.stream_max"));
    assert_eq!(stream::read(scene.redis, &scene.key).await.len(), 80, "nothing is lost yet");
    instance.wait_for_log("about to be cut").await;

    // What it was given and has not acknowledged counts as well: it may have to be given again.
    scene.take(80).await;
    scene.seen_again().await;
    assert_eq!(scene.health().await.0, "warn");
    let mut connection = scene.redis.connection().await;
    let entries: redis::streams::StreamRangeReply =
        redis::cmd("XRANGE").arg(&scene.key).arg("-").arg("+").query_async(&mut connection).await.unwrap();
    let ids: Vec<String> = entries.ids.into_iter().map(|entry| entry.id).collect();
    let acked: i64 =
        redis::cmd("XACK").arg(&scene.key).arg("billing").arg(ids).query_async(&mut connection).await.unwrap();
    assert_eq!(acked, 80);
    scene.seen_behind(0).await;
    assert_eq!(scene.health().await.0, "ok");
    assert_eq!(instance.log().matches("about to be cut").count(), 1, "told once");
}

#[tokio::test]
async fn a_group_that_was_cut_is_critical_until_what_it_lacks_is_replayed() {
    let scene = Scene::new().await;
    let mut instance = scene.world.setup.start().await;
    scene.group().await;
    scene.publish(50).await;
    scene.seen_behind(50).await;
    for _ in 0..3 {
        scene.publish(100).await;
    }
    instance.wait_for_log("was cut").await;
    let (level, value, action) = scene.health().await;
    let left = i64::try_from(stream::read(scene.redis, &scene.key).await.len()).unwrap();
    assert_eq!(level, "critical");
    assert_eq!(value, format!("1 of 1 group lacks events: billing on order lacks {}", 350 - left));
    let replay = action.unwrap().replace(" appends it again", "");
    assert!(replay.starts_with("SELECT outboxd.replay_events('order', '20"), "{replay}");
    assert_eq!(scene.world.value::<i64>(&replay).await, 350, "all that it lacks");
    assert_ne!(scene.health().await.0, "critical");
}

#[tokio::test]
async fn a_group_whose_unacknowledged_entries_were_dropped_counts_as_cut() {
    let scene = Scene::new().await;
    let mut instance = scene.world.setup.start().await;
    scene.group().await;
    scene.publish(10).await;
    scene.take(3).await;
    scene.seen_behind(10).await;
    // Keeps up with everything but the first three, which it never acknowledges.
    for _ in 0..4 {
        scene.publish(100).await;
        let take = format!("XREADGROUP GROUP billing me NOACK COUNT 1000 STREAMS {} >", scene.key);
        scene.redis.run::<redis::Value>(&take).await;
    }
    instance.wait_for_log("was cut").await;
    let cut = "SELECT cut_events FROM outboxd.event_consumers";
    assert_eq!(scene.world.value::<i64>(cut).await, 3);
    scene.publish(100).await;
    scene.seen_again().await;
    assert_eq!(scene.world.value::<i64>(cut).await, 3, "counted once");
    let from = "SELECT cut_from = (SELECT min(created_at) FROM outboxd.event) FROM outboxd.event_consumers";
    assert!(scene.world.value::<bool>(from).await);
}

#[tokio::test]
async fn a_group_that_is_gone_is_forgotten_and_one_made_anew_is_not_cut() {
    let scene = Scene::new().await;
    let instance = scene.world.setup.start().await;
    scene.publish(100).await;
    for _ in 0..3 {
        scene.publish(100).await;
    }
    scene.group().await;
    scene.world.until_count(1, "event_consumers").await;
    assert_ne!(scene.health().await.0, "critical", "what was dropped before its time it never had");
    scene.redis.run::<i64>(&format!("XGROUP DESTROY {} billing", scene.key)).await;
    scene.world.until_count(0, "event_consumers").await;
    assert_eq!(scene.health().await, ("ok".into(), "no consumer group".into(), None));
    assert!(!instance.log().contains("was cut"));
    assert!(!instance.has_ended());
}
