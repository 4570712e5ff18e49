//! A great many topics whose rows wait for long after a failure cost the relay nothing.

use std::time::{Duration, Instant};

use super::Stepped;
use crate::support::{postgres, sql};

const DUE_ENTRIES: &str =
    "SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes WHERE indexrelname ~ '^outbox_.*due$'";
/// Sessions tell what they read when they end.
const CALM: &str = "SELECT count(*) = 0 FROM pg_stat_activity
                     WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()";

#[tokio::test]
async fn a_retry_goes_at_once_beside_100_000_topics_that_wait_for_hours() {
    let database = postgres::database().await;
    let app = database.connect().await;
    let waiting = "INSERT INTO outboxd.outbox (id, topic, retry_at)
                   SELECT nextval('outboxd.notification_log_id_seq'), 'far-' || n, now() + interval '5 hours' + n * interval '1 s'
                     FROM generate_series(1, 100000) n";
    sql::run(&app, waiting).await;
    sql::until(&app, CALM).await;
    let before: i64 = sql::value(&app, DUE_ENTRIES).await;
    let mut stepped = Stepped::on(&database).await;
    for round in 1..=5 {
        let notify = format!("SELECT outboxd.notify('zzz-{round}', 'r', '{{}}')");
        sql::run(&app, &notify).await;
        sql::run(&app, "UPDATE outboxd.outbox SET retry_at = now() WHERE retry_at IS NULL AND state = 'ready'").await;
        stepped.relay.wake();
        let began = Instant::now();
        while stepped.relay.pass().await.unwrap().pushed == 0 {
            assert!(began.elapsed() < Duration::from_secs(2), "round {round}: it is not found");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        println!("pushed after {:?}", began.elapsed());
    }
    drop(stepped);
    sql::until(&app, CALM).await;
    let read = sql::value::<i64>(&app, DUE_ENTRIES).await - before;
    println!("5 rounds read {read} index entries");
    assert!(read < 2_000, "5 rounds read {read} index entries");
}

/// Neither a day's pause nor an open circuit makes a pass read more than a bounded part of what waits for it.
#[tokio::test]
async fn a_retry_goes_at_once_beside_100_000_overdue_topics_that_are_paused_or_held() {
    let routes = [
        ("channels.push.url", "http://127.0.0.1:1/"),
        ("channels.sms.url", "http://127.0.0.1:1/"),
        ("routes.default.channels", "push"),
        ("routes.zzz.channels", "sms"),
    ];
    let paused =
        "INSERT INTO outboxd.topic (name, paused_at) SELECT 'late-' || n, now() FROM generate_series(1, 100000) n";
    for hold in [paused, "SELECT outboxd.pause_channel('push')"] {
        let database = postgres::database().await;
        let app = database.connect().await;
        let overdue = "INSERT INTO outboxd.outbox (id, topic, retry_at)
                       SELECT nextval('outboxd.notification_log_id_seq'), 'late-' || n, now() - n * interval '1 s'
                         FROM generate_series(1, 100000) n";
        sql::run(&app, &format!("{overdue}; {hold}")).await;
        sql::until(&app, CALM).await;
        let before: i64 = sql::value(&app, DUE_ENTRIES).await;
        let mut stepped = Stepped::with(&database, &routes).await;
        stepped.learn_pauses().await;
        let mut passes = 0;
        for round in 1..=5 {
            sql::run(&app, "SELECT outboxd.notify('zzz', 'r', '{}'); UPDATE outboxd.outbox SET retry_at = now() WHERE topic = 'zzz' AND state = 'ready'").await;
            stepped.relay.wake();
            let mut pushed = 0;
            for _ in 0..5 {
                passes += 1;
                pushed += stepped.relay.pass().await.unwrap().pushed;
            }
            assert_eq!(pushed, 1, "round {round} of {hold}");
        }
        drop(stepped);
        sql::until(&app, CALM).await;
        let read = (sql::value::<i64>(&app, DUE_ENTRIES).await - before) / passes;
        println!("a pass reads {read} index entries");
        assert!(read < 2_000, "a pass reads {read} index entries, {hold}");
        let gone = "SELECT count(*) FROM outboxd.outbox WHERE topic <> 'zzz' AND state <> 'ready'";
        assert_eq!(sql::value::<i64>(&app, gone).await, 0);
    }
}
