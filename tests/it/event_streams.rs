//! publish() to the consumer: events reach the Redis stream of their topic, in order per key.

use std::time::{Duration, Instant};

use redis::streams::StreamRangeReply;

use crate::support::world::{Carrier, World};
use crate::support::{redis as redis_support, sql};

async fn read(world: &World, topic: &str, at_least: usize) -> Vec<(i64, String)> {
    let key = format!("{{{}}}:v1:events:topic:{topic}", world.prefix);
    let deadline = Instant::now() + Duration::from_secs(15);
    loop {
        let mut connection = redis_support::shared().connection().await;
        let reply: StreamRangeReply =
            redis::cmd("XRANGE").arg(&key).arg("-").arg("+").query_async(&mut connection).await.unwrap();
        if reply.ids.len() >= at_least {
            return reply.ids.iter().map(|entry| (entry.get("id").unwrap(), entry.get("key").unwrap())).collect();
        }
        assert!(Instant::now() < deadline, "{} of {at_least} events arrived", reply.ids.len());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn events_are_appended_in_order_and_can_be_replayed() {
    let world = World::new(Carrier::Stream).await;
    let _first = world.setup.start().await;
    let _second = world.setup.start().await;
    for n in 1..=30 {
        sql::run(&world.app, &format!("SELECT outboxd.publish('order', 'k{}', '{{}}')", n % 3)).await;
    }
    let ids: Vec<i64> = read(&world, "order", 30).await.into_iter().map(|(id, _)| id).collect();
    assert!(ids.is_sorted(), "{ids:?}");
    sql::until(&world.app, "SELECT count(*) = 0 FROM outboxd.event_outbox").await;
    let replayed: i64 = sql::value(&world.app, "SELECT outboxd.replay_events('order', '-infinity')").await;
    assert_eq!(replayed, 30);
    let again: Vec<i64> = read(&world, "order", 60).await.into_iter().map(|(id, _)| id).collect();
    assert_eq!(again[30..], ids[..]);
}

#[tokio::test]
async fn an_owner_that_dies_hands_the_events_over() {
    let world = World::new(Carrier::Stream).await;
    let first = world.setup.start().await;
    sql::run(&world.app, "SELECT outboxd.publish('order', 'k', '{}')").await;
    read(&world, "order", 1).await;
    let _second = world.setup.start().await;
    first.kill().await;
    sql::run(&world.app, "SELECT outboxd.publish('order', 'k', '{}')").await;
    assert_eq!(read(&world, "order", 2).await.len(), 2);
}

#[tokio::test]
async fn an_owner_killed_between_append_and_forget_appends_only_its_batch_again() {
    let world = World::new(Carrier::Stream).await;
    sql::run(&world.app, "SELECT outboxd.publish('order', 'k' || n % 3, '{}') FROM generate_series(1, 30) n").await;
    let mut first = world.setup.clone().failpoints("after_append=abort").spawn();
    first.exit_code().await;
    let ids: Vec<i64> = read(&world, "order", 30).await.into_iter().map(|(id, _)| id).collect();
    assert_eq!(sql::value::<i64>(&world.app, "SELECT count(*) FROM outboxd.event_outbox").await, 30);
    let _second = world.setup.start().await;
    sql::until(&world.app, "SELECT count(*) = 0 FROM outboxd.event_outbox").await;
    let all: Vec<i64> = read(&world, "order", 60).await.into_iter().map(|(id, _)| id).collect();
    assert!(ids.is_sorted() && all == [ids.clone(), ids].concat(), "{all:?}");
}

#[tokio::test]
async fn the_example_consumer_handles_an_event_that_comes_twice_once() {
    let world = World::new(Carrier::Stream).await;
    let _instance = world.setup.start().await;
    sql::run(&world.app, "SELECT outboxd.publish('order', 'order-7', '{}')").await;
    read(&world, "order", 1).await;
    sql::run(&world.app, "SELECT outboxd.replay_events('order', '-infinity')").await;
    read(&world, "order", 2).await;
    let output = tokio::process::Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--example", "event_consumer", "--", "order", "2"])
        .env("DATABASE_URL", world.database.url())
        .env("REDIS_URL", redis_support::shared().url())
        .env("OUTBOXD_QUEUE_PREFIX", &world.prefix)
        .output()
        .await
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("invoiced order-7") && said.contains("seen before"), "{said}");
    assert_eq!(sql::value::<i64>(&world.app, "SELECT count(*) FROM invoices").await, 1);
}
