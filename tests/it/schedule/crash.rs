//! Kills, races and losses in the middle of preparing: every recipient exactly one row per slot.

use std::time::Duration;

use outboxd::store::Store;
use outboxd::store::audience::Read;
use outboxd::store::schedule::Slot;
use tokio_postgres::Client;

use crate::leader::{config, held};
use crate::support::instance::Setup;
use crate::support::postgres;
use crate::support::sql::Sql;

use super::{app, create, create_late, rows_of, run_is};

#[tokio::test]
async fn whichever_step_an_instance_is_killed_at_everybody_has_one_row_per_slot() {
    let database = postgres::database().await;
    let client = app(&database, 5_000).await;
    // A lease is no longer than the TTL, so another takes over the sooner.
    let setup = Setup::new(&database.url()).webhook("http://127.0.0.1:9/");
    let setup = setup.set("worker.heartbeat", "300ms").set("worker.heartbeat_ttl", "1500ms");
    let (_second, _third) = (setup.start().await, setup.start().await);
    for (n, step) in
        ["after_begin_runs", "before_reading", "after_reading", "after_copy@2", "after_copy@3"].into_iter().enumerate()
    {
        let name = format!("kill-{n}");
        let (point, hit) = step.split_once('@').unwrap_or((step, "1"));
        let mut victim = setup.clone().failpoints(&format!("{point}=abort@{hit}")).start().await;
        // The lease is given to the one that will die.
        let changed = "UPDATE outboxd.leader_lease SET owner = (SELECT max(id) FROM outboxd.instance), until = clock_timestamp() + interval '5 s',
            since = clock_timestamp() WHERE name = 'schedules'";
        client.run(changed).await;
        create(&client, &name, "").await;
        assert_eq!(victim.exit_code().await, 128 + 6, "it died at {step}");
        run_is(&client, &name, "prepared").await;
        assert_eq!(rows_of(&client, &name).await, (5_000, 5_000), "killed at {step}");
    }
    assert_eq!(client.count("notification_log").await, 25_000);
    assert_eq!(client.count("schedule_recipient").await, 0);
}

/// A run that is ready to be prepared, and who may do it.
async fn begun(database: &postgres::Database, members: u32) -> (Client, Store, i32, i64) {
    let client = app(database, members).await;
    let store = Store::open(&config(database, &[])).unwrap();
    let (_, owner) = held(&store, &client, outboxd::schedule::LEASE).await;
    create_late(&client, "s", "-3 min", "").await;
    let schedule = store.schedules_due(10).await.unwrap().remove(0);
    let slots = [Slot { at: schedule.now, state: "preparing", reason: None }];
    let next = schedule.now + chrono::TimeDelta::days(1);
    assert_eq!(store.begin_runs(owner, &schedule, Ok(next), &slots).await.unwrap(), 1);
    assert_eq!(store.begin_runs(owner, &schedule, Ok(next), &slots).await.unwrap(), 0, "a slot is begun once");
    let run = store.runs_preparing(10).await.unwrap()[0];
    (client, store, owner, run)
}

#[tokio::test]
async fn two_who_both_believe_to_own_the_lease_prepare_everybody_once() {
    let database = postgres::database().await;
    let (client, store, owner, run) = begun(&database, 3_000).await;
    let former = store.start_reading(owner, run).await.unwrap().expect("a reading");
    let latter = store.start_reading(owner, run).await.unwrap().expect("another");
    let (late, first) = tokio::join!(store.read_audience(run, &former), store.read_audience(run, &latter));
    assert_eq!((late.unwrap(), first.unwrap()), (Ok(Read::Void), Ok(Read::Staged(3_000))));
    assert!(store.start_reading(owner, run).await.unwrap().is_none(), "the staged one stands");
    let copies = (0..40).map(|_| store.copy_recipients(owner, run, 100));
    let copied = futures_util::future::join_all(copies).await;
    let added: u64 =
        copied.iter().filter_map(|copied| copied.as_ref().unwrap().as_ref()).map(|copied| copied.added).sum();
    assert_eq!(added, 3_000);
    run_is(&client, "s", "prepared").await;
    assert_eq!(rows_of(&client, "s").await, (3_000, 3_000));
}

