//! One app transaction stays open for long after notify(). Its snapshot keeps every dead row of the outbox, and its own
//! row, numbered below all others, may still be committed. Neither may cost others their time, nor an idle instance
//! work. What is read is counted: each entry of an index that leads to a dead row is one.
//!
//! An operator's transaction stays open after cancel() and holds its row: that row waits, and no other.

use std::time::{Duration, Instant};

use outboxd::store::claim::{Case, Claimed, PutBack};
use outboxd::store::record::{Next, Recorder};
use tokio_postgres::{Client, Transaction};

use super::Stepped;
use super::outcomes::{failed, sent};
use crate::support::instance::Instance;
use crate::support::postgres::{self, Database};
use crate::support::process;
use crate::support::provider::Reply;
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World, message};

/// Rows that came and went since.
const GONE: i64 = 60_000;
/// Polls that are counted: without what is tested here, each reads all that has gone.
const POLLS: i64 = 50;
/// How long is watched, and how much more of a core an idle instance and its sessions may take then.
const WATCHED: Duration = Duration::from_secs(5);
const MORE_MAX: f64 = 0.02;
/// Below this, waits say more of a busy machine than of us.
const NOISE_S: f64 = 0.1;

/// Notifies and does not commit.
async fn leave_open(client: &mut Client) -> Transaction<'_> {
    let open = client.transaction().await.unwrap();
    open.batch_execute("SELECT outboxd.notify('held', 'r', '{}')").await.unwrap();
    open
}

/// Rows that nobody sees any more, and nobody may remove.
async fn come_and_go(database: &Database, retry_at: &str) {
    let client = database.connect().await;
    let come = format!(
        "INSERT INTO outboxd.outbox (id, topic, retry_at)
         SELECT nextval('outboxd.notification_log_id_seq'), 'orders', {retry_at} FROM generate_series(1, {GONE})"
    );
    client.run(&come).await;
    client.run("DELETE FROM outboxd.outbox WHERE topic = 'orders'").await;
}

/// A figure of the outbox's indexes, of all sessions together. A session tells its own when it ends, so this waits
/// until only the transaction is left.
async fn counted(database: &Database, figure: &str) -> i64 {
    let client = database.connect().await;
    let others = "SELECT count(*) = 0 FROM pg_stat_activity
                   WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
                     AND state IS DISTINCT FROM 'idle in transaction'";
    client.until(others).await;
    let total = format!(
        "SELECT sum({figure})::bigint FROM pg_stat_user_indexes WHERE schemaname = 'outboxd' AND relname = 'outbox'"
    );
    client.value(&total).await
}

#[tokio::test]
async fn polls_beside_an_open_transaction_do_not_read_what_has_gone() {
    let database = postgres::database().await;
    let mut other = database.connect().await;
    let open = leave_open(&mut other).await;
    come_and_go(&database, "NULL").await;
    let before = counted(&database, "idx_tup_read").await;
    let mut stepped = Stepped::on(&database).await;
    for _ in 0..POLLS {
        assert_eq!(stepped.relay.pass().await.unwrap().pushed, 0);
    }
    drop(stepped);
    let read = counted(&database, "idx_tup_read").await - before;
    println!("{POLLS} polls read {read} entries; {GONE} have gone");
    assert!(read >= GONE, "the first scans every topic from its beginning: {read}");
    assert!(read < 15 * GONE, "{POLLS} polls read {read} entries; {GONE} have gone");
    open.rollback().await.unwrap();
}

#[tokio::test]
async fn what_was_due_and_has_gone_is_not_read_each_time_something_may_be_due() {
    let database = postgres::database().await;
    let (app, mut other) = (database.connect().await, database.connect().await);
    let open = leave_open(&mut other).await;
    come_and_go(&database, "now() - interval '1 h'").await;
    app.run("INSERT INTO outboxd.outbox (id, topic, retry_at) VALUES (0, 'orders', now() + interval '1 h')").await;
    drop(app);
    let before = counted(&database, "idx_tup_read").await;
    let mut stepped = Stepped::on(&database).await;
    for _ in 0..POLLS {
        stepped.relay.wake();
        assert_eq!(stepped.relay.pass().await.unwrap().pushed, 0);
    }
    drop(stepped);
    let read = counted(&database, "idx_tup_read").await - before;
    println!("{POLLS} polls read {read} entries; {GONE} have gone");
    assert!(read >= GONE, "the first goes all the way back: {read}");
    assert!(read < 15 * GONE, "{POLLS} polls read {read} entries; {GONE} have gone");
    open.rollback().await.unwrap();
}

