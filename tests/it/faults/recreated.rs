//! The schema is dropped and made anew, or restored from a dump, under instances that go on running.

use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use outboxd::store::{self, Store, migrate};
use outboxd_throwaway::postgres::program as server_program;

use super::Stepped;
use crate::leader::config;
use crate::support::postgres;
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World};

const SOON: Duration = Duration::from_secs(30);

/// Long in use: what is numbered anew is far below what an instance remembers.
const AHEAD: &str = "SELECT setval('outboxd.notification_log_id_seq', 1000000), setval('outboxd.outbox_seq', 1000000)";

async fn make_anew(world: &World) {
    let mut owner = world.database.connect().await;
    // Whoever drops under load may be the victim of a deadlock.
    while let Err(error) = owner.batch_execute("DROP SCHEMA outboxd CASCADE").await {
        assert_eq!(error.code(), Some(&tokio_postgres::error::SqlState::T_R_DEADLOCK_DETECTED), "{error}");
    }
    migrate::run(&mut owner, migrate::Install::Always).await.unwrap();
}

/// New rows of every kind; how many.
async fn write(world: &World) -> usize {
    world.notify(20).await;
    world.insert(20).await;
    let keyed =
        "SELECT outboxd.notify('orders', 'k' || n, '{}', ordering_key => 'k' || n % 2) FROM generate_series(1, 10) n";
    world.run(keyed).await;
    world.run("SELECT outboxd.notify('other', 'o' || n, '{}') FROM generate_series(1, 10) n").await;
    60
}

/// Waits until so many instances have sent a heartbeat of late.
async fn until_alive(world: &World, count: u32) {
    let alive = "stopped_at IS NULL AND heartbeat_at > clock_timestamp() - interval '2 s' AND id > 0";
    world.until_count(count, &format!("instance WHERE {alive}")).await;
}

#[tokio::test]
async fn a_schema_dropped_and_made_anew_is_served_without_a_restart() {
    for carrier in [Carrier::Memory, Carrier::List, Carrier::Stream] {
        let world = World::new(carrier).await;
        let instance = world.setup.start().await;
        let mut sent = 0;
        for _ in 0..3 {
            world.run(AHEAD).await;
            sent += write(&world).await;
            world.provider.wait_for(sent, SOON).await;
            world.until_ended().await;
            make_anew(&world).await;
        }
        sent += write(&world).await;
        world.provider.wait_for(sent, SOON).await;
        world.until_count(60, "notification_log WHERE status = 'SENT'").await;
        let install: String = world.value("SELECT install_id FROM outboxd.setting").await;
        until_alive(&world, 1).await;
        world.notify(1).await;
        world.provider.wait_for(sent + 1, SOON).await;
        let last = world.provider.ledger().pop().unwrap();
        assert!(last.webhook_id.starts_with(&format!("ntf-{install}-")), "{} of {install}", last.webhook_id);
        assert_eq!(instance.drain().await, 0);
    }
}

/// Numbers start again at 1, so the number that one instance had may now be another's.
#[tokio::test]
async fn instances_do_not_take_each_others_numbers_in_a_schema_made_anew() {
    let world = World::new(Carrier::Stream).await;
    let first = world.setup.start().await;
    let second = world.setup.start().await;
    until_alive(&world, 2).await;
    first.signal(Signal::SIGSTOP);
    make_anew(&world).await;
    until_alive(&world, 1).await;
    first.signal(Signal::SIGCONT);
    until_alive(&world, 2).await;
    let sent = write(&world).await;
    world.provider.wait_for(sent, SOON).await;
    world.until_ended().await.assert_nothing_lost();
    assert_eq!((first.drain().await, second.drain().await), (0, 0));
    assert_eq!(world.count("instance WHERE stopped_at IS NULL").await, 0, "each signed off for itself");
}

fn pg(program: &str, args: &[&str]) {
    loop {
        let ran = Command::new(server_program(program).unwrap()).args(args).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        // Whoever restores under load may be the victim of a deadlock, too.
        if !said.contains("deadlock detected") {
            assert!(ran.status.success(), "{program}: {said}");
            return;
        }
    }
}

#[tokio::test]
async fn a_dump_restored_in_place_is_served_without_a_restart() {
    let world = World::new(Carrier::Stream).await;
    let _instance = world.setup.start().await;
    let mut sent = write(&world).await;
    world.until_ended().await;
    let dump = tempfile::tempdir().unwrap();
    let file = dump.path().join("dump");
    let (url, path) = (world.database.url(), file.to_str().unwrap().to_owned());
    pg("pg_dump", &["-Fc", "-d", &url, "-f", &path]);
    world.run(AHEAD).await;
    sent += write(&world).await;
    world.until_ended().await;
    pg("pg_restore", &["--clean", "--if-exists", "--single-transaction", "-d", &url, &path]);
    sent += write(&world).await;
    world.provider.wait_for(sent, SOON).await;
    world.until_count(120, "notification_log WHERE status = 'SENT'").await;
}

/// A channel with a limit: its topics are scanned from where they were, and the fast path leaves them out.
#[tokio::test]
async fn what_is_numbered_anew_is_not_hidden_by_what_a_relay_remembers() {
    let limited = [
        ("channels.webhook.url", "https://push.example"),
        ("channels.webhook.max_in_flight", "4"),
        ("routes.default.channels", "webhook"),
    ];
    let database = postgres::database().await;
    let app = database.connect().await;
    let mut stepped = Stepped::with(&database, &limited).await;
    let notify = "SELECT outboxd.notify('orders', 'r', '{}') FROM generate_series(1, 5)";
    app.run(AHEAD).await;
    app.run(notify).await;
    assert_eq!(stepped.until_idle().await, 5);
    let anew = "TRUNCATE outboxd.outbox, outboxd.notification_log, outboxd.publication;
                SELECT setval('outboxd.notification_log_id_seq', 1), setval('outboxd.outbox_seq', 1)";
    app.run(anew).await;
    app.run(notify).await;
    let mut pushed = 0;
    for _ in 0..5 {
        pushed += stepped.relay.pass().await.unwrap().pushed;
    }
    assert_eq!(pushed, 5, "full scans are five seconds apart, and five passes take less");
}

/// A column has another type since, as after a restore of another version.
#[tokio::test]
async fn a_session_that_remembers_another_schema_is_replaced() {
    let database = postgres::database().await;
    let (app, store) = (database.connect().await, Store::open(&config(&database, &[])).unwrap());
    app.run("INSERT INTO outboxd.event_stream (topic, position) VALUES ('order', 1)").await;
    assert_eq!(store.event_topics("", 10).await.unwrap(), ["order"]);
    app.run("ALTER TABLE outboxd.event_stream ALTER COLUMN topic TYPE varchar(200)").await;
    let refused = store.event_topics("", 10).await;
    assert!(matches!(refused, Err(store::Error::Unavailable(_))), "{refused:?}");
    assert_eq!(store.event_topics("", 10).await.unwrap(), ["order"]);
}
