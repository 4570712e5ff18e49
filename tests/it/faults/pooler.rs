//! A pooler between us and Postgres that nobody told us about.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use outboxd::channel::descriptors::Descriptors;
use outboxd::channel::failover::Router;
use outboxd::channel::share::Shares;
use outboxd::queue;
use outboxd::store::Store;
use outboxd::store::instance::InstanceId;
use outboxd::upkeep::statistics::{Reporter, Told};

use crate::leader::{config, register};
use crate::support::command::outboxd;
use crate::support::pgbouncer::PgBouncer;
use crate::support::postgres;
use crate::support::proxy::Proxy;
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World};

const SOON: Duration = Duration::from_secs(20);
const ROUTES: [&str; 4] = ["--set", "channels.push.url=https://push.example", "--set", "routes.default.channels=push"];

fn with_routes(command: &str) -> Vec<&str> {
    [&[command][..], &ROUTES].concat()
}

#[tokio::test]
async fn a_transaction_mode_pooler_that_nobody_mentioned_is_refused() {
    let database = postgres::database().await;
    for settings in [
        "default_pool_size = 1",
        "default_pool_size = 4",
        "default_pool_size = 2\nmin_pool_size = 2\nserver_round_robin = 1",
        "default_pool_size = 3\nmin_pool_size = 3\nserver_round_robin = 1",
        "default_pool_size = 2\nserver_reset_query_always = 1",
    ] {
        let pooler = PgBouncer::with(&database, &format!("pool_mode = transaction\n{settings}\n")).await;
        let url = pooler.url(&database);
        let run = outboxd(&url, &with_routes("run"), &[("OUTBOXD_HTTP_ADDR", "127.0.0.1:0")]).await;
        assert!(run.code == 78 && run.err.contains("database.pooler = true"), "{settings}: {run:?}");
        let check = outboxd(&url, &with_routes("check"), &[]).await;
        assert!(check.code == 78 && check.out.contains("database.pooler = true"), "{settings}: {check:?}");
        let migrate = outboxd(&url, &["migrate"], &[]).await;
        assert!(migrate.code == 78 && migrate.err.contains("direct"), "{settings}: {migrate:?}");
        // Told of it, all is well.
        let check = outboxd(&url, &with_routes("check"), &[("OUTBOXD_DATABASE_POOLER", "true")]).await;
        assert_eq!(check.code, 0, "{settings}: {check:?}");
    }
    let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    assert_eq!(database.connect().await.value::<i64>(locks).await, 0, "no lock is left in a shared session");
}

#[tokio::test]
async fn a_busy_transaction_mode_pooler_is_recognised_too() {
    let database = postgres::database().await;
    let pooler = PgBouncer::with(&database, "pool_mode = transaction\ndefault_pool_size = 8\n").await;
    let url = pooler.url(&database);
    let mut others = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let client = postgres::connect(&url).await;
        others.spawn(async move { while client.simple_query("SELECT pg_sleep(0.002)").await.is_ok() {} });
    }
    for _ in 0..5 {
        let check = outboxd(&url, &with_routes("check"), &[]).await;
        assert!(check.code == 78 && check.out.contains("database.pooler = true"), "{check:?}");
    }
}

#[tokio::test]
async fn a_session_mode_pooler_and_a_plain_proxy_are_not_taken_for_one() {
    let world = World::new(Carrier::Stream).await;
    let pooler = PgBouncer::with(&world.database, "pool_mode = session\ndefault_pool_size = 50\n").await;
    let proxy = Proxy::start(world.database.port).await;
    let by_proxy = world.database.url_at(proxy.port());
    for (n, url) in [world.database.url(), pooler.url(&world.database), by_proxy].into_iter().enumerate() {
        let check = outboxd(&url, &with_routes("check"), &[]).await;
        assert_eq!(check.code, 0, "{check:?}");
        let instance = world.setup.clone().database_url(&url).start().await;
        world.notify(20).await;
        world.provider.wait_for(20 * (n + 1), SOON).await;
        assert_eq!(instance.drain().await, 0);
    }
    world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
}

/// Its one connection is ours alone, so whoever asks for a second waits: that is no sign of sharing.
#[tokio::test]
async fn a_session_mode_pooler_without_a_second_connection_is_not_taken_for_one() {
    let database = postgres::database().await;
    let pooler = PgBouncer::with(&database, "pool_mode = session\ndefault_pool_size = 1\n").await;
    let quick = [("OUTBOXD_DATABASE_CONNECT_TIMEOUT", "1s")];
    let check = outboxd(&pooler.url(&database), &with_routes("check"), &quick).await;
    assert_eq!(check.code, 0, "{check:?}");
}

/// The start refuses one; connections that are made later may be led through it all the same.
#[tokio::test]
async fn a_pooler_that_comes_later_is_told_by_health() {
    let database = postgres::database().await;
    let pooler = PgBouncer::with(&database, "pool_mode = transaction\ndefault_pool_size = 4\n").await;
    let (client, url) = (database.connect().await, pooler.url(&database));
    let shown = "SELECT concat_ws(' | ', level, value, action) FROM outboxd.health WHERE name = 'pooler'";
    let known = [("database.pooler", "true")];
    for (url, known, wanted) in [
        (database.url(), &[][..], "ok"),
        (url.clone(), &known[..], "ok"),
        (url, &[][..], "critical"),
        (database.url(), &[][..], "ok"),
    ] {
        let mut config = config(&database, known);
        config.database_url = url.into();
        let reporter = Reporter {
            store: Store::open(&config).unwrap(),
            queue: queue::open(&config.queue, None).await.unwrap(),
            statistics: Arc::default(),
            shortages: Arc::default(),
            files: Descriptors::foreseen(&config),
            instance: InstanceId::new(register(&client).await),
            routes: Vec::new(),
            router: Router::new(&BTreeMap::new(), &BTreeMap::new()).unwrap().into(),
            shares: Shares::new(1),
        };
        reporter.pass(&mut Told::default()).await.unwrap();
        let shown = client.value::<String>(shown).await;
        assert_eq!(
            (shown.starts_with(wanted), shown.contains("database.pooler = true")),
            (true, wanted == "critical"),
            "{shown}"
        );
        client.run("UPDATE outboxd.instance SET stopped_at = now()").await;
    }
}

#[tokio::test]
async fn behind_a_pooler_an_old_schema_is_not_migrated_but_said_to_be_old() {
    let database = postgres::empty_database().await;
    let pooler = PgBouncer::before(&database).await;
    let env = [("OUTBOXD_DATABASE_POOLER", "true"), ("OUTBOXD_HTTP_ADDR", "127.0.0.1:0")];
    let run = outboxd(&pooler.url(&database), &with_routes("run"), &env).await;
    assert!(run.code == 78 && run.err.contains("outboxd migrate"), "{run:?}");
}
