//! Ordering keys under race: released in order whoever releases, and one row at a time with its turn.

use std::time::Duration;

use chrono::{DateTime, Utc};
use outboxd::store::Store;
use outboxd::store::publish::OrderingKey;
use outboxd::store::release::TopicScan;
use tokio::task::JoinSet;
use tokio_postgres::Client;

use crate::leader::config;
use crate::support::postgres;
use crate::support::sql::{self, Sql};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn producers_that_race_for_due_rows_of_the_same_keys_release_each_key_in_order() {
    const ROWS: i64 = 3_000;
    let database = postgres::database().await;
    let app = database.connect().await;
    // Of two topics, due at odd times, some at the same time.
    let insert = format!(
        "INSERT INTO outboxd.notification_log (topic, recipient, payload, ordering_key, send_at)
         SELECT CASE n % 2 WHEN 0 THEN 'a' ELSE 'b' END, 'r', '{{}}', 'k' || n % 7, now() - (n * 7919 % 1000) * interval '1 s'
           FROM generate_series(1, {ROWS}) n"
    );
    app.run(&insert).await;
    let from_the_start = |topic: &str, rows_max| TopicScan {
        topic: topic.to_owned(),
        after: (DateTime::<Utc>::UNIX_EPOCH, 0),
        rows_max,
    };
    let mut producers = JoinSet::new();
    for rows_max in [5, 7, 11] {
        let (store, watcher) = (Store::open(&config(&database, &[])).unwrap(), database.connect().await);
        let scans = [from_the_start("a", rows_max), from_the_start("b", rows_max)];
        producers.spawn(async move {
            let mut released = 0;
            while watcher.count("outbox").await < ROWS {
                released += store.release_due(&scans).await.unwrap().rows;
            }
            released
        });
    }
    let shares: Vec<u64> = producers.join_all().await;
    println!("released by each: {shares:?}");
    assert!(shares.iter().all(|share| *share > 100) && shares.iter().sum::<u64>() == ROWS as u64, "{shares:?}");
    let inversions = "SELECT count(*) FROM (
        SELECT o.seq, lag(o.seq) OVER (PARTITION BY o.topic, o.ordering_key ORDER BY l.send_at, l.id) AS before
          FROM outboxd.outbox o JOIN outboxd.notification_log l USING (id)) s WHERE s.seq < s.before";
    assert_eq!(app.value::<i64>(inversions).await, 0);
}

#[tokio::test]
async fn a_due_row_that_somebody_holds_keeps_no_row_of_another_topic_with_its_key_waiting() {
    let database = postgres::database().await;
    let (app, mut holder) = (database.connect().await, database.connect().await);
    let insert = "INSERT INTO outboxd.notification_log (topic, recipient, payload, ordering_key, send_at)
                  SELECT t, 'r', '{}', 'k', now() - n * interval '1 min' FROM unnest('{a,b}'::text[]) t, generate_series(1, 2) n";
    app.run(insert).await;
    let holding = holder.transaction().await.unwrap();
    let first = "SELECT FROM outboxd.notification_log WHERE topic = 'a' ORDER BY send_at LIMIT 1 FOR UPDATE";
    holding.execute(first, &[]).await.unwrap();
    let store = Store::open(&config(&database, &[])).unwrap();
    let scan =
        |topic: &str| TopicScan { topic: topic.to_owned(), after: (DateTime::<Utc>::UNIX_EPOCH, 0), rows_max: 10 };
    assert_eq!(store.release_due(&[scan("a"), scan("b")]).await.unwrap().rows, 2, "both of b");
    assert_eq!(app.value::<String>("SELECT string_agg(topic, ' ') FROM outboxd.outbox").await, "b b");
}

fn key(key: &str) -> OrderingKey {
    OrderingKey { topic: "t".to_owned(), key: key.to_owned() }
}

/// Two rows of one key. The one with the lower position is not committed yet, and somebody is about to give the other
/// its turn.
async fn race(
    app: &mut Client,
    late: &mut Client,
    other: &mut Client,
    store: &Store,
    other_commits: bool,
) -> (u64, String) {
    let notify = "SELECT outboxd.notify('t', 'r', '{}', ordering_key => 'k')";
    let (late, other) = (late.transaction().await.unwrap(), other.transaction().await.unwrap());
    late.query_one(notify, &[]).await.unwrap();
    app.run(notify).await;
    other.execute("SELECT outboxd._admit('{t}', '{k}')", &[]).await.unwrap();
    late.commit().await.unwrap();
    // It sees the lower one, and nobody with the turn: the other's is not committed.
    assert_eq!(store.admit(&[key("k")]).await.unwrap(), 0, "and does not wait");
    if other_commits {
        other.commit().await.unwrap();
    } else {
        other.rollback().await.unwrap();
    }
    let admitted = store.admit(&[key("k")]).await.unwrap();
    let turns = "SELECT string_agg(has_turn::text, ' ' ORDER BY seq) FROM outboxd.outbox";
    (admitted, app.value(turns).await)
}

#[tokio::test]
async fn of_two_who_admit_rows_of_one_key_at_once_the_second_tries_again() {
    for (other_commits, expected) in [(true, (0, "false true")), (false, (1, "true false"))] {
        let database = postgres::database().await;
        let (mut app, mut late, mut other) =
            (database.connect().await, database.connect().await, database.connect().await);
        let store = Store::open(&config(&database, &[])).unwrap();
        let (admitted, turns) = race(&mut app, &mut late, &mut other, &store, other_commits).await;
        assert_eq!((admitted, turns.as_str()), expected);
        let second = "UPDATE outboxd.outbox SET has_turn = true, state = 'ready'";
        assert_eq!(app.refused(second).await.code, "23505", "the table itself knows no two");
    }
}

#[tokio::test]
async fn an_admission_of_two_keys_and_a_cancel_of_their_heads_do_not_wait_for_each_other() {
    let database = postgres::database().await;
    let (app, mut holder, operator) = (database.connect().await, database.connect().await, database.connect().await);
    let store = Store::open(&config(&database, &[])).unwrap();
    // By id the cancel comes to b first, by key the admission comes to a first.
    for key in ["b", "a"] {
        app.run(&format!("SELECT outboxd.notify('t', 'r', '{{}}', ordering_key => '{key}')")).await;
    }
    let holding = holder.transaction().await.unwrap();
    holding.execute("SELECT FROM outboxd.outbox WHERE ordering_key = 'b' FOR UPDATE", &[]).await.unwrap();
    let pid = sql::pid(&operator).await;
    let canceling = tokio::spawn(async move {
        let cancel = r#"SELECT done FROM outboxd.cancel_where('{"topic": "t"}', dry_run => false)"#;
        operator.query_one(cancel, &[]).await.map(|row| row.get::<_, i64>(0))
    });
    sql::until_blocked(&app, pid).await;
    let admitting = tokio::spawn(async move { store.admit(&[key("a"), key("b")]).await });
    tokio::time::timeout(Duration::from_secs(10), admitting).await.expect("it does not wait").unwrap().unwrap();
    holding.rollback().await.unwrap();
    assert_eq!(canceling.await.unwrap().expect("no deadlock"), 2);
}
