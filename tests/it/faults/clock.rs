//! An instance whose wall clock is wrong: leases, retries, schedules and retention go by the database's.

use std::time::Duration;

use crate::schedule;
use crate::support::provider::Reply;
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World};

const SOON: Duration = Duration::from_secs(20);
const HOUR: i64 = 3_600;

#[tokio::test]
async fn an_instance_an_hour_ahead_does_everything_on_the_databases_time() {
    an_instance_off_by(HOUR).await;
}

#[tokio::test]
async fn an_instance_an_hour_behind_does_everything_on_the_databases_time() {
    an_instance_off_by(-HOUR).await;
}

/// It alone calls, plans and keeps retention; a fellow with the right time releases, publishes and sweeps beside it.
async fn an_instance_off_by(seconds: i64) {
    let world = World::new(Carrier::Stream).await;
    let client = schedule::app(&world.database, 10).await;
    let kept_a_week =
        "INSERT INTO outboxd.notification_log (status, created_at, finished_at, topic, recipient, payload)
        SELECT 'SENT', now() - interval '9 days', now() - interval '7 days' - late, 't', name, '{}'
          FROM (VALUES ('over', interval '30 min'), ('kept', interval '-30 min')) v(name, late)";
    world.run(kept_a_week).await;
    world.provider.answer_with(|call| match (call.recipient().as_str(), call.header("outboxd-attempt")) {
        ("flaky", Some("1")) => Reply::status(503),
        // Longer than a publication may stay unconfirmed and than a sweep waits for the next.
        ("long", _) => Reply::ok().after(Duration::from_secs(3)),
        _ => Reply::ok(),
    });
    let wrong = world.setup.clone().clock_off_by(seconds).start().await;
    world.until_count(2, "leader_lease WHERE owner = 1 AND name IN ('schedules', 'retention')").await;
    let fellow = world.setup.clone().roles("producer,relay").start().await;

    client
        .run(&format!(
            "SELECT outboxd.create_schedule('not yet', '{}', 'UTC', 'quiz', 'app.audience')",
            schedule::cron_at(&client, "30 min").await
        ))
        .await;
    schedule::create(&client, "soon", "").await;
    let write = "SELECT outboxd.notify('orders', r, '{}') FROM unnest(ARRAY['long', 'flaky', 'plain']) r;
        SELECT outboxd.notify('orders', 'expiring', '{}', expires_at => now() + interval '1 min');
        SELECT outboxd.notify('orders', 'later', '{}', send_at => now() + interval '2 s')";
    world.run(write).await;
    let lease = "SELECT count(*) = 1 FROM outboxd.outbox o JOIN outboxd.notifications l USING (id)
                  WHERE l.recipient = 'long' AND o.state = 'processing' AND o.lease_until BETWEEN clock_timestamp() AND clock_timestamp() + interval '8 s'";
    world.until(lease).await;
    world.provider.wait_for(6, SOON).await;
    world.until_count(5, "notification_log WHERE topic = 'orders' AND status = 'SENT'").await;

    let calls: Vec<String> = world.provider.ledger().iter().map(|call| call.recipient()).collect();
    let once = |name: &str| calls.iter().filter(|call| *call == name).count() == 1;
    assert!(["long", "plain", "expiring", "later"].iter().all(|name| once(name)), "no lease ended early: {calls:?}");
    let on_time = "SELECT bool_and(finished_at BETWEEN greatest(created_at, send_at) AND greatest(created_at, send_at) + interval '10 s')
                     FROM outboxd.notification_log WHERE topic = 'orders'";
    assert!(world.value::<bool>(on_time).await);
    schedule::run_is(&client, "soon", "prepared").await;
    let early = "schedule_runs WHERE schedule = 'not yet' OR released > 0";
    assert_eq!(client.count(early).await, 0, "nothing before its lead, nothing released before its slot");
    world.until_count(0, "notification_log WHERE recipient = 'over'").await;
    assert_eq!(world.count("notification_log WHERE recipient = 'kept'").await, 1);
    let told = format!(
        "SELECT level = 'critical' AND (SELECT clock_skew_ms / 1000 FROM outboxd.workers WHERE worker = 1) BETWEEN {seconds} - 2 AND {seconds} + 2
           FROM outboxd.health WHERE name = 'clock_skew'"
    );
    world.until(&told).await;

    // And whether it lives is decided by its heartbeats, not by its clock.
    assert_eq!(world.count("workers WHERE state = 'alive'").await, 2);
    world.provider.answer(Reply::hang());
    world.run("SELECT outboxd.notify('orders', 'orphan', '{}')").await;
    world.provider.wait_for(7, SOON).await;
    wrong.kill().await;
    drop(fellow);
    world.provider.answer(Reply::ok());
    let _heir = world.setup.clone().clock_off_by(-seconds).start().await;
    world.until("SELECT status = 'SENT' FROM outboxd.notifications WHERE recipient = 'orphan'").await;
    let attempts: Vec<String> = world.values("SELECT outcome FROM outboxd.attempts ORDER BY id").await;
    assert_eq!(attempts, ["failed", "unknown"]);
}
