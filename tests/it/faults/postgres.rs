//! When Postgres, or the way to it, fails.

use std::time::Duration;

use crate::support::pgbouncer::PgBouncer;
use crate::support::postgres;
use crate::support::provider::Reply;
use crate::support::proxy::{Fault, Proxy};
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World};

const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn sessions_that_are_terminated_again_and_again_lose_nothing() {
    let world = World::new(Carrier::Stream).await;
    let _instance = world.setup.start().await;
    let terminate = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                      WHERE datname = current_database() AND pid <> pg_backend_pid()";
    let killer = world.database.connect().await;
    for round in 0..5 {
        let app = world.database.connect().await;
        let notify = format!("SELECT outboxd.notify('orders', 'r{round}-' || n, '{{}}') FROM generate_series(1, 40) n");
        app.run(&notify).await;
        world.provider.wait_for(40 * round + 10, SOON).await;
        killer.run(terminate).await;
    }
    let app = world.database.connect().await;
    let verdict = crate::support::verdict::until_ended(&app, &world.provider).await;
    verdict.assert_nothing_lost().assert_duplicates_explained();
}

#[tokio::test]
async fn an_immediate_stop_and_restart_of_postgres_loses_nothing() {
    let mut server = postgres::start("fsync = on").await;
    let world = World::on(server.migrated_database().await, Carrier::Stream).await;
    let _instance = world.start_in_the_middle(Duration::from_millis(100)).await;
    server.stop_immediately().await;
    server.start_again().await;
    let app = world.database.connect().await;
    let verdict = crate::support::verdict::until_ended(&app, &world.provider).await;
    verdict.assert_nothing_lost().assert_duplicates_explained();
}

#[tokio::test]
async fn a_table_that_is_locked_for_a_while_holds_up_but_loses_nothing() {
    let world = World::new(Carrier::Stream).await;
    let _instance = world.setup.start().await;
    world.notify(20).await;
    world.provider.wait_for(20, SOON).await;
    let mut other = world.database.connect().await;
    let lock = other.transaction().await.unwrap();
    lock.batch_execute("LOCK TABLE outboxd.outbox IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(2)").await.unwrap();
    lock.commit().await.unwrap();
    world.notify(20).await;
    world.until_ended().await.assert_nothing_lost().assert_duplicates_explained();
}

#[tokio::test]
async fn a_statement_timeout_set_by_the_dba_loses_nothing() {
    let world = World::new(Carrier::Stream).await;
    // As a DBA would: for the whole database, shorter than many of our statements on a busy machine. Our sessions set
    // their own.
    world.run(&format!("ALTER DATABASE {} SET statement_timeout = '5ms'", world.database.name)).await;
    let _instance = world.setup.start().await;
    world.notify(200).await;
    world.until_ended().await.assert_nothing_lost().assert_duplicates_explained();
}

#[tokio::test]
async fn a_transaction_that_idles_for_long_stops_nothing() {
    let world = World::new(Carrier::Stream).await;
    let _instance = world.setup.start().await;
    let mut idle = world.database.connect().await;
    let held =
        idle.build_transaction().isolation_level(tokio_postgres::IsolationLevel::RepeatableRead).start().await.unwrap();
    held.query_one("SELECT count(*) FROM outboxd.notification_log", &[]).await.unwrap();
    for round in 1..=5 {
        world.notify(200).await;
        world.provider.wait_for(200 * round, SOON).await;
    }
    held.commit().await.unwrap();
    world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
}

#[tokio::test]
async fn a_link_to_postgres_that_falls_silent_is_given_up_and_made_anew() {
    for fault in [Fault::HalfOpen, Fault::BlackHole] {
        let world = World::new(Carrier::Stream).await;
        let proxy = Proxy::start(world.database.port).await;
        let by_proxy = world.database.url_at(proxy.port());
        let setup = world.setup.clone().database_url(&by_proxy).toml("[database]\nstatement_timeout = \"1s\"\n");
        world.provider.answer(Reply::ok().after(Duration::from_millis(50)));
        let mut instance = setup.start().await;
        world.notify(300).await;
        world.provider.wait_for(30, SOON).await;
        proxy.set(fault);
        // A call of ours lasts at most as long as its statement may, and five seconds for the network.
        instance.wait_for_log("recording waits").await;
        proxy.heal();
        world.until_ended().await.assert_nothing_lost().assert_duplicates_explained();
    }
}

#[tokio::test]
async fn connection_slots_used_up_by_others_are_waited_out() {
    let server = postgres::start("max_connections = 24").await;
    let world = World::on(server.migrated_database().await, Carrier::Stream).await;
    let _instance = world.setup.start().await;
    let mut hogs = Vec::new();
    while let Ok((client, connection)) = tokio_postgres::connect(&world.database.url(), tokio_postgres::NoTls).await {
        tokio::spawn(connection);
        hogs.push(client);
    }
    assert!(!hogs.is_empty(), "the connections were used up");
    world.notify(50).await;
    drop(hogs);
    world.until_ended().await.assert_nothing_lost().assert_duplicates_explained();
}

#[tokio::test]
async fn a_transaction_mode_pooler_in_between_changes_nothing_that_matters() {
    let world = World::new(Carrier::Stream).await;
    let pooler = PgBouncer::before(&world.database).await;
    let setup = world.setup.clone().toml("[database]\npooler = true\n");
    let setup = setup.database_url(&pooler.url(&world.database));
    let first = setup.start().await;
    world.notify(200).await;
    world.insert(50).await;
    world.provider.wait_for(50, SOON).await;
    first.kill().await;
    let _second = setup.start().await;
    world.until_ended().await.assert_nothing_lost().assert_duplicates_explained();
    assert!(world.provider.count() >= 250);
}
