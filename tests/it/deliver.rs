//! The main path, end to end: commit, publish, claim, send, record.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use outboxd::queue::Message;
use outboxd::store::Store;
use outboxd::store::claim::Case;
use outboxd::store::publish::{LaneScan, Stretches};

use crate::duty::{config, register};
use crate::support::http::get;
use crate::support::instance::{Instance, Setup};
use crate::support::prometheus::Scrape;
use crate::support::provider::{Provider, Reply};
use crate::support::world::{Carrier, World};
use crate::support::{postgres, redis, sql};

const SOON: Duration = Duration::from_secs(10);

async fn deliver_one(setup: impl Fn(Setup) -> Setup) {
    let database = postgres::database().await;
    let provider = Provider::start();
    let _instance = setup(Setup::new(&database.url())).webhook(&provider.url("/hook")).start().await;
    let app = database.connect().await;
    let id: i64 = sql::value(&app, r#"SELECT outboxd.notify('orders', 'device-1', '{"text": "hello"}')"#).await;
    provider.wait_for(1, SOON).await;
    sql::until(&app, &format!("SELECT status = 'SENT' FROM outboxd.notifications WHERE id = {id}")).await;
    let call = &provider.ledger()[0];
    assert!(call.webhook_id.starts_with("ntf-"), "{}", call.webhook_id);
    assert_eq!(call.json()["recipient"], "device-1");
    assert_eq!(sql::value::<i64>(&app, "SELECT count(*) FROM outboxd.outbox").await, 0);
}

#[tokio::test]
async fn a_committed_notification_is_delivered_without_redis() {
    deliver_one(|setup| setup).await;
}

#[tokio::test]
async fn a_committed_notification_is_delivered_over_a_stream() {
    deliver_one(|setup| setup.redis(redis::shared().url(), "stream", &redis::unique_prefix())).await;
}

#[tokio::test]
async fn a_committed_notification_is_delivered_over_a_list() {
    deliver_one(|setup| setup.redis(redis::shared().url(), "list", &redis::unique_prefix())).await;
}

#[tokio::test]
async fn a_plain_insert_is_delivered_too() {
    let database = postgres::database().await;
    let provider = Provider::start();
    let _instance = Setup::new(&database.url()).webhook(&provider.url("/hook")).start().await;
    let app = database.connect().await;
    sql::run(&app, r#"INSERT INTO outboxd.notification_log (topic, recipient, payload) VALUES ('orders', 'r', '{}')"#)
        .await;
    provider.wait_for(1, SOON).await;
    sql::until(&app, "SELECT status = 'SENT' FROM outboxd.notifications").await;
}

#[tokio::test]
async fn a_transient_failure_is_retried_under_the_same_webhook_id() {
    let database = postgres::database().await;
    let provider = Provider::start();
    provider.script([Reply::status(503), Reply::status(500)]);
    let _instance = Setup::new(&database.url()).webhook(&provider.url("/hook")).start().await;
    let app = database.connect().await;
    sql::run(&app, r#"SELECT outboxd.notify('orders', 'r', '{}')"#).await;
    provider.wait_for(3, SOON).await;
    sql::until(&app, "SELECT status = 'SENT' AND attempts = 3 FROM outboxd.notifications").await;
    let ledger = provider.ledger();
    assert!(ledger.iter().all(|call| call.webhook_id == ledger[0].webhook_id));
    assert!(ledger.iter().all(|call| call.body == ledger[0].body));
    let outcomes: Vec<String> = sql::values(&app, "SELECT outcome FROM outboxd.attempts ORDER BY number").await;
    assert_eq!(outcomes, ["failed", "failed"]);
}

#[tokio::test]
async fn a_sigterm_drains_and_exits_clean() {
    for carrier in [Carrier::Memory, Carrier::ShortWay] {
        let world = World::new(carrier).await;
        world.provider.answer(Reply::ok().after(Duration::from_millis(300)));
        let instance = world.setup.start().await;
        world.notify(20).await;
        world.provider.wait_for(1, SOON).await;
        assert_eq!(instance.drain().await, 0);
        let sent = "SELECT count(*) FROM outboxd.notifications WHERE status = 'SENT'";
        let sent: i64 = sql::value(&world.app, sent).await;
        assert_eq!(usize::try_from(sent).unwrap(), world.provider.count(), "every call was recorded");
        let held = "SELECT count(*) FROM outboxd.outbox WHERE state IN (1, 2)";
        assert_eq!(sql::value::<i64>(&world.app, held).await, 0, "{carrier:?}");
    }
}

/// How many messages an instance has published so far, and how many of them past the queue.
async fn published(instance: &mut Instance) -> (f64, f64) {
    let scrape = Scrape::parse(&get(instance.http_addr().await, "/metrics", &[]).await.body);
    let count = |name| scrape.value(name, &[]).unwrap_or(0.0);
    (count("outboxd_published_total"), count("outboxd_short_way_total"))
}

#[tokio::test]
async fn an_idle_instance_gives_what_it_publishes_to_its_own_workers_and_leaves_the_queue_alone() {
    let world = World::new(Carrier::ShortWay).await;
    let mut instance = world.setup.start().await;
    // The first may be published before the workers are there.
    world.notify(1).await;
    world.provider.wait_for(1, SOON).await;
    let (all_before, past_the_queue_before) = published(&mut instance).await;
    for n in 2..=4 {
        world.notify(1).await;
        world.provider.wait_for(n, SOON).await;
    }
    sql::until(&world.app, "SELECT count(*) = 4 FROM outboxd.notifications WHERE status = 'SENT'").await;
    let (all, past_the_queue) = published(&mut instance).await;
    assert_eq!((all - all_before, past_the_queue - past_the_queue_before), (3.0, 3.0));
}

#[tokio::test]
async fn an_instance_whose_workers_are_busy_publishes_to_the_queue() {
    let world = World::new(Carrier::ShortWay).await;
    world.provider.answer(Reply::ok().after(Duration::from_millis(200)));
    let mut instance = world.setup.start().await;
    world.notify(300).await;
    world.settle().await.assert_nothing_lost().assert_no_duplicate();
    let (all, past_the_queue) = published(&mut instance).await;
    assert!(past_the_queue < all / 3.0, "{all}, {past_the_queue}");
}

#[tokio::test]
async fn a_backlog_goes_through_the_queue_although_the_workers_are_idle() {
    let world = World::new(Carrier::ShortWay).await;
    world.notify(2_000).await;
    let mut instance = world.setup.start().await;
    world.settle().await.assert_nothing_lost().assert_no_duplicate();
    let (all, past_the_queue) = published(&mut instance).await;
    assert!(past_the_queue < all / 10.0, "{all}, {past_the_queue}");
}

#[tokio::test]
async fn an_instance_that_has_started_has_the_connections_its_work_needs() {
    let connections =
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'outboxd' AND datname = current_database()";
    for (pool_size, at_least) in [(10, 9), (2, 5)] {
        let world = World::new(Carrier::Memory).await;
        let database = format!("[database]\npool_size = {pool_size}\n");
        let _instance = world.setup.clone().replace("[relay]\n", &format!("{database}[relay]\n")).start().await;
        // Six, or as many as there may be, for claims and outcomes; three for publishing.
        let made: i64 = sql::value(&world.app, connections).await;
        assert!(made >= at_least, "{made} of a pool of {pool_size}");
    }
}

/// Whatever is claimed is being called, also while slots are added for a provider that answers at once: when it stops
/// answering, each claimed row is one that it was called for, and no other is claimed.
#[tokio::test]
async fn no_more_is_claimed_than_can_be_called_at_once() {
    const SLOTS: i64 = 16;
    let database = postgres::database().await;
    let provider = Provider::start();
    let answered = std::sync::atomic::AtomicUsize::new(0);
    provider.answer_with(move |_| {
        let is_early = answered.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < 1_500;
        if is_early { Reply::ok() } else { Reply::hang() }
    });
    let _instance = Setup::new(&database.url())
        .replace("[worker]\n", &format!("[worker]\nconcurrency = {SLOTS}\n"))
        .webhook(&provider.url("/hook"))
        .start()
        .await;
    let app = database.connect().await;
    sql::run(&app, "SELECT outboxd.notify('orders', 'r' || n, '{}') FROM generate_series(1, 3000) n").await;
    sql::until(&app, "SELECT count(*) = 1500 FROM outboxd.notifications WHERE status = 'SENT'").await;
    let claimed = "SELECT count(*) FROM outboxd.outbox WHERE state = 2";
    let begun = tokio::time::Instant::now();
    while sql::value::<i64>(&app, claimed).await != provider.count() as i64 - 1_500 {
        assert!(begun.elapsed() < SOON, "rows are claimed that nobody calls");
        tokio::task::yield_now().await;
    }
    let held = sql::value::<i64>(&app, claimed).await;
    assert!((SLOTS..=2 * SLOTS).contains(&held), "{held}");
    let attempted = "SELECT count(*) FROM outboxd.outbox WHERE state <> 2 AND attempts > 0";
    assert_eq!(sql::value::<i64>(&app, attempted).await, 0, "none was claimed and given back");
}

#[tokio::test]
async fn a_claim_tells_when_its_message_was_published() {
    let database = postgres::database().await;
    let client = database.connect().await;
    let store = Store::open(&config(&database, &[])).unwrap();
    let instance = register(&client).await;
    let notify = "SELECT outboxd.notify('orders', 'r', '{}')";
    let published: i64 = sql::value(&client, notify).await;
    store.reserve_fresh(&[LaneScan { lane: 0, after: 0, take: 5 }], instance, &[], Stretches::Used).await.unwrap();
    // Pushed by the app itself, right after its commit.
    let unpublished: i64 = sql::value(&client, notify).await;
    let batch = [published, unpublished].map(|id| Message { id, epoch: 0 });
    let claims = store.claim(&batch, instance, SOON, &[]).await.unwrap();
    let told = |id| {
        claims.iter().find_map(|(message, case)| match case {
            Case::Claimed(claimed) if message.id == id => Some(claimed.published_at),
            _ => None,
        })
    };
    let reserved_at: DateTime<Utc> = sql::value(&client, "SELECT reserved_at FROM outboxd.publication").await;
    let apart = (told(published).unwrap() - reserved_at).abs();
    assert!(apart < TimeDelta::milliseconds(10), "{apart}");
    let created_at = format!("SELECT created_at FROM outboxd.outbox WHERE id = {unpublished}");
    assert_eq!(told(unpublished), Some(sql::value(&client, &created_at).await));
}
