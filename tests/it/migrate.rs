//! The schema comes up on any number of instances at once, does not get in the app's way, and says clearly why it
//! cannot.

use futures_util::future::poll_fn;
use outboxd::migrate::{self, Error, Install};
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, Client, NoTls};

use crate::support::postgres::{self, connect};
use crate::support::sql::{refused, run, until, value, values};

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
    assert_eq!(migrate::schema_version(&database.connect().await).await.unwrap(), migrate::newest());
}

#[tokio::test]
async fn the_command_names_each_migration_once_and_logs_nothing_besides() {
    let database = postgres::empty_database().await;
    let migrate = || async {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_outboxd"));
        command.arg("migrate").env_clear().env("DATABASE_URL", database.url()).kill_on_drop(true);
        let done = command.output().await.expect("it runs");
        assert!(done.status.success());
        assert_eq!(String::from_utf8_lossy(&done.stderr), "");
        String::from_utf8(done.stdout).expect("text").lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let last = format!("the schema is at migration {}; functions, views and grants are installed", migrate::newest());
    let first_time = migrate().await;
    assert_eq!(first_time.len(), usize::try_from(migrate::newest()).unwrap() + 1, "{first_time:?}");
    assert_eq!(first_time[0], "applied V0001 create_notification_log");
    assert_eq!(first_time.last(), Some(&last));
    assert_eq!(migrate().await, [last]);
}

#[tokio::test]
async fn status_tells_what_is_applied_and_what_is_to_come() {
    let mut client = postgres::empty_database().await.connect().await;
    let before = migrate::status(&client).await.unwrap();
    assert!(before.iter().all(|migration| migration.applied_on.is_none()));
    assert!(before.iter().all(|migration| migration.sql.contains("outboxd.")), "--dry-run can show the text");
    assert!(!value::<bool>(&client, "SELECT to_regnamespace('outboxd') IS NOT NULL").await, "asking changes nothing");
    let report = migrate::run(&mut client, Install::Always).await.unwrap();
    assert_eq!(report.applied.len(), before.len());
    assert_eq!(report.applied[0], "V0001 create_notification_log");
    let after = migrate::status(&client).await.unwrap();
    assert!(after.iter().all(|migration| migration.applied_on.is_some()));
    assert!(after.is_sorted_by_key(|migration| migration.version));
}

#[tokio::test]
async fn a_start_installs_nothing_twice_and_migrate_installs_anew() {
    let mut client = postgres::database().await.connect().await;
    let again = migrate::run(&mut client, Install::IfChanged).await.unwrap();
    assert!(again.applied.is_empty() && !again.installed);
    run(&client, "DROP FUNCTION outboxd.cancel(bigint)").await;
    assert!(migrate::run(&mut client, Install::Always).await.unwrap().installed);
    run(&client, "SELECT outboxd.cancel(outboxd.notify('t', 'r', '{}'))").await;
}

#[tokio::test]
async fn the_notify_of_before_gives_way_to_the_two_there_are() {
    let mut client = postgres::database().await.connect().await;
    let before = "CREATE FUNCTION outboxd.notify(
            topic text, recipient text, payload jsonb, send_at timestamptz DEFAULT now(), dedup_key text DEFAULT NULL,
            ordering_key text DEFAULT NULL, expires_at timestamptz DEFAULT NULL, headers jsonb DEFAULT NULL)
        RETURNS bigint LANGUAGE sql AS 'SELECT 0'";
    run(&client, before).await;
    let (usual, keyed) =
        ("SELECT outboxd.notify('t', 'r', '{}')", "SELECT outboxd.notify('t', 'r', '{}', dedup_key => 'd')");
    run(&client, &format!("PREPARE keyed(text) AS {}", keyed.replace("'t'", "$1"))).await;
    assert_eq!(refused(&client, usual).await.code, "42725", "one too many");
    migrate::run(&mut client, Install::Always).await.unwrap();
    for call in [usual, keyed, "EXECUTE keyed('t')"] {
        assert!(value::<i64>(&client, call).await > 0, "{call}");
    }
}

#[tokio::test]
async fn an_older_binary_that_starts_leaves_newer_functions_alone() {
    let mut client = postgres::database().await.connect().await;
    for (installed, replaced) in [("99.0.0 aa", false), ("0.0.1 aa", true), ("", true)] {
        run(&client, &format!("UPDATE outboxd.setting SET sql_installed = '{installed}'")).await;
        let report = migrate::run(&mut client, Install::IfChanged).await.unwrap();
        assert_eq!(report.installed, replaced, "after {installed:?}");
    }
}

