//! Settings that a database, a role or a table may have, and that our sessions must not depend on.

use std::time::Duration;

use outboxd::store::migrate;
use tokio_postgres::Client;

use crate::support::command::{outboxd, succeeds};
use crate::support::instance::Setup;
use crate::support::pgbouncer::PgBouncer;
use crate::support::postgres::{self, Database, connect};
use crate::support::provider::{Provider, Reply};
use crate::support::sql::Sql;
use crate::support::verdict;
use crate::support::world::{Carrier, World};

/// Each would stop, slow or twist a session that has only the server's own defaults.
const ODD: [(&str, &str); 17] = [
    ("default_transaction_isolation", "'serializable'"),
    ("default_transaction_read_only", "on"),
    ("statement_timeout", "'100ms'"),
    ("lock_timeout", "'1ms'"),
    ("idle_in_transaction_session_timeout", "'1ms'"),
    ("idle_session_timeout", "'300ms'"),
    ("row_security", "off"),
    ("standard_conforming_strings", "off"),
    ("search_path", "''"),
    ("DateStyle", "'SQL, DMY'"),
    ("IntervalStyle", "'iso_8601'"),
    ("TimeZone", "'Asia/Kolkata'"),
    ("bytea_output", "'escape'"),
    ("enable_indexscan", "off"),
    ("synchronous_commit", "off"),
    ("quote_all_identifiers", "on"),
    ("extra_float_digits", "-15"),
];

/// Rows of every kind: new ones, with a key, for the producer, and such that have to be tried again.
async fn write_rows(client: &Client) {
    client.run("SELECT outboxd.notify('orders', 'r' || n, '{}') FROM generate_series(1, 40) n").await;
    let keyed =
        "SELECT outboxd.notify('orders', 'k' || n, '{}', ordering_key => 'k' || n % 3) FROM generate_series(1, 30) n";
    client.run(keyed).await;
    let plain = "INSERT INTO outboxd.notification_log (topic, recipient, payload)
                 SELECT 'orders', 'p' || n, '{}' FROM generate_series(1, 30) n";
    client.run(plain).await;
}

/// Every fifth recipient is refused once.
fn some_are_tried_again(provider: &Provider) {
    provider.answer_with(|call| match call.header("outboxd-attempt") {
        Some("1") if call.recipient().ends_with('5') => Reply::status(503),
        _ => Reply::ok(),
    });
}

async fn set_for_database(admin: &Client, database: &Database, settings: &[(&str, &str)]) {
    for (name, value) in settings {
        admin.run(&format!("ALTER DATABASE {} SET {name} = {value}", database.name)).await;
    }
}

/// What people and scripts run beside it.
async fn every_command_works(url: &str) {
    succeeds(url, &["migrate"]).await;
    succeeds(url, &["migrate", "--status"]).await;
    succeeds(url, &["status", "--json"]).await;
    succeeds(url, &["doctor"]).await;
    succeeds(url, &["dead", "list"]).await;
    succeeds(url, &["dead", "retry", "--topic", "orders", "--yes"]).await;
    succeeds(url, &["schedule", "list"]).await;
    succeeds(url, &["send", "orders", "cli", "{}", "--wait"]).await;
    let route = [("OUTBOXD_CHANNELS_PUSH_URL", "https://push.example"), ("OUTBOXD_ROUTES_DEFAULT_CHANNELS", "push")];
    let check = outboxd(url, &["check"], &route).await;
    assert_eq!(check.code, 0, "{check:?}");
}

/// As long as this transaction is open, the locks of every serializable one stay to be seen.
async fn keep_serializable_locks(database: &Database) -> Client {
    let watcher = database.connect().await;
    watcher.run("BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM pg_class").await;
    watcher
}

async fn assert_nobody_was_serializable(watcher: &Client) {
    let locks = "SELECT count(*) FROM pg_locks WHERE mode = 'SIReadLock' AND pid IS DISTINCT FROM pg_backend_pid()
                    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    assert_eq!(watcher.value::<i64>(locks).await, 0, "a transaction of ours was serializable");
}

/// What is set in the sessions of instances is written down with their heartbeats.
async fn note_settings(admin: &Client) {
    let note = "CREATE TABLE public.noted (settings text);
                CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                    INSERT INTO public.noted
                    SELECT string_agg(replace(current_setting(name), '\"', ''), '; ' ORDER BY n)
                      FROM unnest(ARRAY['search_path', 'row_security', 'standard_conforming_strings', 'IntervalStyle',
                                        'lock_timeout', 'transaction_isolation', 'transaction_read_only']) WITH ORDINALITY s(name, n);
                    RETURN NULL;
                END $$;
                CREATE TRIGGER note AFTER UPDATE ON outboxd.instance FOR EACH ROW EXECUTE FUNCTION public.note()";
    admin.run(note).await;
}