/// Beside a million dead rows a full scan takes half a second. Here a lock makes it slow.
#[tokio::test]
async fn a_full_scan_that_took_long_is_not_made_again_for_twenty_times_as_long() {
    const SLOW: Duration = Duration::from_millis(600);
    let database = postgres::database().await;
    let mut other = database.connect().await;
    let mut stepped = Stepped::on(&database).await;
    stepped.relay.pass().await.unwrap();
    let lock = other.transaction().await.unwrap();
    lock.batch_execute("LOCK TABLE outboxd.outbox IN ACCESS EXCLUSIVE MODE").await.unwrap();
    stepped.relay.rescan();
    let unlock = async {
        tokio::time::sleep(SLOW).await;
        lock.rollback().await.unwrap();
    };
    let (scanned, ()) = tokio::join!(stepped.relay.pass(), unlock);
    scanned.unwrap();
    // Longer than full scans are usually apart, and shorter than this one has to rest.
    let until = Instant::now() + SLOW * 10;
    while Instant::now() < until {
        stepped.relay.pass().await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop((stepped, other));
    let fresh = "idx_scan) FILTER (WHERE indexrelname = 'outbox_fresh'";
    assert_eq!(counted(&database, fresh).await, 2, "one full scan of the first pass, and the slow one");
}

/// Processor time of the instance and of the server processes that serve it.
async fn cpu(app: &Client, instance: &Instance) -> Duration {
    let sessions =
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'outboxd' AND datname = current_database()";
    let sessions: Vec<i32> = app.values(sessions).await;
    sessions.into_iter().chain([instance.pid()]).map(process::cpu_time).sum()
}

/// What share of a core is taken while nobody writes anything.
async fn idle_share(app: &Client, instance: &Instance) -> f64 {
    let before = cpu(app, instance).await;
    tokio::time::sleep(WATCHED).await;
    cpu(app, instance).await.saturating_sub(before).as_secs_f64() / WATCHED.as_secs_f64()
}

/// Commits one by one and returns the wait that one of a hundred exceeds, from the commit until it is published.
async fn p99(app: &Client, topic: &str) -> f64 {
    for n in 1..=100 {
        app.run(&format!("SELECT outboxd.notify('{topic}', 'r', '{{}}')")).await;
        let sent = format!("FROM outboxd.notification_log WHERE topic = '{topic}' AND status = 'SENT'");
        app.until(&format!("SELECT count(*) = {n} {sent}")).await;
    }
    let p99 = format!(
        "SELECT extract(epoch FROM percentile_disc(0.99) WITHIN GROUP (ORDER BY finished_at - created_at))::float8
           FROM outboxd.notification_log WHERE topic = '{topic}'"
    );
    app.value(&p99).await
}

#[tokio::test]
async fn an_open_transaction_costs_neither_deliveries_nor_an_idle_instance() {
    let world = World::new(Carrier::Memory).await;
    let first = world.setup.start().await;
    let (early, idle_before) = (p99(&world.app, "early").await, idle_share(&world.app, &first).await);
    assert_eq!(first.drain().await, 0);
    let mut other = world.database.connect().await;
    let open = leave_open(&mut other).await;
    come_and_go(&world.database, "NULL").await;
    drop(world.app);

    let before = counted(&world.database, "idx_tup_read").await;
    let (app, second) = (world.database.connect().await, world.setup.start().await);
    let (late, idle) = (p99(&app, "late").await, idle_share(&app, &second).await);
    assert_eq!(second.drain().await, 0);
    drop(app);
    let read = counted(&world.database, "idx_tup_read").await - before;
    println!(
        "p99 {early:.4} s before, {late:.4} s beside it; idle takes {idle_before:.4} of a core before, {idle:.4} beside it; \
         {read} entries were read, {GONE} have gone"
    );
    assert!(late <= 2.0 * early.max(NOISE_S), "p99 was {early} s and is {late} s");
    assert!(idle - idle_before < MORE_MAX, "idle took {idle_before} of a core and takes {idle}");
    // A full scan, every five seconds, reads them twice.
    assert!(read < 30 * GONE, "a hundred deliveries read {read} entries; {GONE} have gone");

    open.commit().await.unwrap();
    let app = world.database.connect().await;
    let _third = world.setup.start().await;
    app.until("SELECT status = 'SENT' FROM outboxd.notification_log WHERE topic = 'held'").await;
}

#[tokio::test]
async fn an_operators_open_transaction_keeps_only_its_own_key_waiting() {
    for action in ["retry", "cancel"] {
        let world = World::new(Carrier::Memory).await;
        let mut operator = world.database.connect().await;
        let rows = "INSERT INTO outboxd.notification_log (topic, recipient, payload, status, finished_at, failed_at, error, ordering_key)
                    VALUES ('orders', 'retry', '{}', 'FAILED', now(), now(), 'refused', 'k');
                    SELECT outboxd.notify('orders', 'cancel', '{}', ordering_key => 'k')";
        let rows = if action == "retry" { rows.split_once(';').unwrap().0 } else { rows };
        world.run(rows).await;
        let open = operator.transaction().await.unwrap();
        let act = format!("SELECT outboxd.{action}(id) FROM outboxd.notification_log WHERE recipient = '{action}'");
        open.batch_execute(&act).await.unwrap();
        let _instance = world.setup.start().await;
        // Nobody with the key's turn is to be seen, so its admission is tried again and again.
        world.run("SELECT outboxd.notify('orders', 'behind', '{}', ordering_key => 'k')").await;
        world.notify(20).await;
        world.run("SELECT outboxd.notify('orders', 'other', '{}', ordering_key => 'other')").await;
        let sent = "FROM outboxd.notification_log WHERE status = 'SENT'";
        world.until(&format!("SELECT count(*) = 21 {sent} AND recipient <> 'behind'")).await;
        open.commit().await.unwrap();
        world.until(&format!("SELECT count(*) = 1 {sent} AND recipient = 'behind'")).await;
    }
}

const SOON: Duration = Duration::from_secs(30);
const SENT: &str = "FROM outboxd.notification_log WHERE status = 'SENT'";
const OF_HELD: &str = "FROM outboxd.notification_log WHERE recipient = 'held'";

/// Cancels the notification for `held` and does not commit.
async fn cancel_held<'a>(operator: &'a mut Client, answer: &str) -> Transaction<'a> {
    let open = operator.transaction().await.unwrap();
    let said = open.query_one(&format!("SELECT outboxd.cancel(id) {OF_HELD}"), &[]).await.unwrap();
    assert_eq!(said.get::<_, String>(0), answer);
    open
}

