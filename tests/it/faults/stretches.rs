//! A backlog that is published by stretches: nothing is written to its rows until they are claimed.

use std::collections::HashMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use outboxd::queue::Message;
use outboxd::store::Store;
use outboxd::store::claim::Case;
use outboxd::store::publish::{LaneScan, Stretches};
use tokio::task::JoinSet;
use tokio_postgres::Client;

use crate::duty::{config, register};
use crate::support::instance::Setup;
use crate::support::redis::{RedisServer, unique_prefix};
use crate::support::world::{Carrier, World};
use crate::support::{postgres, sql};

const ROWS: i32 = 1_000;
const LEASE: Duration = Duration::from_secs(60);
/// Rows that a stretch says are published.
const COVERED: &str = "SELECT count(*) FROM outboxd.outbox o JOIN outboxd.publication p ON p.lane = o.lane AND o.seq BETWEEN p.seq_from AND p.seq_to
                        WHERE o.state = 0 AND o.retry_at IS NULL";

/// Small batches, so that a thousand rows are a backlog.
fn small_batches(world: &World) -> Setup {
    world.setup.clone().replace("[relay]\n", "[relay]\nbatch = 50\n")
}

/// All that a relay may publish has been, and most of it by stretches, which have arrived.
async fn until_published(app: &Client) {
    sql::until(app, &format!("SELECT count(*) + ({COVERED}) = {ROWS} FROM outboxd.outbox WHERE state = 1")).await;
    sql::until(app, "SELECT count(*) = 0 FROM outboxd.publication WHERE pushed_at IS NULL").await;
    let covered: i64 = sql::value(app, COVERED).await;
    assert!(covered >= i64::from(ROWS) / 2, "{covered} of {ROWS} rows are in stretches");
}

#[tokio::test]
async fn a_backlog_is_published_by_stretches_and_its_rows_are_written_when_they_are_claimed() {
    for carrier in [Carrier::Stream, Carrier::List, Carrier::ShortWay] {
        let world = World::new(carrier).await;
        world.notify(ROWS).await;
        let setup = small_batches(&world);
        let relay = setup.clone().roles("producer,relay").start().await;
        until_published(&world.app).await;
        let untouched = format!("SELECT ({COVERED}) = count(*) FROM outboxd.outbox WHERE batch IS NULL AND xmax = 0");
        assert!(sql::value::<bool>(&world.app, &untouched).await, "{carrier:?}");
        let ready = "SELECT ready_unpublished FROM outboxd.outbox_lag";
        assert_eq!(sql::value::<i64>(&world.app, ready).await, 0, "{carrier:?}: they are published");
        drop(relay);
        let _all = setup.start().await;
        world.settle().await.assert_nothing_lost().assert_no_duplicate();
        sql::until(&world.app, "SELECT count(*) = 0 FROM outboxd.publication").await;
    }
}

