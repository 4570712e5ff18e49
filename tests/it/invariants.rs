//! The invariants of ARCHITECTURE.md, each by a test that bears its number. The faults under which they must hold have
//! tests of their own.

mod recovery;

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use outboxd::queue::Message;
use outboxd::store::Store;
use outboxd::store::claim::{Case, Claimed};
use outboxd::store::publish::FreshScan;
use outboxd::store::record::{Failed, Next, Recorder, Sent};
use outboxd::store::repair::{Scan, Undelivered};
use tokio::task::JoinSet;

use crate::leader::{config, register};
use crate::support::http::get;
use crate::support::instance::Setup;
use crate::support::prometheus::Scrape;
use crate::support::provider::Reply;
use crate::support::redis::RedisServer;
use crate::support::sql::Sql;
use crate::support::verdict::assert_rows_are_legal;
use crate::support::world::{Carrier, World, message};
use crate::support::{postgres, wait};

const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn i1_a_provider_is_called_only_for_rows_whose_transaction_committed() {
    let world = World::new(Carrier::Stream).await;
    let _instance = world.setup.start().await;
    let (app, gone) = (world.database.connect().await, world.database.connect().await);
    let notify = |who: &str| format!("SELECT outboxd.notify('orders', '{who}', '{{}}')");
    let insert = |who: &str| {
        format!("INSERT INTO outboxd.notification_log (topic, recipient, payload) VALUES ('orders', '{who}', '{{}}')")
    };
    // A session that ends in the middle of its transaction.
    gone.run(&format!("BEGIN; {}; {}", notify("ghost"), insert("ghost"))).await;
    for round in 0..20 {
        app.run(&format!("BEGIN; {}; {}; ROLLBACK", notify("ghost"), insert("ghost"))).await;
        app.run(&format!("BEGIN; {}; SAVEPOINT s; {}; ROLLBACK TO s; COMMIT", notify("kept"), notify("ghost"))).await;
        app.run(&format!("SET outboxd.ring = off; BEGIN; {}; PREPARE TRANSACTION 'i1-{round}'", notify("ghost"))).await;
        app.run(&format!("ROLLBACK PREPARED 'i1-{round}'")).await;
        app.run(&format!("RESET outboxd.ring; {}", insert("kept"))).await;
    }
    drop(gone);
    world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
    let called: BTreeSet<String> = world.provider.ledger().iter().map(|call| call.recipient()).collect();
    assert_eq!((called, world.provider.count()), (BTreeSet::from(["kept".to_owned()]), 40));
}

#[tokio::test]
async fn i2_every_committed_row_ends_visibly_although_redis_forgets_everything() {
    let redis = RedisServer::forgetful();
    let world = World::over(redis.url(), "stream").await;
    world.provider.answer_with(|call| match call.recipient().as_str() {
        "refused" => Reply::status(400),
        "down" => Reply::status(503),
        _ => Reply::ok().after(Duration::from_millis(30)),
    });
    world.run("SELECT outboxd.pause('paused')").await;
    let _instance = world.setup.start().await;
    let write = "SELECT outboxd.notify('orders', r, '{}') FROM generate_series(1, 50), unnest(ARRAY['fine', 'refused', 'down']) r;
        SELECT outboxd.notify('orders', 'taken back', '{}', send_at => now() + interval '1 day') FROM generate_series(1, 50);
        SELECT outboxd.notify('paused', 'too late', '{}', expires_at => clock_timestamp() + interval '2 s') FROM generate_series(1, 50)";
    world.run(write).await;
    world.run("SELECT outboxd.cancel(id) FROM outboxd.notifications WHERE recipient = 'taken back'").await;
    world.provider.wait_for(100, SOON).await;
    redis.run::<String>("FLUSHALL").await;
    world.until("SELECT clock_timestamp() > max(expires_at) FROM outboxd.notification_log").await;
    world.run("SELECT outboxd.resume('paused')").await;
    world.until_ended().await.assert_nothing_lost().assert_duplicates_explained();
    let seen = "SELECT recipient || ': ' || count(*) || ' ' || status FROM outboxd.notifications GROUP BY recipient, status ORDER BY recipient, status";
    let ends: Vec<String> = world.values(seen).await;
    let expected =
        ["down: 50 FAILED", "fine: 50 SENT", "refused: 50 FAILED", "taken back: 50 CANCELED", "too late: 50 FAILED"];
    assert_eq!(ends, expected);
    let why = "SELECT bool_and(error IS NOT NULL AND (recipient <> 'too late' OR error = 'expired')) AND count(*) = 150 FROM outboxd.dead_letters";
    assert!(world.value::<bool>(why).await);
    assert_eq!(world.count("outbox").await, 0);
}

