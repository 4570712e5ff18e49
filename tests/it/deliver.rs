//! The main path, end to end: commit, publish, claim, send, record.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use outboxd::store::Store;
use outboxd::store::claim::Case;
use outboxd::store::publish::FreshScan;

use crate::leader::{config, register};
use crate::support::provider::Reply;
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World, message};
use crate::support::{postgres, redis, wait};

/// For a busy machine.
const SOON: Duration = Duration::from_secs(30);

async fn deliver_one(carrier: Carrier) {
    let world = World::new(carrier).await;
    let _instance = world.setup.start().await;
    let id: i64 = world.value(r#"SELECT outboxd.notify('orders', 'device-1', '{"text": "hello"}')"#).await;
    world.provider.wait_for(1, SOON).await;
    world.until(&format!("SELECT status = 'SENT' FROM outboxd.notifications WHERE id = {id}")).await;
    let call = &world.provider.ledger()[0];
    assert!(call.webhook_id.starts_with("ntf-"), "{}", call.webhook_id);
    assert_eq!(call.json()["recipient"], "device-1");
    assert_eq!(world.count("outbox").await, 0);
}

#[tokio::test]
async fn a_committed_notification_is_delivered_without_redis() {
    deliver_one(Carrier::Memory).await;
}

#[tokio::test]
async fn a_committed_notification_is_delivered_over_a_stream() {
    deliver_one(Carrier::Stream).await;
}

#[tokio::test]
async fn a_committed_notification_is_delivered_over_a_list() {
    deliver_one(Carrier::List).await;
}

#[tokio::test]
async fn a_plain_insert_is_delivered_too() {
    let world = World::new(Carrier::Memory).await;
    let _instance = world.setup.start().await;
    world.run(r#"INSERT INTO outboxd.notification_log (topic, recipient, payload) VALUES ('orders', 'r', '{}')"#).await;
    world.provider.wait_for(1, SOON).await;
    world.until("SELECT status = 'SENT' FROM outboxd.notifications").await;
}

#[tokio::test]
async fn a_transient_failure_is_retried_under_the_same_webhook_id() {
    let world = World::new(Carrier::Memory).await;
    world.provider.script([Reply::status(503), Reply::status(500)]);
    let _instance = world.setup.start().await;
    world.run(r#"SELECT outboxd.notify('orders', 'r', '{}')"#).await;
    world.provider.wait_for(3, SOON).await;
    world.until("SELECT status = 'SENT' AND attempts = 3 FROM outboxd.notifications").await;
    let ledger = world.provider.ledger();
    assert!(ledger.iter().all(|call| call.webhook_id == ledger[0].webhook_id));
    assert!(ledger.iter().all(|call| call.body == ledger[0].body));
    let outcomes: Vec<String> = world.values("SELECT outcome FROM outboxd.attempts ORDER BY number").await;
    assert_eq!(outcomes, ["failed", "failed"]);
}

#[tokio::test]
async fn a_sigterm_drains_and_exits_clean() {
    for carrier in [Carrier::Memory, Carrier::Stream] {
        let world = World::new(carrier).await;
        world.provider.answer(Reply::ok().after(Duration::from_millis(300)));
        let instance = world.setup.start().await;
        world.notify(20).await;
        world.provider.wait_for(1, SOON).await;
        assert_eq!(instance.drain().await, 0);
        let sent = "SELECT count(*) FROM outboxd.notifications WHERE status = 'SENT'";
        let sent: i64 = world.value(sent).await;
        assert_eq!(usize::try_from(sent).unwrap(), world.provider.count(), "every call was recorded");
        assert_eq!(world.count("outbox WHERE state IN ('published', 'processing')").await, 0, "{carrier:?}");
    }
}

#[tokio::test]
async fn every_notification_goes_through_the_queue_as_an_entry_of_its_own() {
    let world = World::new(Carrier::Stream).await;
    let relay = world.setup.clone().roles("producer,relay").start().await;
    world.notify(300).await;
    world.insert(50).await;
    let called = "SELECT outboxd.notify('orders', 'r', '{}', ordering_key => 'k' || n) FROM generate_series(1, 20) n";
    world.run(called).await;
    world.until_count(370, "outbox WHERE state = 'published'").await;
    let stream = format!("XLEN {{{}}}:v1:stream", world.prefix);
    wait::until("all are in the stream", async || redis::shared().run::<i64>(&stream).await == 370).await;
    assert_eq!(relay.drain().await, 0);

    // Nor does an instance with nothing to do give what it publishes to its own workers.
    let _instance = world.setup.start().await;
    world.provider.wait_for(370, SOON).await;
    for n in 1..=10 {
        world.notify(1).await;
        world.provider.wait_for(370 + n, SOON).await;
        assert_eq!(world.pushed().await, 370 + n as i64);
    }
    world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
}

#[tokio::test]
async fn a_provider_never_sees_more_requests_at_once_than_the_worker_may_make() {
    const CONCURRENCY: u32 = 5;
    let world = World::new(Carrier::Memory).await;
    let setup = world.setup.clone().set("worker.concurrency", CONCURRENCY);
    let _instance = setup.start().await;
    // At once, after a moment, and refused.
    for reply in [Reply::ok(), Reply::ok().after(Duration::from_millis(20)), Reply::status(503)] {
        world.provider.answer(reply);
        let before = world.provider.count();
        world.notify(300).await;
        world.provider.wait_for(before + 300, SOON).await;
    }
    world.provider.answer(Reply::ok());
    world.until_ended().await.assert_nothing_lost().assert_duplicates_explained();
    assert_eq!(world.provider.most_at_once(), CONCURRENCY as usize, "all it may make, and not one more");
}

/// When the provider stops answering, each claimed row is one that it was called for, and no other is claimed.
#[tokio::test]
async fn no_more_is_claimed_than_can_be_called_at_once() {
    const CONCURRENCY: i64 = 16;
    /// A topic leaves some calls to others.
    const SHARE: i64 = 13;
    let world = World::new(Carrier::Memory).await;
    let answered = std::sync::atomic::AtomicUsize::new(0);
    world.provider.answer_with(move |_| {
        let is_early = answered.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < 1_500;
        if is_early { Reply::ok() } else { Reply::hang() }
    });
    let mut instance = world.setup.clone().set("worker.concurrency", CONCURRENCY).start().await;
    world.run("SELECT outboxd.notify('orders', 'r' || n, '{}') FROM generate_series(1, 3000) n").await;
    world.until_count(1500, "notifications WHERE status = 'SENT'").await;
    let claimed = "SELECT count(*) FROM outboxd.outbox WHERE state = 'processing'";
    wait::until("all that may be called is called", async || world.provider.count() as i64 - 1_500 >= SHARE).await;
    assert_eq!(world.value::<i64>(claimed).await, SHARE);
    assert_eq!(world.count("outbox WHERE state <> 'processing' AND attempts > 0").await, 0);
    assert_eq!(instance.metric("outboxd_released_total", &[]).await, 0.0, "none was claimed and given back");
}

#[tokio::test]
async fn a_claim_tells_when_its_message_was_published() {
    let database = postgres::database().await;
    let client = database.connect().await;
    let store = Store::open(&config(&database, &[])).unwrap();
    let instance = register(&client).await;
    let notify = "SELECT outboxd.notify('orders', 'r', '{}')";
    let published: i64 = client.value(notify).await;
    let scan = FreshScan { last_id: i64::MAX, overlap: 500, skip: &[], only: None, rows_max: 5 };
    assert_eq!(store.reserve_fresh(scan, instance, &[]).await.unwrap().found.reserved.messages.len(), 1);
    // A message that arrived although the reservation was lost in a crash of the server.
    let unpublished: i64 = client.value(notify).await;
    let claims = store.claim(&[published, unpublished].map(|id| message(id, 0)), instance, SOON).await.unwrap();
    let told = |id| {
        claims.iter().find_map(|((claimed_id, _), case)| match case {
            Case::Claimed(claimed) if *claimed_id == id => Some(claimed.published_at),
            _ => None,
        })
    };
    let reserved_at: DateTime<Utc> = client.value("SELECT reserved_at FROM outboxd.publication").await;
    let apart = (told(published).unwrap() - reserved_at).abs();
    assert!(apart < TimeDelta::milliseconds(10), "{apart}");
    let created_at = format!("SELECT created_at FROM outboxd.notification_log WHERE id = {unpublished}");
    assert_eq!(told(unpublished), Some(client.value(&created_at).await));
}

#[tokio::test]
async fn calls_that_fail_are_in_the_log_without_whom_they_were_for() {
    let world = World::new(Carrier::Memory).await;
    world.provider.answer(Reply::status(503));
    let instance = world.setup.clone().start().await;
    let app = world.database.connect().await;
    app.run("SELECT outboxd.notify('orders', 'device-4711', '{}')").await;
    // It is said with the counts, and these reach the view after it.
    app.until("SELECT coalesce(bool_or(calls > 0), false) FROM outboxd.channel_health").await;
    let log = instance.log();
    let line = log.lines().find(|line| line.contains("calls fail")).unwrap_or_else(|| panic!("{log}"));
    assert!(line.contains("\"channel\":\"webhook\"") && line.contains("\"sent\":0"), "{line}");
    assert!(!log.contains("device-4711"), "{log}");
}
