//! Somebody who may create in a schema of our search_path plants what our SQL might call. None of it is ever run,
//! neither as the daemon or the owner nor in the hands of an app or an operator.

use std::time::Duration;

use outboxd::store::migrate;
use tokio_postgres::Client;

use crate::support::command::{outboxd, succeeds};
use crate::support::instance::Setup;
use crate::support::postgres::{self, Database, connect};
use crate::support::provider::{Provider, Reply};
use crate::support::sql::Sql;
use crate::support::wait;

const PLANTS: &str = include_str!("planted.sql");
/// In front of everything, and where public usually is: behind pg_catalog, where only nearer matches win.
const PATHS: [&str; 2] = ["evil, pg_temp, outboxd, pg_catalog", "pg_catalog, evil, outboxd"];

const ENUMS: &str = "SELECT t.oid::regtype::text FROM pg_type t
    WHERE t.typtype = 'e' AND t.typnamespace = 'outboxd'::regnamespace";

/// Public functions that nobody has called; the forms in SQL vanish into their callers.
const UNCALLED: &str = "SELECT p.proname::text FROM pg_proc p
    WHERE p.pronamespace = 'outboxd'::regnamespace AND left(p.proname, 1) <> '_'
      AND p.prolang <> (SELECT oid FROM pg_language WHERE lanname = 'sql')
      AND NOT EXISTS (SELECT FROM pg_stat_user_functions f WHERE f.funcid = p.oid AND f.calls > 0)";

/// For the operators: one that is SENT, a dead letter, a bulk action, a circuit that is open.
const ENDED: &str = "
    UPDATE outboxd.notification_log SET status = 'SENT', finished_at = now() WHERE id = 2;
    DELETE FROM outboxd.outbox WHERE id IN (2, 4);
    UPDATE outboxd.notification_log SET status = 'FAILED', finished_at = now(), failed_at = now(), error = 'x' WHERE id = 4;
    INSERT INTO outboxd.bulk_action (action, filter, actor, matched) VALUES ('retry', '{}', 'x', 1);
    INSERT INTO outboxd.channel_state (channel, held_until, reason) VALUES ('c', now() + interval '1 h', 'failures')
    ON CONFLICT (channel, origin) DO UPDATE SET held_until = excluded.held_until, reason = excluded.reason";

/// A migrated database in which everything is planted.
async fn planted() -> (Database, Client) {
    let database = postgres::database().await;
    let admin = database.connect().await;
    admin.run("CREATE SCHEMA evil").await;
    admin.batch_execute(PLANTS).await.expect("everything is planted");
    (database, admin)
}

async fn assert_nothing_was_sprung(admin: &Client) {
    assert!(!admin.value::<bool>("SELECT is_called FROM evil.trap").await, "planted code ran");
}

/// A login of a role, with this path by default.
async fn login(database: &Database, role: &str, path: &str) -> String {
    drop(database.connect_as_member_of(role).await);
    let login = format!("{role}_login_{}", database.name);
    database.connect().await.run(&format!("ALTER ROLE {login} SET search_path = {path}")).await;
    database.url_as(&login)
}

#[tokio::test]
async fn planted_code_is_sprung_by_whoever_names_it_without_a_schema() {
    let (database, admin) = planted().await;
    let victim = connect(&login(&database, "outboxd_app", PATHS[0]).await).await;
    for sql in [
        "SELECT now()",
        "SELECT count(*) FROM pg_catalog.pg_class",
        "SELECT 1 = 1",
        "SELECT 'a'::text",
        "SELECT FROM pg_class",
        "SELECT unnest('{1}'::pg_catalog.int8[])",
    ] {
        let refusal = victim.refused(sql).await;
        assert!(refusal.message.starts_with("planted "), "{sql}: {refusal:?}");
    }
    assert!(admin.value::<bool>("SELECT is_called FROM evil.trap").await);
}