async fn assert_settings_were_pinned(admin: &Client) {
    let noted: Vec<String> = admin.values("SELECT DISTINCT settings FROM public.noted").await;
    assert_eq!(noted, ["pg_catalog, pg_temp; on; on; postgres; 1s; read committed; off"]);
}

#[tokio::test]
async fn odd_defaults_of_a_database_change_nothing() {
    let world = World::new(Carrier::Stream).await;
    some_are_tried_again(&world.provider);
    note_settings(&world.app).await;
    let watcher = keep_serializable_locks(&world.database).await;
    set_for_database(&world.app, &world.database, &ODD).await;
    let (first, second) = (world.setup.start().await, world.setup.start().await);
    write_rows(&world.app).await;
    every_command_works(&world.database.url()).await;
    world.until_ended().await.assert_nothing_lost().assert_duplicates_explained();
    assert_nobody_was_serializable(&watcher).await;
    assert_settings_were_pinned(&world.app).await;
    for instance in [first, second] {
        let log = instance.log();
        assert!(!log.contains(" waits"), "{log}");
        assert_eq!(instance.drain().await, 0);
    }
}

#[tokio::test]
async fn odd_defaults_of_a_database_behind_a_pooler_change_nothing() {
    let world = World::new(Carrier::Stream).await;
    some_are_tried_again(&world.provider);
    // A pooler's own sessions are not ours to keep alive.
    let odd: Vec<(&str, &str)> = ODD.into_iter().filter(|(name, _)| *name != "idle_session_timeout").collect();
    note_settings(&world.app).await;
    let watcher = keep_serializable_locks(&world.database).await;
    set_for_database(&world.app, &world.database, &odd).await;
    let pooler = PgBouncer::before(&world.database).await;
    let url = pooler.url(&world.database);
    let setup = world.setup.clone().toml("[database]\npooler = true\n").database_url(&url);
    let instance = setup.start().await;
    write_rows(&world.app).await;
    let pooled = [("OUTBOXD_DATABASE_POOLER", "true")];
    for _ in 0..3 {
        for args in
            [&["status", "--json"][..], &["doctor"], &["dead", "list"], &["send", "orders", "cli", "{}", "--wait"]]
        {
            let ran = outboxd(&url, args, &pooled).await;
            assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
        }
    }
    world.until_ended().await.assert_nothing_lost().assert_duplicates_explained();
    assert_nobody_was_serializable(&watcher).await;
    assert_settings_were_pinned(&world.app).await;
    assert!(!instance.log().contains(" waits"), "{}", instance.log());
    // Nothing of ours is left in the sessions that others share.
    let other = connect(&url).await;
    for _ in 0..8 {
        let left = "SELECT concat_ws(' ', current_setting('search_path'), current_setting('enable_seqscan'), current_setting('lock_timeout'))";
        assert_eq!(simple_value(&other, left).await, "\"\" on 1ms");
    }
}

async fn simple_value(client: &Client, sql: &str) -> String {
    let messages = client.simple_query(sql).await.unwrap();
    let row = messages.iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    row.expect("a value").to_owned()
}

/// A migrated database whose owner is no superuser, and a login for each role.
async fn plainly_owned() -> (Database, Client) {
    let database = postgres::empty_database().await;
    let admin = database.connect().await;
    let owner = format!("owner_{}", database.name);
    admin.run(&format!("CREATE ROLE {owner} LOGIN; ALTER DATABASE {} OWNER TO {owner}", database.name)).await;
    // The roles are the server's; where a first database made them, this one may not make them again.
    drop(postgres::database().await);
    admin.run(&format!("GRANT outboxd_audience TO {owner}")).await;
    let mut client = connect(&database.url_as(&owner)).await;
    migrate::run(&mut client, migrate::Install::Always).await.unwrap();
    (database, client)
}

#[tokio::test]
async fn row_level_security_switched_on_by_somebody_hides_nothing_from_us() {
    let (database, owner) = plainly_owned().await;
    let admin = database.connect().await;
    let tables = "SELECT c.oid::regclass::text FROM pg_class c WHERE c.relnamespace = 'outboxd'::regnamespace AND c.relkind = 'r'";
    for table in admin.values::<String>(tables).await {
        let enable =
            format!("ALTER TABLE {table} ENABLE ROW LEVEL SECURITY; ALTER TABLE {table} FORCE ROW LEVEL SECURITY");
        admin.run(&enable).await;
    }
    let provider = Provider::start();
    some_are_tried_again(&provider);
    let app = database.connect_as_member_of("outboxd_app").await;
    let operator = database.connect_as_member_of("outboxd_operator").await;
    drop(database.connect_as_member_of("outboxd_service").await);
    let service = database.url_as(&format!("outboxd_service_login_{}", database.name));
    let instance = Setup::new(&service).webhook(&provider.url("/hook")).start().await;
    write_rows(&app).await;
    let verdict = verdict::until_ended(&admin, &provider).await;
    verdict.assert_nothing_lost().assert_duplicates_explained();
    let seen = "notifications WHERE status = 'SENT'";
    assert_eq!((operator.count(seen).await, owner.count(seen).await), (100, 100));
    assert_eq!(instance.drain().await, 0);
}

