//! `outboxd check` and the command line around it: the real binary, exit codes and texts.

use std::path::Path;
use std::process::Command;

use axum::http::StatusCode;
use axum::routing::get;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::command::Ran;
use crate::support::process::free_port;
use crate::support::redis::SecureRedis;
use crate::support::tls::{self, POSTGRES};

const ROUTES: &str = "[channels.push]\nurl = \"https://push.example\"\n[routes.default]\nchannels = [\"push\"]\n";

/// Runs the binary in `dir` with no environment but `env` and an address of its own.
fn outboxd_in(dir: &Path, args: &[&str], env: &[(&str, &str)]) -> Ran {
    Command::new(env!("CARGO_BIN_EXE_outboxd"))
        .args(args)
        .current_dir(dir)
        .env_clear()
        // Checks that run at the same time must not take each other's port.
        .env("OUTBOXD_HTTP_ADDR", "127.0.0.1:0")
        .envs(env.iter().copied())
        .output()
        .unwrap()
        .into()
}

fn outboxd(args: &[&str], env: &[(&str, &str)]) -> Ran {
    outboxd_in(routes_dir().path(), args, env)
}

/// A directory whose outboxd.toml has a channel and a route.
fn routes_dir() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("outboxd.toml"), ROUTES).unwrap();
    dir
}

fn psql(database: &str, sql: &str) {
    let url = format!("postgres://postgres@127.0.0.1:{}/{database}", POSTGRES.port);
    let ran = Command::new("psql").args(["-qX", "-v", "ON_ERROR_STOP=1", "-d", &url, "-c", sql]).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

/// The state and text of one check of `--json`.
fn finding(json: &str, name: &str) -> (String, String) {
    let report: Value = serde_json::from_str(json).unwrap();
    let found = report["checks"].as_array().unwrap().iter().find(|check| check["name"] == name);
    let text = |field: &str| found.unwrap_or_else(|| panic!("{json}"))[field].as_str().unwrap().to_owned();
    (text("state"), text("text"))
}

#[test]
fn with_nothing_configured_it_says_where_to_begin() {
    let empty = tempfile::tempdir().unwrap();
    let ran = outboxd_in(empty.path(), &["check"], &[]);
    assert_eq!(ran.code, 78);
    for part in ["database_url is missing", "set DATABASE_URL=postgres://", "outboxd.example.toml"] {
        assert!(ran.err.contains(part), "{}", ran.err);
    }
}

#[test]
fn without_a_file_it_says_where_it_looked() {
    let empty = tempfile::tempdir().unwrap();
    let env = [("DATABASE_URL", "postgres://u@127.0.0.1:1/x")];
    for args in [&["check"][..], &["run"]] {
        let ran = outboxd_in(empty.path(), args, &env);
        assert_eq!(ran.code, 78);
        for part in
            ["no route leads anywhere", "no configuration file was found (outboxd.toml, /etc/outboxd/outboxd.toml"]
        {
            assert!(ran.err.contains(part), "{}", ran.err);
        }
    }
}

#[test]
fn errors_end_with_78_for_people_and_for_programs() {
    let env = [("DATABASE_URL", "mysql://u:hunter2@127.0.0.1/x"), ("OUTBOXD_WORKER_LEESE", "1m")];
    let ran = outboxd(&["check"], &env);
    assert_eq!(ran.code, 78);
    assert!(ran.err.contains("the configuration has 2 errors:"), "{}", ran.err);
    assert!(ran.err.contains("did you mean \"OUTBOXD_WORKER_LEASE\"?"), "{}", ran.err);
    let ran = outboxd(&["check", "--json"], &env);
    let json: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, &json["ok"], &json["errors"][0]["key"]), (78, &false.into(), &"database_url".into()));
    assert!(!ran.out.contains("hunter2"), "{}", ran.out);
}

#[test]
fn a_missing_file_that_was_named_is_an_error() {
    let ran = outboxd(&["--config", "/no/such.toml", "check"], &[("DATABASE_URL", "postgres://127.0.0.1/x")]);
    assert_eq!(ran.code, 78);
    assert!(ran.err.contains("/no/such.toml could not be read"), "{}", ran.err);
}

