//! The same (topic, dedup_key) again, also in a race, returns the first id; other keys never wait.

use std::collections::{HashMap, HashSet};

use tokio_postgres::Client;

use crate::support::postgres;
use crate::support::sql::{Refusal, Sql, pid, until_blocked, value};

const NOTIFY_K: &str = "SELECT outboxd.notify('t', 'r', '{}', dedup_key => 'k')";

async fn rows(client: &Client) -> i64 {
    client.count("notification_log JOIN outboxd.outbox USING (id)").await
}

#[tokio::test]
async fn the_same_key_again_returns_the_first_id_and_enqueues_nothing() {
    let client = postgres::database().await.connect().await;
    let first: i64 = client.value(NOTIFY_K).await;
    assert_eq!(client.value::<i64>(NOTIFY_K).await, first);
    assert_eq!(rows(&client).await, 1);
    let other_topic: i64 = client.value("SELECT outboxd.notify('u', 'r', '{}', dedup_key => 'k')").await;
    assert_ne!(other_topic, first, "a key belongs to its topic");
    client.run("UPDATE outboxd.notification_log SET status = 'SENT', finished_at = now()").await;
    client.run("DELETE FROM outboxd.outbox").await;
    assert_eq!(client.value::<i64>(NOTIFY_K).await, first, "also after it was sent");
    assert_eq!(rows(&client).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_at_once_with_a_hundred_keys_give_a_hundred_ids() {
    let database = postgres::database().await;
    let callers = (0..50_usize).map(|caller| {
        let database = database.clone();
        tokio::spawn(async move {
            let client = database.connect().await;
            let mut ids = Vec::new();
            for call in 0..20 {
                // Each caller takes the keys from another start, so that most keys meet in a race.
                let key = format!("key {}", (caller * 20 + call * 7) % 100);
                let sql = "SELECT outboxd.notify('t', 'r', '{}', dedup_key => $1)";
                ids.push((key.clone(), client.query_one(sql, &[&key]).await.unwrap().get::<_, i64>(0)));
            }
            ids
        })
    });
    let mut ids: HashMap<String, HashSet<i64>> = HashMap::new();
    let mut calls = 0;
    for caller in callers.collect::<Vec<_>>() {
        for (key, id) in caller.await.unwrap() {
            ids.entry(key).or_default().insert(id);
            calls += 1;
        }
    }
    assert_eq!(calls, 1000);
    assert_eq!(ids.len(), 100);
    assert!(ids.values().all(|ids| ids.len() == 1), "each key has one id: {ids:?}");
    assert_eq!(rows(&database.connect().await).await, 100);
}

#[tokio::test]
async fn the_second_of_two_at_once_waits_and_gets_the_firsts_id() {
    let database = postgres::database().await;
    let (first, second, observer) = (database.connect().await, database.connect().await, database.connect().await);
    first.run("BEGIN").await;
    let id: i64 = first.value(NOTIFY_K).await;
    let waiter = pid(&second).await;
    let (got, ()) = tokio::join!(value::<i64>(&second, NOTIFY_K), async {
        until_blocked(&observer, waiter).await;
        first.run("COMMIT").await;
    });
    assert_eq!(got, id);
    assert_eq!(rows(&observer).await, 1);
}

#[tokio::test]
async fn if_the_first_rolls_back_while_the_second_waits_the_seconds_row_stays() {
    let database = postgres::database().await;
    let (first, second, observer) = (database.connect().await, database.connect().await, database.connect().await);
    first.run("BEGIN").await;
    let lost: i64 = first.value(NOTIFY_K).await;
    let waiter = pid(&second).await;
    let (got, ()) = tokio::join!(value::<i64>(&second, NOTIFY_K), async {
        until_blocked(&observer, waiter).await;
        first.run("ROLLBACK").await;
    });
    assert_ne!(got, lost);
    assert_eq!(observer.value::<i64>("SELECT id FROM outboxd.notification_log").await, got);
    assert_eq!(rows(&observer).await, 1);
}

#[tokio::test]
async fn an_open_transaction_does_not_block_other_keys() {
    let database = postgres::database().await;
    let (first, second) = (database.connect().await, database.connect().await);
    first.run("BEGIN").await;
    first.run(NOTIFY_K).await;
    second.run("SET lock_timeout = '100ms'").await;
    second.run("SELECT outboxd.notify('t', 'r', '{}', dedup_key => 'other')").await;
    second.run("SELECT outboxd.notify('u', 'r', '{}', dedup_key => 'k')").await;
    second.run("SELECT outboxd.notify('t', 'r', '{}', ordering_key => 'k')").await;
    second.run("SELECT outboxd.notify('t', 'r', '{}')").await;
    assert_eq!(second.refused(NOTIFY_K).await.code, "55P03", "the same key does wait");
}

#[tokio::test]
async fn at_higher_isolation_levels_a_race_ends_with_the_first_id_or_40001() {
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let database = postgres::database().await;
        let (first, second) = (database.connect().await, database.connect().await);
        // The snapshot is older than the first one's commit.
        second.run(&format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM outboxd.notification_log")).await;
        let id: i64 = first.value(NOTIFY_K).await;
        let error = second.query_one(NOTIFY_K, &[]).await.expect_err("the row is invisible to the snapshot");
        assert_eq!(Refusal::of(&error).code, "40001", "{level}");
        // What the app's usual retry of the transaction gets.
        second.run(&format!("ROLLBACK; BEGIN ISOLATION LEVEL {level}")).await;
        assert_eq!(second.value::<i64>(NOTIFY_K).await, id, "{level}");
        assert_eq!(second.value::<i64>(NOTIFY_K).await, id, "twice in one transaction, {level}");
        second.run("COMMIT").await;
        assert_eq!(rows(&first).await, 1);
    }
}

#[tokio::test]
async fn a_plain_insert_of_a_taken_key_is_refused_by_name() {
    let client = postgres::database().await.connect().await;
    client.run(NOTIFY_K).await;
    let refusal = client
        .refused(
            "INSERT INTO outboxd.notification_log (topic, recipient, payload, dedup_key) VALUES ('t', 'r', '{}', 'k')",
        )
        .await;
    assert_eq!(refusal.code, "23505");
    assert!(refusal.message.contains("notification_log_dedup"), "{refusal:?}");
}
