//! publish() to the consumer: events reach the Redis stream of their topic, in order per key.

use std::time::Duration;

use outboxd::config::QueueConfig;
use outboxd::queue::events::{Event, EventStreams};

use crate::support::redis::{RedisCluster, RedisServer, documented_user_rules};
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World};
use crate::support::{redis as redis_support, stream};

async fn read(world: &World, topic: &str, at_least: usize) -> Vec<i64> {
    let key = stream::key(&world.prefix, topic);
    let entries = stream::wait_for(redis_support::shared(), &key, at_least, Duration::from_secs(15)).await;
    entries.into_iter().map(|entry| entry.id).collect()
}

#[tokio::test]
async fn events_are_appended_in_order_and_can_be_replayed() {
    let world = World::new(Carrier::Stream).await;
    let _first = world.setup.start().await;
    let _second = world.setup.start().await;
    for n in 1..=30 {
        world.run(&format!("SELECT outboxd.publish('order', 'k{}', '{{}}')", n % 3)).await;
    }
    let ids: Vec<i64> = read(&world, "order", 30).await;
    assert!(ids.is_sorted(), "{ids:?}");
    world.until_count(0, "event_outbox").await;
    let replayed: i64 = world.value("SELECT outboxd.replay_events('order', '-infinity')").await;
    assert_eq!(replayed, 30);
    let again: Vec<i64> = read(&world, "order", 60).await;
    assert_eq!(again[30..], ids[..]);
}

#[tokio::test]
async fn an_owner_that_dies_hands_the_events_over() {
    let world = World::new(Carrier::Stream).await;
    let first = world.setup.start().await;
    world.run("SELECT outboxd.publish('order', 'k', '{}')").await;
    read(&world, "order", 1).await;
    let _second = world.setup.start().await;
    first.kill().await;
    world.run("SELECT outboxd.publish('order', 'k', '{}')").await;
    assert_eq!(read(&world, "order", 2).await.len(), 2);
}

#[tokio::test]
async fn an_owner_killed_around_its_append_loses_and_repeats_nothing() {
    for failpoint in ["after_reserve_events=abort", "after_append=abort"] {
        let world = World::new(Carrier::Stream).await;
        world.run("SELECT outboxd.publish('order', 'k' || n % 3, '{}') FROM generate_series(1, 30) n").await;
        world.setup.clone().failpoints(failpoint).spawn().exit_code().await;
        let waiting = "SELECT count FROM outboxd.events_waiting";
        assert_eq!(world.value::<i64>(waiting).await, 30, "{failpoint}: shown until it is confirmed");
        let mut second = world.setup.start().await;
        world.run("SELECT outboxd.publish('order', 'k0', '{}')").await;
        let ids: Vec<i64> = world.values("SELECT id FROM outboxd.event ORDER BY id").await;
        read(&world, "order", 31).await;
        world.until_count(0, "events_waiting").await;
        assert_eq!(read(&world, "order", 31).await, ids, "{failpoint}");
        second.wait_for_log("\"took over\"").await;
        assert!(!second.log().contains("lost events"), "{failpoint}: {}", second.log());
    }
}

#[tokio::test]
async fn an_owner_that_wakes_up_after_its_successor_appends_nothing() {
    let world = World::new(Carrier::Stream).await;
    let first = world.setup.clone().failpoints("after_reserve_events=hang@2").start().await;
    world.run("SELECT outboxd.publish('order', 'k', '{}')").await;
    read(&world, "order", 1).await;
    world.run("SELECT outboxd.publish('order', 'k', '{}')").await;
    world.until_count(0, "event_outbox").await;
    first.signal(nix::sys::signal::Signal::SIGSTOP);
    let _second = world.setup.start().await;
    assert_eq!(read(&world, "order", 2).await.len(), 2);
    // What the first would still do: append its reservation to where it saw the stream.
    let config = world.queue_config();
    let url = redis_support::shared().url().into();
    let late = EventStreams::new(&config, &url, 1_000).unwrap();
    assert_eq!(late.append(1, 2, &[]).await.unwrap(), 2, "it is told where the stream is");
    assert_eq!(late.append(1, 3, &[event(("order", 99))]).await.unwrap(), 2);
    assert_eq!(read(&world, "order", 2).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_and_a_user_with_the_documented_rights_carry_events_too() {
    let cluster = RedisCluster::start().await;
    let server = RedisServer::forgetful();
    for url in [cluster.nodes[0].url().to_owned(), server.url().replace("redis://", "redis://outboxd:secret@")] {
        let prefix = redis_support::unique_prefix();
        let rules = documented_user_rules(&prefix);
        server.run::<()>(&format!("ACL SETUSER outboxd on >secret {rules}")).await;
        let config = QueueConfig { prefix, ..World::new(Carrier::Stream).await.queue_config() };
        let streams = EventStreams::new(&config, &url.clone().into(), 1_000).unwrap();
        let events: Vec<Event> = ["order", "quiz", "order"].into_iter().zip(1..).map(event).collect();
        assert_eq!(streams.append(0, 7, &events).await.unwrap(), 7);
        assert_eq!(streams.appended().await.unwrap(), 7);
        let groups = streams.groups(&["order".to_owned(), "none".to_owned()]).await.unwrap();
        assert_eq!((groups[0].last, groups[1].last, groups[0].groups.len()), (3, 0, 0), "{url}");
    }
}

fn event((topic, id): (&str, i64)) -> Event {
    let (topic, key, payload) = (topic.to_owned(), "k".to_owned(), "{}".to_owned());
    Event { id, topic, key, payload, headers: None, created_at: String::new(), position: id }
}