/// Ten notifications, the fifth of them for `held`.
async fn notify_with_held(app: &Client) {
    let ten = "SELECT outboxd.notify('orders', CASE n WHEN 5 THEN 'held' ELSE 'r' || n END, '{}') FROM generate_series(1, 10) n";
    app.run(ten).await;
}

#[tokio::test]
async fn a_published_row_that_an_open_cancel_holds_keeps_no_other_waiting() {
    for (end, status) in [("ROLLBACK", "SENT"), ("COMMIT", "CANCELED")] {
        let world = World::new(Carrier::Stream).await;
        let mut operator = world.database.connect().await;
        let _relay = world.setup.clone().roles("producer,relay").start().await;
        notify_with_held(&world.app).await;
        world.until_count(10, "outbox WHERE state = 'published'").await;
        let open = cancel_held(&mut operator, "canceled").await;
        let worker = world.setup.clone().roles("worker").start().await;
        world.until(&format!("SELECT count(*) = 9 {SENT}")).await;
        for round in 1..=5 {
            world.notify(10).await;
            world.until(&format!("SELECT count(*) = 9 + 10 * {round} {SENT}")).await;
        }
        open.batch_execute(end).await.unwrap();
        world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
        assert_eq!(world.value::<String>(&format!("SELECT status::text {OF_HELD}")).await, status);
        assert_eq!(world.provider.count(), if status == "SENT" { 60 } else { 59 });
        assert_eq!(worker.drain().await, 0);
    }
}

#[tokio::test]
async fn a_row_in_flight_that_an_open_cancel_holds_keeps_no_other_waiting() {
    for end in ["ROLLBACK", "COMMIT"] {
        let world = World::new(Carrier::Stream).await;
        let mut operator = world.database.connect().await;
        world.provider.answer_with(|call| match call.recipient().as_str() {
            "held" => Reply::ok().after(Duration::from_secs(3)),
            _ => Reply::ok(),
        });
        let worker = world.setup.start().await;
        notify_with_held(&world.app).await;
        world.provider.wait_for(10, SOON).await;
        let open = cancel_held(&mut operator, "in flight: no further attempt").await;
        let other = world.setup.start().await;
        // Until its lease is over for long: whoever sweeps has seen it, and leaves it alone.
        let is_over = "SELECT lease_until < clock_timestamp() - interval '3 s' FROM outboxd.outbox o WHERE id = (SELECT id FROM outboxd.notification_log WHERE recipient = 'held')";
        let mut rounds = 0;
        while !world.value::<bool>(is_over).await {
            world.notify(10).await;
            rounds += 1;
            world.until(&format!("SELECT count(*) = 9 + 10 * {rounds} {SENT}")).await;
        }
        println!("{rounds} rounds of ten beside it");
        assert!(rounds >= 10, "{rounds} rounds of ten");
        open.batch_execute(end).await.unwrap();
        world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
        let kept = format!("SELECT status::text {OF_HELD}");
        assert_eq!(world.value::<String>(&kept).await, "SENT", "it was delivered, whatever came after");
        for instance in [worker, other] {
            assert_eq!(instance.drain().await, 0);
        }
    }
}