#[tokio::test]
async fn an_in_process_queue_has_no_stretches_and_takes_what_another_left_in_them() {
    let world = World::new(Carrier::Stream).await;
    world.notify(ROWS).await;
    let relay = small_batches(&world).roles("producer,relay").start().await;
    until_published(&world.app).await;
    drop(relay);
    // What was reserved row by row is not what this is about.
    let due =
        "WITH due AS (UPDATE outboxd.outbox SET state = 0, retry_at = now() WHERE state = 1 RETURNING id, retry_at)
               INSERT INTO outboxd.timer (at, id) SELECT retry_at, id FROM due";
    sql::run(&world.app, due).await;
    let in_process = World::on(world.database, Carrier::Memory).await;
    // It would die if it made one.
    let _instance = small_batches(&in_process).failpoints("after_stretch=abort").start().await;
    in_process.settle().await.assert_nothing_lost().assert_no_duplicate();
    in_process.notify(ROWS).await;
    in_process.settle().await.assert_nothing_lost().assert_no_duplicate();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_relays_that_race_for_a_backlog_while_it_is_settled_each_row_is_reserved_by_one() {
    let database = postgres::database().await;
    let client = database.connect().await;
    let store = Store::open(&config(&database, &[])).unwrap();
    let instance = register(&client).await;
    store.settle(&[0], 0, true).await.unwrap();
    sql::run(&client, "SELECT outboxd.notify('orders', 'r', '{}') FROM generate_series(1, 2000)").await;
    let first: i64 = sql::value(&client, "SELECT min(seq) - 1 FROM outboxd.outbox").await;
    let scans = [LaneScan { lane: 0, after: 0, take: 7 }];
    let mut racers = JoinSet::new();
    for racer in 0..4 {
        let store = store.clone();
        racers.spawn(async move {
            let (mut reserved, mut empty) = (Vec::new(), 0);
            while empty < 3 {
                let fresh = match racer {
                    0 | 1 => store.reserve_fresh(&scans, instance, &[], Stretches::Used).await.unwrap(),
                    _ => store.reserve_stretch(&scans, instance, &[]).await.unwrap(),
                };
                // Whoever finds nothing may have come before the next part was settled, or after the other took it.
                empty = if fresh.lanes.is_empty() { empty + 1 } else { 0 };
                reserved.extend(fresh.reserved.messages.iter().map(|message| message.id));
                if empty > 0 {
                    tokio::task::yield_now().await;
                }
            }
            reserved
        });
    }
    for part in 1..=50 {
        store.settle(&[0], first + part * 40, false).await.unwrap();
    }
    let mut times: HashMap<i64, u32> = HashMap::new();
    for id in racers.join_all().await.into_iter().flatten() {
        *times.entry(id).or_default() += 1;
    }
    // What the racers left because they had ended before it was settled.
    loop {
        let fresh = store.reserve_stretch(&scans, instance, &[]).await.unwrap();
        if fresh.lanes.is_empty() {
            break;
        }
        for message in fresh.reserved.messages {
            *times.entry(message.id).or_default() += 1;
        }
    }
    assert_eq!((times.len(), times.values().max().copied()), (2_000, Some(1)));
}

/// Thirty rows in lane 0, of which nothing is settled yet; a store to reserve them, and for whom.
async fn thirty_rows() -> (postgres::Database, Client, Store, i32) {
    let database = postgres::database().await;
    let client = database.connect().await;
    let store = Store::open(&config(&database, &[])).unwrap();
    let instance = register(&client).await;
    store.settle(&[0], 0, true).await.unwrap();
    sql::run(&client, "SELECT outboxd.notify('orders', 'r', '{}') FROM generate_series(1, 30)").await;
    (database, client, store, instance)
}

const LANE_0: [LaneScan; 1] = [LaneScan { lane: 0, after: 0, take: 10 }];
const SOMEBODY_WAITS: &str = "SELECT count(*) = 1 FROM pg_locks WHERE NOT granted
                                 AND pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database())";

#[tokio::test]
async fn what_is_settled_while_it_is_being_reserved_row_by_row_is_left_to_the_stretches() {
    let (database, client, store, instance) = thirty_rows().await;
    let mut other = database.connect().await;
    let settles = other.transaction().await.unwrap();
    settles
        .batch_execute("UPDATE outboxd.lane SET settled_to = (SELECT max(seq) - 25 FROM outboxd.outbox)")
        .await
        .unwrap();
    // It has found ten rows, and asks whether they are still its to take.
    let reserves = tokio::spawn({
        let store = store.clone();
        async move { store.reserve_fresh(&LANE_0, instance, &[], Stretches::Used).await.unwrap() }
    });
    sql::until(&client, SOMEBODY_WAITS).await;
    settles.commit().await.unwrap();
    let fresh = reserves.await.unwrap();
    let stretch = store.reserve_stretch(&LANE_0, instance, &[]).await.unwrap();
    assert_eq!((fresh.reserved.messages.len(), stretch.reserved.messages.len()), (5, 5));
    let both = fresh.reserved.messages.iter().filter(|message| stretch.reserved.messages.contains(message));
    assert_eq!(both.count(), 0);
}

#[tokio::test]
async fn of_two_relays_with_the_same_stretch_one_pushes_it() {
    let (database, client, store, instance) = thirty_rows().await;
    store.settle(&[0], store.highest_seq().await.unwrap(), true).await.unwrap();
    let mut other = database.connect().await;
    let takes = other.transaction().await.unwrap();
    let take = "INSERT INTO outboxd.publication (instance, lane, seq_from, seq_to) SELECT instance.id, 0, min(seq), min(seq) + 5 FROM outboxd.outbox, outboxd.instance GROUP BY instance.id";
    takes.batch_execute(take).await.unwrap();
    let reserves = tokio::spawn({
        let store = store.clone();
        async move { store.reserve_stretch(&LANE_0, instance, &[]).await.unwrap() }
    });
    sql::until(&client, SOMEBODY_WAITS).await;
    takes.commit().await.unwrap();
    let late = reserves.await.unwrap();
    assert_eq!((late.reserved.messages.len(), late.contested), (0, vec![0]));
    let next = store.reserve_stretch(&LANE_0, instance, &[]).await.unwrap();
    let seventh: i64 = sql::value(&client, "SELECT id FROM outboxd.outbox ORDER BY seq OFFSET 6 LIMIT 1").await;
    assert_eq!((next.reserved.messages.len(), next.reserved.messages[0].id), (10, seventh));
}

