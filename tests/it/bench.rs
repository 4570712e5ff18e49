//! `outboxd bench`: it measures, and leaves the configured server as it was.

use std::process::Output;

use tokio::process::Command;

use crate::support::{postgres, redis, sql};

async fn bench(database_url: &str, redis_url: &str, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_outboxd"));
    command.args(["bench", "--count", "200", "--rate", "50", "--seconds", "1", "--json"]).args(args);
    command.env_clear().env("PATH", std::env::var("PATH").unwrap()).kill_on_drop(true);
    command.env("DATABASE_URL", database_url).env("REDIS_URL", redis_url);
    command.output().await.expect("it runs")
}

fn report(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("a report")
}

#[tokio::test]
async fn bench_measures_in_a_database_of_its_own_and_drops_it() {
    let server = postgres::start(&[]).await;
    let redis = redis::RedisServer::forgetful();
    let report = report(&bench(&server.url("postgres"), redis.url(), &[]).await);
    assert_eq!(report["queue"], "stream");
    assert_eq!((&report["drain_count"], &report["paced_count"]), (&200.into(), &50.into()));
    assert!(report["drain_per_second"].as_f64().unwrap() > 1.0, "{report}");
    assert!(report["paced_p99_ms"].as_f64().unwrap() >= report["paced_p50_ms"].as_f64().unwrap(), "{report}");
    let admin = postgres::connect(&server.url("postgres")).await;
    let databases: i64 = sql::value(&admin, "SELECT count(*) FROM pg_database WHERE datname ~ 'bench'").await;
    let keys: i64 = redis.run("DBSIZE").await;
    assert_eq!((databases, keys), (0, 0), "what it created is gone");
}

#[tokio::test]
async fn bench_brings_its_own_servers_if_told_to() {
    let nobody = "postgres://nobody@127.0.0.1:1/nothing";
    let report = report(&bench(nobody, "redis://127.0.0.1:1", &["--throwaway", "--queue", "memory"]).await);
    assert_eq!(report["queue"], "memory");
    assert_eq!(report["repeats"], 0);
}
