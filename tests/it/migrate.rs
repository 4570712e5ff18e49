//! The schema comes up on any number of instances at once, does not get in the app's way, and says clearly why it
//! cannot.

use std::path::Path;
use std::time::Duration;

use futures_util::future::poll_fn;
use outboxd::store::command::Session;
use outboxd::store::migrate::{self, Error, Install};
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, Client, NoTls};

use crate::leader::config;
use crate::support::command::{outboxd, run_in};
use crate::support::postgres::{self, Database, connect};
use crate::support::sql::Sql;

async fn session(database: &Database) -> Session {
    Session::open(&config(database, &[])).await.unwrap()
}

#[tokio::test]
async fn eight_migrations_at_once_all_succeed_on_an_empty_database() {
    let database = postgres::empty_database().await;
    let migrators = (0..8).map(|_| {
        let database = database.clone();
        tokio::spawn(async move { migrate::run(&mut database.connect().await, Install::Always).await })
    });
    let mut applied = 0;
    for migrator in migrators.collect::<Vec<_>>() {
        applied += usize::from(!migrator.await.unwrap().unwrap().applied.is_empty());
    }
    assert_eq!(applied, 1, "one of them did the work");
    assert_eq!(migrate::schema_version(&session(&database).await).await.unwrap(), migrate::newest());
}