#[tokio::test]
async fn a_sweep_ends_the_leases_beside_a_row_that_an_open_cancel_holds() {
    for (end, status) in [("ROLLBACK", "SENT"), ("COMMIT", "CANCELED")] {
        let world = World::new(Carrier::Stream).await;
        let mut operator = world.database.connect().await;
        world.provider.answer(Reply::hang());
        let holder = world.setup.start().await;
        notify_with_held(&world.app).await;
        world.provider.wait_for(10, SOON).await;
        let open = cancel_held(&mut operator, "in flight: no further attempt").await;
        holder.kill().await;
        world.provider.answer(Reply::ok());
        let _next = world.setup.start().await;
        world.until(&format!("SELECT count(*) = 9 {SENT}")).await;
        open.batch_execute(end).await.unwrap();
        world.until_ended().await.assert_nothing_lost().assert_duplicates_explained();
        assert_eq!(world.value::<String>(&format!("SELECT status::text {OF_HELD}")).await, status);
        assert_eq!(world.count("attempts WHERE outcome = 'unknown'").await, 10, "each lease was ended once");
    }
}

/// Three rows that were claimed, in the order of their ids.
async fn claim_three(app: &Client, stepped: &Stepped) -> Vec<Claimed> {
    let three =
        "SELECT outboxd.notify('orders', CASE n WHEN 2 THEN 'held' ELSE 'r' END, '{}') FROM generate_series(1, 3) n";
    let ids: Vec<i64> = app.values(three).await;
    let messages: Vec<_> = ids.into_iter().map(|id| message(id, 0)).collect();
    let cases = stepped.store.claim(&messages, stepped.instance, SOON).await.unwrap();
    let claimed = cases.into_iter().map(|(_, case)| match case {
        Case::Claimed(claimed) => *claimed,
        case => panic!("it is claimable: {case:?}"),
    });
    claimed.collect()
}

#[tokio::test]
async fn every_statement_of_a_worker_passes_over_a_row_that_is_locked() {
    let database = postgres::database().await;
    let (app, mut operator) = (database.connect().await, database.connect().await);
    for action in ["renew", "send", "fail", "release"] {
        let stepped = Stepped::on(&database).await;
        let claimed = claim_three(&app, &stepped).await;
        let open = cancel_held(&mut operator, "in flight: no further attempt").await;
        let (store, instance, held) = (&stepped.store, stepped.instance, (claimed[1].id, claimed[1].token));
        let free = [claimed[0].id, claimed[2].id];
        let back = |claim: &Claimed| PutBack {
            id: claim.id,
            epoch: claim.token,
            wait: SOON,
            next_step: None,
            waits_for: None,
        };
        let locked = match action {
            "renew" => {
                let keys = claimed.iter().map(|claim| (claim.id, claim.token)).collect();
                let renewed = store.renew(keys, SOON).await.unwrap();
                assert_eq!(renewed.iter().map(|(id, _)| *id).collect::<Vec<i64>>(), free);
                vec![held]
            }
            "send" => {
                let sent: Vec<_> = claimed.iter().map(sent).collect();
                let record = store.record_sent(&sent, instance).await.unwrap();
                assert_eq!((record.sent.len(), record.late, record.duplicates.len()), (2, 0, 0));
                record.locked
            }
            "fail" => {
                let failed: Vec<_> = claimed.iter().map(|claim| failed(claim, Next::Retry(SOON))).collect();
                let record = store.record_failures(&failed, instance, Recorder::Worker).await.unwrap();
                assert_eq!(record.waiting, free);
                record.locked
            }
            _ => {
                let locked = store.release(&claimed.iter().map(back).collect::<Vec<_>>()).await.unwrap().locked;
                assert_eq!(app.count("outbox WHERE state = 'ready'").await, 2);
                locked
            }
        };
        assert_eq!(locked, [held], "{action}");
        // Whoever comes after a lock was met asks first, even where it would not have waited.
        let asked: &[_] = if action == "renew" { &[] } else { &[held] };
        assert_eq!(store.put_back(&claimed.iter().map(back).collect::<Vec<_>>()).await.unwrap(), asked, "{action}");
        open.rollback().await.unwrap();
        assert_eq!(store.find_locked(&[held.0]).await.unwrap().len(), 0, "{action}");
        app.run("DELETE FROM outboxd.outbox; DELETE FROM outboxd.notification_log").await;
    }
}
