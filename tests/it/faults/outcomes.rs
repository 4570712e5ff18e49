//! Outcomes and claims that come back too late: nobody else's row is touched, and no promise is broken.

use std::time::Duration;

use outboxd::store::Store;
use outboxd::store::claim::{Case, Claimed, PutBack};
use outboxd::store::publish::FreshScan;
use outboxd::store::publish::OrderingKey;
use outboxd::store::record::{Failed, Next, Recorder, Sent};
use tokio_postgres::Client;

use crate::leader::{config, register};
use crate::support::postgres;
use crate::support::sql::Sql;
use crate::support::world::message;

const LEASE: Duration = Duration::from_secs(60);

async fn open() -> (Client, Store, i32) {
    let database = postgres::database().await;
    let client = database.connect().await;
    let instance = register(&client).await;
    (client, Store::open(&config(&database, &[])).unwrap(), instance)
}

async fn claim(store: &Store, id: i64, epoch: i32, instance: i32) -> Box<Claimed> {
    match store.claim(&[message(id, epoch)], instance, LEASE).await.unwrap().remove(0).1 {
        Case::Claimed(claimed) => claimed,
        case => panic!("it is claimable: {case:?}"),
    }
}

pub(super) fn sent(claimed: &Claimed) -> Sent {
    Sent {
        id: claimed.id,
        token: claimed.token,
        topic: claimed.topic.clone(),
        channel: "webhook".into(),
        http_status: 200,
        provider_id: None,
        created_at: claimed.created_at,
        published_at: claimed.published_at,
    }
}

pub(super) fn failed(claimed: &Claimed, next: Next) -> Failed {
    Failed {
        id: claimed.id,
        token: claimed.token,
        created_at: claimed.created_at,
        topic: claimed.topic.clone(),
        outcome: "failed",
        error: "refused".to_owned(),
        http_status: Some(503),
        channel: "webhook".into(),
        duration: None,
        response: None,
        provider_id: None,
        next,
    }
}

/// A restore took the notification away, and another one was given its id since.
async fn use_id_again(client: &Client, id: i64) {
    let deleted = format!(
        "DELETE FROM outboxd.outbox; DELETE FROM outboxd.notification_log;
        INSERT INTO outboxd.notification_log (id, topic, recipient, payload, status) OVERRIDING SYSTEM VALUE
        VALUES ({id}, 'orders', 'another', '{{}}', 'QUEUED');
        INSERT INTO outboxd.outbox (id, topic) VALUES ({id}, 'orders')"
    );
    client.run(&deleted).await;
}

#[tokio::test]
async fn an_outcome_of_what_a_restore_took_away_does_not_touch_the_row_with_its_id() {
    let (client, store, instance) = open().await;
    let id: i64 = client.value("SELECT outboxd.notify('orders', 'old', '{}')").await;
    let old = claim(&store, id, 0, instance).await;
    use_id_again(&client, id).await;
    let new = claim(&store, id, 0, instance).await;
    assert_eq!((new.id, new.token), (old.id, old.token), "only the time it was created tells them apart");
    let row = "SELECT concat_ws(' ', l.status, o.state, o.epoch, o.attempts, o.retry_at) FROM outboxd.notification_log l JOIN outboxd.outbox o USING (id)";
    let attempts = "attempt";
    let before: String = client.value(row).await;
    assert_eq!(before, "QUEUED processing 1 1");

    let record = store.record_sent(&[sent(&old)], instance).await.unwrap();
    assert!(record.sent.is_empty() && record.duplicates.is_empty() && record.late == 0, "{record:?}");
    for next in [Next::GiveUp, Next::Retry(Duration::ZERO), Next::Channel(1)] {
        for recorder in [Recorder::Worker, Recorder::Sweep(&[instance])] {
            let record = store.record_failures(&[failed(&old, next.clone())], instance, recorder).await.unwrap();
            assert!(record.waiting.is_empty() && record.failed.is_empty() && record.canceled.is_empty(), "{record:?}");
        }
    }
    assert_eq!(client.value::<String>(row).await, before);
    assert_eq!(client.count(attempts).await, 0, "nor is it told as an attempt of the new one");

    // Its own outcome counts, and after that the old one's is still nobody's.
    assert_eq!(store.record_sent(&[sent(&new)], instance).await.unwrap().sent, [id]);
    let record = store.record_sent(&[sent(&old)], instance).await.unwrap();
    assert!(record.sent.is_empty() && record.duplicates.is_empty(), "{record:?}");
    assert_eq!(client.count(attempts).await, 0);
}

