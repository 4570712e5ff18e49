//! Retention: what is past its time goes, in steps that wait for nobody; what is not, stays.

use outboxd::store::Store;
use outboxd::store::retention::Scanned;
use outboxd::upkeep::retention::{Retention, Table};
use tokio_postgres::Client;

use crate::leader::{config, held};
use crate::support::postgres;
use crate::support::sql::Sql;

/// (status, written, ended), in days ago.
const ROWS: &str = "INSERT INTO outboxd.notification_log (status, created_at, finished_at, error, topic, recipient, payload, dedup_key)
    SELECT s::outboxd.notification_status, now() - c * interval '1 day', now() - f * interval '1 day',
           CASE s WHEN 'FAILED' THEN 'e' END, 't', s || c, '{}', s || c FROM ";

async fn setup(set: &[(&str, &str)]) -> (Client, Retention) {
    let database = postgres::database().await;
    let client = database.connect().await;
    let config = config(&database, set);
    let store = Store::open(&config).unwrap();
    let (lease, _) = held(&store, &client, outboxd::upkeep::retention::LEASE).await;
    (client, Retention::new(store, lease, config.retention))
}

/// Steps until the scan is at its end; rows deleted.
async fn clear(retention: &mut Retention, table: Table) -> u64 {
    let mut deleted = 0;
    loop {
        let step = retention.pass(table).await.unwrap();
        deleted += step.deleted;
        if step.is_caught_up.expect("the lease is ours") {
            return deleted;
        }
    }
}

/// A day later, as far as scans go.
async fn next_day(client: &Client) {
    client.run("UPDATE outboxd.retention_progress SET restarted_at = restarted_at - interval '25 h'").await;
}

#[tokio::test]
async fn each_outcome_is_kept_for_its_own_time_and_what_is_alive_stays() {
    let (client, mut retention) = setup(&[]).await;
    let rows = "(VALUES ('SENT', 9, 8.5), ('SENT', 8, 6), ('SENT', 6, 5), ('FAILED', 31, 30.1), ('FAILED', 29, 28),
                        ('CANCELED', 40, 8), ('CANCELED', 8, 6.9), ('PENDING', 400, NULL), ('QUEUED', 399, NULL)) v(s, c, f)";
    client.run(&format!("{ROWS} {rows}")).await;
    client.run("INSERT INTO outboxd.attempt (notification_id, token, outcome) SELECT id, 1, 'failed' FROM outboxd.notification_log").await;
    assert_eq!(clear(&mut retention, Table::Notifications).await, 3);
    let left: Vec<String> = client.values("SELECT dedup_key FROM outboxd.notification_log ORDER BY id").await;
    assert_eq!(left, ["SENT8", "SENT6", "FAILED29", "CANCELED8", "PENDING400", "QUEUED399"]);
    assert_eq!(client.count("attempt").await, 6, "attempts go with their row");

    client.run("UPDATE outboxd.notification_log SET finished_at = finished_at - interval '3 days'").await;
    assert_eq!(clear(&mut retention, Table::Notifications).await, 0, "the scan has passed them");
    next_day(&client).await;
    assert_eq!(clear(&mut retention, Table::Notifications).await, 3, "the next scan finds what the first had to leave");
    let left: Vec<String> = client.values("SELECT dedup_key FROM outboxd.notification_log ORDER BY id").await;
    assert_eq!(left, ["SENT6", "PENDING400", "QUEUED399"]);
}

#[tokio::test]
async fn a_dedup_key_is_remembered_as_long_as_its_row() {
    let (client, mut retention) = setup(&[]).await;
    let notify = "SELECT outboxd.notify('t', 'r', '{}', dedup_key => 'k')";
    let first: i64 = client.value(notify).await;
    let end = "UPDATE outboxd.notification_log SET status = 'SENT', created_at = now() - interval '9 days', finished_at = now() - ";
    client.run(&format!("{end} interval '6 days'")).await;
    clear(&mut retention, Table::Notifications).await;
    assert_eq!(client.value::<i64>(notify).await, first);
    client.run(&format!("{end} interval '8 days'")).await;
    next_day(&client).await;
    assert_eq!(clear(&mut retention, Table::Notifications).await, 1);
    assert!(client.value::<i64>(notify).await > first);
}

