//! Two relays at once: each row is reserved by one of them.

use std::sync::Arc;
use std::time::Duration;

use outboxd::queue::Message;
use outboxd::store::Store;
use outboxd::store::publish::{FreshScan, TopicScan};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::leader::{config, register};
use crate::support::postgres;
use crate::support::sql::Sql;

const HOUR: Duration = Duration::from_secs(3_600);
const TOPICS: [&str; 3] = ["a", "b", "c"];
const RELAYS: usize = 3;

/// One batch of each kind, at the same moment as the others: what was committed lately, what is left of each topic,
/// what fell due.
async fn reserve(store: &Store, instance: i32, others: &Barrier) -> Vec<Message> {
    let fresh = FreshScan { last_id: i64::MAX, overlap: 1_000, skip: &[], only: None, rows_max: 10 };
    let topics = TOPICS.map(|topic| TopicScan { topic: Arc::from(topic), after: 0, rows_max: 10 });
    let due = TOPICS.map(|topic| (Arc::from(topic), 10));
    others.wait().await;
    let fresh = store.reserve_fresh(fresh, instance, &[]).await.unwrap().found;
    others.wait().await;
    let backlog = store.reserve_topics(&topics, instance, &[]).await.unwrap();
    others.wait().await;
    let due = store.reserve_due(&due, &vec![0; due.len()], HOUR, instance).await.unwrap().found;
    [fresh, backlog, due].into_iter().flat_map(|found| found.reserved.messages).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relays_that_race_for_new_rows_backlogs_and_due_rows_reserve_each_once() {
    const ROWS: i64 = 6_000;
    let database = postgres::database().await;
    let app = database.connect().await;
    let topic = "CASE n % 3 WHEN 0 THEN 'a' WHEN 1 THEN 'b' ELSE 'c' END";
    let notify = |rows| format!("SELECT outboxd.notify({topic}, 'r', '{{}}') FROM generate_series(1, {rows}) n");
    app.run(&notify(5_000)).await;
    app.run("UPDATE outboxd.outbox SET retry_at = now() - interval '1 min' WHERE id % 4 = 0").await;
    let (mut racers, others) = (JoinSet::new(), Arc::new(Barrier::new(RELAYS)));
    for relay in 0..RELAYS {
        let (instance, writer, others) = (register(&app).await, database.connect().await, Arc::clone(&others));
        let store = Store::open(&config(&database, &[])).unwrap();
        let write = notify(20);
        racers.spawn(async move {
            let mut reserved = Vec::new();
            for round in 0..80 {
                // Somebody writes meanwhile.
                if relay == 0 && round < 50 {
                    writer.run(&write).await;
                }
                reserved.extend(reserve(&store, instance, &others).await);
            }
            reserved
        });
    }
    let shares = racers.join_all().await;
    let counts: Vec<usize> = shares.iter().map(Vec::len).collect();
    assert!(counts.iter().all(|reserved| *reserved > 500), "they raced: {counts:?}");
    let mut ids: Vec<i64> = shares.iter().flatten().map(|message| message.id).collect();
    ids.sort_unstable();
    assert_eq!(ids, (1..=ROWS).collect::<Vec<_>>(), "each once");
    // And each stands under a publication of whoever reserved it.
    let under_its_own = "outbox o JOIN outboxd.publication p ON o.id = ANY (p.ids) AND o.instance = p.instance";
    assert_eq!(app.count(under_its_own).await, ROWS);
}
