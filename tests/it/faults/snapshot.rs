//! Somebody's transaction that idles for hours: its snapshot keeps every dead row, and nothing of ours gets slower.

use std::time::{Duration, Instant};

use outboxd::queue::{Consumer, Message};
use outboxd::store::claim::{Case, Key};
use outboxd::store::record::Sent;

use super::{Stepped, outcomes};
use crate::support::postgres;
use crate::support::sql::Sql;

const ROUNDS: usize = 12;
const ROWS: usize = 2_000;
const LEASE: Duration = Duration::from_secs(60);
/// Below this, times of single statements say nothing.
const NOISE: Duration = Duration::from_millis(1);

/// The best times of a round: chance only adds to them.
#[derive(Debug, Clone, Copy)]
struct Times {
    poll: Duration,
    claim: Duration,
    record: Duration,
}

#[tokio::test]
async fn a_held_snapshot_leaves_polls_claims_and_records_as_fast_as_they_were() {
    let database = postgres::database().await;
    let (client, mut idle) = (database.connect().await, database.connect().await);
    // When vacuum comes is decided here.
    for table in ["notification_log", "outbox", "publication"] {
        client.run(&format!("ALTER TABLE outboxd.{table} SET (autovacuum_enabled = off)")).await;
    }
    let mut stepped = Stepped::on(&database).await;
    let mut consumer = stepped.queue.consumer("worker").await.unwrap();

    let held =
        idle.build_transaction().isolation_level(tokio_postgres::IsolationLevel::RepeatableRead).start().await.unwrap();
    held.query_one("SELECT count(*) FROM outboxd.notification_log", &[]).await.unwrap();
    let notify = format!("SELECT outboxd.notify('orders', 'r', '{{}}') FROM generate_series(1, {ROWS})");
    let mut rounds = Vec::new();
    for number in 1..=ROUNDS {
        // As autovacuum does under load: nothing can be removed, and the statements are planned anew. Here it finds
        // only dead rows and says that the table is empty.
        if number == ROUNDS / 3 {
            client.run("VACUUM (ANALYZE)").await;
        }
        client.run(&notify).await;
        if number == ROUNDS * 2 / 3 {
            client.run("VACUUM (ANALYZE)").await;
        }
        rounds.push(work_off(&mut stepped, &mut *consumer).await);
    }
    held.commit().await.unwrap();
    println!("after {} rows: {:?}; after {}: {:?}", ROWS, rounds[0], ROUNDS * ROWS, rounds[ROUNDS - 1]);
    // The second round: the first one also plans the statements.
    let early = rounds[1];
    for late in [rounds[ROUNDS * 2 / 3 - 2], rounds[ROUNDS - 1]] {
        for (what, early, late) in
            [("poll", early.poll, late.poll), ("claim", early.claim, late.claim), ("record", early.record, late.record)]
        {
            assert!(late <= 2 * early.max(NOISE), "a {what} took {early:?} at first and {late:?} later");
        }
    }
}

/// Publishes, claims and records what was written; then polls with nothing to find.
async fn work_off(stepped: &mut Stepped, consumer: &mut dyn Consumer) -> Times {
    let Stepped { store, relay, instance, .. } = stepped;
    let mut times = Times { poll: Duration::MAX, claim: Duration::MAX, record: Duration::MAX };
    let mut done = 0;
    while done < ROWS {
        relay.pass().await.unwrap();
        let taken = consumer.take(100, Duration::from_millis(1)).await.unwrap();
        let messages: Vec<Message> = taken.iter().map(|delivery| delivery.message.clone()).collect();
        let started = Instant::now();
        let claims = store.claim(&messages, *instance, LEASE).await.unwrap();
        if messages.len() == 100 {
            times.claim = times.claim.min(started.elapsed());
        }
        let sent: Vec<Sent> = claims.iter().map(|(key, case)| sent(*key, case)).collect();
        let started = Instant::now();
        assert_eq!(store.record_sent(&sent, *instance).await.unwrap().sent.len(), sent.len());
        if messages.len() == 100 {
            times.record = times.record.min(started.elapsed());
        }
        consumer.acker().ack(&taken).await.unwrap();
        done += taken.len();
    }
    for _ in 0..10 {
        let started = Instant::now();
        assert_eq!(relay.pass().await.unwrap().pushed, 0);
        times.poll = times.poll.min(started.elapsed());
    }
    times
}

fn sent(key: Key, case: &Case) -> Sent {
    let Case::Claimed(claimed) = case else { panic!("{key:?} was claimable: {case:?}") };
    outcomes::sent(claimed)
}
