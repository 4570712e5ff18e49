//! `outboxd check` finds whatever `outboxd run` would refuse, in the same way: a table of broken setups, each given to
//! both. And it finds some things that `run` would only stumble over later.

use std::path::Path;

use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::support::clock;
use crate::support::command::{Ran, run_in};
use crate::support::instance::Setup;
use crate::support::postgres::{self, Database, connect};
use crate::support::process::free_port;
use crate::support::redis::RedisServer;
use crate::support::sql::Sql;

const GOOD: &str = r#"
http_addr = "127.0.0.1:0"
[channels.push]
url = "https://push.example/v1/send"
[routes.default]
channels = ["push"]
"#;

/// A setup that is good but for one thing.
struct Broken {
    name: &'static str,
    toml: String,
    url: String,
    env: Vec<(&'static str, String)>,
    args: Vec<&'static str>,
    code: i32,
    /// What both say.
    said: &'static [&'static str],
}

/// A setup with this file instead of the good one.
fn with_file(database: &Database, name: &'static str, toml: &str, said: &'static [&'static str]) -> Broken {
    let (url, env, args) = (database.url(), Vec::new(), Vec::new());
    Broken { name, toml: toml.to_owned(), url, env, args, code: 78, said }
}

/// A good file with more in it.
fn with_more(database: &Database, name: &'static str, more: &str, said: &'static [&'static str]) -> Broken {
    with_file(database, name, &format!("{GOOD}{more}"), said)
}

/// A good file and this URL.
fn with_url(url: String, name: &'static str, code: i32, said: &'static [&'static str]) -> Broken {
    let (env, args) = (Vec::new(), Vec::new());
    Broken { name, toml: GOOD.to_owned(), url, env, args, code, said }
}

fn dir_with(toml: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("outboxd.toml"), toml).unwrap();
    dir
}

async fn run_command(command: &str, dir: &Path, broken: &Broken) -> Ran {
    let mut env = vec![("DATABASE_URL", broken.url.as_str()), ("OUTBOXD_LOG", "warn")];
    env.extend(broken.env.iter().map(|(name, value)| (*name, value.as_str())));
    run_in(dir, &[&[command], &broken.args[..]].concat(), &env).await
}

async fn assert_both_refuse(broken: &[Broken]) {
    for broken in broken {
        let dir = dir_with(&broken.toml);
        for command in ["check", "run"] {
            let ran = run_command(command, dir.path(), broken).await;
            let said = ran.all();
            assert_eq!(ran.code, broken.code, "{command}, {}: {said}", broken.name);
            for part in broken.said {
                assert!(said.contains(part), "{command}, {}: {part:?} is missing: {said}", broken.name);
            }
        }
    }
}

/// The daemon's login as it should be; `DAEMON` stands for its name, `DATABASE` for the database's.
const LOGIN: &str = "CREATE ROLE DAEMON LOGIN IN ROLE outboxd_service";

/// The URL of a login made by these statements.
async fn url_of_login(database: &Database, statements: &str) -> String {
    let login = format!("login_{}", database.name);
    let statements = statements.replace("DAEMON", &login).replace("DATABASE_", &database.name);
    database.connect().await.run(&statements).await;
    database.url_as(&login)
}

#[tokio::test]
async fn check_and_run_refuse_the_same_configurations() {
    let database = postgres::database().await;
    let of = |name, more: &str, said| with_more(&database, name, more, said);
    let channel = |body: &str| format!("[channels.a]\nurl = \"https://a.example\"\n{body}\n");
    assert_both_refuse(&[
        of("a variable", &channel("body = '{{ paylod.text|tojson }}'"), &["`paylod`", "did you mean \"payload\"?"]),
        of("a filter", &channel("body = '{{ payload|tojso }}'"), &["there is no filter `tojso`; did you mean"]),
        of("quotes", &channel("body = '{\"text\": {{ payload.text }}}'"), &["write {{ payload.text|tojson }}"]),
        of(
            "several templates",
            &channel("body = '{{ x|y }}'\nheaders = { A = \"{{ z }}\" }"),
            &["3 errors", "variable `x`", "filter `y`", "variable `z`"],
        ),
        of("a secret", &channel("headers = { A = \"${NOT_SET}\" }"), &["needs the environment variable NOT_SET"]),
        of("a route", "[routes.quiz]\nchannels = [\"pusch\"]\n", &["there is no [channels.pusch]"]),
        with_file(&database, "no route", "http_addr = \"127.0.0.1:0\"", &["no route leads anywhere"]),
        of("a key", "[worker]\nleese = \"1m\"\n", &["did you mean \"worker.lease\"?"]),
        of(
            "a denied address",
            "[channels.a]\nurl = \"http://10.0.0.1/\"\ndeny = [\"10.0.0.0/8\"]\n",
            &["the deny list"],
        ),
        of("a password", "[channels.a]\nurl = \"https://u:p@a.example/\"\n", &["a user name or password"]),
        Broken { args: vec!["--role", "worker"], ..of("roles apart", "", &["--role leaves out producer, relay"]) },
    ])
    .await;
}

/// What is done to a migrated database, the exit code, and what both say.
// One line a case reads as the table it is.
#[rustfmt::skip]
const DATABASES: &[(&str, &str, i32, &[&str])] = &[
    ("a stranger", "CREATE ROLE DAEMON LOGIN", 78, &["GRANT outboxd_service TO login_"]),
    ("the app's login", "CREATE ROLE DAEMON LOGIN IN ROLE outboxd_app", 78, &["outboxd wants a login of its own"]),
    ("a login that does not inherit", "CREATE ROLE DAEMON LOGIN NOINHERIT IN ROLE outboxd_service", 78, &["outboxd_service"]),
    (
        "a right taken away",
        "CREATE ROLE DAEMON LOGIN IN ROLE outboxd_service; REVOKE INSERT ON outboxd.instance FROM outboxd_service",
        78,
        &["instance"],
    ),
    (
        "a schema that is older, of somebody else",
        "CREATE ROLE DAEMON LOGIN IN ROLE outboxd_service;
         DELETE FROM outboxd.refinery_schema_history WHERE version > 3",
        78,
        &["postgres", "outboxd migrate"],
    ),
    (
        "a login without a connection left",
        "CREATE ROLE DAEMON LOGIN CONNECTION LIMIT 0 IN ROLE outboxd_service",
        69,
        &["too many connections"],
    ),
    (
        "a schema that is gone, and no right to make one",
        "DROP SCHEMA outboxd CASCADE; CREATE ROLE DAEMON LOGIN IN ROLE outboxd_service",
        78,
        &["outboxd migrate"],
    ),
    (
        "a schema from before the first release",
        "CREATE ROLE DAEMON LOGIN IN ROLE outboxd_service; UPDATE outboxd.refinery_schema_history SET name = 'create_notification_log'",
        78,
        &["DROP SCHEMA outboxd CASCADE"],
    ),
];

#[tokio::test]
async fn check_and_run_refuse_the_same_databases() {
    let mut broken = Vec::new();
    for (name, statements, code, said) in DATABASES {
        let url = url_of_login(&postgres::database().await, statements).await;
        broken.push(with_url(url, name, *code, said));
    }
    let database = postgres::database().await;
    let nowhere = Database { name: "nowhere".into(), ..database }.url();
    broken.push(with_url(nowhere, "no database", 78, &["does not exist (3D000)"]));
    let away = format!("postgres://u@127.0.0.1:{}/x", free_port());
    broken.push(with_url(away, "a server that is away", 69, &["cannot be reached"]));
    assert_both_refuse(&broken).await;
}

#[tokio::test]
async fn check_and_run_refuse_the_same_redis_and_the_same_address() {
    let database = postgres::database().await;
    let evicting = RedisServer::start(&["--maxmemory-policy", "allkeys-lru"]);
    let other_program = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let taken = other_program.local_addr().unwrap().to_string();
    let of = |name, code, said, env: &[(&'static str, &str)]| Broken {
        env: env.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(),
        ..with_url(database.url(), name, code, said)
    };
    assert_both_refuse(&[
        of("an evicting Redis", 78, &["maxmemory-policy is allkeys-lru"], &[("REDIS_URL", evicting.url())]),
        of("a port that is taken", 69, &["another program listens there"], &[("OUTBOXD_HTTP_ADDR", &taken)]),
        of(
            "an address of another machine",
            78,
            &["this machine has no such address"],
            &[("OUTBOXD_HTTP_ADDR", "192.0.2.1:80"), ("OUTBOXD_HTTP_TOKEN", "a-token-of-the-test")],
        ),
    ])
    .await;
}

#[tokio::test]
async fn what_check_finds_good_starts_also_with_the_least_role() {
    let database = postgres::database().await;
    // What a database sets by default is not asked for: sessions bring their own.
    let read_only = format!("{LOGIN}; ALTER DATABASE DATABASE_ SET default_transaction_read_only = on");
    let url = url_of_login(&database, &read_only).await;
    let dir = dir_with(GOOD);
    let ran = run_in(dir.path(), &["check"], &[("DATABASE_URL", &url)]).await;
    assert_eq!(ran.code, 0, "{}", ran.all());
    assert!(!ran.out.contains("\nwarn") && !ran.out.contains("\nfailed"), "{}", ran.out);
    assert!(ran.out.contains("nothing stands in the way of `outboxd run`"), "{}", ran.out);
    let mut instance = Setup::new(&url).webhook("https://push.example").start().await;
    // Beside a running instance it does not call the port taken.
    let addr = instance.http_addr().await.to_string();
    let ran = run_in(dir.path(), &["check"], &[("DATABASE_URL", &url), ("OUTBOXD_HTTP_ADDR", &addr)]).await;
    assert!(ran.code == 0 && ran.out.contains("an instance listens on"), "{}", ran.all());
    assert_eq!(instance.drain().await, 0);
}

#[tokio::test]
async fn check_needs_no_route_for_an_instance_that_calls_nobody() {
    let database = postgres::database().await;
    let redis = RedisServer::forgetful();
    let dir = dir_with("http_addr = \"127.0.0.1:0\"");
    let env = [("DATABASE_URL", &*database.url()), ("REDIS_URL", redis.url()), ("OUTBOXD_ROLE", "producer,relay")];
    let ran = run_in(dir.path(), &["check"], &env).await;
    assert_eq!(ran.code, 0, "{}", ran.all());
    assert_eq!(run_in(dir.path(), &["check", "--role", "worker"], &env).await.code, 78);
}

#[tokio::test]
async fn check_finds_what_run_would_stumble_over_later() {
    let database = postgres::database().await;
    let client = database.connect().await;
    client.run("SELECT outboxd.notify('quiz', 'r', '{}'), outboxd.notify('orders', 'r', '{}')").await;
    let schedule = "INSERT INTO outboxd.schedule (name, cron, timezone, topic, audience, lead, spread, catch_up)
                    VALUES ('daily', '0 9 * * *', 'UTC', 'digest', 'app.audience', '0', '0', '0')";
    client.run(schedule).await;
    let toml = GOOD.replace("routes.default", "routes.orders");
    let body = "[channels.a]\nurl = \"https://a.example\"\nbody = '{\"text\": \"Hi {{ payload.name }}\"}'\n";
    let dir = dir_with(&format!("{toml}{body}"));
    let ran = run_in(dir.path(), &["check"], &[("DATABASE_URL", &database.url())]).await;
    assert_eq!(ran.code, 0, "{}", ran.all());
    for part in [
        "warn    routes    no route for digest, quiz, and no [routes.default]",
        "channels.a is in no route",
        "channels.a.body has {{ payload.name }} between quotes",
    ] {
        assert!(ran.out.contains(part), "{part} is missing: {}", ran.out);
    }
    for (ahead, code, part) in
        [("5", 0, "warn    clock     this machine is"), ("-90", 69, "failed  clock     this machine is")]
    {
        let env = [("DATABASE_URL", &*database.url()), ("LD_PRELOAD", clock::library()), ("CLOCK_OFF_BY_S", ahead)];
        let ran = run_in(dir.path(), &["check"], &env).await;
        assert!(ran.code == code && ran.out.contains(part), "{ahead}: {}", ran.all());
    }
}

#[tokio::test]
async fn missing_roles_are_named_by_check() {
    let server = postgres::start("").await;
    let database = server.empty_database().await;
    let dir = dir_with(GOOD);
    let env = [("DATABASE_URL", &*database.url())];
    let ran = run_in(dir.path(), &["check"], &env).await;
    assert!(
        ran.code == 0 && ran.out.contains("warn    roles     missing: outboxd_app, outboxd_audience"),
        "{}",
        ran.all()
    );
    assert_eq!(run_in(dir.path(), &["migrate", "--without-roles"], &env).await.code, 0);
    let admin = connect(&database.url()).await;
    admin.run("CREATE ROLE daemon LOGIN").await;
    let ran = run_in(dir.path(), &["check"], &[("DATABASE_URL", &database.url_as("daemon"))]).await;
    assert!(ran.code == 78 && ran.out.contains("there is no role outboxd_service"), "{}", ran.all());
}