#[test]
fn the_flag_names_the_file_before_the_variable_and_that_before_the_directory() {
    let dir = routes_dir();
    for name in ["flag.toml", "variable.toml"] {
        std::fs::write(dir.path().join(name), format!("broken-{name}")).unwrap();
    }
    let variable = [("OUTBOXD_CONFIG", "variable.toml")];
    let flag = outboxd_in(dir.path(), &["check", "--config", "flag.toml"], &variable);
    assert!(flag.err.contains("flag.toml:1"), "{}", flag.err);
    let variable = outboxd_in(dir.path(), &["check"], &variable);
    assert!(variable.err.contains("variable.toml:1"), "{}", variable.err);
}

#[test]
fn bad_usage_ends_with_2_and_help_shows_examples() {
    assert_eq!(outboxd(&["chekc"], &[]).code, 2);
    assert_eq!(outboxd(&["check", "--set", "worker.lease"], &[]).code, 2);
    let filter = outboxd(&["check", "--log", "a=b=c"], &[]);
    assert!(filter.code == 2 && filter.err.contains("--log is no log filter"), "{}", filter.err);
    for args in [&["--help"][..], &["check", "--help"], &["completions", "--help"]] {
        let help = outboxd(args, &[]);
        assert!(help.code == 0 && help.out.contains("Examples:"), "{}", help.out);
    }
}

#[test]
fn completions_are_printed_for_each_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = outboxd(&["completions", shell], &[]);
        assert!(ran.code == 0 && ran.out.contains("check"), "{shell}");
    }
}

#[test]
fn what_cannot_be_reached_ends_with_69_and_says_what_to_do() {
    let (postgres, redis) = (free_port(), free_port());
    let env = [
        ("DATABASE_URL", &*format!("postgres://u:hunter2@127.0.0.1:{postgres}/x")),
        ("REDIS_URL", &format!("redis://:hunter2@127.0.0.1:{redis}")),
    ];
    let ran = outboxd(&["check"], &env);
    assert_eq!(ran.code, 69);
    assert!(ran.out.contains("failed  postgres  cannot be reached"), "{}", ran.out);
    assert!(ran.out.contains("failed  redis     cannot be used"), "{}", ran.out);
    assert!(!ran.out.contains("hunter2") && !ran.err.contains("hunter2"), "{}", ran.out);
}

