//! Commands that read or act need the database and nothing else: no channel's secret, no route, no Redis. And
//! `outboxd migrate` says what its login may not do.

use outboxd::store::migrate::{self, Install};

use crate::support::command::{Ran, run_in};
use crate::support::postgres::{self, Database, connect};
use crate::support::process::free_port;
use crate::support::sql::Sql;

/// Secrets that are not set, a route that leads nowhere, a Redis that is away, a key that nobody knows.
const UNUSABLE: &str = r#"
redis_url = "redis://:${REDIS_PASSWORD}@127.0.0.1:1"
http_addr = "0.0.0.0:8080"
colour = "red"
[channels.push]
url = "https://push.example"
headers = { Authorization = "Bearer ${PUSH_TOKEN}" }
body = '{"text": {{ nonsense }}}'
[routes.default]
channels = ["pusch"]
"#;

async fn run_with_unusable_rest(database: &Database, args: &[&str]) -> Ran {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("outboxd.toml"), UNUSABLE).unwrap();
    let env = [("DATABASE_URL", database.url()), ("OUTBOXD_WORKER_LEESE", "1m".into())];
    run_in(dir.path(), args, &env.each_ref().map(|(name, value)| (*name, value.as_str()))).await
}

#[tokio::test]
async fn operators_commands_need_the_database_alone() {
    let database = postgres::database().await;
    for args in [
        &["migrate"][..],
        &["migrate", "--status"],
        &["migrate", "--dry-run"],
        &["roles"],
        &["send", "orders", "device-1", "{}"],
        &["status"],
        &["status", "--json"],
        &["dead", "list"],
        &["find", "device-1"],
        &["dead", "retry", "--topic", "orders", "--dry-run"],
        &["schedule", "list"],
        &["adopt", "--same"],
    ] {
        let ran = run_with_unusable_rest(&database, args).await;
        assert_eq!(ran.code, 0, "{args:?}: {}", ran.all());
    }
    let doctor = run_with_unusable_rest(&database, &["doctor"]).await;
    assert!(doctor.code == 1 && doctor.out.contains("critical workers"), "{}", doctor.all());
    for args in [["check"], ["run"]] {
        assert_eq!(run_with_unusable_rest(&database, &args).await.code, 78, "{args:?} needs all of it");
    }
}

#[tokio::test]
async fn what_is_wrong_with_the_database_still_stops_an_operator() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("outboxd.toml");
    for (text, wanted) in [
        ("databse_url = \"postgres://127.0.0.1/x\"", "did you mean \"database_url\"?"),
        ("database_url = \"mysql://127.0.0.1/x\"", "database_url begins with mysql://"),
        ("database_url = \"${NOT_SET}\"", "database_url needs the environment variable NOT_SET"),
        ("database_url = \"postgres://127.0.0.1/x\"\n[database]\nconnect_timeout = \"soon\"", "is no duration"),
        ("database_url = ", "outboxd.toml:1"),
    ] {
        std::fs::write(&file, text).unwrap();
        let ran = run_in(dir.path(), &["status"], &[]).await;
        assert!(ran.code == 78 && ran.err.contains(wanted), "{text}: {}", ran.all());
    }
}

#[tokio::test]
async fn a_url_made_for_other_tools_is_taken_and_what_is_ignored_is_named() {
    let database = postgres::database().await;
    let dir = tempfile::tempdir().unwrap();
    let routes = "[channels.push]\nurl = \"https://push.example\"\n[routes.default]\nchannels = [\"push\"]\n";
    std::fs::write(dir.path().join("outboxd.toml"), routes).unwrap();
    let url = format!(
        "{}?schema=public&pgbouncer=true&connection_limit=5&pool_timeout=0&sslaccept=strict&application_name=shop&\
         options=-c%20statement_timeout%3D9s",
        database.url()
    );
    for (args, said) in [(["check"], "out"), (["status"], "err")] {
        let ran = run_in(dir.path(), &args, &[("DATABASE_URL", &url)]).await;
        assert_eq!(ran.code, 0, "{}", ran.all());
        let text = if said == "out" { &ran.out } else { &ran.err };
        for part in [
            "parameters of other tools, ignored: schema, pgbouncer, connection_limit, pool_timeout, sslaccept",
            "set database.pool_size, sslmode=verify-full instead",
            "pgbouncer=true: if it leads to a transaction-mode pooler, set database.pooler = true",
        ] {
            assert!(text.contains(part), "{args:?}: {part} is missing: {text}");
        }
    }
    let env = [("DATABASE_URL", url.as_str()), ("OUTBOXD_DATABASE_POOLER", "true")];
    let pooled = run_in(dir.path(), &["check"], &env).await;
    assert!(!pooled.out.contains("set database.pooler"), "{}", pooled.out);
}

