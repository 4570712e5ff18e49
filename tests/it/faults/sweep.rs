//! What a sweep sees of all that is live, step by step, and what it leaves alone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use outboxd::channel::failover::Router;
use outboxd::config::Config;
use outboxd::queue;
use outboxd::relay::repair::{Repair, SweepState};
use outboxd::store::Store;
use outboxd::store::claim::Calls;
use outboxd::store::instance::InstanceId;
use outboxd::store::publish::FreshScan;
use outboxd::store::publish::OrderingKey;
use outboxd::store::repair::{Scan, Undelivered};

use crate::leader::{config, register};
use crate::support::world::{Carrier, World, message};
use crate::support::{postgres, sql};

const ONE: FreshScan<'_> = FreshScan { last_id: i64::MAX, overlap: 500, skip: &[], only: None, rows_max: 1 };
const MINUTE: Duration = Duration::from_secs(60);
const ALL: Scan<'_> = Scan { dead: &[], ends_leases: true, page: 0, pages_max: 1_000, claims_max: 10 };

#[tokio::test]
async fn one_scan_tells_the_claims_to_be_ended_and_how_long_what_is_published_has_waited() {
    let database = postgres::database().await;
    let client = database.connect().await;
    let store = Store::open(&config(&database, &[])).unwrap();
    let instance = register(&client).await;
    sql::run(&client, "SELECT outboxd.notify('orders', 'r', '{}') FROM generate_series(1, 5)").await;
    let scanned = store.scan_live(ALL).await.unwrap();
    assert_eq!((scanned.expired.len(), scanned.published_for), (0, None), "ready rows wait for nobody's claim");

    store.reserve_fresh(ONE, instance, &[]).await.unwrap();
    let waited = store.scan_live(ALL).await.unwrap().published_for.expect("one is published");
    assert!(waited < MINUTE, "{waited:?}");
    sql::run(&client, "UPDATE outboxd.outbox SET published_at = now() - interval '1 min' WHERE state = 'published'")
        .await;
    let waited = store.scan_live(ALL).await.unwrap().published_for.expect("it still is");
    assert!(waited >= MINUTE && waited < 2 * MINUTE, "{waited:?}");

    // Claimed: one under a lease that is over, one by an instance that is dead, one by one that lives.
    sql::run(
        &client,
        "UPDATE outboxd.outbox SET state = 'processing', epoch = 1, instance = id, lease_until = now() + (id - 1.5) * interval '1 h' WHERE id <= 3",
    )
    .await;
    let scanned = store.scan_live(Scan { dead: &[2], ..ALL }).await.unwrap();
    let mut ids: Vec<i64> = scanned.expired.iter().map(|claim| claim.id).collect();
    ids.sort_unstable();
    assert_eq!((ids, scanned.published_for), (vec![1, 2], None));
    let dead_only = store.scan_live(Scan { dead: &[2], ends_leases: false, ..ALL }).await.unwrap();
    assert_eq!(dead_only.expired.iter().map(|claim| claim.id).collect::<Vec<_>>(), [2]);
    assert_eq!(
        store.scan_live(Scan { dead: &[2], claims_max: 1, ..ALL }).await.unwrap().expired.len(),
        1,
        "no more than asked for"
    );
}

#[tokio::test]
async fn a_step_goes_over_no_more_pages_than_asked_and_the_steps_together_over_all() {
    let database = postgres::database().await;
    let client = database.connect().await;
    let store = Store::open(&config(&database, &[])).unwrap();
    sql::run(&client, "SELECT outboxd.notify('orders', 'r', '{}') FROM generate_series(1, 3000)").await;
    let claim = "UPDATE outboxd.outbox SET state = 'processing', epoch = 1, instance = 1, lease_until = now() - interval '1 h' WHERE id % 100 = 0";
    sql::run(&client, claim).await;
    let (mut found, mut page) = (Vec::new(), 0);
    loop {
        let scanned = store.scan_live(Scan { page, pages_max: 5, claims_max: 1_000, ..ALL }).await.unwrap();
        let ids: Vec<i64> = scanned.expired.iter().map(|claim| claim.id).collect();
        let pages = "SELECT (ctid::text::point)[0]::bigint FROM outboxd.outbox WHERE id = ANY ($1)";
        let rows = client.query(pages, &[&ids]).await.unwrap();
        let pages: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        let asked = i64::try_from(page).unwrap()..i64::try_from(page + 5).unwrap();
        assert!(pages.iter().all(|page| asked.contains(page)), "{pages:?} of {asked:?}");
        found.extend(ids);
        page += 5;
        if page >= scanned.pages {
            break;
        }
    }
    assert!(page > 25, "there was more than a step: {page}");
    found.sort_unstable();
    assert_eq!(found, (1..=30).map(|n| n * 100).collect::<Vec<i64>>());
    // The pages are read, and no other: whatever the statistics say, and with a plan for any parameters.
    let sql = include_str!("../../../sql/queries/relay/find_expired_leases.sql");
    sql::run(
        &client,
        &format!("SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; PREPARE scan AS {sql}"),
    )
    .await;
    let read = sql::rows_read(&client, "outbox", "EXECUTE scan ('{}', true, 10, 0, 5)").await;
    assert!((1..=600).contains(&read), "five of more than 25 pages have at most a fifth of the 3000 rows: {read}");
}