#[tokio::test]
async fn the_command_names_each_migration_once_and_logs_nothing_besides() {
    let database = postgres::empty_database().await;
    let migrate = || async {
        let done = run_in(Path::new("."), &["migrate"], &[("DATABASE_URL", &database.url())]).await;
        assert_eq!((done.code, done.err.as_str()), (0, ""));
        done.out.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let last = format!("the schema is at migration {}; functions, views and grants are installed", migrate::newest());
    let first_time = migrate().await;
    assert_eq!(first_time.len(), usize::try_from(migrate::newest()).unwrap() + 1, "{first_time:?}");
    assert_eq!(first_time[0], "applied V0001 notifications");
    assert_eq!(first_time.last(), Some(&last));
    assert_eq!(migrate().await, [last]);
}

#[tokio::test]
async fn status_tells_what_is_applied_and_what_is_to_come() {
    let database = postgres::empty_database().await;
    let (mut client, asking) = (database.connect().await, session(&database).await);
    let before = migrate::status(&asking).await.unwrap();
    assert!(before.iter().all(|migration| migration.applied_on.is_none()));
    assert!(before.iter().all(|migration| migration.sql.contains("outboxd.")), "--dry-run can show the text");
    assert!(!client.value::<bool>("SELECT to_regnamespace('outboxd') IS NOT NULL").await, "asking changes nothing");
    let report = migrate::run(&mut client, Install::Always).await.unwrap();
    assert_eq!(report.applied.len(), before.len());
    assert_eq!(report.applied[0], "V0001 notifications");
    let after = migrate::status(&asking).await.unwrap();
    assert!(after.iter().all(|migration| migration.applied_on.is_some()));
    assert!(after.is_sorted_by_key(|migration| migration.version));
}

#[tokio::test]
async fn a_start_installs_nothing_twice_and_migrate_installs_anew() {
    let mut client = postgres::database().await.connect().await;
    let again = migrate::run(&mut client, Install::IfChanged).await.unwrap();
    assert!(again.applied.is_empty() && !again.installed);
    client.run("DROP FUNCTION outboxd.cancel(bigint)").await;
    assert!(migrate::run(&mut client, Install::Always).await.unwrap().installed);
    client.run("SELECT outboxd.cancel(outboxd.notify('t', 'r', '{}'))").await;
}

#[tokio::test]
async fn an_older_binary_that_starts_leaves_newer_functions_alone() {
    let mut client = postgres::database().await.connect().await;
    for (installed, replaced) in [("99.0.0 aa", false), ("0.0.1 aa", true), ("", true)] {
        client.run(&format!("UPDATE outboxd.setting SET sql_installed = '{installed}'")).await;
        let report = migrate::run(&mut client, Install::IfChanged).await.unwrap();
        assert_eq!(report.installed, replaced, "after {installed:?}");
    }
}

#[tokio::test]
async fn migrating_neither_waits_for_the_apps_transactions_nor_holds_up_its_writes() {
    let database = postgres::database().await;
    let (app, other_app) = (database.connect().await, database.connect().await);
    app.run("BEGIN; SELECT outboxd.notify('t', 'r', '{}')").await;
    app.run("INSERT INTO outboxd.notification_log (topic, recipient, payload) VALUES ('t', 'r', '{}')").await;
    let mut migrator = database.connect().await;
    migrator.run("SET lock_timeout = '2s'").await;
    migrate::run(&mut migrator, Install::Always).await.expect("no lock of the app is in its way");

    // And the other way round: what an unfinished installation holds does not stop the app.
    let open = migrator.transaction().await.unwrap();
    for (_, sql) in migrate::FUNCTIONS.iter().chain(migrate::VIEWS) {
        open.batch_execute(sql).await.unwrap();
    }
    other_app.run("SET lock_timeout = '2s'").await;
    other_app.run("SELECT outboxd.notify('t', 'r', '{}', dedup_key => 'k'), outboxd.publish('t', 'k', '{}')").await;
    other_app.run("INSERT INTO outboxd.notification_log (topic, recipient, payload) VALUES ('t', 'r', '{}')").await;
    open.rollback().await.unwrap();
    app.run("COMMIT").await;
}

#[tokio::test]
async fn a_login_with_too_few_rights_is_told_what_it_needs() {
    let database = postgres::empty_database().await;
    let admin = database.connect().await;
    let login = format!("weak_{}", database.name);
    admin.run(&format!("CREATE ROLE {login} LOGIN")).await;
    let mut client = connect(&database.url_as(&login)).await;
    let error = migrate::run(&mut client, Install::Always).await.expect_err("it may not create a schema");
    let Error::MissingRights { user, message, hint } = &error else { panic!("{error:?}") };
    assert_eq!((user, message), (&login, &format!("permission denied for database {}", database.name)));
    assert!(hint.contains(&format!("GRANT CREATE ON DATABASE {} TO {login}", database.name)), "{hint}");

    migrate::run(&mut database.connect().await, Install::Always).await.unwrap();
    let error = migrate::run(&mut client, Install::Always).await.expect_err("the schema is another's");
    let Error::MissingRights { hint, .. } = &error else { panic!("{error:?}") };
    assert_eq!(hint, "The schema belongs to postgres: run `outboxd migrate` as that login");
    assert!(error.to_string().starts_with(&format!("{login} lacks rights: permission denied")), "{error}");
    // The lock was let go: somebody with the rights gets through.
    migrate::run(&mut database.connect().await, Install::Always).await.unwrap();
}

#[tokio::test]
async fn the_service_role_can_start_on_a_schema_that_is_up_to_date() {
    let database = postgres::database().await;
    let mut service = database.connect_as_member_of("outboxd_service").await;
    let report = migrate::run(&mut service, Install::IfChanged).await.unwrap();
    assert!(!report.installed);
    let error = migrate::run(&mut service, Install::Always).await.expect_err("it does not own the functions");
    assert!(matches!(error, Error::MissingRights { .. }), "{error:?}");
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let mut client = postgres::database().await.connect().await;
    client.run("INSERT INTO outboxd.refinery_schema_history (version, name, applied_on, checksum) VALUES (9999, 'later', '', '0')").await;
    let error = migrate::run(&mut client, Install::IfChanged).await.expect_err("it is from the future");
    assert!(matches!(error, Error::SchemaNewer { schema: 9999, binary } if binary == migrate::newest()), "{error:?}");
}

/// As a build from before the first release left it.
const OLD_HISTORY: &str = "CREATE SCHEMA outboxd;
    CREATE TABLE outboxd.refinery_schema_history (version int8 PRIMARY KEY, name varchar, applied_on varchar, checksum varchar);
    INSERT INTO outboxd.refinery_schema_history VALUES
        (1, 'create_notification_log', '2026-01-01', '1'), (23, 'set_the_timers_there_are', '2026-01-01', '1');
    CREATE TABLE outboxd.notification_log (id bigint PRIMARY KEY);
    INSERT INTO outboxd.notification_log VALUES (1)";

#[tokio::test]
async fn a_database_with_the_old_history_is_refused_and_says_what_to_do() {
    let database = postgres::empty_database().await;
    let mut client = database.connect().await;
    client.run(OLD_HISTORY).await;
    for install in [Install::Always, Install::IfChanged] {
        let error = migrate::run(&mut client, install).await.expect_err("nothing leads on from there");
        assert!(
            matches!(&error, Error::BeforeFirstRelease { found } if found == "create_notification_log"),
            "{error:?}"
        );
    }
    assert!(matches!(migrate::status(&session(&database).await).await, Err(Error::BeforeFirstRelease { .. })));
    assert_eq!(client.values::<i64>("SELECT id FROM outboxd.notification_log").await, [1], "it is left as it was");
    for args in [&["migrate"][..], &["migrate", "--status"], &["migrate", "--dry-run"]] {
        let done = outboxd(&database.url(), args, &[]).await;
        let said = done.err;
        assert_eq!(done.code, 78, "{args:?}: {said}");
        for part in [
            "create_notification_log",
            "let that build deliver what waits",
            "DROP SCHEMA outboxd CASCADE",
            "copy what you need",
        ] {
            assert!(said.contains(part), "{args:?}: {part} is missing: {said}");
        }
    }
    // What it says to do works. The lock was let go.
    client.run("DROP SCHEMA outboxd CASCADE").await;
    migrate::run(&mut client, Install::Always).await.unwrap();
}

#[tokio::test]
async fn an_edited_migration_is_refused() {
    let mut client = postgres::database().await.connect().await;
    let deleted = "DELETE FROM outboxd.refinery_schema_history WHERE version = (SELECT max(version) FROM outboxd.refinery_schema_history);
        UPDATE outboxd.refinery_schema_history SET checksum = '1' WHERE version = 1";
    client.run(deleted).await;
    let error = migrate::run(&mut client, Install::IfChanged).await.expect_err("its past differs");
    assert!(matches!(error, Error::Diverged(_)), "{error:?}");
}

#[tokio::test]
async fn a_hostile_search_path_of_the_migrating_login_gets_nothing_into_the_schema() {
    let database = postgres::empty_database().await;
    let admin = database.connect().await;
    let created = "CREATE SCHEMA hostile;
        CREATE FUNCTION hostile.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT ''infinity''::timestamptz';
        CREATE FUNCTION hostile.now() RETURNS timestamptz LANGUAGE sql AS 'SELECT ''infinity''::timestamptz';
        CREATE FUNCTION hostile.octet_length(text) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 1'";
    admin.run(created).await;
    admin.run(&format!("ALTER DATABASE {} SET search_path = hostile, pg_catalog", database.name)).await;
    let mut client = database.connect().await;
    migrate::run(&mut client, Install::Always).await.unwrap();
    let depends = "SELECT count(*) FROM pg_catalog.pg_depend WHERE refclassid = 'pg_catalog.pg_proc'::pg_catalog.regclass
                      AND refobjid IN (SELECT oid FROM pg_catalog.pg_proc WHERE pronamespace = 'hostile'::pg_catalog.regnamespace)";
    assert_eq!(client.value::<i64>(depends).await, 0);
    assert_eq!(client.value::<String>("SHOW search_path").await, "hostile, pg_catalog", "the login's own is back");
}

/// A connection whose notices and warnings can be read.
async fn connect_hearing_notices(url: &str) -> (Client, mpsc::UnboundedReceiver<String>) {
    let (client, mut connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    let (tell, heard) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notice(notice) = message {
                // Nobody reads any more: the test is over.
                let _ = tell.send(format!("{}: {}", notice.severity(), notice.message()));
            }
        }
    });
    (client, heard)
}