#[tokio::test]
async fn apps_and_operators_never_run_what_somebody_planted() {
    let (database, admin) = planted().await;
    admin.run(&format!("ALTER DATABASE {} SET track_functions = 'all'", database.name)).await;
    let bell = "SELECT setval('outboxd.doorbell', floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)";
    admin.run("CREATE VIEW public.audience AS SELECT 'r'::text AS recipient, '{}'::jsonb AS payload").await;
    admin.run("GRANT SELECT ON public.audience TO outboxd_audience").await;
    let app = connect(&login(&database, "outboxd_app", PATHS[0]).await).await;
    let operator = connect(&login(&database, "outboxd_operator", PATHS[0]).await).await;
    let reader = connect(&login(&database, "outboxd_reader", PATHS[0]).await).await;
    for (n, path) in PATHS.into_iter().enumerate() {
        for client in [&app, &operator, &reader] {
            // Nor what is theirs alone: temporary tables and types come before all others.
            let created =
                format!("CREATE TEMP TABLE notification_log (id pg_catalog.int8); CREATE TEMP TABLE outbox{n} ()");
            client.run(&created).await;
            client.run("CREATE DOMAIN pg_temp.jsonb AS pg_catalog.jsonb CHECK (evil.is_safe('temporary jsonb'))").await;
            client.run(&format!("SET search_path = {path}")).await;
        }
        admin.run(bell).await;
        app_calls_everything(&app, n).await;
        admin.run(ENDED).await;
        operator_calls_everything(&operator, n).await;
        for view in views(&admin).await {
            operator.run(&format!("SELECT * FROM outboxd.{view}")).await;
            reader.run(&format!("SELECT * FROM outboxd.{view}")).await;
        }
        for client in [&app, &operator, &reader] {
            client.run("DISCARD TEMP").await;
        }
        assert_nothing_was_sprung(&admin).await;
    }
    drop((app, operator, reader));
    // The server counts calls, and tells within a second of a session's end.
    wait::until_ok("every public function is called here", async || {
        let uncalled = admin.values::<String>(UNCALLED).await;
        if uncalled.is_empty() { Ok(()) } else { Err(uncalled) }
    })
    .await;
    let pinned = "SELECT p.oid::regprocedure::text FROM pg_proc p
                   WHERE p.pronamespace = 'outboxd'::regnamespace AND p.proname NOT IN ('notify', '_masked', '_cause', '_plural')
                     AND ('search_path=pg_catalog, pg_temp' = ANY (p.proconfig)) IS NOT TRUE";
    assert_eq!(
        admin.values::<String>(pinned).await,
        [""; 0],
        "all set their search_path but those that write every name out or whose names are bound when they are created"
    );
}

async fn views(admin: &Client) -> Vec<String> {
    let views = "SELECT relname::text FROM pg_class WHERE relnamespace = 'outboxd'::regnamespace AND relkind = 'v' AND left(relname, 1) <> '_'";
    admin.values(views).await
}

async fn app_calls_everything(app: &Client, n: usize) {
    for form in ["", "::pg_catalog.jsonb", "::pg_catalog.json", "::pg_catalog.text"] {
        // The usual call, one with everything, the same again (its key is taken), and one for later.
        let everything = format!(
            ", send_at => '2020-01-01', dedup_key => 'k{n}', ordering_key => 'o', expires_at => '2099-01-01', headers => '{{\"a\": \"b\"}}'"
        );
        for more in ["", &everything, &everything, ", send_at => '2099-01-01'"] {
            app.run(&format!("SELECT outboxd.notify('t', 'r', '{{}}'{form}{more})")).await;
        }
        // What is refused is refused for its own reason.
        let refusal = app.refused(&format!("SELECT outboxd.notify('t', '', '{{}}'{form})")).await;
        assert_eq!(refusal.message, "notify: recipient has 0 bytes");
    }
    app.run(&format!(
        r#"SELECT outboxd.notify_many('t', '[{{"recipient": "r", "payload": 1, "dedup_key": "k{n}"}}]')"#
    ))
    .await;
    app.run("SELECT outboxd.publish('t', 'k', '{}', '{\"a\": \"b\"}')").await;
    app.run(&format!("SELECT * FROM outboxd.receive('c', 'm{n}'); SELECT outboxd.respond('c', 'm{n}', '1')")).await;
    app.run(&format!("SELECT * FROM outboxd.receive('c', 'm{n}')")).await;
    let plain = "INSERT INTO outboxd.notification_log (topic, recipient, payload, headers) VALUES ('t', 'plain', '{}', '{\"a\": \"b\"}')";
    app.run(&format!("{plain} RETURNING id, created_at")).await;
}