#[tokio::test]
async fn what_is_published_again_comes_from_no_more_pages_than_asked() {
    let database = postgres::database().await;
    let client = database.connect().await;
    sql::run(&client, "SELECT outboxd.notify('orders', 'r', '{}') FROM generate_series(1, 3000)").await;
    sql::run(&client, "UPDATE outboxd.outbox SET state = 'published', instance = 1, published_at = now()").await;
    let on_five = "SELECT count(*) FROM outboxd.outbox WHERE (ctid::text::point)[0] BETWEEN 20 AND 24";
    let on_five: i64 = sql::value(&client, on_five).await;
    let republish = include_str!("../../../sql/queries/relay/republish.sql");
    let none: Option<Vec<i32>> = None;
    let row = client.query_one(republish, &[&none, &0i64, &false, &20i64, &5i64, &false]).await.unwrap();
    let (rows, pages): (i64, i64) = (row.get(0), row.get(1));
    assert!(on_five > 0 && pages > 30, "{on_five} rows of {pages} pages");
    assert_eq!(rows, on_five);
}

#[tokio::test]
async fn a_scan_of_keys_reads_no_more_of_them_than_asked_and_goes_on_where_it_was() {
    let database = postgres::database().await;
    let client = database.connect().await;
    let store = Store::open(&config(&database, &[])).unwrap();
    let keyed = "SELECT outboxd.notify(t, 'r', '{}', ordering_key => 'k' || 10 + n) FROM unnest('{a,b}'::text[]) t, generate_series(1, 13) n";
    sql::run(&client, keyed).await;
    let (mut found, mut after, mut scans) = (Vec::new(), Some(OrderingKey::default()), 0);
    while let Some(from) = after {
        let (keys, next) = store.waiting_keys(&from, 10).await.unwrap();
        assert!(keys.len() <= 10, "{keys:?}");
        found.extend(keys);
        (after, scans) = (next, scans + 1);
    }
    let of =
        |topic: &'static str| (11..=23).map(move |n| OrderingKey { topic: topic.to_owned(), key: format!("k{n}") });
    assert_eq!((found, scans), (of("a").chain(of("b")).collect(), 3));
}

/// The sweeps of this instance.
async fn repair(config: &Config, instance: i32, calls: &Arc<Calls>) -> Repair {
    Repair {
        store: Store::open(config).unwrap(),
        queue: queue::open(&config.queue, None).await.unwrap(),
        statistics: Arc::default(),
        router: Arc::new(Router::new(&BTreeMap::new(), &BTreeMap::new()).unwrap()),
        instance: InstanceId::new(instance),
        presence: Arc::default(),
        calls: Arc::clone(calls),
        ttl: Duration::ZERO,
        relay: config.relay.clone(),
        reconcile: config.reconcile.clone(),
    }
}

#[tokio::test]
async fn a_sweep_does_not_end_a_claim_that_is_in_its_own_instances_hands() {
    let database = postgres::database().await;
    let (client, config) = (database.connect().await, config(&database, &[]));
    let store = Store::open(&config).unwrap();
    let instance = register(&client).await;
    sql::run(&client, "SELECT outboxd.notify('orders', 'r', '{}') FROM generate_series(1, 2)").await;
    store.claim(&[message(1, 0), message(2, 0)], instance, Duration::ZERO).await.unwrap();
    // The lease of each is over: it could not be renewed, for whatever reason. One call is under way, the other's is
    // lost.
    let calls = Arc::new(Calls::default());
    calls.begin(1, 1, Instant::now());
    let repair = repair(&config, instance, &calls).await;
    let mut state = SweepState::new(&config.reconcile);
    assert_eq!(repair.pass(&mut state).await.leases_ended, 1);
    let states = "SELECT string_agg(state::text, ' ' ORDER BY id) FROM outboxd.outbox";
    assert_eq!(sql::value::<String>(&client, states).await, "processing ready");
    calls.end([1].into_iter());
    assert_eq!(repair.pass(&mut state).await.leases_ended, 1);
    assert_eq!(sql::value::<String>(&client, states).await, "ready ready");
}