#[tokio::test]
async fn migrating_neither_waits_for_the_apps_transactions_nor_holds_up_its_writes() {
    let database = postgres::database().await;
    let (app, other_app) = (database.connect().await, database.connect().await);
    run(&app, "BEGIN; SELECT outboxd.notify('t', 'r', '{}')").await;
    run(&app, "INSERT INTO outboxd.notification_log (topic, recipient, payload) VALUES ('t', 'r', '{}')").await;
    let mut migrator = database.connect().await;
    run(&migrator, "SET lock_timeout = '2s'").await;
    migrate::run(&mut migrator, Install::Always).await.expect("no lock of the app is in its way");

    // And the other way round: what an unfinished installation holds does not stop the app.
    let open = migrator.transaction().await.unwrap();
    for (_, sql) in migrate::FUNCTIONS.iter().chain(migrate::VIEWS) {
        open.batch_execute(sql).await.unwrap();
    }
    run(&other_app, "SET lock_timeout = '2s'").await;
    run(&other_app, "SELECT outboxd.notify('t', 'r', '{}', dedup_key => 'k'), outboxd.publish('t', 'k', '{}')").await;
    run(&other_app, "INSERT INTO outboxd.notification_log (topic, recipient, payload) VALUES ('t', 'r', '{}')").await;
    open.rollback().await.unwrap();
    run(&app, "COMMIT").await;
}

/// Brings a schema from the version before to this one while the app has a transaction open that has done `write`, and
/// goes on writing. What else there was before is `rows`. Returns a session of an owner.
async fn migrate_beside_writes(version: i64, table: &str, rows: &str, write: &str) -> Client {
    let database = postgres::empty_database().await;
    let (migrator, app, other_app) = (database.connect().await, database.connect().await, database.connect().await);
    let (mut last, mut before) = (String::new(), "CREATE SCHEMA outboxd;".to_owned());
    for migration in migrate::status(&migrator).await.unwrap() {
        let text = if migration.version == version { &mut last } else { &mut before };
        *text += if migration.version <= version { &migration.sql } else { "" };
    }
    run(&migrator, &before).await;
    run(&migrator, rows).await;
    run(&app, &format!("BEGIN; {write}")).await;
    let migration = tokio::spawn(async move {
        run(&migrator, &format!("BEGIN; {last}; COMMIT")).await;
        migrator
    });
    let waits = format!("SELECT count(*) > 0 FROM pg_locks WHERE relation = '{table}'::regclass AND NOT granted");
    until(&other_app, &waits).await;
    run(&other_app, "SET lock_timeout = '1s'").await;
    for _ in 0..20 {
        run(&other_app, write).await;
    }
    assert!(!migration.is_finished(), "the app's transaction is still open");
    run(&app, "COMMIT").await;
    let migrator = migration.await.unwrap();
    run(&other_app, write).await;
    migrator
}

#[tokio::test]
async fn lighter_tables_come_to_a_running_app_without_holding_up_its_writes() {
    let rows = "INSERT INTO outboxd.notification_log (topic, recipient, payload, status, finished_at, error) VALUES
        ('t', 'dead', '{}', 'FAILED', '2026-01-01', 'no'), ('t', 'sent', '{}', 'SENT', '2026-01-01', NULL)";
    let insert = "INSERT INTO outboxd.notification_log (topic, recipient, payload) VALUES ('t', 'r', '{}')";
    let owner = migrate_beside_writes(17, "outboxd.notification_log", rows, insert).await;
    let failed = "SELECT failed_at = finished_at AND failed_at = '2026-01-01' FROM outboxd.notification_log WHERE status = 'FAILED'";
    assert!(value::<bool>(&owner, failed).await, "what was generated stays as it was");
}

#[tokio::test]
async fn letters_come_to_a_running_app_without_holding_up_its_writes() {
    let rows =
        "INSERT INTO outboxd.notification_log (topic, recipient, payload, status) VALUES ('t', 'r', '{}', 'QUEUED');
                INSERT INTO outboxd.outbox (id, channel) VALUES (1, 2)";
    // What notify() did until then.
    let notify = "WITH l AS (INSERT INTO outboxd.notification_log (topic, recipient, payload, status) VALUES ('t', 'r', '{}', 'QUEUED') RETURNING id)
                  INSERT INTO outboxd.outbox (id) SELECT id FROM l";
    let owner = migrate_beside_writes(18, "outboxd.outbox", rows, notify).await;
    let kept = "SELECT count(*) = 23 AND count(o.topic) = 0 AND max(o.route_step) = 2 FROM outboxd.outbox o JOIN outboxd.notification_log USING (id)";
    assert!(value::<bool>(&owner, kept).await, "live rows stay as they were");
}

#[tokio::test]
async fn fewer_indexes_come_to_a_running_app_without_holding_up_its_writes_and_every_timer_is_kept() {
    let rows = "INSERT INTO outboxd.outbox (id, seq, state, ordering_key, live_key, retry_at) VALUES
        (1, 1, 3, 'k', NULL, NULL), (2, 2, 0, 'k', 'k', '2026-01-01'), (3, 3, 0, NULL, NULL, '2026-01-02')";
    // What notify() did until then.
    let notify = "INSERT INTO outboxd.outbox (id, topic, recipient, payload, send_at, created_at)
                  VALUES (nextval('outboxd.notification_log_id_seq') + 3, 't', 'r', '{}', now(), now())";
    let owner = migrate_beside_writes(22, "outboxd.outbox", rows, notify).await;
    let fill = migrate::status(&owner).await.unwrap().into_iter().find(|migration| migration.version == 23).unwrap();
    run(&owner, &fill.sql).await;
    let kept = "SELECT string_agg(format('%s %s', t.id, t.at = o.retry_at), ',' ORDER BY t.id)
                  FROM outboxd.timer t JOIN outboxd.outbox o USING (id)";
    assert_eq!(value::<String>(&owner, kept).await, "2 t,3 t");
}