#[tokio::test]
async fn every_table_has_a_policy_that_lets_the_grants_decide() {
    let client = postgres::database().await.connect().await;
    let bare = "SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = 'outboxd'::regnamespace AND c.relkind = 'r'
                   AND NOT EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid AND p.polname = 'grants_decide' AND p.polroles = '{0}')";
    assert_eq!(client.values::<String>(bare).await, [""; 0]);
}

/// What notify() takes in one encoding a provider could not be sent in another; and in SQL_ASCII nobody knows.
#[tokio::test]
async fn a_database_that_is_not_utf8_is_refused_by_every_command() {
    let server = postgres::server().await;
    let admin = connect(&server.url("postgres")).await;
    let route = [("OUTBOXD_CHANNELS_PUSH_URL", "https://push.example"), ("OUTBOXD_ROUTES_DEFAULT_CHANNELS", "push")];
    for encoding in ["LATIN1", "SQL_ASCII"] {
        let name = format!("not_utf8_{}", encoding.to_lowercase());
        admin.run(&format!("CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")).await;
        let said = format!("the database {name} is encoded in {encoding}");
        let url = server.url(&name);
        for args in [&["migrate"][..], &["run"]] {
            let ran = outboxd(&url, args, &route).await;
            assert!(ran.code == 78 && ran.err.contains(&said), "{args:?}: {ran:?}");
        }
        let ran = outboxd(&url, &["check"], &route).await;
        assert!(ran.code == 78 && ran.out.contains(&said), "{ran:?}");
        let schema = "SELECT to_regnamespace('outboxd') IS NULL";
        assert!(connect(&url).await.value::<bool>(schema).await, "nothing was begun");
    }
}

/// Operators' and apps' own sessions are theirs to set: what our functions do must not change with them.
#[tokio::test]
async fn functions_and_views_do_the_same_in_sessions_with_odd_settings() {
    let database = postgres::database().await;
    let admin = database.connect().await;
    admin.run("CREATE VIEW public.audience AS SELECT 'r'::text AS recipient, '{}'::jsonb AS payload").await;
    admin.run("GRANT SELECT ON public.audience TO outboxd_audience").await;
    let operator = database.connect_as_member_of("outboxd_operator").await;
    let app = database.connect_as_member_of("outboxd_app").await;
    let theirs = "SET standard_conforming_strings = off; SET escape_string_warning = off; SET plpgsql.extra_errors = 'all';
                  SET quote_all_identifiers = on; SET default_transaction_isolation = 'serializable'; SET DateStyle = 'SQL, DMY';
                  SET IntervalStyle = 'iso_8601'; SET transform_null_equals = on; SET array_nulls = off";
    for client in [&operator, &app] {
        client.run(theirs).await;
    }
    let called =
        "SELECT outboxd.notify('t', 'r', '{}'), outboxd.notify('t', 'r', '{}', dedup_key => 'd', ordering_key => 'k')";
    app.run(called).await;
    app.run(r#"SELECT outboxd.notify_many('t', '[{"recipient": "r", "payload": 1, "dedup_key": "d"}]')"#).await;
    app.run("SELECT outboxd.publish('t', 'k', '{}')").await;
    app.run("SELECT * FROM outboxd.receive('c', 'm'); SELECT outboxd.respond('c', 'm', '1')").await;
    operator.run("SELECT outboxd.create_schedule('a', ' @daily ', 'UTC', 't', 'public.audience')").await;
    operator.run("SELECT outboxd.create_schedule('b', '*/5  9 * * 1-5', 'UTC', 't', 'public.audience')").await;
    operator.run("SELECT outboxd.alter_schedule('b', '0 9 * * *'), outboxd.drop_schedule('a')").await;
    let act =
        "SELECT outboxd.cancel(1), outboxd.retry(1), outboxd.retry_dead('t'), outboxd.pause('t'), outboxd.resume('t'),
                      outboxd.pause_channel('c'), outboxd.resume_channel('c'), outboxd.replay_events('t', now())";
    operator.run(act).await;
    operator.run("SELECT * FROM outboxd.retry_where('{}', false); SELECT * FROM outboxd.cancel_where('{\"topic\": \"t\"}', false)").await;
    let views = "SELECT relname::text FROM pg_class WHERE relnamespace = 'outboxd'::regnamespace AND relkind = 'v' AND left(relname, 1) <> '_'";
    for view in admin.values::<String>(views).await {
        operator.run(&format!("SELECT * FROM outboxd.{view}")).await;
    }
    tokio::time::timeout(Duration::from_secs(1), verdict::assert_rows_are_legal(&admin)).await.expect("at once");
}
