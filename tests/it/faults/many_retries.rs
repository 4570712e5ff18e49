//! A great many topics whose rows wait for long after a failure cost the relay nothing.

use std::time::{Duration, Instant};

use super::Stepped;
use crate::support::postgres;
use crate::support::sql::Sql;

#[tokio::test]
async fn a_retry_goes_at_once_beside_100_000_topics_that_wait_for_hours() {
    let database = postgres::database().await;
    let app = database.connect().await;
    let waiting = "INSERT INTO outboxd.outbox (id, topic, retry_at)
                   SELECT nextval('outboxd.notification_log_id_seq'), 'far-' || n, now() + interval '5 hours' + n * interval '1 s'
                     FROM generate_series(1, 100000) n";
    app.run(waiting).await;
    let due_entries =
        "SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes WHERE indexrelname ~ '^outbox_.*due$'";
    let calm = "SELECT count(*) = 0 FROM pg_stat_activity
                 WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()";
    app.until(calm).await;
    let before: i64 = app.value(due_entries).await;
    let mut stepped = Stepped::on(&database).await;
    for round in 1..=5 {
        app.run(&format!("SELECT outboxd.notify('zzz-{round}', 'r', '{{}}')")).await;
        app.run("UPDATE outboxd.outbox SET retry_at = now() WHERE retry_at IS NULL AND state = 'ready'").await;
        stepped.relay.wake();
        let began = Instant::now();
        while stepped.relay.pass().await.unwrap().pushed == 0 {
            assert!(began.elapsed() < Duration::from_secs(2), "round {round}: it is not found");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        println!("pushed after {:?}", began.elapsed());
    }
    drop(stepped);
    app.until(calm).await;
    let read = app.value::<i64>(due_entries).await - before;
    println!("5 rounds read {read} index entries");
    assert!(read < 2_000, "5 rounds read {read} index entries");
}
