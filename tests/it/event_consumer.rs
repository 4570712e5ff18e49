//! The example of a consumer: repeats, a loss of Redis and a crash of its own have no second effect.

use std::path::Path;
use std::process::Stdio;

use tokio::process::{Child, Command};

use crate::support::command;
use crate::support::redis::RedisServer;
use crate::support::sql::Sql;
use crate::support::world::World;

fn spawn(binary: &Path, world: &World, redis: &RedisServer) -> Child {
    let mut command = Command::new(binary);
    command.arg("order").env("DATABASE_URL", world.database.url()).env("REDIS_URL", redis.url());
    command
        .env("OUTBOXD_QUEUE_PREFIX", &world.prefix)
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("it starts")
}

async fn publish(world: &World, from: i32, to: i32) {
    for n in from..to {
        let publish = format!("SELECT outboxd.publish('order', 'k{}', '{{\"n\": {n}}}')", n % 10);
        world.run(&publish).await;
    }
}

#[tokio::test]
async fn the_example_consumer_handles_each_event_once_through_a_loss_and_a_crash() {
    let binary = command::example("event_consumer").await;
    let redis = RedisServer::forgetful();
    let world = World::over(redis.url(), "stream").await;
    let _instance = world.setup.start().await;
    let invoices =
        "CREATE TABLE invoices (number bigint GENERATED ALWAYS AS IDENTITY, consumer text, key text, payload jsonb)";
    world.run(invoices).await;
    let mut consumer = spawn(&binary, &world, &redis);
    publish(&world, 0, 50).await;
    world.until("SELECT count(*) >= 10 FROM invoices").await;
    consumer.kill().await.unwrap();
    let mut consumer = spawn(&binary, &world, &redis);
    publish(&world, 50, 75).await;
    redis.run::<String>("FLUSHALL").await;
    publish(&world, 75, 100).await;
    world.until("SELECT count(*) >= 100 FROM invoices").await;
    // What was handled comes once more, and the consumer comes to its end.
    world.run("SELECT outboxd.replay_events('order', '-infinity')").await;
    let caught_up = "SELECT count(*) = 1 FROM outboxd.event_consumers WHERE behind = 0 AND seen_at > (SELECT max(at) FROM outboxd.audit)
                        AND NOT EXISTS (SELECT FROM outboxd.events_waiting)";
    world.until(caught_up).await;
    assert!(consumer.try_wait().unwrap().is_none(), "it still runs");
    let handled = "SELECT (payload ->> 'n')::int FROM invoices ORDER BY key, number";
    let wanted: Vec<i32> = (0..10).flat_map(|key| (0..10).map(move |n| n * 10 + key)).collect();
    assert_eq!(world.values::<i32>(handled).await, wanted, "each once, in the order of its key");
}
