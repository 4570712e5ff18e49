//! Any login of the database may take any advisory lock: one that a stranger holds delays nothing of ours.

use std::time::Duration;

use outboxd::store::migrate::{self, Install};

use crate::support::instance::Instance;
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World};

/// The lock under which the turn of a key is given.
const TAKEN: &str = "SELECT pg_advisory_lock(hashtextextended('outboxd turn k', hashtextextended('orders', 0)))";

const KEYED: &str = "SELECT outboxd.notify('orders', 'r', '{}', ordering_key => 'k') FROM generate_series(1, 3)";

#[tokio::test]
async fn a_stranger_who_holds_the_lock_of_a_key_delays_none_of_its_rows() {
    let world = World::new(Carrier::Memory).await;
    let stranger = world.database.connect_as_stranger().await;
    stranger.run(TAKEN).await;
    world.run(KEYED).await;
    let _instance = world.setup.start().await;
    world.until("SELECT bool_and(status = 'SENT') FROM outboxd.notification_log").await;
}

/// Takes this lock and keeps it, as an audience: its code runs under the daemon's own login.
async fn hoard(world: &World, taken: &str) -> Instance {
    let audience = format!(
        "CREATE SCHEMA evil; GRANT USAGE ON SCHEMA evil TO PUBLIC;
         CREATE FUNCTION evil.hoard() RETURNS TABLE (recipient text, payload jsonb) LANGUAGE plpgsql AS $$
         BEGIN {}; PERFORM pg_sleep(600); END $$;
         SELECT outboxd.create_schedule('hoard', '* * * * *', 'UTC', 'other', 'evil.hoard')",
        taken.replace("SELECT", "PERFORM")
    );
    world.run(&audience).await;
    let instance = world.setup.start().await;
    world.until(HOARDED).await;
    instance
}

const HOARDED: &str = "SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
                                       WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted AND a.datname = current_database()
                                         AND a.wait_event = 'PgSleep')";

#[tokio::test]
async fn a_lock_that_an_audience_holds_delays_none_of_a_keys_rows() {
    let world = World::new(Carrier::Memory).await;
    let _instance = hoard(&world, TAKEN).await;
    world.run(KEYED).await;
    world.until("SELECT bool_and(status = 'SENT') FROM outboxd.notification_log WHERE topic = 'orders'").await;
    assert!(world.value::<bool>(HOARDED).await, "it holds it still");
}

#[tokio::test]
async fn a_lock_that_an_audience_holds_delays_no_migration() {
    let world = World::new(Carrier::Memory).await;
    let _instance = hoard(&world, "SELECT pg_advisory_lock(x'6f7574626f786401'::bit(64)::bigint)").await;
    let mut owner = world.database.connect().await;
    let migrated = tokio::time::timeout(Duration::from_secs(30), migrate::run(&mut owner, Install::Always)).await;
    migrated.expect("nobody waits for an audience").unwrap();
    assert!(world.value::<bool>(HOARDED).await, "it holds it still");
}

/// Whatever marks a session that reads an audience, a stranger cannot take it first.
#[tokio::test]
async fn a_stranger_who_holds_the_locks_of_readings_delays_no_schedule() {
    let world = World::new(Carrier::Memory).await;
    let stranger = world.database.connect_as_stranger().await;
    stranger.run("SELECT pg_advisory_lock(1869968482, n) FROM generate_series(0, 1000) n").await;
    let created = "CREATE VIEW public.people AS SELECT 'r'::text AS recipient, '{}'::jsonb AS payload;
                   GRANT SELECT ON public.people TO outboxd_audience;
                   SELECT outboxd.create_schedule('s', '* * * * *', 'UTC', 'other', 'public.people')";
    world.run(created).await;
    let _instance = world.setup.start().await;
    world.until("SELECT coalesce(bool_or(state IN ('prepared', 'released')), false) FROM outboxd.schedule_runs").await;
}

#[tokio::test]
async fn an_operators_action_gives_the_next_row_its_turn_past_a_strangers_lock() {
    let world = World::new(Carrier::Memory).await;
    let stranger = world.database.connect_as_stranger().await;
    stranger.run(TAKEN).await;
    world.run(KEYED).await;
    let first: i64 = world.value("SELECT min(id) FROM outboxd.outbox").await;
    world.run(&format!("SELECT outboxd.cancel({first})")).await;
    let states = "SELECT state::text FROM outboxd.outbox ORDER BY seq";
    assert_eq!(world.values::<String>(states).await, ["ready", "blocked"]);
}

/// What the lock is for: an operator's transaction may stay open, and the relay does not wait for it.
#[tokio::test]
async fn a_turn_that_an_operator_is_giving_is_left_to_him() {
    let world = World::new(Carrier::Memory).await;
    let operator = world.database.connect_as_member_of("outboxd_operator").await;
    world.run(KEYED).await;
    let first: i64 = world.value("SELECT min(id) FROM outboxd.outbox").await;
    operator.run(&format!("BEGIN; SELECT outboxd.cancel({first})")).await;
    let held = "SELECT outboxd._is_held_by_us(hashtextextended('outboxd turn k', hashtextextended('orders', 0)))";
    assert!(world.value::<bool>(held).await);
    operator.run("ROLLBACK").await;
    assert!(!world.value::<bool>(held).await);
    let stranger = world.database.connect_as_stranger().await;
    stranger.run(TAKEN).await;
    assert!(!world.value::<bool>(held).await);
}