/// A server that never had our roles, and a login that owns its database and may create no role.
async fn server_with_a_modest_owner() -> (postgres::Server, String) {
    let server = postgres::start("").await;
    let admin = connect(&server.url("postgres")).await;
    admin.run("CREATE ROLE owner LOGIN NOCREATEROLE").await;
    admin.run("CREATE DATABASE app OWNER owner").await;
    let url = server.url_as("owner", "app");
    (server, url)
}

#[tokio::test]
async fn migrate_fails_where_it_may_not_create_roles_and_says_what_to_do() {
    let (server, url) = server_with_a_modest_owner().await;
    let dir = tempfile::tempdir().unwrap();
    let migrate = async |args: &[&str]| run_in(dir.path(), args, &[("DATABASE_URL", &url)]).await;

    let refused = migrate(&["migrate"]).await;
    assert_eq!(refused.code, 78, "{}", refused.all());
    for part in ["outboxd_app, outboxd_audience, outboxd_operator", "`outboxd roles`", "--without-roles"] {
        assert!(refused.err.contains(part), "{part} is missing: {}", refused.err);
    }
    assert!(!refused.err.contains("\"level\""), "the server's notices would only repeat it: {}", refused.err);
    let content = migrate(&["migrate", "--without-roles"]).await;
    assert_eq!((content.code, content.err.as_str()), (0, ""), "{}", content.all());

    // What it says to do works.
    let roles = run_in(dir.path(), &["roles"], &[]).await;
    assert_eq!((roles.code, roles.err.as_str()), (0, ""));
    connect(&server.url("app")).await.run(&roles.out).await;
    let done = migrate(&["migrate"]).await;
    assert_eq!((done.code, done.err.as_str()), (0, ""), "{}", done.all());
    let app = connect(&url).await;
    assert!(app.value::<bool>("SELECT has_schema_privilege('outboxd_app', 'outboxd', 'USAGE')").await);
}

#[tokio::test]
async fn roles_made_first_need_the_owners_name_or_a_grant_that_migrate_asks_for() {
    let (server, url) = server_with_a_modest_owner().await;
    let dir = tempfile::tempdir().unwrap();
    let dba = connect(&server.url("app")).await;
    dba.run(&run_in(dir.path(), &["roles"], &[]).await.out).await;
    let refused = run_in(dir.path(), &["migrate"], &[("DATABASE_URL", &url)]).await;
    assert!(refused.code == 78 && refused.err.contains("GRANT outboxd_audience TO owner;"), "{}", refused.all());
    dba.run(&run_in(dir.path(), &["roles", "--owner", "owner"], &[]).await.out).await;
    let done = run_in(dir.path(), &["migrate"], &[("DATABASE_URL", &url)]).await;
    assert_eq!(done.code, 0, "{}", done.all());
}

#[tokio::test]
async fn without_roles_creates_none_even_where_it_may() {
    let server = postgres::start("").await;
    let database = server.empty_database().await;
    let dir = tempfile::tempdir().unwrap();
    let ran = run_in(dir.path(), &["migrate", "--without-roles"], &[("DATABASE_URL", &database.url())]).await;
    assert_eq!(ran.code, 0, "{}", ran.all());
    let ours = "SELECT count(*) FROM pg_roles WHERE rolname LIKE 'outboxd%'";
    assert_eq!(database.connect().await.value::<i64>(ours).await, 0);
}

#[tokio::test]
async fn the_sql_of_a_dry_run_makes_the_schema_that_migrate_makes() {
    let database = postgres::empty_database().await;
    let dir = tempfile::tempdir().unwrap();
    let ran = run_in(dir.path(), &["migrate", "--dry-run"], &[("DATABASE_URL", &database.url())]).await;
    assert_eq!(ran.code, 0, "{}", ran.all());
    let client = database.connect().await;
    assert!(!client.value::<bool>("SELECT to_regnamespace('outboxd') IS NOT NULL").await, "it changes nothing");
    client.run(&ran.out).await;
    let mut migrated = postgres::empty_database().await.connect().await;
    migrate::run(&mut migrated, Install::Always).await.unwrap();
    let dump = include_str!("schema_dump.sql");
    client.run("RESET search_path; SET timezone = 'UTC'").await;
    migrated.run("DROP TABLE outboxd.refinery_schema_history; SET timezone = 'UTC'").await;
    let (found, wanted) = (client.values::<String>(dump).await, migrated.values::<String>(dump).await);
    assert!(wanted.len() > 100, "the dump shows something");
    assert_eq!(found, wanted);
}

#[tokio::test]
async fn roles_are_printed_without_any_connection() {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = format!("postgres://127.0.0.1:{}/x", free_port());
    let ran = run_in(dir.path(), &["roles", "--owner", "a\"b"], &[("DATABASE_URL", &nowhere)]).await;
    assert_eq!(ran.code, 0, "{}", ran.all());
    assert!(ran.out.starts_with(include_str!("../../sql/roles.sql")));
    assert!(ran.out.ends_with("GRANT outboxd_audience TO \"a\"\"b\";\n"), "{}", ran.out);
}