#[test]
fn a_good_configuration_is_shown_with_its_origins_and_tested() {
    let url = format!("postgres://postgres:hunter2@localhost:{}/postgres?sslmode=require", POSTGRES.port);
    let env = [("DATABASE_URL", url.as_str()), ("OUTBOXD_WORKER_LEASE", "90s")];
    let ran = outboxd(&["check", "--set", "worker.drain=9s"], &env);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    let row = |key: &str| {
        let line = ran.out.lines().find(|line| line.split_whitespace().next() == Some(key)).unwrap();
        line.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    let shown = row("database_url");
    assert!(shown[0].starts_with("postgres://postgres:****@localhost:") && shown[1] == "DATABASE_URL", "{shown:?}");
    let mut table = ran.out.split("\n\n").nth(1).unwrap().lines();
    assert!(table.all(|line| line.chars().count() <= 100), "{}", ran.out);
    assert_eq!(row("worker.lease"), ["90s", "OUTBOXD_WORKER_LEASE"]);
    assert_eq!(row("worker.drain"), ["9s", "--set"]);
    assert_eq!(row("worker.concurrency"), ["256", "default"]);
    assert_eq!(row("channels.push.max_in_flight_per_origin"), ["128", "default"]);
    assert_eq!(row("queue.kind"), ["memory", "default"]);
    assert_eq!(row("channels.push.url"), ["https://push.example", "outboxd.toml:2"]);
    assert!(ran.out.contains("user postgres, TLS TLSv1.3"), "{}", ran.out);
    assert!(!ran.out.contains("hunter2"), "{}", ran.out);
}

#[test]
fn logs_are_json_off_a_terminal_and_hold_no_secrets() {
    let url = format!("postgres://postgres:hunter2@localhost:{}/postgres?sslmode=require", POSTGRES.port);
    let ran = outboxd(
        &["check", "--log", "trace"],
        &[("DATABASE_URL", &url), ("OUTBOXD_HTTP_TOKEN", "hunter2-hunter2-hunter2")],
    );
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert!(!ran.err.is_empty() && !ran.err.contains("hunter2"), "{}", ran.err);
    for line in ran.err.lines() {
        let entry: Value = serde_json::from_str(line).unwrap();
        assert!(entry["level"].is_string() && entry["timestamp"].is_string(), "{line}");
    }
}

#[test]
fn the_schema_is_looked_up_and_its_absence_explained() {
    psql("postgres", "CREATE DATABASE schema_test");
    psql("postgres", "CREATE ROLE nobody LOGIN");
    let url = |user: &str| format!("postgres://{user}@127.0.0.1:{}/schema_test", POSTGRES.port);
    let check = |user: &str| {
        let ran = outboxd(&["check", "--json"], &[("DATABASE_URL", &url(user))]);
        let (state, text) = finding(&ran.out, "schema");
        assert_eq!(ran.code, if state == "failed" { 78 } else { 0 }, "{}{}", ran.out, ran.err);
        (state, text)
    };
    assert_eq!(check("postgres"), ("warn".into(), "outboxd is not there yet; run outboxd migrate".into()));
    let strict = outboxd(&["check", "--strict"], &[("DATABASE_URL", &url("postgres"))]);
    assert_eq!(strict.code, 78, "a warning is enough: {}", strict.out);
    psql("schema_test", "CREATE SCHEMA outboxd");
    assert_eq!(check("postgres").1, "outboxd holds no migrations yet; run outboxd migrate");
    let history =
        "CREATE TABLE outboxd.refinery_schema_history AS SELECT n AS version, 'notifications' AS name, '' AS applied_on
                     FROM generate_series(1, 3) n";
    psql("schema_test", history);
    let newest = outboxd::store::migrate::newest();
    assert_eq!(
        check("postgres"),
        ("warn".into(), format!("outboxd is at migration 3 of {newest}; run outboxd migrate"))
    );
    let (state, text) = check("nobody");
    assert!(state == "failed" && text.contains("nobody may not use it"), "{text}");
    psql("schema_test", "UPDATE outboxd.refinery_schema_history SET name = 'create_notification_log'");
    let ran = outboxd(&["check", "--json"], &[("DATABASE_URL", &url("postgres"))]);
    let (state, text) = finding(&ran.out, "schema");
    assert!(ran.code == 78 && state == "failed" && text.contains("DROP SCHEMA outboxd CASCADE"), "{} {text}", ran.code);
}

#[test]
fn a_refusal_of_postgres_is_told_in_its_own_words() {
    let url = format!("postgres://postgres@127.0.0.1:{}/no_such_database", POSTGRES.port);
    let ran = outboxd(&["check", "--json"], &[("DATABASE_URL", &url)]);
    assert_eq!(ran.code, 78);
    let (state, text) = finding(&ran.out, "postgres");
    assert_eq!(state, "failed");
    assert_eq!(
        text,
        "refused the connection: database \"no_such_database\" does not exist (3D000); create it, or name another in database_url"
    );
    // Whoever only looks or migrates ends the same way: no restart mends a name.
    let ran = outboxd(&["migrate"], &[("DATABASE_URL", &url)]);
    assert_eq!(ran.code, 78, "{}", ran.err);
}

#[test]
fn passwords_pass_over_tls_and_their_absence_is_explained() {
    psql("postgres", "CREATE ROLE guarded LOGIN PASSWORD 'hunter2'");
    for (user, state, wanted) in [
        ("guarded:hunter2", "ok", "user guarded"),
        ("guarded:hunter3", "failed", "refused the connection: password authentication failed"),
        ("guarded", "failed", "has no password, and the server wants one"),
    ] {
        let url = format!("postgres://{user}@127.0.0.1:{}/postgres?sslmode=require", POSTGRES.port);
        let ran = outboxd(&["check", "--json"], &[("DATABASE_URL", &url)]);
        let found = finding(&ran.out, "postgres");
        assert!(found.0 == state && found.1.contains(wanted), "{user}: {found:?}");
        assert!(!ran.out.contains("hunter"), "{}", ran.out);
    }
}

#[test]
fn sslmodes_verify_what_they_promise() {
    let (ca, other) = (POSTGRES.ca.display(), POSTGRES.other_ca.display());
    let port = POSTGRES.port;
    for (host, parameters, state, wanted) in [
        ("127.0.0.1", "sslmode=disable".to_owned(), "ok", "TLS off"),
        ("127.0.0.1", "sslmode=prefer".to_owned(), "ok", "TLS TLSv1.3"),
        ("127.0.0.1", "sslmode=require".to_owned(), "ok", "TLS TLSv1.3"),
        ("127.0.0.1", format!("sslmode=verify-ca&sslrootcert={ca}"), "ok", "TLS TLSv1.3"),
        ("localhost", format!("sslmode=verify-full&sslrootcert={ca}"), "ok", "TLS TLSv1.3"),
        ("127.0.0.1", format!("sslmode=verify-full&sslrootcert={ca}"), "failed", "a certificate for another host name"),
        ("127.0.0.1", format!("sslmode=verify-ca&sslrootcert={other}"), "failed", "no CA in sslrootcert has signed"),
        ("127.0.0.1", format!("sslmode=require&sslrootcert={other}"), "failed", "no CA in sslrootcert has signed"),
        ("localhost", format!("sslmode=verify-full&sslrootcert={other}"), "failed", "no CA in sslrootcert has signed"),
        ("localhost", "sslmode=verify-full&sslrootcert=system".to_owned(), "ok", "TLS TLSv1.3"),
    ] {
        let url = format!("postgres://postgres@{host}:{port}/postgres?{parameters}");
        let system = POSTGRES.ca.to_str().unwrap();
        let ran = outboxd(&["check", "--json"], &[("DATABASE_URL", &url), ("SSL_CERT_FILE", system)]);
        let found = finding(&ran.out, "postgres");
        assert!(found.0 == state && found.1.contains(wanted), "{url}: {found:?}");
    }
    let pairs = format!("host=localhost port={port} user=postgres sslmode=verify-full sslrootcert='{ca}'");
    let ran = outboxd(&["check", "--json"], &[("DATABASE_URL", &pairs)]);
    assert_eq!(finding(&ran.out, "postgres").0, "ok");
}

#[test]
fn a_self_signed_certificate_can_be_its_own_root() {
    let server = tls::self_signed_postgres();
    for (host, ca, state, wanted) in [
        ("localhost", &server.ca, "ok", "TLS TLSv1.3"),
        ("127.0.0.1", &server.ca, "failed", "a certificate for another host name"),
        ("localhost", &server.other_ca, "failed", "a certificate"),
    ] {
        let url = format!(
            "postgres://postgres@{host}:{}/postgres?sslmode=verify-full&sslrootcert={}",
            server.port,
            ca.display()
        );
        let ran = outboxd(&["check", "--json"], &[("DATABASE_URL", &url)]);
        let found = finding(&ran.out, "postgres");
        assert!(found.0 == state && found.1.contains(wanted), "{host}: {found:?}");
    }
}

#[test]
fn a_server_without_tls_is_refused_where_tls_is_demanded() {
    let plain = tls::postgres("off");
    for (mode, state, wanted) in [("require", "failed", "offers no TLS"), ("prefer", "ok", "TLS off")] {
        let url = format!("postgres://postgres@127.0.0.1:{}/postgres?sslmode={mode}", plain.port);
        let ran = outboxd(&["check", "--json"], &[("DATABASE_URL", &url)]);
        let found = finding(&ran.out, "postgres");
        assert!(found.0 == state && found.1.contains(wanted), "{mode}: {found:?}");
    }
}

#[test]
fn a_redis_url_that_cannot_be_used_is_refused_by_check_and_run_in_the_same_words() {
    let database = format!("postgres://postgres@127.0.0.1:{}/postgres", POSTGRES.port);
    for (url, wanted) in [
        ("redis://:hunter2@127.0.0.1:1?protocol=resp3", "redis_url does not know the parameter \"protocol\""),
        ("redis://:hunter2@a,b/0?protocol=resp3", "redis_url does not know the parameter \"protocol\""),
        ("redis+sentinel://:hunter2@127.0.0.1", "redis_url needs the primary's name"),
        ("redis+unix:///run/redis.sock", "redis_url is no Redis URL"),
        ("rediss://:hunter2@127.0.0.1#insecure", "redis_url has a #"),
        ("redis://:hunter2@127.0.0.1:port", "redis_url has a bad host"),
    ] {
        let env = [("DATABASE_URL", database.as_str()), ("REDIS_URL", url)];
        let [check, run] = ["check", "run"].map(|command| outboxd(&[command], &env));
        assert_eq!((check.code, run.code), (78, 78), "{url}: {}{}", check.err, run.err);
        assert!(check.err.contains(wanted), "{url}: {}", check.err);
        assert_eq!(check.err, run.err, "{url}");
        assert!(!check.err.contains("hunter2"), "{url}: {}", check.err);
    }
}

#[test]
fn redis_is_reached_over_tls_and_must_not_evict() {
    let postgres = format!("postgres://postgres@127.0.0.1:{}/postgres", POSTGRES.port);
    let check = |server: &SecureRedis, ca: &Path| {
        let redis = server.server.url();
        let env = [("DATABASE_URL", postgres.as_str()), ("REDIS_URL", redis), ("SSL_CERT_FILE", ca.to_str().unwrap())];
        let ran = outboxd(&["check", "--json"], &env);
        (ran.code, finding(&ran.out, "redis"))
    };
    let keeping = SecureRedis::start(&[]);
    let (code, (state, text)) = check(&keeping, &keeping.ca);
    assert!(code == 0 && state == "ok" && text.contains("TLS on, noeviction"), "{code} {state} {text}");
    let (code, (state, text)) = check(&keeping, &keeping.other_ca);
    assert!(code == 69 && state == "failed" && text.contains("certificate"), "{code} {state} {text}");
    let evicting = SecureRedis::start(&["--maxmemory-policy", "allkeys-lru"]);
    let (code, (state, text)) = check(&evicting, &evicting.ca);
    assert!(
        code == 78 && state == "failed" && text.contains("maxmemory-policy is allkeys-lru"),
        "{code} {state} {text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn ready_asks_the_instance_that_listens() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let ready = listener.local_addr().unwrap();
    let app = axum::Router::new().route("/readyz", get(|| async { StatusCode::OK }));
    let ready_server = tokio::spawn(async move { axum::serve(listener, app).await });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let draining = listener.local_addr().unwrap();
    let app = axum::Router::new().route("/readyz", get(|| async { StatusCode::SERVICE_UNAVAILABLE }));
    let draining_server = tokio::spawn(async move { axum::serve(listener, app).await });
    let nobody = format!("127.0.0.1:{}", free_port());
    for (addr, code, wanted) in [
        (ready.to_string(), 0, "ready"),
        (format!("0.0.0.0:{}", ready.port()), 0, "ready"),
        (draining.to_string(), 69, "is not ready (503)"),
        (nobody, 69, "no instance answers"),
    ] {
        let ran = tokio::task::spawn_blocking(move || {
            let env = [
                ("DATABASE_URL", "postgres://127.0.0.1/x"),
                ("OUTBOXD_HTTP_ADDR", &addr),
                ("OUTBOXD_HTTP_TOKEN", "a-token-of-the-check"),
            ];
            outboxd(&["check", "--ready"], &env)
        });
        let ran = ran.await.unwrap();
        assert!(ran.code == code && (ran.out + &ran.err).contains(wanted), "{wanted}: {}", ran.err);
    }
    ready_server.abort();
    draining_server.abort();
}

#[test]
fn a_token_that_looks_guessable_is_warned_of_with_what_makes_a_good_one() {
    let tokens = "[tokens.shop]\ntoken = \"shop-token-0123456789\"\nscope = \"write\"\n[tokens.wall]\ntoken = \"5f1d7a9e3b8c2d604e7f1a6b\"\nscope = \"read\"\n";
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("outboxd.toml"), format!("{ROUTES}{tokens}")).unwrap();
    let env = [("DATABASE_URL", "postgres://127.0.0.1:1/x"), ("OUTBOXD_HTTP_TOKEN", "hunter2-hunter2-hunter2")];
    let checked = outboxd_in(dir.path(), &["check"], &env);
    for key in ["http_token", "tokens.shop.token"] {
        let wanted = format!("note    {key} looks guessable; make one with: openssl rand -hex 32");
        assert!(checked.out.contains(&wanted), "{key}: {}", checked.out);
    }
    assert!(!checked.out.contains("tokens.wall.token looks"), "{}", checked.out);
    let json: Value = serde_json::from_str(&outboxd_in(dir.path(), &["check", "--json"], &env).out).unwrap();
    assert_eq!(json["notes"].as_array().unwrap().len(), 2, "{json}");
    let ran = outboxd_in(dir.path(), &["run"], &env);
    assert!(ran.err.contains("tokens.shop.token looks guessable") && !ran.err.contains("0123456789"), "{}", ran.err);
}
