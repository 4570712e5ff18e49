//! Campaigns: a great many rows that are due at once do not stand in front of anybody else's single row.

use std::time::{Duration, Instant};

use outboxd::producer::Producer;
use outboxd::store::Store;
use tokio_postgres::Client;

use crate::leader::config;
use crate::support::postgres;
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World};

async fn campaign(client: &Client, rows: u32) {
    let written = format!(
        "INSERT INTO outboxd.notification_log (topic, recipient, payload, send_at)
        SELECT 'campaign', 'c' || n, '{{}}', now() - interval '1 min' FROM generate_series(1, {rows}) n"
    );
    client.run(&written).await;
}

#[tokio::test]
async fn a_campaign_delays_no_single_notification_of_another_topic() {
    let world = World::new(Carrier::Memory).await;
    // A window to match what a debug build on a busy machine sends in a second.
    let setup = world.setup.clone().set("queue.window", 1000);
    let _instance = setup.start().await;
    world.run("SELECT outboxd.notify('known', 'first', '{}')").await;
    world.provider.wait_for(1, Duration::from_secs(10)).await;
    campaign(&world.app, 12_000).await;
    world.provider.wait_for(300, Duration::from_secs(20)).await;
    let started = Instant::now();
    let plain = "INSERT INTO outboxd.notification_log (topic, recipient, payload) VALUES";
    world.run(&format!("{plain} ('known', 'plain', '{{}}')")).await;
    world.run(&format!("{plain} ('unheard-of', 'new', '{{}}')")).await;
    world.run("SELECT outboxd.notify('known', 'notified', '{}')").await;
    let released = "SELECT count(*) = 0 FROM outboxd.notification_log WHERE topic <> 'campaign' AND status = 'PENDING'";
    world.until(released).await;
    let released = started.elapsed();
    let sent = "SELECT count(*) = 4 FROM outboxd.notifications WHERE topic <> 'campaign' AND status = 'SENT'";
    world.until(sent).await;
    let took = started.elapsed();
    let campaign_sent = world.provider.count() - 4;
    println!(
        "singles released after {released:?}, sent after {took:?}; {campaign_sent} of 12,000 of the campaign sent by then"
    );
    assert!(campaign_sent < 11_000, "the campaign still had rows waiting: {campaign_sent}");
}

#[tokio::test]
async fn the_dead_entries_of_a_campaign_do_not_hide_another_topics_rows() {
    let database = postgres::database().await;
    let (client, watcher) = (database.connect().await, database.connect().await);
    client.run("ALTER TABLE outboxd.notification_log SET (autovacuum_enabled = off)").await;
    let config = config(&database, &[]);
    let store = Store::open(&config).unwrap();
    let mut producer = Producer::new(store);
    campaign(&client, 60_000).await;
    // Somebody's snapshot keeps what is released from being removed.
    watcher.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").await;
    client.run("UPDATE outboxd.notification_log SET status = 'QUEUED' WHERE id <= 55000").await;
    for _ in 0..3 {
        assert!(producer.pass().await.unwrap().released > 0);
    }
    let before: i64 = client.count("outbox").await;
    for topic in ["aardvark", "campaign-2", "zebra"] {
        let written =
            format!("INSERT INTO outboxd.notification_log (topic, recipient, payload) VALUES ('{topic}', 'r', '{{}}')");
        client.run(&written).await;
        producer.pass().await.unwrap();
        let status = format!("SELECT status::text FROM outboxd.notification_log WHERE topic = '{topic}'");
        assert_eq!(client.value::<String>(&status).await, "QUEUED", "{topic} has its turn in the very next pass");
    }
    while producer.pass().await.unwrap().released > 0 {}
    client.until_count(0, "notification_log WHERE status = 'PENDING'").await;
    assert_eq!(client.count("outbox").await, 5_003, "{before} before");
}
