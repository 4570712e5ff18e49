//! One app transaction stays open for long after notify(). Its snapshot keeps every dead row of the outbox, and its own row,
//! numbered below all others, may still be committed. Neither may cost others their time, nor an idle instance work.

use std::time::Duration;

use tokio_postgres::Client;

use crate::support::instance::Instance;
use crate::support::world::{Carrier, World};
use crate::support::{process, sql};

/// Notifications that come and go meanwhile: some are delivered, the rest end as if they were.
const DELIVERED: usize = 2_000;
const ENDED: usize = 60_000;
/// How long is watched, and how much more of a core an idle instance and its sessions may take then.
const WATCHED: Duration = Duration::from_secs(10);
const MORE_MAX: f64 = 0.02;
/// Below this, waits say more of a busy machine than of us.
const NOISE_S: f64 = 0.1;

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
async fn a_transaction_left_open_after_notify_costs_an_idle_instance_nothing() {
    let world = World::new(Carrier::Memory).await;
    let instance = world.setup.start().await;
    let (early, idle_before) = (p99(&world.app, "early").await, idle_share(&world.app, &instance).await);
    let mut other = world.database.connect().await;
    let open = other.transaction().await.unwrap();
    open.batch_execute("SELECT outboxd.notify('held', 'r', '{}')").await.unwrap();

    sql::run(&world.app, "SELECT outboxd.pause('ended')").await;
    sql::run(&world.app, &format!("SELECT outboxd.notify('ended', 'r', '{{}}') FROM generate_series(1, {ENDED})"))
        .await;
    let end = "WITH ended AS (DELETE FROM outboxd.outbox WHERE topic = 'ended' RETURNING id)
               UPDATE outboxd.notification_log SET status = 'SENT', finished_at = now() WHERE id IN (SELECT id FROM ended)";
    sql::run(&world.app, end).await;
    world.notify(DELIVERED as i32).await;
    world.provider.wait_for(100 + DELIVERED, Duration::from_secs(60)).await;
    sql::until(&world.app, "SELECT count(*) = 0 FROM outboxd.outbox").await;

    let (late, idle) = (p99(&world.app, "late").await, idle_share(&world.app, &instance).await);
    println!(
        "p99 {early:.4} s before, {late:.4} s beside it; idle takes {idle_before:.4} of a core before, {idle:.4} beside it"
    );
    assert!(late <= 2.0 * early.max(NOISE_S), "p99 was {early} s and is {late} s");
    assert!(idle - idle_before < MORE_MAX, "idle took {idle_before} of a core and takes {idle}");

    open.commit().await.unwrap();
    sql::until(&world.app, "SELECT status = 'SENT' FROM outboxd.notification_log WHERE topic = 'held'").await;
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