async fn operator_calls_everything(operator: &Client, n: usize) {
    let called =
        "SELECT outboxd.cancel(1), outboxd.retry(1), outboxd.retry_dead('t'), outboxd.pause('t'), outboxd.resume('t')";
    operator.run(called).await;
    let called =
        "SELECT outboxd.pause_channel('c'), outboxd.resume_channel('c'), outboxd.replay_events('t', '2020-01-01')";
    operator.run(called).await;
    operator.run("SELECT * FROM outboxd.retry_where('{\"topic\": \"t\", \"since\": \"2020-01-01\"}', false)").await;
    operator.run("SELECT * FROM outboxd.adopt('same')").await;
    operator.run("SELECT * FROM outboxd.discard_where('{\"topic\": \"t\"}', false)").await;
    operator.run("SELECT * FROM outboxd.cancel_where('{\"topic\": \"t\", \"recipient\": \"plain\"}', false)").await;
    operator.run(&format!("SELECT outboxd.create_schedule('s{n}', '0 9 * * *', 'UTC', 't', 'public.audience')")).await;
    operator.run(&format!("SELECT outboxd.pause_schedule('s{n}'), outboxd.resume_schedule('s{n}')")).await;
    operator.run(&format!("SELECT outboxd.alter_schedule('s{n}', '@daily'), outboxd.drop_schedule('s{n}')")).await;
    operator.run("SELECT outboxd.resend(2), outboxd.stop_bulk(1), outboxd.status(1), outboxd.discard(4)").await;
    operator.run("SELECT * FROM outboxd.why(1)").await;
    operator.run("SELECT outboxd.close_circuit('c'), outboxd.probe_channel('c')").await;
    let shared = "SELECT outboxd.share_consumer('c', 'outboxd_app'), outboxd.unshare_consumer('c', 'outboxd_app')";
    operator.run(shared).await;
}

#[tokio::test]
async fn the_daemon_and_the_commands_never_run_what_somebody_planted() {
    let (database, admin) = planted().await;
    admin.run("CREATE VIEW public.audience AS SELECT 'r'::text AS recipient, '{}'::jsonb AS payload").await;
    admin.run("GRANT SELECT ON public.audience TO outboxd_audience").await;
    let provider = Provider::start();
    provider.answer_with(|call| match call.header("outboxd-attempt") {
        Some("1") if call.recipient().ends_with('5') => Reply::status(503),
        _ if call.recipient().starts_with("dead") => Reply::status(400),
        _ => Reply::ok(),
    });
    let by_role = login(&database, "outboxd_service", PATHS[0]).await;
    let by_url = format!("{}?options=-c%20search_path%3Devil%2Cpg_catalog", database.url());
    let instances = [&by_role, &by_url].map(|url| Setup::new(url).webhook(&provider.url("/hook")));
    let _instances = [instances[0].start().await, instances[1].start().await];
    admin.run("SELECT outboxd.notify('t', 'r' || n, '{}', ordering_key => nullif('k' || n % 5, 'k0')) FROM generate_series(1, 50) n").await;
    admin.run("SELECT outboxd.notify('t', 'dead' || n, '{}') FROM generate_series(1, 5) n").await;
    admin.run("INSERT INTO outboxd.notification_log (topic, recipient, payload) SELECT 't', 'p' || n, '{}' FROM generate_series(1, 20) n").await;
    admin.run("SELECT outboxd.create_schedule('s', '* * * * *', 'UTC', 't', 'public.audience', lead => '2 min')").await;
    admin.until("SELECT count(*) >= 75 FROM outboxd.notifications WHERE finished_at IS NOT NULL").await;
    admin.until("SELECT count(*) > 0 FROM outboxd.schedule_runs WHERE state IN ('prepared', 'released')").await;
    for url in [&by_url, &by_role] {
        succeeds(url, &["status", "--json"]).await;
        succeeds(url, &["doctor"]).await;
        succeeds(url, &["dead", "list", "--since", "1h"]).await;
        succeeds(url, &["dead", "show", "1"]).await;
        succeeds(url, &["dead", "retry", "--topic", "t", "--yes"]).await;
        succeeds(url, &["schedule", "list"]).await;
        succeeds(url, &["schedule", "list", "--json"]).await;
        succeeds(url, &["send", "t", "cli", "{}", "--wait"]).await;
        let routes =
            ["check", "--set", "channels.push.url=https://push.example", "--set", "routes.default.channels=push"];
        let check = outboxd(url, &routes, &[]).await;
        assert_eq!(check.code, 0, "{check:?}");
    }
    succeeds(&by_url, &["migrate"]).await;
    succeeds(&by_url, &["migrate", "--status"]).await;
    tokio::time::timeout(Duration::from_secs(5), assert_nothing_was_sprung(&admin)).await.unwrap();
}