#[tokio::test]
async fn a_row_that_commits_late_among_a_backlog_is_delivered() {
    let world = World::new(Carrier::Stream).await;
    let mut late = world.database.connect().await;
    let transaction = late.transaction().await.unwrap();
    transaction.batch_execute("SELECT outboxd.notify('orders', 'late', '{}')").await.unwrap();
    world.notify(ROWS).await;
    let _instance = small_batches(&world).start().await;
    world.provider.wait_for(500, LEASE).await;
    world.notify(ROWS).await;
    transaction.commit().await.unwrap();
    world.settle().await.assert_nothing_lost().assert_no_duplicate();
    assert_eq!(world.provider.count(), 2 * ROWS as usize + 1);
}

#[tokio::test]
async fn a_relay_killed_around_the_push_of_a_stretch_loses_nothing_and_repeats_nothing() {
    for failpoint in ["after_stretch=abort@3", "after_push=abort@6"] {
        let world = World::new(Carrier::Stream).await;
        world.notify(ROWS).await;
        let setup = small_batches(&world);
        let mut first = setup.clone().roles("producer,relay").failpoints(failpoint).spawn();
        assert_ne!(first.exit_code().await, 0, "{failpoint}: it died where it was told to");
        let cut: i64 = sql::value(&world.app, "SELECT count(*) FROM outboxd.publication WHERE lane IS NOT NULL").await;
        assert!(cut > 0, "{failpoint}: it left stretches");
        let _second = setup.start().await;
        world.settle().await.assert_nothing_lost().assert_no_duplicate();
    }
}

#[tokio::test]
async fn what_a_queue_lost_of_a_stretch_is_published_again() {
    let redis = RedisServer::forgetful();
    let mut world = World::new(Carrier::Memory).await;
    world.setup = world.setup.clone().redis(redis.url(), "stream", &unique_prefix());
    world.notify(ROWS).await;
    // That the queue lost it is noticed; that it is empty would be only after minutes.
    let setup = small_batches(&world).replace("after = \"1s\"", "after = \"2m\"");
    let _relay = setup.clone().roles("producer,relay").start().await;
    until_published(&world.app).await;
    redis.run::<String>("FLUSHALL").await;
    let _worker = setup.start().await;
    world.settle().await.assert_nothing_lost().assert_no_duplicate();
}

#[tokio::test]
async fn a_stretch_whose_messages_are_gone_from_an_empty_queue_is_published_again() {
    let world = World::new(Carrier::Stream).await;
    world.notify(ROWS).await;
    let setup = small_batches(&world);
    let _relay = setup.clone().roles("producer,relay").start().await;
    until_published(&world.app).await;
    let mut thief = world.queue().await.consumer("thief").await.unwrap();
    let mut stolen = 0;
    while stolen < ROWS as usize {
        let taken = thief.take(1_000, Duration::from_millis(100)).await.unwrap();
        stolen += taken.len();
        thief.acker().ack(&taken).await.unwrap();
    }
    let _worker = setup.start().await;
    world.settle().await.assert_nothing_lost().assert_no_duplicate();
}

#[tokio::test]
async fn a_stretch_of_a_paused_topic_is_handed_back_and_delivered_after_the_resume() {
    let world = World::new(Carrier::Stream).await;
    sql::run(&world.app, "INSERT INTO outboxd.topic (name) VALUES ('orders')").await;
    world.notify(ROWS).await;
    // No net helps: what is published again by mistake or by luck would be so only after minutes.
    let setup = small_batches(&world).replace("after = \"1s\"", "after = \"2m\"");
    let _relay = setup.clone().roles("producer,relay").start().await;
    until_published(&world.app).await;
    sql::run(&world.app, "SELECT outboxd.pause('orders')").await;
    let _worker = setup.start().await;
    // Handed back and parked, each of them; or claimed in the moment before the worker knew.
    let parked = "SELECT count(*) FILTER (WHERE state <> 0 OR retry_at IS NOT NULL) = 0
                         AND min(next_at) > (SELECT paused_at FROM outboxd.topic WHERE name = 'orders') FROM outboxd.outbox";
    sql::until(&world.app, parked).await;
    let queue = world.queue().await;
    while queue.depth().await.unwrap().waiting > 0 {
        tokio::task::yield_now().await;
    }
    assert!(sql::value::<i64>(&world.app, "SELECT count(*) FROM outboxd.outbox").await > 0, "they wait");
    sql::run(&world.app, "SELECT outboxd.resume('orders')").await;
    world.settle().await.assert_nothing_lost().assert_no_duplicate();
    assert_eq!(world.provider.count(), ROWS as usize);
}

