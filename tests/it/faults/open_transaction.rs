//! One app transaction stays open for long after notify(). Its snapshot keeps every dead row of the outbox, and its own row,
//! numbered below all others, may still be committed. Neither may cost others their time, nor an idle instance work.
//! What is read is counted: each entry of an index that leads to a dead row is one.

use std::time::{Duration, Instant};

use tokio_postgres::{Client, Transaction};

use super::Stepped;
use crate::support::instance::Instance;
use crate::support::postgres::{self, Database};
use crate::support::world::{Carrier, World};
use crate::support::{process, sql};

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
    sql::run(&client, &come).await;
    sql::run(&client, "DELETE FROM outboxd.outbox WHERE topic = 'orders'").await;
}

/// A figure of the outbox's indexes, of all sessions together. A session tells its own when it ends, so this waits until only
/// the transaction is left.
async fn counted(database: &Database, figure: &str) -> i64 {
    let client = database.connect().await;
    let others = "SELECT count(*) = 0 FROM pg_stat_activity
                   WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
                     AND state IS DISTINCT FROM 'idle in transaction'";
    sql::until(&client, others).await;
    let total = format!(
        "SELECT sum({figure})::bigint FROM pg_stat_user_indexes WHERE schemaname = 'outboxd' AND relname = 'outbox'"
    );
    sql::value(&client, &total).await
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
    assert!(read >= GONE, "the first looks at every topic from its beginning: {read}");
    assert!(read < 15 * GONE, "{POLLS} polls read {read} entries; {GONE} have gone");
    open.rollback().await.unwrap();
}

#[tokio::test]
async fn what_was_due_and_has_gone_is_not_read_each_time_something_may_be_due() {
    let database = postgres::database().await;
    let (app, mut other) = (database.connect().await, database.connect().await);
    let open = leave_open(&mut other).await;
    come_and_go(&database, "now() - interval '1 h'").await;
    let later = "INSERT INTO outboxd.outbox (id, topic, retry_at) VALUES (0, 'orders', now() + interval '1 h')";
    sql::run(&app, later).await;
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
    assert!(read >= GONE, "the first looks all the way back: {read}");
    assert!(read < 15 * GONE, "{POLLS} polls read {read} entries; {GONE} have gone");
    open.rollback().await.unwrap();
}

/// Beside a million dead rows a look takes half a second. Here a lock makes it slow.
#[tokio::test]
async fn a_look_that_took_long_is_not_made_again_for_twenty_times_as_long() {
    const SLOW: Duration = Duration::from_millis(600);
    let database = postgres::database().await;
    let mut other = database.connect().await;
    let mut stepped = Stepped::on(&database).await;
    stepped.relay.pass().await.unwrap();
    let lock = other.transaction().await.unwrap();
    lock.batch_execute("LOCK TABLE outboxd.outbox IN ACCESS EXCLUSIVE MODE").await.unwrap();
    stepped.relay.look_again();
    let unlock = async {
        tokio::time::sleep(SLOW).await;
        lock.rollback().await.unwrap();
    };
    let (looked, ()) = tokio::join!(stepped.relay.pass(), unlock);
    looked.unwrap();
    // Longer than looks are usually apart, and shorter than this one has to rest.
    let until = Instant::now() + SLOW * 10;
    while Instant::now() < until {
        stepped.relay.pass().await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop((stepped, other));
    let fresh = "idx_scan) FILTER (WHERE indexrelname = 'outbox_fresh'";
    assert_eq!(counted(&database, fresh).await, 2, "one look of the first pass, and the slow one");
}

/// Processor time of the instance and of the server processes that serve it.
async fn cpu(app: &Client, instance: &Instance) -> Duration {
    let sessions =
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'outboxd' AND datname = current_database()";
    let sessions: Vec<i32> = sql::values(app, sessions).await;
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
        sql::run(app, &format!("SELECT outboxd.notify('{topic}', 'r', '{{}}')")).await;
        let sent = format!("FROM outboxd.notification_log WHERE topic = '{topic}' AND status = 'SENT'");
        sql::until(app, &format!("SELECT count(*) = {n} {sent}")).await;
    }
    let p99 = format!(
        "SELECT extract(epoch FROM percentile_disc(0.99) WITHIN GROUP (ORDER BY finished_at - created_at))::float8
           FROM outboxd.notification_log WHERE topic = '{topic}'"
    );
    sql::value(app, &p99).await
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
    // A look, every five seconds, reads them twice.
    assert!(read < 30 * GONE, "a hundred deliveries read {read} entries; {GONE} have gone");

    open.commit().await.unwrap();
    let app = world.database.connect().await;
    let _third = world.setup.start().await;
    sql::until(&app, "SELECT status = 'SENT' FROM outboxd.notification_log WHERE topic = 'held'").await;
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
        sql::run(&world.app, rows).await;
        let open = operator.transaction().await.unwrap();
        let act = format!("SELECT outboxd.{action}(id) FROM outboxd.notification_log WHERE recipient = '{action}'");
        open.batch_execute(&act).await.unwrap();
        let _instance = world.setup.start().await;
        // Nobody with the key's turn is to be seen, so its admission is tried again and again.
        sql::run(&world.app, "SELECT outboxd.notify('orders', 'behind', '{}', ordering_key => 'k')").await;
        world.notify(20).await;
        sql::run(&world.app, "SELECT outboxd.notify('orders', 'other', '{}', ordering_key => 'other')").await;
        let sent = "FROM outboxd.notification_log WHERE status = 'SENT'";
        sql::until(&world.app, &format!("SELECT count(*) = 21 {sent} AND recipient <> 'behind'")).await;
        open.commit().await.unwrap();
        sql::until(&world.app, &format!("SELECT count(*) = 1 {sent} AND recipient = 'behind'")).await;
    }
}