#[tokio::test]
async fn what_is_past_its_time_goes_but_no_event_that_is_still_to_be_appended() {
    let (client, mut retention) = setup(&[]).await;
    let days = "now() - n * interval '1 day' FROM generate_series(1, 100) n";
    for insert in [
        format!(
            "outboxd.attempt (notification_id, token, outcome, ended_at) SELECT 0, n, 'failed', {days} ORDER BY n DESC"
        ),
        format!("outboxd.event (topic, key, payload, created_at) SELECT 't', 'k', '{{}}', {days} ORDER BY n DESC"),
        format!("outboxd.inbox (consumer, message_id, owner, received_at) SELECT 'c', n, 'o', {days} ORDER BY n DESC"),
        format!("outboxd.idempotency (token, key, digest, ids, at) SELECT 't', n, '', '{{}}', {days} ORDER BY n DESC"),
        format!("outboxd.audit (action, subject, affected, at) SELECT 'a', n, 1, {days} ORDER BY n DESC"),
    ] {
        client.run(&format!("INSERT INTO {insert}")).await;
    }
    client.run("INSERT INTO outboxd.event_outbox (event_id, topic) SELECT id, topic FROM outboxd.event ORDER BY id OFFSET 50 LIMIT 1").await;
    for (table, deleted) in [
        (Scanned::Attempts, 71),
        (Scanned::Events, 50),
        (Scanned::Inbox, 94),
        (Scanned::Idempotency, 100),
        (Scanned::Audit, 11),
    ] {
        assert_eq!(clear(&mut retention, Table::Scanned(table)).await, deleted, "{table:?}");
        assert_eq!(clear(&mut retention, Table::Scanned(table)).await, 0, "{table:?}");
    }
    client.run("DELETE FROM outboxd.event_outbox").await;
    assert_eq!(clear(&mut retention, Table::Scanned(Scanned::Events)).await, 44);
}

#[tokio::test]
async fn publications_go_with_their_events_but_none_that_redis_is_not_known_to_have() {
    let (client, mut retention) = setup(&[]).await;
    let events = "INSERT INTO outboxd.event (topic, key, payload, created_at)
                  SELECT 't', 'k', '{}', now() - n * interval '1 day' FROM generate_series(20, 1, -1) n";
    let publications =
        "INSERT INTO outboxd.event_publication (number, through, created_at, since, bytes, topic, event_ids)
                        SELECT id, id, created_at, created_at, 2, topic, ARRAY[id] FROM outboxd.event";
    let progress = "UPDATE outboxd.event_progress SET newest = 20, appended = 5";
    for statement in [events, publications, progress] {
        client.run(statement).await;
    }
    let left =
        "SELECT concat_ws(' ', (SELECT count(*) FROM outboxd.event), (SELECT count(*) FROM outboxd.event_publication))";
    assert_eq!(clear(&mut retention, Table::Scanned(Scanned::Events)).await, 5);
    assert_eq!(client.value::<String>(left).await, "15 15");
    client.run("UPDATE outboxd.event_progress SET appended = 20").await;
    assert_eq!(clear(&mut retention, Table::Scanned(Scanned::Events)).await, 9);
    assert_eq!(client.value::<String>(left).await, "6 6");
}

#[tokio::test]
async fn a_step_waits_for_no_lock_and_leaves_what_is_locked_to_the_next_scan() {
    let (client, mut retention) = setup(&[("database.statement_timeout", "2s")]).await;
    client.run(&format!("{ROWS} (SELECT 'SENT' s, n c, n f FROM generate_series(8, 107) n) v")).await;
    client.run("BEGIN").await;
    client.run("SELECT FROM outboxd.notification_log WHERE id % 10 = 0 FOR UPDATE").await;
    client.run("SELECT outboxd.notify('t', 'r', '{}')").await;
    assert_eq!(clear(&mut retention, Table::Notifications).await, 90);
    client.run("COMMIT").await;
    next_day(&client).await;
    assert_eq!(clear(&mut retention, Table::Notifications).await, 10);
}

#[tokio::test]
async fn two_hundred_thousand_old_rows_go_in_steps_that_read_by_key_and_never_twice() {
    let (client, mut retention) = setup(&[]).await;
    let written = "INSERT INTO outboxd.notification_log (status, created_at, finished_at, topic, recipient, payload)
        SELECT 'SENT', now() - (8 + 1.0 / n) * interval '1 day', now() - interval '8 days', 't', 'r' || n, '{}'
          FROM generate_series(1, 200000) n";
    client.run(written).await;
    client.run("SELECT outboxd.notify('t', 'young', '{}', headers => '{}')").await;
    let plan = plan_of_a_step(&client).await;
    assert!(!plan.contains("Seq Scan on notification_log") && !plan.contains("Seq Scan on attempt"), "{plan}");
    let reads =
        "SELECT (seq_tup_read + idx_tup_fetch)::bigint FROM pg_stat_user_tables WHERE relname = 'notification_log'";
    let started = std::time::Instant::now();
    assert_eq!(clear(&mut retention, Table::Notifications).await, 200_000);
    println!("200,000 rows in {:?} without rests", started.elapsed());
    assert_eq!(client.count("notification_log").await, 1);
    client.until(&format!("SELECT ({reads}) >= 200000")).await;
    let read: i64 = client.value(reads).await;
    assert!(read < 1_500_000, "each row is read a few times, by key: {read}");
}

/// With the planner settings of our sessions, on a table that was never analysed, with a generic plan.
async fn plan_of_a_step(client: &Client) -> String {
    let sql_text = include_str!("../../sql/queries/upkeep/delete_notifications.sql");
    let set =
        "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;
         SET plan_cache_mode = force_generic_plan";
    client.run(set).await;
    client.run(&format!("PREPARE step AS {sql_text}")).await;
    client.values::<String>("EXPLAIN EXECUTE step (1, 1000, 1, 1, 1, 1, 1)").await.join("\n")
}