#[tokio::test]
async fn a_login_with_too_few_rights_is_told_what_it_needs() {
    let database = postgres::empty_database().await;
    let admin = database.connect().await;
    let login = format!("weak_{}", database.name);
    run(&admin, &format!("CREATE ROLE {login} LOGIN")).await;
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
    run(
        &client,
        "INSERT INTO outboxd.refinery_schema_history (version, name, applied_on, checksum) VALUES (9999, 'later', '', '0')",
    )
    .await;
    let error = migrate::run(&mut client, Install::IfChanged).await.expect_err("it is from the future");
    assert!(matches!(error, Error::SchemaNewer { schema: 9999, binary } if binary == migrate::newest()), "{error:?}");
}

#[tokio::test]
async fn an_edited_migration_is_refused() {
    let mut client = postgres::database().await.connect().await;
    run(
        &client,
        "DELETE FROM outboxd.refinery_schema_history WHERE version = (SELECT max(version) FROM outboxd.refinery_schema_history);
         UPDATE outboxd.refinery_schema_history SET checksum = '1' WHERE version = 1",
    )
    .await;
    let error = migrate::run(&mut client, Install::IfChanged).await.expect_err("its past differs");
    assert!(matches!(error, Error::Diverged(_)), "{error:?}");
}

#[tokio::test]
async fn a_hostile_search_path_of_the_migrating_login_gets_nothing_into_the_schema() {
    let database = postgres::empty_database().await;
    let admin = database.connect().await;
    run(
        &admin,
        "CREATE SCHEMA hostile;
         CREATE FUNCTION hostile.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT ''infinity''::timestamptz';
         CREATE FUNCTION hostile.now() RETURNS timestamptz LANGUAGE sql AS 'SELECT ''infinity''::timestamptz';
         CREATE FUNCTION hostile.octet_length(text) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 1'",
    )
    .await;
    run(&admin, &format!("ALTER DATABASE {} SET search_path = hostile, pg_catalog", database.name)).await;
    let mut client = database.connect().await;
    migrate::run(&mut client, Install::Always).await.unwrap();
    let depends = "SELECT count(*) FROM pg_catalog.pg_depend WHERE refclassid = 'pg_catalog.pg_proc'::pg_catalog.regclass
                      AND refobjid IN (SELECT oid FROM pg_catalog.pg_proc WHERE pronamespace = 'hostile'::pg_catalog.regnamespace)";
    assert_eq!(value::<i64>(&client, depends).await, 0);
    assert_eq!(value::<String>(&client, "SHOW search_path").await, "hostile, pg_catalog", "the login's own is back");
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
    let server = postgres::start(&[]).await;
    let admin = connect(&server.url("postgres")).await;
    run(&admin, "CREATE ROLE owner LOGIN NOCREATEROLE").await;
    run(&admin, "CREATE DATABASE app OWNER owner").await;
    let url = server.url("app").replace("postgres@", "owner@");
    let (mut owner, mut notices) = connect_hearing_notices(&url).await;

    let report = migrate::run(&mut owner, Install::Always).await.unwrap();
    assert_eq!(report.roles_missing, ["outboxd_app", "outboxd_audience", "outboxd_operator", "outboxd_service"]);
    assert_eq!(
        notices.recv().await.unwrap(),
        "WARNING: role outboxd_app is missing and may not be created by owner: let a DBA run sql/roles.sql, then migrate again"
    );
    run(&owner, "SELECT outboxd.notify('t', 'r', '{}')").await;

    let dba = connect(&server.url("app")).await;
    run(&dba, include_str!("../../sql/roles.sql")).await;
    run(&dba, include_str!("../../sql/roles.sql")).await;
    let report = migrate::run(&mut owner, Install::Always).await.unwrap();
    assert_eq!(report.roles_missing, [""; 0]);
    let granted = "SELECT has_function_privilege(r, 'outboxd.' || f, 'EXECUTE') FROM (VALUES
        ('outboxd_app', 'notify_many(text, jsonb)'), ('outboxd_operator', 'cancel(bigint)'), ('outboxd_service', '_ring()')) v(r, f)";
    assert_eq!(values::<bool>(&owner, granted).await, [true; 3]);
    assert!(value::<bool>(&owner, "SELECT pg_has_role('outboxd_service', 'pg_read_all_stats', 'MEMBER')").await);
    let reads = "SELECT proowner::regrole::text FROM pg_proc WHERE proname = '_read_audience'";
    assert_eq!(value::<String>(&owner, reads).await, "outboxd_audience");
    migrate::run(&mut owner, Install::Always).await.expect("who handed the function over can install it anew");
}
