//! The example of a consumer: repeats, a loss of Redis and a crash of its own have no second effect.

use std::path::Path;
use std::process::Stdio;

use tokio::process::{Child, Command};

use crate::support::command;
use crate::support::redis::{RedisServer, unique_prefix};
use crate::support::sql;
use crate::support::world::{Carrier, World};

fn spawn(binary: &Path, world: &World, redis: &RedisServer, prefix: &str) -> Child {
    let mut command = Command::new(binary);
    command.arg("order").env("DATABASE_URL", world.database.url()).env("REDIS_URL", redis.url());
    command.env("OUTBOXD_QUEUE_PREFIX", prefix).stdout(Stdio::null()).kill_on_drop(true).spawn().expect("it starts")
}

async fn publish(world: &World, from: i32, to: i32) {
    for n in from..to {
        let publish = format!("SELECT outboxd.publish('order', 'k{}', '{{\"n\": {n}}}')", n % 10);
        sql::run(&world.app, &publish).await;
    }
}

#[tokio::test]
async fn the_example_consumer_handles_each_event_once_through_a_loss_and_a_crash() {
    let binary = command::example("event_consumer").await;
    let redis = RedisServer::forgetful();
    let mut world = World::new(Carrier::Memory).await;
    let prefix = unique_prefix();
    world.setup = world.setup.clone().redis(redis.url(), "stream", &prefix);
    let _instance = world.setup.start().await;
    let invoices =
        "CREATE TABLE invoices (number bigint GENERATED ALWAYS AS IDENTITY, consumer text, key text, payload jsonb)";
    sql::run(&world.app, invoices).await;
    let mut consumer = spawn(&binary, &world, &redis, &prefix);
    publish(&world, 0, 50).await;
    sql::until(&world.app, "SELECT count(*) >= 10 FROM invoices").await;
    consumer.kill().await.unwrap();
    let mut consumer = spawn(&binary, &world, &redis, &prefix);
    publish(&world, 50, 75).await;
    redis.run::<String>("FLUSHALL").await;
    publish(&world, 75, 100).await;
    sql::until(&world.app, "SELECT count(*) >= 100 FROM invoices").await;
    // What was handled comes once more, and the consumer comes to its end.
    sql::run(&world.app, "SELECT outboxd.replay_events('order', '-infinity')").await;
    let caught_up = "SELECT count(*) = 1 FROM outboxd.event_consumers WHERE behind = 0 AND seen_at > (SELECT max(at) FROM outboxd.audit)
                        AND NOT EXISTS (SELECT FROM outboxd.events_waiting)";
    sql::until(&world.app, caught_up).await;
    assert!(consumer.try_wait().unwrap().is_none(), "it still runs");
    let handled = "SELECT (payload ->> 'n')::int FROM invoices ORDER BY key, number";
    let wanted: Vec<i32> = (0..10).flat_map(|key| (0..10).map(move |n| n * 10 + key)).collect();
    assert_eq!(sql::values::<i32>(&world.app, handled).await, wanted, "each once, in the order of its key");
}
