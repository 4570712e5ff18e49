//! What instances cost that have nothing to do.

use std::time::Duration;

use tokio_postgres::Client;

use crate::support::redis;
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World};
use crate::support::{process, stream};

const WATCHED: Duration = Duration::from_secs(20);

/// Transactions of this database so far. A session may tell its own up to ten seconds late: so watch for longer.
async fn transactions(client: &Client) -> i64 {
    client.value("SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()").await
}

#[tokio::test]
async fn three_idle_instances_with_redis_make_under_20_transactions_a_second_each() {
    let world = World::new(Carrier::Stream).await;
    let setup = world.setup.clone().set("worker.heartbeat", "5s").set("worker.heartbeat_ttl", "15s");
    let setup = setup.set("relay.republish_after", "5s").set("queue.consumer_ttl", "15s");
    let instances = [setup.start().await, setup.start().await, setup.start().await];
    world.run("SELECT outboxd.publish('order', 'k', '{}')").await;
    let key = stream::key(&world.prefix, "order");
    stream::wait_for(redis::shared(), &key, 1, Duration::from_secs(15)).await;
    // What a start brings with it is over.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let before = transactions(&world.app).await;
    let cpu_before: Vec<Duration> = instances.iter().map(|instance| process::cpu_time(instance.pid())).collect();
    tokio::time::sleep(WATCHED).await;
    let made = transactions(&world.app).await - before;
    let each = made as f64 / WATCHED.as_secs_f64() / 3.0;
    for (instance, before) in instances.iter().zip(cpu_before) {
        let share = process::cpu_time(instance.pid()).saturating_sub(before).as_secs_f64() / WATCHED.as_secs_f64();
        println!("an idle instance takes {:.2} % of a core", share * 100.0);
    }
    println!("an idle instance makes {each:.1} transactions a second");
    assert!(each < 20.0, "{each} transactions a second and instance");
}

#[tokio::test]
async fn an_idle_instance_is_woken_for_an_event_by_the_bell() {
    let world = World::new(Carrier::Stream).await;
    let _instance = world.setup.clone().set("relay.idle_poll", "4s").start().await;
    let key = stream::key(&world.prefix, "order");
    let mut waits = Vec::new();
    for n in 1..=10 {
        // It listens, and the next look by itself is some way off.
        let listens = "SELECT coalesce(date_part('epoch', clock_timestamp()) * 1000
                            - pg_sequence_last_value('outboxd.doorbell'::regclass) BETWEEN 0 AND 4000, false)";
        world.until(listens).await;
        world.run("SELECT outboxd.publish('order', 'k', '{}')").await;
        let committed = std::time::Instant::now();
        stream::wait_for(redis::shared(), &key, n, Duration::from_secs(15)).await;
        waits.push(committed.elapsed());
    }
    waits.sort();
    println!("commit to stream: median {:?}, most {:?}", waits[5], waits[9]);
    assert!(waits[5] < Duration::from_millis(400), "{waits:?}");
}
