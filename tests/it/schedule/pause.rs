//! Paused schedules, and what schedules send that expires.

use std::time::Duration;

use crate::support::postgres;
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World};

use super::{app, create, create_late, plain_instance, rows_of, run_is};

/// The runs of all schedules by their number, with their states.
const STATES: &str = "SELECT coalesce(string_agg(state, ' ' ORDER BY run), '') FROM outboxd.schedule_runs";

#[tokio::test]
async fn a_pause_cancels_what_was_prepared_and_a_resume_before_the_slot_prepares_it_anew() {
    let database = postgres::database().await;
    let client = app(&database, 50).await;
    create(&client, "daily", "").await;
    let _instance = plain_instance(&database).await;
    run_is(&client, "daily", "prepared").await;
    assert_eq!(client.value::<i64>("SELECT outboxd.pause_schedule('daily')").await, 50);
    assert_eq!(client.count("notification_log WHERE status <> 'CANCELED'").await, 0);
    let shown =
        "SELECT concat_ws(' ', state, next_slot > now(), paused_at IS NOT NULL, last_state) FROM outboxd.schedules";
    assert_eq!(client.value::<String>(shown).await, "paused t t canceled");
    assert_eq!(client.value::<i64>("SELECT outboxd.pause_schedule('daily')").await, 0, "again");

    client.run("SELECT outboxd.resume_schedule('daily')").await;
    client.until(&format!("SELECT ({STATES}) = 'canceled prepared'")).await;
    assert_eq!(rows_of(&client, "daily").await, (50, 50));
    let audit = "SELECT string_agg(action || ' ' || subject || ' ' || affected, ', ' ORDER BY id) FROM outboxd.audit
                  WHERE action LIKE '%e_schedule' AND action <> 'create_schedule'";
    assert_eq!(client.value::<String>(audit).await, "pause_schedule daily 50, resume_schedule daily 1");
}

#[tokio::test]
async fn a_slot_that_comes_during_a_pause_is_on_record_and_nobody_is_sent_anything() {
    let database = postgres::database().await;
    let client = app(&database, 3).await;
    // Its slot came a minute after it was paused, while an instance ran or not.
    create_late(&client, "held", "-3 min", "").await;
    client.run("SELECT outboxd.pause_schedule('held')").await;
    // Resumed before any instance's pass: what came before that is past, whatever catch_up says.
    create_late(&client, "resumed", "-3 min", "").await;
    let changed =
        "UPDATE outboxd.schedule SET next_slot = date_trunc('minute', now()) - interval '3 min' WHERE name = 'resumed'";
    client.run(changed).await;
    client.run("SELECT outboxd.pause_schedule('resumed'), outboxd.resume_schedule('resumed')").await;
    let _instance = plain_instance(&database).await;
    run_is(&client, "held", "paused").await;
    run_is(&client, "resumed", "paused").await;
    let states = "SELECT string_agg(name || ' ' || state, ', ' ORDER BY name) FROM outboxd.schedules";
    assert_eq!(client.value::<String>(states).await, "held paused, resumed active");
    assert_eq!(client.count("notification_log").await, 0);
    let health = "SELECT concat_ws(' | ', (SELECT level FROM outboxd.health WHERE name = 'schedules'),
                         (SELECT regexp_replace(value, ' since.*', '') FROM outboxd.health WHERE name = 'paused'))";
    assert_eq!(client.value::<String>(health).await, "ok | schedule held");
}

#[tokio::test]
async fn a_run_that_is_being_sent_goes_on_when_its_schedule_is_paused() {
    let database = postgres::database().await;
    let client = app(&database, 20).await;
    create_late(&client, "late", "-3 min", ", spread => '1 hour'").await;
    let _instance = plain_instance(&database).await;
    run_is(&client, "late", "prepared").await;
    assert_eq!(client.value::<i64>("SELECT outboxd.pause_schedule('late')").await, 0);
    run_is(&client, "late", "prepared").await;
    assert_eq!(client.count("notification_log WHERE status = 'CANCELED'").await, 0);
}

#[tokio::test]
async fn what_a_schedule_sends_expires_so_long_after_it_was_to_be_sent() {
    let database = postgres::database().await;
    let client = app(&database, 40).await;
    create(&client, "brief", ", spread => '10 min', expires_after => '30 min'").await;
    let _instance = plain_instance(&database).await;
    run_is(&client, "brief", "prepared").await;
    let spans = "SELECT string_agg(DISTINCT (expires_at - send_at)::text, ' ') FROM outboxd.notification_log";
    assert_eq!(client.value::<String>(spans).await, "00:30:00");
    client.run("SELECT outboxd.alter_schedule('brief', expires_after => '0')").await;
    client.until(&format!("SELECT ({STATES}) = 'canceled prepared'")).await;
    assert_eq!(client.count("notification_log WHERE status = 'PENDING' AND expires_at IS NULL").await, 40);
}

#[tokio::test]
async fn a_slot_later_than_its_expiry_is_missed_and_a_late_one_keeps_its_deadline() {
    let world = World::new(Carrier::Memory).await;
    let client = app(&world.database, 5).await;
    create_late(&client, "over", "-10 min", ", expires_after => '5 min'").await;
    create_late(&client, "late", "-3 min", ", expires_after => '20 min'").await;
    let _instance = world.setup.start().await;
    run_is(&client, "over", "missed").await;
    run_is(&client, "late", "released").await;
    world.provider.wait_for(5, Duration::from_secs(20)).await;
    let kept = "SELECT bool_and(l.expires_at = r.slot + interval '20 min') FROM outboxd.notification_log l, outboxd.schedule_runs r
                 WHERE r.schedule = 'late'";
    assert!(client.value::<bool>(kept).await);
}