/// Whose code an audience calls may set the search_path for what comes after it in its transaction.
#[tokio::test]
async fn an_audience_that_sets_the_path_springs_nothing_of_what_somebody_planted() {
    let (database, admin) = planted().await;
    let created = "CREATE FUNCTION public.path() RETURNS pg_catalog.text LANGUAGE plpgsql AS $$
        BEGIN PERFORM pg_catalog.set_config('search_path', 'evil, pg_temp, outboxd, pg_catalog', false); RETURN 'r'; END $$;
        CREATE VIEW public.audience AS SELECT public.path() AS recipient, '{}'::jsonb AS payload;
        CREATE FUNCTION public.folded() RETURNS pg_catalog.text IMMUTABLE LANGUAGE plpgsql AS $$
        BEGIN RETURN public.path(); END $$;
        CREATE VIEW public.planned AS SELECT public.folded() AS recipient, '{}'::jsonb AS payload;
        GRANT SELECT ON public.audience, public.planned TO outboxd_audience";
    admin.run(created).await;
    let operator = connect(&login(&database, "outboxd_operator", PATHS[1]).await).await;
    let slot = "'* * * * *', 'UTC', 't', 'public.planned', lead => '2 min'";
    operator.run(&format!("SELECT outboxd.create_schedule('planned', {slot})")).await;
    operator.run("SELECT outboxd.alter_schedule('planned', lead => '1 day', audience => 'public.audience')").await;
    assert_nothing_was_sprung(&admin).await;
    let service = login(&database, "outboxd_service", PATHS[1]).await;
    let _instance = Setup::new(&service).webhook("http://127.0.0.1:9/").start().await;
    admin.until("SELECT count(*) > 0 FROM outboxd.schedule_runs WHERE state IN ('prepared', 'released')").await;
    assert_nothing_was_sprung(&admin).await;
}

/// Whoever migrates is the owner of all that follows, so this is where planted code would be worth most.
#[tokio::test]
async fn a_migration_never_runs_what_somebody_planted() {
    let source = postgres::database().await;
    for by_library in [true, false] {
        let database = postgres::empty_database().await;
        let admin = database.connect().await;
        // The plants name our types, which the migration is yet to make.
        admin.run("CREATE SCHEMA evil; CREATE SCHEMA outboxd").await;
        for name in source.connect().await.values::<String>(ENUMS).await {
            admin.run(&format!("CREATE TYPE {name} AS ENUM ('x')")).await;
        }
        admin.batch_execute(PLANTS).await.expect("everything is planted");
        admin.run("DROP SCHEMA outboxd CASCADE").await;
        admin.run(&format!("ALTER DATABASE {} SET search_path = {}", database.name, PATHS[0])).await;
        if by_library {
            migrate::run(&mut database.connect().await, migrate::Install::Always).await.unwrap();
        } else {
            succeeds(&database.url(), &["migrate"]).await;
        }
        assert_nothing_was_sprung(&admin).await;
        let tables = "SELECT count(*) FROM pg_catalog.pg_class WHERE relnamespace OPERATOR(pg_catalog.=) 'outboxd'::pg_catalog.regnamespace";
        assert_eq!(admin.value::<i64>(tables).await, source.connect().await.value::<i64>(tables).await);
    }
}
