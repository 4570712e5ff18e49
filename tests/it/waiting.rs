//! What waits says why: by id at any size, in counts, and without an alarm where all is well.

use std::time::{Duration, Instant};

use tokio_postgres::Client;

use crate::support::postgres;
use crate::support::sql::{run, until, value, values};
use crate::support::world::{Carrier, World};

/// The answer to a question that must take less than 100 ms at its best.
async fn at_once(client: &Client, question: &str) -> Option<String> {
    let mut best = Duration::MAX;
    let mut answer = None;
    for _ in 0..5 {
        let started = Instant::now();
        answer = client.query_opt(question, &[]).await.unwrap().map(|row| row.get(0));
        best = best.min(started.elapsed());
    }
    assert!(best < Duration::from_millis(100), "{question} takes {best:?}");
    answer
}

fn reason_of(id: i64) -> String {
    format!("SELECT reason FROM outboxd.stuck WHERE id = {id}")
}

/// Everything was written so long ago.
async fn age(client: &Client, span: &str) {
    let aged = format!(
        "UPDATE outboxd.notification_log SET created_at = now() - interval '{span}', send_at = now() - interval '{span}'"
    );
    run(client, &aged).await;
}

#[tokio::test]
async fn a_row_deep_in_a_backlog_says_at_once_why_it_waits() {
    let client = postgres::database().await.connect().await;
    run(
        &client,
        "INSERT INTO outboxd.route VALUES ('default', 0, 'sms');
         INSERT INTO outboxd.channel_state (channel, held_until, reason) VALUES ('sms', now() + interval '1 min', 'failures');
         SELECT count(outboxd.notify('orders', 'r', '{}')) FROM generate_series(1, 20000);
         INSERT INTO outboxd.notification_log (topic, recipient, payload, send_at)
         SELECT 'later', 'r', '{}', now() - interval '1 min' FROM generate_series(1, 20000)",
    )
    .await;
    for id in [1, 2_001, 19_999] {
        assert_eq!(at_once(&client, &reason_of(id)).await.as_deref(), Some("circuit open"), "{id}");
    }
    for id in [20_001, 39_999] {
        assert_eq!(at_once(&client, &reason_of(id)).await.as_deref(), Some("never released"), "{id}");
    }
    let all = "SELECT string_agg(concat_ws(' ', reason, count), ', ') FROM (SELECT reason, count(*) FROM outboxd.stuck GROUP BY 1 ORDER BY 1) s";
    assert_eq!(value::<String>(&client, all).await, "circuit open 20000, never released 20000");
}

#[tokio::test]
async fn a_campaign_at_its_rate_limit_is_well() {
    let world = World::new(Carrier::Memory).await;
    let _instance = world.setup.clone().set("channels.webhook.rate_limit", "50/s").start().await;
    world.notify(3_000).await;
    age(&world.app, "5 min").await;
    until(&world.app, "SELECT count(*) BETWEEN 1000 AND 2800 FROM outboxd.outbox").await;
    let level = "SELECT level FROM outboxd.health WHERE name = 'relay_lag'";
    assert_eq!(value::<String>(&world.app, level).await, "ok");
}
