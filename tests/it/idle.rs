//! What instances cost that have nothing to do.

use std::time::{Duration, Instant};

use tokio_postgres::Client;

use crate::support::redis;
use crate::support::world::{Carrier, World};
use crate::support::{postgres, process, sql, stream};

const WATCHED: Duration = Duration::from_secs(40);
/// A second and instance.
const TRANSACTIONS_MAX: f64 = 10.0;
/// Of a core. One per cent is promised, of a release build; cold caches of a busy machine make this one dearer still.
const SHARE_MAX: f64 = 0.02;

/// Transactions of this database so far. A session may tell its own up to ten seconds late: so watch for longer.
async fn transactions(client: &Client) -> i64 {
    sql::value(client, "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()")
        .await
}

#[tokio::test]
async fn an_idle_instance_with_redis_makes_10_transactions_a_second_at_most() {
    // Vacuum's transactions count too.
    let server = postgres::start("autovacuum = off").await;
    let world = World::on(server.migrated_database().await, Carrier::Stream).await;
    // As shipped, but for the address and what is sent where.
    let setup = world.setup.clone().set("worker.heartbeat", "5s").set("worker.heartbeat_ttl", "15s");
    let setup = setup.set("relay.republish_after", "5s").set("queue.consumer_ttl", "15s");
    let instances = [setup.start().await, setup.start().await, setup.start().await];
    sql::run(&world.app, "SELECT outboxd.publish('order', 'k', '{}')").await;
    let key = stream::key(&world.prefix, "order");
    stream::wait_for(redis::shared(), &key, 1, Duration::from_secs(15)).await;
    // What a start brings with it is over.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let cpu = || instances.iter().map(|instance| process::cpu_time(instance.pid())).sum::<Duration>();
    let (before, cpu_before, began) = (transactions(&world.app).await, cpu(), Instant::now());
    tokio::time::sleep(WATCHED).await;
    let made = transactions(&world.app).await - before;
    let (watched, cpu) = (began.elapsed().as_secs_f64(), cpu() - cpu_before);
    let each = made as f64 / watched / instances.len() as f64;
    let share = cpu.as_secs_f64() / watched / instances.len() as f64;
    println!("an idle instance makes {each:.1} transactions a second and takes {:.2} % of a core", share * 100.0);
    assert!(each <= TRANSACTIONS_MAX, "{each} transactions a second and instance");
    assert!(share < SHARE_MAX, "{share} of a core");
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
        sql::until(&world.app, listens).await;
        sql::run(&world.app, "SELECT outboxd.publish('order', 'k', '{}')").await;
        let committed = std::time::Instant::now();
        stream::wait_for(redis::shared(), &key, n, Duration::from_secs(15)).await;
        waits.push(committed.elapsed());
    }
    waits.sort();
    println!("commit to stream: median {:?}, most {:?}", waits[5], waits[9]);
    assert!(waits[5] < Duration::from_millis(400), "{waits:?}");
}
