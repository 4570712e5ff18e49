//! What waits for a time: the row says when, and a timer says where to look.

use std::collections::HashMap;
use std::time::Duration;

use outboxd::queue::Message;
use outboxd::store::Store;
use outboxd::store::claim::Release;
use tokio::task::JoinSet;
use tokio_postgres::Client;

use crate::duty::{config, register};
use crate::support::{postgres, sql};

const FOREVER: Duration = Duration::from_secs(1_000_000);
const LEASE: Duration = Duration::from_secs(60);
/// Every row becomes due now.
const MAKE_DUE: &str = "WITH due AS (UPDATE outboxd.outbox SET retry_at = now() RETURNING id, retry_at)
                        INSERT INTO outboxd.timer (at, id) SELECT retry_at, id FROM due";
const TIMERS: &str = "SELECT count(*) FROM outboxd.timer";

async fn rows(count: i32) -> (postgres::Database, Client, Store, i32) {
    let database = postgres::database().await;
    let client = database.connect().await;
    let store = Store::open(&config(&database, &[])).unwrap();
    let instance = register(&client).await;
    let write = format!("SELECT outboxd.notify('orders', 'r', '{{}}') FROM generate_series(1, {count})");
    sql::run(&client, &write).await;
    (database, client, store, instance)
}

/// Reserves up to ten due rows: the ids of their messages, and how many timers were found.
async fn reserve(store: &Store, instance: i32) -> (Vec<i64>, u64) {
    let (reserved, found) = store.reserve_due(FOREVER, 10, instance).await.unwrap();
    (reserved.messages.iter().map(|message| message.id).collect(), found)
}

#[tokio::test]
async fn a_timer_whose_row_has_moved_on_is_void_and_goes() {
    let (_database, client, store, instance) = rows(3).await;
    sql::run(&client, MAKE_DUE).await;
    // One is canceled, a late message takes another, the third is put off.
    sql::run(&client, "SELECT outboxd.cancel(1)").await;
    store.claim(&[Message { id: 2, epoch: 0 }], instance, LEASE, &[]).await.unwrap();
    store.claim(&[Message { id: 3, epoch: 0 }], instance, LEASE, &[]).await.unwrap();
    store.release(&[Release { id: 3, token: 1, wait: LEASE, next_channel: None }]).await.unwrap();
    assert_eq!(sql::value::<i64>(&client, TIMERS).await, 4);
    // They are found, so that a relay with many of them goes on to those behind them, and lead to nothing.
    assert_eq!(reserve(&store, instance).await, (vec![], 3));
    let left = "SELECT string_agg(format('%s %s', t.id, t.at = o.retry_at AND o.state = 0), ',')
                  FROM outboxd.timer t JOIN outboxd.outbox o USING (id)";
    assert_eq!(sql::value::<String>(&client, left).await, "3 t", "what was put off keeps its new timer");
    assert_eq!(reserve(&store, instance).await, (vec![], 0));
    let next = store.next_timer(FOREVER).await.unwrap().expect("a timer");
    assert!(next > LEASE / 2 && next <= LEASE, "{next:?}");
}

#[tokio::test]
async fn a_due_row_that_somebody_has_locked_keeps_its_timer() {
    let (database, client, store, instance) = rows(2).await;
    sql::run(&client, MAKE_DUE).await;
    let mut other = database.connect().await;
    let holds = other.transaction().await.unwrap();
    holds.batch_execute("SELECT FROM outboxd.outbox WHERE id = 1 FOR UPDATE").await.unwrap();
    assert_eq!(reserve(&store, instance).await, (vec![2], 1));
    assert_eq!(sql::values::<i64>(&client, "SELECT id FROM outboxd.timer").await, [1]);
    holds.rollback().await.unwrap();
    assert_eq!(reserve(&store, instance).await, (vec![1], 1));
    assert_eq!(sql::value::<i64>(&client, TIMERS).await, 0);
}

