//! The primary falls silent without a word and a standby that lacks its last commits takes over.

use std::time::{Duration, Instant};

use outboxd::store::{self, Store};
use tokio_postgres::Client;

use crate::leader::config;
use crate::support::instance::Setup;
use crate::support::postgres::{self, Server};
use crate::support::provider::{Provider, Reply};
use crate::support::proxy::{Fault, Proxy};
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World};
use crate::support::{command, http, redis, verdict};

/// How long after it falls silent a server is given up, and after how long work goes on where somebody answers.
const GIVEN_UP_WITHIN: Duration = Duration::from_secs(10);
/// Three of four have one of three keys.
const KEY: &str = "ordering_key => nullif('k' || n % 4, 'k0')";

/// A primary and a standby that follows it through a proxy.
async fn pair() -> (Server, Server, Proxy) {
    let primary = postgres::start("").await;
    let way = Proxy::start(primary.port).await;
    let standby = postgres::start_standby(way.port()).await;
    (primary, standby, way)
}

/// By what was inserted, as some commits do not wait until they are written.
async fn until_caught_up(primary: &Server, database: &str) {
    let client = postgres::connect(&primary.url(database)).await;
    let wanted = "SELECT count(*) > 0 AND bool_and(replay_lsn >= pg_current_wal_insert_lsn()) FROM pg_stat_replication";
    client.until(wanted).await;
}