#[tokio::test]
async fn rows_whose_numbers_were_set_back_below_what_is_settled_are_seen_at_once() {
    let world = World::new(Carrier::Stream).await;
    sql::run(&world.app, "INSERT INTO outboxd.lane (lane, settled_to) VALUES (0, 1000000), (1, 1000000)").await;
    let _instance = small_batches(&world).start().await;
    sql::until(&world.app, "SELECT max(settled_to) = 0 FROM outboxd.lane").await;
    world.notify(1).await;
    world.settle().await.assert_nothing_lost().assert_no_duplicate();
}

#[tokio::test]
async fn a_row_of_a_stretch_was_published_when_its_stretch_was_and_is_stuck_only_after_that() {
    let (_database, client, store, instance) = thirty_rows().await;
    sql::run(
        &client,
        "UPDATE outboxd.outbox SET created_at = now() - interval '1 h', next_at = now() - interval '1 h'",
    )
    .await;
    let stuck = "SELECT coalesce(string_agg(DISTINCT reason, ', '), '') FROM outboxd.stuck";
    assert_eq!(sql::value::<String>(&client, stuck).await, "never published");
    let highest = store.highest_seq().await.unwrap();
    assert_eq!(store.settle(&[0], highest, true).await.unwrap(), [(0, highest)]);
    let mut messages: Vec<Message> = Vec::new();
    for _ in 0..3 {
        let stretch = store.reserve_stretch(&[LaneScan { lane: 0, after: 0, take: 10 }], instance, &[]).await.unwrap();
        store.confirm(&stretch.reserved.publications).await.unwrap();
        messages.extend(stretch.reserved.messages);
    }
    assert_eq!(sql::value::<String>(&client, stuck).await, "");
    let spread = "UPDATE outboxd.publication SET reserved_at = now() - seq_to * interval '1 min'";
    sql::run(&client, spread).await;
    assert_eq!(sql::value::<String>(&client, stuck).await, "published without progress");
    let cases = store.claim(&messages, instance, LEASE, &[]).await.unwrap();
    let times: Vec<DateTime<Utc>> = sql::values(
        &client,
        "SELECT p.reserved_at FROM outboxd.outbox o JOIN outboxd.publication p ON o.seq BETWEEN p.seq_from AND p.seq_to ORDER BY o.id",
    )
    .await;
    let mut claimed: Vec<(i64, DateTime<Utc>)> = Vec::new();
    for (message, case) in cases {
        let Case::Claimed(claim) = case else { panic!("{message:?} was claimable") };
        claimed.push((message.id, claim.published_at));
    }
    claimed.sort_unstable();
    assert_eq!(claimed.into_iter().map(|(_, at)| at).collect::<Vec<_>>(), times);
    store.forget_stretches().await.unwrap();
    assert_eq!(sql::value::<i64>(&client, "SELECT count(*) FROM outboxd.publication").await, 0);
}

#[tokio::test]
async fn a_ready_row_below_a_stretch_that_none_covers_is_found_by_the_sweep() {
    let (_database, client, store, instance) = thirty_rows().await;
    store.settle(&[0], store.highest_seq().await.unwrap(), true).await.unwrap();
    for _ in 0..3 {
        store.reserve_stretch(&[LaneScan { lane: 0, after: 0, take: 8 }], instance, &[]).await.unwrap();
    }
    assert_eq!(store.republish_strays(Duration::ZERO, 500).await.unwrap(), 0, "what lies above is not astray");
    let forget_one = "DELETE FROM outboxd.publication WHERE seq_from = (SELECT min(seq_from) FROM outboxd.publication WHERE seq_from > (SELECT min(seq) FROM outboxd.outbox))";
    sql::run(&client, forget_one).await;
    assert_eq!(store.republish_strays(Duration::from_secs(60), 500).await.unwrap(), 0, "too early to tell");
    assert_eq!(store.republish_strays(Duration::ZERO, 500).await.unwrap(), 8);
    let timers = "SELECT string_agg(n::text, ',' ORDER BY n) FROM (SELECT row_number() OVER (ORDER BY seq) AS n, retry_at FROM outboxd.outbox) o WHERE retry_at IS NOT NULL";
    assert_eq!(sql::value::<String>(&client, timers).await, "9,10,11,12,13,14,15,16");
}