#[tokio::test]
async fn circuits_of_hosts_that_nobody_calls_are_forgotten() {
    let database = postgres::database().await;
    let (client, config) = (database.connect().await, config(&database, &[]));
    let held = "INSERT INTO outboxd.channel_state (channel, origin, held_until, reason, paused_at, probe_by, probe_until, changed_at)
                SELECT 'hooks', v.origin, now() + v.until, v.reason, NULL, v.probe_by, now() + v.probe, now() + v.changed
                  FROM (VALUES ('asked to wait', interval '1 h', 'retry_after', NULL::int, NULL::interval, interval '-1 h'),
                               ('waited',        '-1 s',         'retry_after', NULL,      NULL,           '-1 h'),
                               ('open',          '1 min',        'failures',    NULL,      NULL,           '-1 h'),
                               ('half-open',     '-1 min',       'failures',    NULL,      NULL,           '-1 h'),
                               ('left alone',    '-2 h',         'failures',    NULL,      NULL,           '-2 h'),
                               ('probed',        '-2 h',         'failures',    1,         '10 s',         '-2 h'),
                               ('',              '-2 h',         'unauthorized', NULL,     NULL,           '-2 h'),
                               ('freed',         NULL,           NULL,          NULL,      NULL,           '-1 s'),
                               ('freed before',  NULL,           NULL,          NULL,      NULL,           '-1 h')) v(origin, until, reason, probe_by, probe, changed)";
    sql::run(&client, held).await;
    let mut state = SweepState::new(&config.reconcile);
    let repair = repair(&config, register(&client).await, &Arc::default()).await;
    repair.pass(&mut state).await;
    let left = "SELECT string_agg(origin, ', ' ORDER BY origin) FROM outboxd.channel_state";
    assert_eq!(sql::value::<String>(&client, left).await, ", asked to wait, freed, half-open, open, probed");
    let many = "INSERT INTO outboxd.channel_state (channel, origin, held_until, reason, changed_at)
                SELECT 'hooks', n, now() + interval '1 h', 'retry_after', now() + n * interval '1 ms' FROM generate_series(1, 10010) n";
    sql::run(&client, many).await;
    repair.pass(&mut SweepState::new(&config.reconcile)).await;
    let bounds = "SELECT count(*) || ' of them, the oldest ' || min(origin::int) FROM outboxd.channel_state WHERE origin ~ '^[0-9]+$'";
    assert_eq!(sql::value::<String>(&client, bounds).await, "10000 of them, the oldest 11");
}

#[tokio::test]
async fn a_repair_that_fails_does_not_keep_the_others_from_running() {
    let world = World::new(Carrier::Memory).await;
    // A publication cut short that cannot be taken back, for whatever reason.
    let cursed =
        "INSERT INTO outboxd.publication (instance, reserved_at, ids) VALUES (-1, now() - interval '1 hour', '{}');
                  CREATE FUNCTION curse() RETURNS trigger LANGUAGE plpgsql AS $$
                  BEGIN IF old.instance = -1 THEN RAISE 'cursed'; END IF; RETURN old; END $$;
                  CREATE TRIGGER curse BEFORE DELETE ON outboxd.publication FOR EACH ROW EXECUTE FUNCTION curse()";
    sql::run(&world.app, cursed).await;
    let mut holder = world.setup.clone().failpoints("after_claim=abort").start().await;
    world.notify(5).await;
    holder.exit_code().await;
    let mut next = world.setup.start().await;
    world.until_ended().await.assert_nothing_lost().assert_duplicates_explained();
    next.wait_for_log("cursed").await;
    let told = next.log().matches("cursed").count();
    assert_eq!(told, 1, "it is told once, not with every sweep");
}

/// A row in the in-process queue of an instance that is dead as of a heartbeat so long ago.
async fn leave_in_the_queue_of(world: &World, instance: i32, silent_for: &str) {
    let silent = "UPDATE outboxd.instance SET ttl = '1 s', heartbeat_at = now() - $1::text::interval WHERE id = $2";
    world.app.execute(silent, &[&silent_for, &instance]).await.unwrap();
    let published = "WITH record AS (INSERT INTO outboxd.notification_log (topic, recipient, payload, status)
                                     VALUES ('orders', 'r', '{}', 'QUEUED') RETURNING id)
        INSERT INTO outboxd.outbox (id, topic, state, instance, published_at)
        SELECT id, 'orders', 'published', $1, now() FROM record";
    world.app.execute(published, &[&instance]).await.unwrap();
}