/// Somebody is always in flight, so the queue is never found empty.
async fn write_slow_rows(client: Client) {
    let slow = "SELECT outboxd.notify('slow', 'slow' || n, '{}') FROM generate_series(1, 1) n";
    while client.batch_execute(slow).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

#[tokio::test]
async fn a_frozen_primary_is_given_up_and_its_successor_is_served() {
    let (mut primary, standby, way) = pair().await;
    let database = primary.migrated_database().await;
    let provider = Provider::start();
    provider.answer_with(|call| match call.recipient().starts_with("slow") {
        true => Reply::ok().after(Duration::from_secs(3)),
        false => Reply::ok().after(Duration::from_millis(150)),
    });
    let hosts = format!("127.0.0.1:{},127.0.0.1:{}", primary.port, standby.port);
    let url = format!("postgres://postgres@{hosts}/{}?target_session_attrs=read-write", database.name);
    // A few calls at a time, so that some rows are published, and nothing more, when the standby hears of them last.
    let setup = Setup::new(&url).webhook(&provider.url("/hook")).set("channels.webhook.max_in_flight", 12);
    let setup = setup.redis(redis::shared().url(), "stream", &redis::unique_prefix());
    let mut instance = setup.start().await;
    let old = database.connect().await;
    old.run(&format!("SELECT outboxd.notify('orders', 'a' || n, '{{}}', {KEY}) FROM generate_series(1, 100) n")).await;
    let slow_before = tokio::spawn(write_slow_rows(database.connect().await));
    provider.wait_for(20, Duration::from_secs(20)).await;
    until_caught_up(&primary, &database.name).await;
    // From here on the standby hears nothing: what is committed now is the tail that will be lost, claims among it.
    way.set(Fault::BlackHole);
    old.run("SELECT outboxd.notify('orders', 'lost' || n, '{}') FROM generate_series(1, 50) n").await;
    provider.wait_for(60, Duration::from_secs(20)).await;
    let frozen_at = Instant::now();
    primary.freeze();
    slow_before.abort();
    let new = standby.promote(&database.name).await;
    let slow = tokio::spawn(write_slow_rows(postgres::connect(&standby.url(&database.name)).await));
    new.run(&format!("SELECT outboxd.notify('orders', 'b' || n, '{{}}', {KEY}) FROM generate_series(1, 40) n")).await;
    let plain = "INSERT INTO outboxd.notification_log (topic, recipient, payload)";
    new.run(&format!("{plain} SELECT 'orders', 'b' || n, '{{}}' FROM generate_series(41, 50) n")).await;
    let sent =
        "FROM outboxd.notification_log WHERE status = 'SENT' AND topic = 'orders' AND recipient NOT LIKE 'lost%'";
    new.until(&format!("SELECT count(*) > 0 {sent} AND recipient LIKE 'b%'")).await;
    let took = frozen_at.elapsed();
    println!("the first row of the new primary was sent {took:?} after the old one froze");
    assert!(took < GIVEN_UP_WITHIN, "work went on after {took:?}");
    let addr = instance.http_addr().await;
    assert_eq!(http::get(addr, "/readyz", &[]).await.status, 200);
    // Nothing is stuck: neither what was in flight, nor what the lost tail had said of it.
    new.until(&format!("SELECT count(*) = 150 {sent}")).await;
    slow.abort();
    new.until_count(0, "notifications WHERE finished_at IS NULL").await;
    verdict::assert_rows_are_legal(&new).await;
    // The bell is heard at the new primary.
    new.until("SELECT count(*) > 0 FROM pg_stat_activity WHERE query = 'LISTEN outboxd'").await;
    assert_eq!(instance.drain().await, 0);
    primary.thaw();
}

/// In-process queues know nothing of a loss. What the standby has as published, and the old primary had as claimed and
/// sent, is in nobody's queue.
#[tokio::test]
async fn what_a_lost_tail_left_published_is_published_again() {
    let (primary, standby, way) = pair().await;
    let database = primary.migrated_database().await;
    let provider = Provider::start();
    let hosts = format!("127.0.0.1:{},127.0.0.1:{}", primary.port, standby.port);
    let _instance = Setup::new(&format!("postgres://postgres@{hosts}/{}", database.name))
        .webhook(&provider.url("/hook"))
        .start()
        .await;
    let old = database.connect().await;
    // Claims wait until the standby has everything as published.
    let hold = "CREATE FUNCTION public.hold() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN PERFORM pg_catalog.pg_advisory_xact_lock_shared(1); RETURN NEW; END $$;
                CREATE TRIGGER hold BEFORE UPDATE ON outboxd.outbox
                FOR EACH ROW WHEN (NEW.state = 'processing') EXECUTE FUNCTION public.hold();
                SELECT pg_catalog.pg_advisory_lock(1)";
    old.run(hold).await;
    old.run("SELECT outboxd.notify('orders', 'r' || n, '{}') FROM generate_series(1, 40) n").await;
    old.until_count(40, "outbox WHERE state = 'published'").await;
    until_caught_up(&primary, &database.name).await;
    // From here on it hears nothing of claims and outcomes.
    way.set(Fault::BlackHole);
    old.run("SELECT pg_catalog.pg_advisory_unlock(1)").await;
    old.until_count(40, "notification_log WHERE status = 'SENT'").await;
    let new = standby.promote(&database.name).await;
    let published = "outbox WHERE state = 'published'";
    assert_eq!(new.count(published).await, 40, "the new one believes that they are on their way");
    drop((old, primary));
    new.until_count(40, "notification_log WHERE status = 'SENT'").await;
    verdict::assert_rows_are_legal(&new).await;
}

#[tokio::test]
async fn check_and_run_say_that_a_standby_takes_no_writes() {
    let (primary, standby, _way) = pair().await;
    let database = primary.migrated_database().await;
    until_caught_up(&primary, &database.name).await;
    let env = [
        ("OUTBOXD_HTTP_ADDR", "127.0.0.1:0"),
        ("OUTBOXD_CHANNELS_PUSH_URL", "https://push.example"),
        ("OUTBOXD_ROUTES_DEFAULT_CHANNELS", "push"),
    ];
    for command in ["check", "run"] {
        let ran = command::outboxd(&standby.url(&database.name), &[command], &env).await;
        assert_eq!(ran.code, 69, "{ran:?}");
        assert!((ran.out + &ran.err).contains("takes no writes"), "{command}");
    }
}

/// So many at once that each has a connection of its own.
async fn fill_pool(store: &Store) {
    futures_util::future::try_join_all((0..6).map(|_| store.ping())).await.unwrap();
}

/// A pool full of connections to a server that says nothing costs one silence, not one for each of them.
#[tokio::test]
async fn of_a_pool_of_silent_connections_only_the_first_is_waited_for() {
    let (mut primary, standby, _way) = pair().await;
    let database = primary.migrated_database().await;
    until_caught_up(&primary, &database.name).await;
    // Nobody says that it must take writes: of several hosts we always want the one that does.
    let hosts = format!("127.0.0.1:{},127.0.0.1:{}", standby.port, primary.port);
    let url = format!("postgres://postgres@{hosts}/{}", database.name);
    let store = Store::open(&config(&database, &[("database_url", &url)])).unwrap();
    fill_pool(&store).await;
    primary.freeze();
    standby.promote(&database.name).await;
    let began = Instant::now();
    assert!(matches!(store.ping().await, Err(store::Error::Unavailable(_))));
    assert!(began.elapsed() < GIVEN_UP_WITHIN, "{:?}", began.elapsed());
    for _ in 0..10 {
        store.ping().await.unwrap();
    }
    fill_pool(&store).await;
    // Nor does a newcomer wait until the silent one has had its time.
    let url = format!("postgres://postgres@127.0.0.1:{},127.0.0.1:{}/{}", primary.port, standby.port, database.name);
    let patient = [("database_url", url.as_str()), ("database.connect_timeout", "30s")];
    let began = Instant::now();
    Store::open(&config(&database, &patient)).unwrap().ping().await.unwrap();
    assert!(began.elapsed() < GIVEN_UP_WITHIN, "{:?}", began.elapsed());
    primary.thaw();
}

/// Whoever reads may read a standby; whoever would act is told.
#[tokio::test]
async fn commands_that_read_work_on_a_standby() {
    let (primary, standby, _way) = pair().await;
    let database = primary.migrated_database().await;
    database.connect().await.run("SELECT outboxd.notify('orders', 'r', '{}')").await;
    until_caught_up(&primary, &database.name).await;
    let url = standby.url(&database.name);
    let shown = command::succeeds(&url, &["status", "--json"]).await;
    assert!(shown.contains("\"orders\""), "{shown}");
    let send = command::outboxd(&url, &["send", "orders", "r", "{}"], &[]).await;
    assert!(send.code == 1 && send.err.contains("read-only transaction"), "{send:?}");
}

/// A statement that takes long on a server that works is not taken for a silence.
#[tokio::test]
async fn a_statement_that_takes_long_is_waited_for() {
    let world = World::new(Carrier::Memory).await;
    let instance = world.setup.start().await;
    let mut other = world.database.connect().await;
    let lock = other.transaction().await.unwrap();
    lock.batch_execute("LOCK TABLE outboxd.outbox IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(8)").await.unwrap();
    lock.commit().await.unwrap();
    world.notify(5).await;
    world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
    assert!(!instance.log().contains("silent"), "{}", instance.log());
}

/// As seen by a client: the server lets nobody in and answers nobody, but its machine still acknowledges.
#[tokio::test]
async fn a_primary_that_freezes_and_comes_back_is_served_again() {
    let mut server = postgres::start("").await;
    let database = server.migrated_database().await;
    let provider = Provider::start();
    let instance = Setup::new(&database.url()).webhook(&provider.url("/hook")).start().await;
    let client = database.connect().await;
    client.run("SELECT outboxd.notify('orders', 'a' || n, '{}') FROM generate_series(1, 20) n").await;
    provider.wait_for(20, Duration::from_secs(20)).await;
    server.freeze();
    tokio::time::sleep(GIVEN_UP_WITHIN).await;
    server.thaw();
    let thawed_at = Instant::now();
    client.run("SELECT outboxd.notify('orders', 'b' || n, '{}') FROM generate_series(1, 20) n").await;
    provider.wait_for(40, GIVEN_UP_WITHIN).await;
    println!("all were called {:?} after it thawed", thawed_at.elapsed());
    verdict::until_ended(&client, &provider).await.assert_nothing_lost().assert_duplicates_explained();
    assert_eq!(instance.drain().await, 0);
}