#[tokio::test]
async fn roles_that_may_not_be_created_are_warned_of_and_granted_once_a_dba_made_them() {
    // Roles belong to the server, so this needs one that never had ours.
    let server = postgres::start("").await;
    let admin = connect(&server.url("postgres")).await;
    admin.run("CREATE ROLE owner LOGIN NOCREATEROLE").await;
    admin.run("CREATE DATABASE app OWNER owner").await;
    let url = server.url_as("owner", "app");
    let (mut owner, mut notices) = connect_hearing_notices(&url).await;

    let report = migrate::run(&mut owner, Install::Always).await.unwrap();
    assert_eq!(
        report.roles_missing,
        ["outboxd_app", "outboxd_audience", "outboxd_operator", "outboxd_reader", "outboxd_service",]
    );
    assert_eq!(
        notices.recv().await.unwrap(),
        "WARNING: role outboxd_app is missing and may not be created by owner: let a DBA run what `outboxd roles` prints, then migrate again"
    );
    owner.run("SELECT outboxd.notify('t', 'r', '{}')").await;

    let dba = connect(&server.url("app")).await;
    dba.run(include_str!("../../sql/roles.sql")).await;
    dba.run(include_str!("../../sql/roles.sql")).await;
    let report = migrate::run(&mut owner, Install::Always).await.unwrap();
    assert_eq!(report.roles_missing, [""; 0]);
    let granted = "SELECT has_function_privilege(r, 'outboxd.' || f, 'EXECUTE') FROM (VALUES
        ('outboxd_app', 'notify_many(text, jsonb)'), ('outboxd_app', 'notify(text, text, json, timestamptz, text, text, timestamptz, jsonb)'),
        ('outboxd_operator', 'cancel(bigint)'), ('outboxd_reader', '_count_active()'), ('outboxd_service', '_ring()')) v(r, f)";
    assert_eq!(owner.values::<bool>(granted).await, [true; 5]);
    assert!(owner.value::<bool>("SELECT pg_has_role('outboxd_service', 'pg_read_all_stats', 'MEMBER')").await);
    let reads = "SELECT proowner::regrole::text FROM pg_proc WHERE proname = '_read_audience'";
    assert_eq!(owner.value::<String>(reads).await, "outboxd_audience");
    migrate::run(&mut owner, Install::Always).await.expect("who handed the function over can install it anew");
}

#[tokio::test]
async fn a_stranger_who_holds_the_lock_of_migrations_delays_none() {
    let database = postgres::empty_database().await;
    let stranger = database.connect_as_stranger().await;
    let mut owner = database.connect().await;
    // Before there is a schema, and after.
    for _ in 0..2 {
        stranger.run("SELECT pg_advisory_lock(x'6f7574626f786401'::bit(64)::bigint)").await;
        let migrated = tokio::time::timeout(Duration::from_secs(60), migrate::run(&mut owner, Install::Always)).await;
        migrated.expect("nobody waits for a stranger").unwrap();
    }
    // One of ours is waited for.
    let other = database.connect().await;
    stranger.run("SELECT pg_advisory_unlock_all()").await;
    other.run("SELECT pg_advisory_lock(x'6f7574626f786401'::bit(64)::bigint)").await;
    let (migrated, ()) = tokio::join!(migrate::run(&mut owner, Install::Always), async {
        let tried = "SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%pg_locks l LEFT JOIN%' AND pid <> pg_backend_pid()";
        other.until(tried).await;
        other.run("SELECT pg_advisory_unlock_all()").await;
    });
    migrated.unwrap();
}
