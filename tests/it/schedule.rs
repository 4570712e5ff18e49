//! Schedules: each slot, each recipient, once.

use std::time::Duration;

use tokio_postgres::Client;

use crate::support::instance::{Instance, Setup};
use crate::support::postgres::{self, Database};
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World};

mod audience;
mod command;
mod crash;
mod hostile;
mod judged;
mod pause;
mod reading;

/// An app with members, whom the view `app.audience` shows to outboxd.
pub async fn app(database: &Database, members: u32) -> Client {
    let client = database.connect().await;
    let created = format!("CREATE SCHEMA app; CREATE TABLE app.member (n int PRIMARY KEY);
        INSERT INTO app.member SELECT generate_series(1, {members});
        CREATE VIEW app.audience AS SELECT 'member-' || n AS recipient, jsonb_build_object('n', n) AS payload FROM app.member;
        GRANT USAGE ON SCHEMA app TO outboxd_audience; GRANT SELECT ON app.audience TO outboxd_audience");
    client.run(&created).await;
    client
}

/// A cron expression that names only the minute so far from now, in UTC.
pub async fn cron_at(client: &Client, offset: &str) -> String {
    let minute = format!("SELECT to_char((now() + interval '{offset}') AT TIME ZONE 'UTC', 'FMMI FMHH24 FMDD FMMM *')");
    client.value(&minute).await
}

/// A schedule with one slot in five minutes: it is prepared at once and waits.
pub async fn create(client: &Client, name: &str, more: &str) {
    let cron = cron_at(client, "5 min").await;
    let called = format!("SELECT outboxd.create_schedule('{name}', '{cron}', 'UTC', 'quiz', 'app.audience' {more})");
    client.run(&called).await;
}

/// A schedule that was created before its slot, which has passed since while nobody ran.
pub async fn create_late(client: &Client, name: &str, slot: &str, more: &str) {
    let cron = cron_at(client, slot).await;
    let begun = format!(
        "BEGIN; SELECT outboxd.create_schedule('{name}', '{cron}', 'UTC', 'quiz', 'app.audience' {more});
         UPDATE outboxd.schedule SET changed_at = now() - interval '1 day' WHERE name = '{name}'; COMMIT"
    );
    client.run(&begun).await;
}

pub async fn run_is(client: &Client, schedule: &str, state: &str) {
    let is = format!(
        "SELECT count(*) = 1 AND min(state) = '{state}' FROM outboxd.schedule_runs WHERE schedule = '{schedule}'"
    );
    client.until(&is).await;
}

/// Recipients of a run and rows of it in the log; equal if everybody has exactly one.
pub async fn rows_of(client: &Client, schedule: &str) -> (i64, i64) {
    let row = client
        .query_one(
            "SELECT count(DISTINCT l.recipient), count(*) FROM outboxd.notification_log l JOIN outboxd.schedule_run r
                 ON l.dedup_key LIKE 'schedule:' || r.id || ':%' WHERE r.schedule = $1 AND r.state <> 'canceled'",
            &[&schedule],
        )
        .await
        .unwrap();
    (row.get(0), row.get(1))
}

async fn plain_instance(database: &Database) -> Instance {
    Setup::new(&database.url()).webhook("http://127.0.0.1:9/").start().await
}

#[tokio::test]
async fn a_slot_missed_by_downtime_runs_on_return_and_everybody_is_sent_one() {
    let world = World::new(Carrier::Memory).await;
    let client = app(&world.database, 300).await;
    create_late(&client, "daily", "-3 min", "").await;
    let _instance = world.setup.start().await;
    world.provider.wait_for(300, Duration::from_secs(20)).await;
    run_is(&client, "daily", "released").await;
    let mut recipients: Vec<String> = world.provider.ledger().iter().map(|call| call.recipient()).collect();
    recipients.sort();
    recipients.dedup();
    assert_eq!((recipients.len(), world.provider.count()), (300, 300));
    let counts = "SELECT concat_ws(' ', recipients, prepared, released) FROM outboxd.schedule_runs";
    assert_eq!(client.value::<String>(counts).await, "300 300 300");
    let next = "SELECT state = 'active' AND next_slot > now() + interval '300 days' FROM outboxd.schedules";
    assert!(client.value::<bool>(next).await);
}

#[tokio::test]
async fn a_slot_older_than_its_catch_up_is_missed_and_nobody_is_sent_anything() {
    let database = postgres::database().await;
    let client = app(&database, 3).await;
    create_late(&client, "old", "-90 min", "").await;
    create_late(&client, "older", "-10 min", ", catch_up => '5 min'").await;
    let _instance = plain_instance(&database).await;
    run_is(&client, "old", "missed").await;
    run_is(&client, "older", "missed").await;
    let reason = "SELECT string_agg(DISTINCT error, ',') FROM outboxd.schedule_runs";
    assert_eq!(client.value::<String>(reason).await, "no instance ran in time");
    assert_eq!(client.count("notification_log").await, 0);
}

#[tokio::test]
async fn notifications_wait_for_the_slot_spread_the_same_way_each_time() {
    let database = postgres::database().await;
    let client = app(&database, 500).await;
    create(&client, "spread", ", spread => '1 hour'").await;
    let _instance = plain_instance(&database).await;
    run_is(&client, "spread", "prepared").await;
    let within = "SELECT count(*) = 500 AND bool_and(l.status = 'PENDING' AND l.send_at >= r.slot AND l.send_at < r.slot + interval '1 hour')
                         AND max(l.send_at) - min(l.send_at) > interval '50 min'
                    FROM outboxd.notification_log l, outboxd.schedule_runs r";
    assert!(client.value::<bool>(within).await);
    client.run("CREATE TABLE app.before AS SELECT recipient, send_at FROM outboxd.notification_log").await;
    assert_eq!(client.value::<i64>("SELECT outboxd.drop_schedule('spread')").await, 500);
    client.run("DELETE FROM outboxd.notification_log").await;
    create(&client, "spread", ", spread => '1 hour'").await;
    client.until_count(1, "schedule_runs WHERE state = 'prepared'").await;
    let differ = "notification_log l JOIN app.before b USING (recipient)
                   WHERE extract(microseconds FROM l.send_at) <> extract(microseconds FROM b.send_at)";
    assert_eq!(client.count(differ).await, 0);
}

#[tokio::test]
async fn dropping_a_schedule_cancels_what_was_prepared_also_in_the_middle_of_it() {
    let database = postgres::database().await;
    let client = app(&database, 20_000).await;
    create(&client, "dropped", ", spread => '1 min'").await;
    let _instance = plain_instance(&database).await;
    client.until("SELECT coalesce(bool_or(prepared > 0), false) FROM outboxd.schedule_runs").await;
    let canceled: i64 = client.value("SELECT outboxd.drop_schedule('dropped')").await;
    assert!(canceled > 0);
    run_is(&client, "dropped", "canceled").await;
    client.until_count(0, "schedule_recipient").await;
    let left = "notification_log WHERE status <> 'CANCELED'";
    assert_eq!(client.count(left).await, 0, "nothing was prepared after the drop");
    assert_eq!(client.count("notification_log").await, canceled);
}

#[tokio::test]
async fn altering_a_schedule_prepares_it_anew_for_its_new_slot() {
    let database = postgres::database().await;
    let client = app(&database, 100).await;
    create(&client, "altered", "").await;
    let _instance = plain_instance(&database).await;
    run_is(&client, "altered", "prepared").await;
    let cron = cron_at(&client, "8 min").await;
    let canceled: i64 = client.value(&format!("SELECT outboxd.alter_schedule('altered', cron => '{cron}')")).await;
    assert_eq!(canceled, 100);
    client.until("SELECT string_agg(state, ' ' ORDER BY run) = 'canceled prepared' FROM outboxd.schedule_runs").await;
    assert_eq!(rows_of(&client, "altered").await, (100, 100));
    let pending = "SELECT count(*) = 100 AND min(send_at) > now() + interval '6 min' FROM outboxd.notification_log WHERE status = 'PENDING'";
    assert!(client.value::<bool>(pending).await);
}

#[tokio::test]
async fn a_cron_expression_that_never_comes_is_visible_at_once() {
    let database = postgres::database().await;
    let client = app(&database, 1).await;
    let _instance = plain_instance(&database).await;
    client.run("SELECT outboxd.create_schedule('never', '0 9 31 2 *', 'UTC', 'quiz', 'app.audience')").await;
    let invalid = "SELECT state = 'invalid' AND error LIKE '%never%' OR error LIKE '%no date%' FROM outboxd.schedules";
    client.until(&format!("SELECT coalesce(({invalid}), false)")).await;
    client.run("SELECT outboxd.alter_schedule('never', cron => '0 9 28 2 *')").await;
    client.until("SELECT state = 'active' AND error IS NULL FROM outboxd.schedules").await;
}
