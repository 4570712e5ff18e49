//! Two relays at once: each row is reserved by one of them.

use std::sync::Arc;
use std::time::Duration;

use outboxd::queue::Message;
use outboxd::store::Store;
use outboxd::store::publish::{FreshScan, TopicScan};
use tokio::task::JoinSet;

use crate::duty::{config, register};
use crate::support::{postgres, sql};

const HOUR: Duration = Duration::from_secs(3_600);
const TOPICS: [&str; 3] = ["a", "b", "c"];

/// One batch of each kind: what was committed lately, what is left of each topic, what fell due.
async fn reserve(store: &Store, instance: i32) -> Vec<Message> {
    let fresh = FreshScan { last_id: i64::MAX, overlap: 1_000, skip: &[], take: 20 };
    let topics = TOPICS.map(|topic| TopicScan { topic: Arc::from(topic), after: 0, take: 20 });
    let due = TOPICS.map(|topic| (Arc::from(topic), 20));
    let fresh = store.reserve_fresh(fresh, instance, &[]).await.unwrap().found;
    let backlog = store.reserve_topics(&topics, instance, &[]).await.unwrap();
    let due = store.reserve_due(&due, HOUR, instance).await.unwrap().found;
    [fresh, backlog, due].into_iter().flat_map(|found| found.reserved.messages).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_relays_that_race_for_new_rows_backlogs_and_due_rows_reserve_each_once() {
    const ROWS: i64 = 6_000;
    let database = postgres::database().await;
    let app = database.connect().await;
    let notify = "SELECT outboxd.notify(CASE n % 3 WHEN 0 THEN 'a' WHEN 1 THEN 'b' ELSE 'c' END, 'r', '{}') FROM generate_series(1, 5000) n";
    sql::run(&app, notify).await;
    sql::run(&app, "UPDATE outboxd.outbox SET retry_at = now() - interval '1 min' WHERE id % 4 = 0").await;
    let mut racers = JoinSet::new();
    let mut instances = Vec::new();
    for _ in 0..3 {
        let (instance, looker) = (register(&app).await, database.connect().await);
        let store = Store::open(&config(&database, &[])).unwrap();
        instances.push(instance);
        racers.spawn(async move {
            let mut reserved = Vec::new();
            while sql::value::<i64>(&looker, "SELECT count(*) FROM outboxd.outbox WHERE state = 'published'").await
                < ROWS
            {
                reserved.extend(reserve(&store, instance).await);
            }
            reserved
        });
    }
    // And somebody who writes meanwhile.
    for n in 0..100 {
        sql::run(&app, &format!("SELECT outboxd.notify('{}', 'r', '{{}}') FROM generate_series(1, 10)", TOPICS[n % 3]))
            .await;
    }
    let shares = racers.join_all().await;
    assert!(
        shares.iter().all(|share| share.len() > 100),
        "they raced: {:?}",
        shares.iter().map(Vec::len).collect::<Vec<_>>()
    );
    let mut ids: Vec<i64> = shares.iter().flatten().map(|message| message.id).collect();
    ids.sort_unstable();
    assert_eq!(ids, (1..=ROWS).collect::<Vec<_>>(), "each once");
    // And each stands under one publication, of whoever reserved it.
    let under_one = "SELECT count(*) FROM outboxd.outbox o JOIN outboxd.publication p ON o.id = ANY (p.ids) AND o.instance = p.instance";
    assert_eq!(sql::value::<i64>(&app, under_one).await, ROWS);
}