#[tokio::test]
async fn i3_a_row_is_called_again_only_after_a_failure_or_an_unknown_outcome() {
    let world = World::new(Carrier::Stream).await;
    world.provider.answer_with(|call| match call.recipient().as_str() {
        "r1" | "r2" if call.header("outboxd-attempt") == Some("1") => Reply::status(503),
        "r3" if call.header("outboxd-attempt") == Some("1") => Reply::reset(),
        "r4" | "r5" => Reply::hang(),
        _ => Reply::ok(),
    });
    let first = world.setup.start().await;
    world.notify(100).await;
    world.until_count(98, "notifications WHERE status = 'SENT'").await;
    first.kill().await;
    world.provider.answer(Reply::ok());
    let _second = world.setup.start().await;
    let verdict = world.until_ended().await;
    verdict.assert_nothing_lost().assert_duplicates_explained();
    assert_eq!(verdict.repeated.len(), 5, "{verdict:?}");
    // Before the kill a call may have hung for so long that it was given up and made again: once more unknown.
    let explained = "SELECT l.recipient || ' ' || string_agg(DISTINCT a.outcome, ' ') FROM outboxd.attempts a
                       JOIN outboxd.notification_log l ON l.id = a.notification_id GROUP BY l.recipient ORDER BY l.recipient";
    let explained: Vec<String> = world.values(explained).await;
    assert_eq!(explained, ["r1 failed", "r2 failed", "r3 unknown", "r4 unknown", "r5 unknown"]);
    let mut webhook_ids: HashMap<String, BTreeSet<(String, Vec<u8>)>> = HashMap::new();
    for call in world.provider.ledger() {
        webhook_ids.entry(call.recipient()).or_default().insert((call.webhook_id, call.body));
    }
    assert!(webhook_ids.values().all(|sent| sent.len() == 1), "the same id and body each time");
}

#[tokio::test]
async fn i4_each_message_is_decided_by_its_claim_counted_and_acknowledged() {
    let world = World::new(Carrier::Stream).await;
    world.provider.answer_with(|call| match call.recipient().as_str() {
        "busy" => Reply::hang(),
        "later" => Reply::status(503),
        _ => Reply::ok(),
    });
    let setup = world.setup.clone().set("routes.default.backoff.base", "1h").set("routes.default.backoff.max", "1h");
    let mut instance = setup.start().await;
    let mut ids = HashMap::new();
    for recipient in ["done", "busy", "later"] {
        let notify = format!("SELECT outboxd.notify('orders', '{recipient}', '{{}}')");
        ids.insert(recipient, world.value::<i64>(&notify).await);
    }
    let wanted = "SELECT string_agg(status, ' ' ORDER BY id) = 'SENT PROCESSING QUEUED' FROM outboxd.notifications";
    world.until(wanted).await;
    world.until_count(1, "attempts").await;
    // Copies of what was, in every epoch so far, and of what never was.
    let copies = [("done", 0), ("done", 1), ("busy", 0), ("busy", 1), ("later", 0)];
    let mut copies: Vec<Message> = copies.map(|(name, epoch)| message(ids[name], epoch)).to_vec();
    copies.push(message(999_999_999, 0));
    let queue = world.queue().await;
    queue.push(&copies).await.unwrap();
    let addr = instance.http_addr().await;
    wait::until_ok("each message is met as the case it is", async || {
        let scrape = Scrape::parse(&get(addr, "/metrics", &[]).await.body);
        let count = |case| scrape.value("outboxd_claims_total", &[("case", case)]).unwrap_or(0.0);
        let counted = ["claimed", "sent", "held", "stale"].map(count);
        if counted == [3.0, 2.0, 2.0, 2.0] { Ok(()) } else { Err(counted) }
    })
    .await;
    let depth = queue.depth().await.unwrap();
    assert_eq!((depth.waiting, depth.in_flight), (0, 1), "all but the call under way are acknowledged");
    assert_eq!(world.provider.count(), 3, "no copy led to a call");
}