#[tokio::test]
async fn a_due_row_without_a_timer_is_found_by_the_sweep() {
    let (_database, client, store, instance) = rows(3).await;
    // As an instance leaves them that knows of no timers.
    sql::run(&client, "UPDATE outboxd.outbox SET retry_at = now() + (id - 2) * interval '1 min'").await;
    assert_eq!(reserve(&store, instance).await, (vec![], 0));
    assert_eq!(store.adopt_timers(LEASE * 2, 10).await.unwrap(), 0, "too early to tell");
    assert_eq!(store.adopt_timers(Duration::ZERO, 10).await.unwrap(), 2, "the third's time has not come");
    assert_eq!(store.adopt_timers(Duration::ZERO, 10).await.unwrap(), 0, "they have theirs");
    assert_eq!(reserve(&store, instance).await, (vec![1, 2], 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_relays_that_race_for_due_rows_while_some_are_claimed_and_put_off_each_is_reserved_once() {
    const ROWS: i32 = 2_000;
    let (_database, client, store, instance) = rows(ROWS).await;
    sql::run(&client, MAKE_DUE).await;
    let mut relays = JoinSet::new();
    for _ in 0..4 {
        let store = store.clone();
        relays.spawn(async move {
            let mut ids = Vec::new();
            loop {
                match reserve(&store, instance).await {
                    (_, 0) => return ids,
                    (more, _) => ids.extend(more),
                }
            }
        });
    }
    // Late messages of every fifth row, whose claims are undone at once.
    let messages: Vec<Message> = (1..=i64::from(ROWS)).step_by(5).map(|id| Message { id, epoch: 0 }).collect();
    let mut put_off = Vec::new();
    for message in &messages {
        let cases = store.claim(std::slice::from_ref(message), instance, LEASE, &[]).await.unwrap();
        if cases[0].1.name() == "claimed" {
            let release = Release { id: message.id, token: 1, wait: Duration::ZERO, next_channel: None };
            store.release(&[release]).await.unwrap();
            put_off.push(message.id);
        }
    }
    let mut reserved: HashMap<i64, usize> = HashMap::new();
    while let Some(ids) = relays.join_next().await {
        ids.unwrap().into_iter().for_each(|id| *reserved.entry(id).or_default() += 1);
    }
    // What was put off after the relays had looked.
    loop {
        match reserve(&store, instance).await {
            (_, 0) => break,
            (more, _) => more.into_iter().for_each(|id| *reserved.entry(id).or_default() += 1),
        }
    }
    assert!(!put_off.is_empty(), "no claim was in time");
    let missing = (1..=i64::from(ROWS)).filter(|id| !reserved.contains_key(id)).count();
    assert_eq!(missing, 0, "rows without a message");
    // Twice: before its late message, and after its claim was undone.
    let twice = |id: &i64| put_off.binary_search(id).is_ok();
    let often: Vec<_> = reserved.iter().filter(|(id, times)| **times > 1 + usize::from(twice(id))).collect();
    assert!(often.is_empty(), "{often:?}");
    assert_eq!(sql::value::<i64>(&client, TIMERS).await, 0);
    let published = "SELECT count(*) = 2000 FROM outboxd.outbox WHERE state = 1 AND retry_at IS NULL";
    assert!(sql::value::<bool>(&client, published).await);
}

#[tokio::test]
async fn a_key_cannot_have_two_rows_that_have_their_turn() {
    let (_database, client, _store, _instance) = rows(0).await;
    sql::run(
        &client,
        "SELECT outboxd.notify('orders', 'r', '{}', ordering_key => 'k') FROM generate_series(1, 3);
         UPDATE outboxd.outbox SET state = 0, live_key = 'k' WHERE id = 2",
    )
    .await;
    let second = client.batch_execute("UPDATE outboxd.outbox SET state = 0, live_key = 'k' WHERE id = 1").await;
    let error = second.expect_err("one has its turn");
    let constraint = error.as_db_error().and_then(|db| db.constraint()).map(str::to_owned);
    assert_eq!(constraint.as_deref(), Some("a_key_has_at_most_one_live_row"));
    // Nor does anybody try, although a lower number waits.
    sql::run(&client, "SELECT outboxd._admit('{k}')").await;
    let line = "SELECT string_agg(state::text, ',' ORDER BY id) FROM outboxd.outbox";
    assert_eq!(sql::value::<String>(&client, line).await, "3,0,3");
    sql::run(&client, "DELETE FROM outboxd.outbox WHERE id = 2; SELECT outboxd._admit('{k}')").await;
    assert_eq!(sql::value::<String>(&client, line).await, "0,3");
}