#[tokio::test]
async fn a_former_owner_begins_reads_copies_and_fails_nothing() {
    let database = postgres::database().await;
    let (client, store, former, run) = begun(&database, 10).await;
    let reading = store.start_reading(former, run).await.unwrap().expect("a reading");
    client.run("UPDATE outboxd.leader_lease SET until = clock_timestamp() WHERE name = 'schedules'").await;
    let (_, owner) = held(&store, &client, outboxd::schedule::LEASE).await;
    let own = store.start_reading(owner, run).await.unwrap().expect("its own reading");
    assert!(store.start_reading(former, run).await.unwrap().is_none());
    assert_eq!(store.read_audience(run, &reading).await.unwrap(), Ok(Read::Void));
    assert_eq!(store.fail_run(former, run, None, "late").await.unwrap(), None);
    assert_eq!(store.read_audience(run, &own).await.unwrap(), Ok(Read::Staged(10)));
    assert_eq!(store.copy_recipients(former, run, 10).await.unwrap(), None);
    assert_eq!(rows_of(&client, "s").await, (0, 0));
    assert!(store.copy_recipients(owner, run, 10).await.unwrap().expect("a chunk").is_prepared);
    assert_eq!(rows_of(&client, "s").await, (10, 10));
}

#[tokio::test]
async fn a_staged_audience_that_a_server_crash_has_taken_is_read_again() {
    let database = postgres::database().await;
    let (client, store, owner, run) = begun(&database, 1_000).await;
    let reading = store.start_reading(owner, run).await.unwrap().expect("a reading");
    assert_eq!(store.read_audience(run, &reading).await.unwrap(), Ok(Read::Staged(1_000)));
    assert_eq!(store.copy_recipients(owner, run, 400).await.unwrap().expect("a chunk").added, 400);
    client.run("TRUNCATE outboxd.schedule_recipient").await;
    let lost = store.copy_recipients(owner, run, 400).await.unwrap().expect("a chunk");
    assert!(!lost.is_staged && !lost.is_prepared);
    let again = store.start_reading(owner, run).await.unwrap().expect("another reading");
    assert_eq!(store.read_audience(run, &again).await.unwrap(), Ok(Read::Staged(1_000)));
    while !store.copy_recipients(owner, run, 400).await.unwrap().expect("a chunk").is_prepared {}
    assert_eq!(rows_of(&client, "s").await, (1_000, 1_000));
    let counts = "SELECT concat_ws(' ', recipients, prepared) FROM outboxd.schedule_runs";
    assert_eq!(client.value::<String>(counts).await, "1000 1000");
}

#[tokio::test]
async fn a_reading_that_is_cut_off_leaves_nothing_behind() {
    let database = postgres::database().await;
    let (client, store, owner, run) = begun(&database, 10).await;
    let created =
        "CREATE OR REPLACE VIEW app.audience AS SELECT 'r' || pg_sleep(2)::text AS recipient, '{}'::jsonb AS payload";
    client.run(created).await;
    let reading = store.start_reading(owner, run).await.unwrap().expect("a reading");
    let cut = tokio::time::timeout(Duration::from_millis(300), store.read_audience(run, &reading)).await;
    assert!(cut.is_err(), "it was still reading");
    client.run("CREATE OR REPLACE VIEW app.audience AS SELECT 'r' AS recipient, '{}'::jsonb AS payload").await;
    let own = store.start_reading(owner, run).await.unwrap().expect("its own reading");
    assert_eq!(store.read_audience(run, &own).await.unwrap(), Ok(Read::Staged(1)));
    assert!(store.copy_recipients(owner, run, 10).await.unwrap().expect("a chunk").is_prepared);
    assert_eq!(rows_of(&client, "s").await, (1, 1));
}