#[tokio::test]
async fn i4_of_a_message_and_its_stale_copies_in_one_batch_only_the_message_is_claimed() {
    let database = postgres::database().await;
    let client = database.connect().await;
    let store = Store::open(&config(&database, &[])).unwrap();
    let instance = register(&client).await;
    let id: i64 = client.value("SELECT outboxd.notify('orders', 'r', '{}')").await;
    // Published, and published again because the queue seemed to have lost it: both turn up.
    client.run("UPDATE outboxd.outbox SET epoch = 1").await;
    let batch = [0, 1, 2].map(|epoch| message(id, epoch));
    let cases = store.claim(&batch, instance, SOON).await.unwrap();
    let mut cases: Vec<(i32, &str)> = cases.iter().map(|((_, epoch), case)| (*epoch, case.name())).collect();
    cases.sort_unstable();
    assert_eq!(cases, [(0, "stale"), (1, "claimed"), (2, "stale")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i4_of_workers_with_copies_and_an_operator_one_gets_each_row() {
    let database = postgres::database().await;
    let client = database.connect().await;
    let store = Store::open(&config(&database, &[])).unwrap();
    let instance = register(&client).await;
    client.run("SELECT outboxd.notify('orders', 'r', '{}') FROM generate_series(1, 300)").await;
    let ids: Vec<i64> = client.values("SELECT id FROM outboxd.outbox ORDER BY id").await;
    let scan = FreshScan { last_id: i64::MAX, overlap: 1_000, skip: &[], only: None, rows_max: 5 };
    let mut racers = JoinSet::new();
    for _ in 0..2 {
        let (store, client) = (store.clone(), database.connect().await);
        racers.spawn(async move {
            let mut claimed = Vec::new();
            while client.value::<bool>("SELECT EXISTS (SELECT FROM outboxd.outbox WHERE state = 'ready')").await {
                let fresh = store.reserve_fresh(scan, instance, &[]).await.unwrap();
                claimed.extend(claim(&store, &fresh.found.reserved.messages, instance).await);
            }
            claimed
        });
    }
    // And one with copies of them all, from the other end.
    let (copies, last_first) = (store.clone(), ids.clone());
    racers.spawn(async move {
        let mut claimed = Vec::new();
        for ids in last_first.rchunks(5) {
            let copies_of_five: Vec<Message> = ids.iter().map(|id| message(*id, 0)).collect();
            claimed.extend(claim(&copies, &copies_of_five, instance).await);
        }
        claimed
    });
    let (operator, every_third) = (database.connect().await, ids.iter().copied().step_by(3).collect::<Vec<i64>>());
    racers.spawn(async move {
        let mut canceled = Vec::new();
        for id in every_third {
            let answer: String = operator.value(&format!("SELECT outboxd.cancel({id})")).await;
            canceled.extend((answer == "canceled").then_some(id));
        }
        canceled
    });
    let mut ended: Vec<i64> = racers.join_all().await.into_iter().flatten().collect();
    ended.sort_unstable();
    assert_eq!(ended, ids, "each row is claimed by one of them or canceled");
    let copies: Vec<Message> = ids.iter().map(|id| message(*id, 0)).collect();
    let cases = store.claim(&copies, instance, SOON).await.unwrap();
    assert!(cases.iter().all(|(_, case)| matches!(case, Case::Held | Case::Stale)), "{cases:?}");
}

/// The rows that were claimed by these messages.
async fn claim(store: &Store, messages: &[Message], instance: i32) -> Vec<i64> {
    let cases = store.claim(messages, instance, SOON).await.unwrap();
    cases.iter().filter(|(_, case)| matches!(case, Case::Claimed(_))).map(|((id, _), _)| *id).collect()
}

#[tokio::test]
async fn i4_a_late_success_wins_over_failed_and_canceled() {
    let database = postgres::database().await;
    let client = database.connect().await;
    let store = Store::open(&config(&database, &[])).unwrap();
    let instance = register(&client).await;
    for (cancel, ended) in [(false, "FAILED"), (true, "CANCELED")] {
        let id: i64 = client.value("SELECT outboxd.notify('orders', 'r', '{}')").await;
        let Case::Claimed(claimed) = store.claim(&[message(id, 0)], instance, SOON).await.unwrap().remove(0).1 else {
            panic!("it was claimable")
        };
        if cancel {
            client.run(&format!("SELECT outboxd.cancel({id})")).await;
        }
        let status = format!("SELECT status::text FROM outboxd.notification_log WHERE id = {id}");
        store
            .record_failures(&[failed(&claimed, claimed.token, Next::GiveUp)], instance, Recorder::Worker)
            .await
            .unwrap();
        assert_eq!(client.value::<String>(&status).await, ended);
        assert_rows_are_legal(&client).await;
        assert_eq!(store.record_sent(&[sent(&claimed)], instance).await.unwrap().sent, [id]);
        assert_eq!(client.value::<String>(&status).await, "SENT");
        assert_rows_are_legal(&client).await;
    }
}

#[tokio::test]
async fn i5_whatever_comes_late_sent_stays_sent() {
    let database = postgres::database().await;
    let client = database.connect().await;
    let store = Store::open(&config(&database, &[])).unwrap();
    let (one, other) = (register(&client).await, register(&client).await);
    let id: i64 = client.value("SELECT outboxd.notify('orders', 'r', '{}', ordering_key => 'k')").await;
    client.run("SELECT outboxd._admit('{orders}', '{k}')").await;
    let claim = |epoch, instance| {
        let store = store.clone();
        async move { store.claim(&[message(id, epoch)], instance, Duration::ZERO).await.unwrap().remove(0).1 }
    };
    let Case::Claimed(claimed) = claim(0, one).await else { panic!("it was claimable") };
    // A sweep reads that the lease is over, and is paused before it writes; meanwhile the call succeeds.
    let scan = Scan { dead: &[], ends_leases: true, page: 0, pages_max: 1_000, claims_max: 10 };
    let expired = store.scan_live(scan).await.unwrap().expired;
    assert_eq!((expired.len(), expired[0].token), (1, claimed.token));
    assert_eq!(store.record_sent(&[sent(&claimed)], one).await.unwrap().sent, [id]);
    for (token, next) in
        [(claimed.token, Next::GiveUp), (claimed.token, Next::Retry(Duration::ZERO)), (claimed.token + 1, Next::GiveUp)]
    {
        let failed = [failed(&claimed, token, next)];
        for recorder in [Recorder::Sweep(&[one]), Recorder::Worker] {
            let record = store.record_failures(&failed, other, recorder).await.unwrap();
            assert!(record.failed.is_empty() && record.waiting.is_empty(), "{recorder:?}: {record:?}");
        }
    }
    for epoch in 0..4 {
        assert!(matches!(claim(epoch, other).await, Case::Sent), "a copy of epoch {epoch}");
    }
    assert_eq!(store.record_sent(&[sent(&claimed)], other).await.unwrap().duplicates, [id]);
    assert_eq!(client.value::<String>(&format!("SELECT outboxd.cancel({id})")).await, "nothing to cancel: it is SENT");
    assert!(!client.value::<bool>(&format!("SELECT outboxd.retry({id})")).await);
    let called =
        "SELECT outboxd.retry_dead('orders'), outboxd.cancel_where('{}', false), outboxd.retry_where('{}', false)";
    client.run(called).await;
    store.recall_publications(Duration::ZERO, 10).await.unwrap();
    store.republish(Undelivered::All).await.unwrap();
    let end =
        "SELECT concat_ws(' ', status, attempts, (SELECT count(*) FROM outboxd.outbox)) FROM outboxd.notifications";
    assert_eq!(client.value::<String>(end).await, "SENT 1 0");
}

fn sent(claimed: &Claimed) -> Sent {
    Sent {
        id: claimed.id,
        token: claimed.token,
        topic: "orders".into(),
        channel: "webhook".into(),
        http_status: 200,
        provider_id: None,
        created_at: claimed.created_at,
        published_at: claimed.published_at,
    }
}

fn failed(claimed: &Claimed, token: i32, next: Next) -> Failed {
    Failed {
        id: claimed.id,
        token,
        created_at: claimed.created_at,
        topic: "orders".into(),
        outcome: "unknown",
        error: "late".to_owned(),
        http_status: None,
        channel: "webhook".into(),
        duration: None,
        response: None,
        provider_id: None,
        next,
    }
}

#[tokio::test]
async fn i6_rows_arrive_in_order_per_key_although_an_instance_is_killed() {
    let world = World::new(Carrier::Stream).await;
    let first = world.setup.start().await;
    let _second = world.setup.start().await;
    for round in 0..10 {
        let notify = format!(
            "SELECT outboxd.notify('t', 'k' || n || ' {round}', '{{}}', ordering_key => 'k' || n) FROM generate_series(1, 200) n"
        );
        world.run(&notify).await;
    }
    world.provider.wait_for(300, SOON).await;
    first.kill().await;
    world.until_ended().await.assert_nothing_lost().assert_duplicates_explained();
    let mut next: HashMap<String, u32> = HashMap::new();
    for call in world.provider.ledger() {
        let recipient = call.recipient();
        let (key, round) = recipient.split_once(' ').unwrap();
        let (round, next): (u32, _) = (round.parse().unwrap(), next.entry(key.to_owned()).or_insert(0));
        // A repeat of what was in flight when the instance died is no step back: its successor had not gone.
        assert!(round == *next || round + 1 == *next, "{key}: {round} where {next} was due");
        *next = round + 1;
    }
    assert!(next.len() == 200 && next.values().all(|next| *next == 10));
}

#[tokio::test]
async fn i7_calls_that_hang_hold_no_transaction_and_no_lock_in_the_apps_way() {
    let redis = RedisServer::forgetful();
    let world = World::over(redis.url(), "stream").await;
    world.provider.answer(Reply::hang());
    let instance = world.setup.start().await;
    world.notify(64).await;
    world.provider.wait_for(64, SOON).await;
    redis.signal(Signal::SIGSTOP);
    world.run("SET lock_timeout = '1s'").await;
    let ours = "datname = current_database() AND application_name = 'outboxd'";
    let broken = format!(
        "SELECT (SELECT count(*) FROM pg_stat_activity WHERE {ours} AND now() - xact_start > interval '2 s')
              + (SELECT count(*) FROM pg_locks k JOIN pg_class c ON c.oid = k.relation WHERE c.relname IN ('notification_log', 'outbox')
                    AND k.pid IN (SELECT pid FROM pg_stat_activity WHERE {ours}) AND k.mode NOT IN ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock'))"
    );
    // Busy, asleep and waiting for Redis: three seconds are longer than any wait of ours in an open transaction may be.
    for n in 0..60 {
        world.run("SELECT outboxd.notify('orders', 'r', '{}'), pg_sleep(0.05)").await;
        assert_eq!(world.value::<i64>(&broken).await, 0, "check {n}");
    }
    // And down: what an instance leaves behind when it dies does not wait for anybody either.
    instance.kill().await;
    world.notify(10).await;
    world.insert(10).await;
    redis.signal(Signal::SIGCONT);
    world.provider.answer(Reply::ok());
    let _next = world.setup.start().await;
    world.until_ended().await.assert_nothing_lost().assert_duplicates_explained();
}

/// Rows that are published and unclaimed.
async fn published(world: &World) -> i64 {
    world.count("outbox WHERE state = 'published'").await
}

/// The most that were published and unclaimed at once: while nobody claims, and while somebody works it all off.
async fn most_published(world: &World, setup: &Setup, relays: usize) -> (i64, i64) {
    let mut instances = Vec::new();
    for _ in 0..relays {
        instances.push(setup.clone().roles("producer,relay").start().await);
    }
    // Each has heard of the others.
    world.until("SELECT min(heartbeat_at) > max(started_at) + interval '100 ms' FROM outboxd.instance").await;
    world.run("SELECT outboxd.notify('t' || n % 50, 'r', '{}') FROM generate_series(1, 1000) n").await;
    world.notify(500).await;
    world.insert(500).await;
    let (mut most_idle, mut most_busy) = (0, 0);
    // Longer than it takes to publish something again.
    let end = Instant::now() + Duration::from_millis(2_500);
    while Instant::now() < end {
        most_idle = most_idle.max(published(world).await);
    }
    instances.push(setup.clone().roles("worker").start().await);
    while world.count("outbox").await > 0 {
        most_busy = most_busy.max(published(world).await);
    }
    world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
    (most_idle, most_busy)
}

#[tokio::test]
async fn i9_no_more_than_the_window_is_published_and_unclaimed() {
    const WINDOW: i64 = 200;
    // Taken from the queue and not yet claimed: what may wait for its permits (8 for each call), a batch that comes in on
    // top, one ahead of it, and those that are being claimed.
    const IN_HAND: i64 = 11 * 64;
    for (relays, limit) in [(1, WINDOW), (2, WINDOW * 5 / 4)] {
        let world = World::new(Carrier::Stream).await;
        let setup = world.setup.clone().set("queue.window", WINDOW);
        let setup = setup.set("worker.concurrency", 64);
        let (idle, busy) = most_published(&world, &setup, relays).await;
        println!("{relays} relays: {idle} while nobody claimed, {busy} while somebody worked");
        // Two that read the queue at different times cannot know to the row what the other is about to push.
        assert!(idle > WINDOW / 8 && idle <= limit && busy <= limit + IN_HAND, "{relays} relays: {idle}, {busy}");
    }
}