#[tokio::test]
async fn a_claim_that_is_given_back_after_a_cancel_ends_canceled_and_frees_its_key() {
    let (client, store, instance) = open().await;
    let notify = "SELECT outboxd.notify('orders', 'r', '{}', ordering_key => 'k')";
    let key = OrderingKey { topic: "orders".to_owned(), key: "k".to_owned() };
    let (first, second): (i64, i64) = (client.value(notify).await, client.value(notify).await);
    assert_eq!(store.admit(std::slice::from_ref(&key)).await.unwrap(), 1);
    let claimed = claim(&store, first, 0, instance).await;
    let answer: String = client.value(&format!("SELECT outboxd.cancel({first})")).await;
    assert_eq!(answer, "in flight: no further attempt");
    let release = PutBack { id: first, epoch: claimed.token, wait: Duration::ZERO, next_step: None, waits_for: None };
    assert_eq!(store.release(&[release]).await.unwrap().released_keys, std::slice::from_ref(&key));
    let ended = format!(
        "SELECT concat_ws(' ', status, attempts, finished_at IS NOT NULL) FROM outboxd.notification_log WHERE id = {first}"
    );
    assert_eq!(client.value::<String>(&ended).await, "CANCELED 0 t");
    assert_eq!(client.values::<i64>("SELECT id FROM outboxd.outbox").await, [second]);
    assert_eq!(store.admit(std::slice::from_ref(&key)).await.unwrap(), 1, "the next of its key may go");
}

#[tokio::test]
async fn a_claim_that_is_given_back_burns_no_attempt_and_only_its_holder_can_give_it_back() {
    let (client, store, instance) = open().await;
    let id: i64 = client.value("SELECT outboxd.notify('orders', 'r', '{}')").await;
    let claimed = claim(&store, id, 0, instance).await;
    let row = "SELECT concat_ws(' ', state, epoch, attempts, channel_attempts, route_step, round(extract(epoch FROM retry_at - now()) / 60)) FROM outboxd.outbox";
    let release =
        |epoch, next_step| [PutBack { id, epoch, wait: Duration::from_secs(600), next_step, waits_for: None }];
    store.release(&release(claimed.token - 1, None)).await.unwrap();
    assert_eq!(client.value::<String>(row).await, "processing 1 1 1 0");
    store.release(&release(claimed.token, Some(2))).await.unwrap();
    assert_eq!(client.value::<String>(row).await, "ready 1 0 0 2 10");
}

#[tokio::test]
async fn a_message_that_is_put_back_burns_no_attempt_and_what_has_moved_on_is_left_alone() {
    let (client, store, instance) = open().await;
    let id: i64 = client.value("SELECT outboxd.notify('orders', 'r', '{}')").await;
    let scan = FreshScan { last_id: i64::MAX, overlap: 500, skip: &[], only: None, rows_max: 5 };
    store.reserve_fresh(scan, instance, &[]).await.unwrap();
    let row = "SELECT concat_ws(' ', state, epoch, attempts, instance, route_step, round(extract(epoch FROM retry_at - now()) / 60)) FROM outboxd.outbox";
    let put_back =
        |epoch, next_step| [PutBack { id, epoch, wait: Duration::from_secs(600), next_step, waits_for: None }];
    store.put_back(&put_back(1, None)).await.unwrap();
    assert_eq!(client.value::<String>(row).await, format!("published 0 0 {instance} 0"), "not of this epoch");
    store.put_back(&put_back(0, Some(1))).await.unwrap();
    assert_eq!(client.value::<String>(row).await, "ready 0 0 1 10");
    let claimed = claim(&store, id, 0, instance).await;
    for epoch in [0, claimed.token] {
        store.put_back(&put_back(epoch, None)).await.unwrap();
        assert_eq!(client.value::<String>(row).await, format!("processing 1 1 {instance} 1"), "it is claimed");
    }
}