#[tokio::test]
async fn an_instance_that_looked_dead_is_dealt_with_again_when_it_dies() {
    let world = World::new(Carrier::Memory).await;
    let _alive = world.setup.clone().set("worker.heartbeat_ttl", "2s").start().await;
    let stopped = register(&world.app).await;
    leave_in_the_queue_of(&world, stopped, "1 hour").await;
    world.until_ended().await.assert_nothing_lost();
    // It was only stopped: it went on under its number, beat, published and died.
    leave_in_the_queue_of(&world, stopped, "1 minute").await;
    world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
    assert_eq!(world.provider.count(), 2);
}

#[tokio::test]
async fn what_is_in_an_instances_process_is_not_taken_for_lost_by_redis() {
    let database = postgres::database().await;
    let client = database.connect().await;
    let store = Store::open(&config(&database, &[])).unwrap();
    let mut instances = Vec::new();
    for row in ["'stream', NULL", "'stream', now()", "'memory', NULL"] {
        let insert = format!(
            "INSERT INTO outboxd.instance (ttl, pid, roles, queue_kind, fallback_since, host, version, claimed_through)
             SELECT '1 min', 1, '{{}}', v.*, 'test', '0', now() + interval '1 min' FROM (VALUES ({row}::timestamptz)) v RETURNING id"
        );
        instances.push(sql::value::<i32>(&client, &insert).await);
    }
    for which in [Undelivered::InRedis(Duration::ZERO), Undelivered::Overtaken(Duration::ZERO)] {
        sql::run(&client, "DELETE FROM outboxd.outbox").await;
        sql::run(&client, "SELECT outboxd.notify('orders', 'r', '{}') FROM generate_series(1, 3)").await;
        for instance in &instances {
            store.reserve_fresh(ONE, *instance, &[]).await.unwrap();
        }
        assert_eq!(store.republish(which).await.unwrap(), 1, "{which:?}");
        let published = "SELECT instance FROM outboxd.outbox WHERE state = 'published' ORDER BY 1";
        assert_eq!(sql::values::<i32>(&client, published).await, instances[1..], "{which:?}");
    }
    // Their own death is another matter.
    sql::run(&client, "UPDATE outboxd.instance SET heartbeat_at = now() - interval '2 min'").await;
    let dead = store.dead_instances(0, 2 * MINUTE).await.unwrap();
    let with_their_queues: Vec<i32> = dead.iter().filter(|dead| dead.memory).map(|dead| dead.id).collect();
    assert_eq!(with_their_queues, instances[1..]);
    assert_eq!(store.republish(Undelivered::PublishedBy(&with_their_queues)).await.unwrap(), 2);
}

#[tokio::test]
async fn of_a_publication_cut_short_only_the_row_that_an_open_transaction_holds_waits() {
    for (end, left) in [("ROLLBACK", "ready ready ready"), ("COMMIT", "ready ready")] {
        let database = postgres::database().await;
        let (client, mut operator) = (database.connect().await, database.connect().await);
        let store = Store::open(&config(&database, &[])).unwrap();
        let instance = register(&client).await;
        sql::run(&client, "SELECT outboxd.notify('orders', 'r', '{}') FROM generate_series(1, 3)").await;
        store.reserve_fresh(FreshScan { rows_max: 3, ..ONE }, instance, &[]).await.unwrap();
        let open = operator.transaction().await.unwrap();
        open.batch_execute("SELECT outboxd.cancel(2)").await.unwrap();
        let states = "SELECT string_agg(state::text, ' ' ORDER BY id) FROM outboxd.outbox";
        let recall = async || store.recall_publications(Duration::ZERO, 10).await.unwrap();
        assert_eq!(recall().await, 2);
        assert_eq!(sql::value::<String>(&client, states).await, "ready published ready");
        // Its turn comes again with every sweep, for as long as it is locked.
        assert_eq!(recall().await, 0);
        open.batch_execute(end).await.unwrap();
        assert_eq!(recall().await, u64::from(end == "ROLLBACK"));
        assert_eq!(sql::value::<String>(&client, states).await, left);
        assert_eq!(sql::value::<i64>(&client, "SELECT count(*) FROM outboxd.publication").await, 0, "{end}");
    }
}
