//! A great many topics whose rows are due far in the future cost nothing: what is due is found by its time.

use std::time::{Duration, Instant};

use outboxd::producer::Producer;
use outboxd::store::Store;
use tokio_postgres::Client;

use crate::leader::config;
use crate::support::postgres::{self, Database};
use crate::support::sql::{self, Sql};

const TOPICS: i64 = 100_000;

/// One row each, due in a month.
async fn far_topics(client: &Client) {
    let far = format!(
        "INSERT INTO outboxd.notification_log (topic, recipient, payload, send_at)
         SELECT 'far-' || n, 'r', '{{}}', now() + interval '30 days' + n * interval '1 s' FROM generate_series(1, {TOPICS}) n"
    );
    client.run(&far).await;
}

async fn producer(database: &Database) -> Producer {
    Producer::new(Store::open(&config(database, &[])).unwrap())
}

fn is_released(topic: &str) -> String {
    format!("SELECT bool_and(status = 'QUEUED') FROM outboxd.notification_log WHERE topic = '{topic}'")
}

/// Entries of this index that were read; sessions tell when they end.
async fn entries_read(client: &Client, index: &str) -> i64 {
    let calm = "SELECT count(*) = 0 FROM pg_stat_activity
                 WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()";
    client.until(calm).await;
    let read = format!(
        "SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes WHERE schemaname = 'outboxd' AND indexrelname ~ '{index}'"
    );
    client.value(&read).await
}

#[tokio::test]
async fn a_row_that_is_due_goes_at_once_beside_100_000_topics_due_next_month() {
    let database = postgres::database().await;
    let client = database.connect().await;
    far_topics(&client).await;
    let before = entries_read(&client, "^notification_log.*_due$").await;
    let mut producer = producer(&database).await;
    for round in 1..=5 {
        // The last of all by name.
        let topic = format!("zzz-{round}");
        let due = "INSERT INTO outboxd.notification_log (topic, recipient, payload) VALUES";
        client.run(&format!("{due} ('{topic}', 'r', '{{}}')")).await;
        let started = Instant::now();
        assert_eq!(producer.pass().await.unwrap().released, 1, "the very next pass releases it");
        println!("released after {:?}", started.elapsed());
        assert!(client.value::<bool>(&is_released(&topic)).await);
    }
    drop(producer);
    let read = entries_read(&client, "^notification_log.*_due$").await - before;
    println!("5 passes read {read} index entries beside {TOPICS} topics");
    assert!(read < 500, "5 passes read {read} entries");
}

#[tokio::test]
async fn the_next_row_goes_to_the_moment_beside_100_000_topics_due_next_month() {
    let database = postgres::database().await;
    let client = database.connect().await;
    far_topics(&client).await;
    let mut producer = producer(&database).await;
    while producer.pass().await.unwrap().released > 0 {}
    assert!(producer.next_due().is_none_or(|next_in| next_in > Duration::from_secs(60)), "nothing is due soon");
    let soon = "INSERT INTO outboxd.notification_log (topic, recipient, payload, send_at)
                SELECT 'soon-' || n, 'r', '{}', clock_timestamp() + n * interval '700 ms' FROM generate_series(1, 3) n";
    client.run(soon).await;
    let mut released = 0;
    while released < 3 {
        released += producer.pass().await.unwrap().released;
        if released < 3 {
            let next_in = producer.next_due().expect("the next is known");
            assert!(next_in < Duration::from_secs(1), "{next_in:?}");
            tokio::time::sleep(next_in.max(Duration::from_millis(1))).await;
        }
    }
    let late = "SELECT max(extract(epoch FROM o.retry_at - l.due_at_was))::float8
                  FROM outboxd.outbox o JOIN (SELECT id, send_at AS due_at_was FROM outboxd.notification_log) l USING (id)";
    let late: f64 = client.value(late).await;
    println!("released at most {late:.3} s after it was due");
    assert!((0.0..0.5).contains(&late), "{late} s");
}

#[tokio::test]
async fn after_a_long_outage_topics_take_turns_whenever_their_rows_were_due() {
    let database = postgres::database().await;
    let client = database.connect().await;
    // An outage of five hours: a row of one topic fell due each second, and of others late in it.
    let missed = "INSERT INTO outboxd.notification_log (topic, recipient, payload, send_at)
                  SELECT 'campaign', 'r', jsonb '{}', now() - n * interval '1 s' FROM generate_series(10, 18000) n
                  UNION ALL
                  SELECT 'small-' || n, 'r', '{}', now() - interval '1 s' FROM generate_series(1, 1000) n";
    client.run(missed).await;
    let mut producer = producer(&database).await;
    let small = "SELECT count(*) = 0 FROM outboxd.notification_log WHERE topic <> 'campaign' AND status = 'PENDING'";
    let mut released = 0;
    while !client.value::<bool>(small).await {
        released += producer.pass().await.unwrap().released;
        assert!(released < 17_000, "the campaign does not stand in front: {released} went before");
    }
    println!("{} of the campaign went before the last of the small topics", released - 1_000);
    loop {
        let counts = producer.pass().await.unwrap();
        if counts.released == 0 && producer.next_due().is_none_or(|next_in| next_in > Duration::ZERO) {
            break;
        }
    }
    let left = "SELECT count(*) FROM outboxd.notification_log WHERE status = 'PENDING'";
    assert_eq!(client.value::<i64>(left).await, 0, "nothing is left behind");
}

#[tokio::test]
async fn health_and_stuck_find_what_is_overdue_beside_100_000_topics() {
    let database = postgres::database().await;
    let client = database.connect().await;
    far_topics(&client).await;
    let overdue = "INSERT INTO outboxd.notification_log (topic, recipient, payload, send_at)
                   VALUES ('zzz', 'r', '{}', now() - interval '30 s')";
    client.run(overdue).await;
    // As a running instance does: a large backlog is counted once, and not by whoever asks.
    let written = "INSERT INTO outboxd.instance (ttl, pid, roles, queue_kind, host, version) VALUES ('1 h', 1, '{relay}', 'memory', 'h', '1');
        SELECT outboxd._take_snapshot()";
    client.run(written).await;
    let read = sql::rows_read(
        &client,
        "notification_log",
        "SELECT (SELECT value FROM outboxd.health WHERE name = 'overdue'), (SELECT reason FROM outboxd.stuck WHERE topic = 'zzz')",
    )
    .await;
    println!("both read {read} rows and entries");
    assert!(read < 1_000, "{read} rows and entries");
    let said = "SELECT (SELECT level FROM outboxd.health WHERE name = 'overdue') || ' ' || (SELECT reason FROM outboxd.stuck WHERE topic = 'zzz')";
    assert_eq!(client.value::<String>(said).await, "warn never released");
}
