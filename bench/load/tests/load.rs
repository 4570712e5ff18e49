//! The load generator measures, and leaves the configured server as it was.
#![allow(clippy::unwrap_used)]

use std::process::Output;

use outboxd_throwaway::postgres::{Postgres, connect};
use outboxd_throwaway::redis::Redis;
use tokio::process::Command;

async fn bench(database_url: &str, redis_url: &str, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_outboxd-bench"));
    command.args(["--count", "200", "--rate", "50", "--seconds", "1", "--json"]).args(args);
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
    let postgres = Postgres::start("").await.unwrap();
    let redis = Redis::start().unwrap().expect("redis-server is installed");
    let report = report(&bench(&postgres.url("postgres"), &redis.url(), &[]).await);
    assert_eq!(report["queue"], "stream");
    assert_eq!((&report["drain_count"], &report["paced_count"]), (&200.into(), &50.into()));
    assert!(report["drain_per_second"].as_f64().unwrap() > 1.0, "{report}");
    assert!(report["paced_p99_ms"].as_f64().unwrap() >= report["paced_p50_ms"].as_f64().unwrap(), "{report}");
    let admin = connect(&postgres.url("postgres")).await.unwrap();
    let left = "SELECT count(*) FROM pg_database WHERE datname ~ 'bench'";
    let databases: i64 = admin.query_one(left, &[]).await.unwrap().get(0);
    let client = redis::Client::open(redis.url()).unwrap();
    let mut keyspace = client.get_multiplexed_async_connection().await.unwrap();
    let keys: i64 = redis::cmd("DBSIZE").query_async(&mut keyspace).await.unwrap();
    assert_eq!((databases, keys), (0, 0), "what it created is gone");
}

#[tokio::test]
async fn bench_brings_its_own_servers_if_told_to() {
    let nobody = "postgres://nobody@127.0.0.1:1/nothing";
    let report = report(&bench(nobody, "redis://127.0.0.1:1", &["--throwaway", "--queue", "memory"]).await);
    assert_eq!(report["queue"], "memory");
    assert_eq!(report["repeats"], 0);
}
