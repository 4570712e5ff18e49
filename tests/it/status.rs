//! `outboxd status`, `dead` and `doctor`: the real binary beside a real database.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio_postgres::Client;

use crate::support::command::{self, Ran};
use crate::support::postgres::{self, Database};
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World};

async fn outboxd(database: &Database, args: &[&str]) -> Ran {
    command::outboxd(&database.url(), args, &[]).await
}

/// So many dead letters, each a minute older than the one before.
async fn make_dead(client: &Client, count: u32) {
    let insert = "INSERT INTO outboxd.notification_log (topic, recipient, payload, status, finished_at, failed_at, error, http_status, channel, attempts)
        SELECT 'orders', 'device-' || n, '{\"n\": 1}', 'FAILED', now() - n * interval '1 min', now() - n * interval '1 min', 'answered 503', 503, 'push', 4";
    client.run(&format!("{insert} FROM generate_series(1, {count}) n")).await;
}

#[tokio::test]
async fn status_shows_the_views_to_people_and_programs() {
    let database = postgres::database().await;
    let client = database.connect().await;
    make_dead(&client, 30).await;
    client.run("SELECT outboxd.notify('quiz', 'r', '{}')").await;
    let text = outboxd(&database, &["status"]).await;
    assert_eq!(text.code, 0, "{}", text.err);
    for part in ["HEALTH", "critical", "workers", "QUEUE", "orders", "FAILED", "30", "OUTBOX", "no instance runs"] {
        assert!(text.out.contains(part), "{part} is missing:\n{}", text.out);
    }
    assert!(!text.out.contains('\x1b'), "no colours off a terminal");
    let json = outboxd(&database, &["status", "--json"]).await.json();
    assert_eq!(json["queue_state"][0]["topic"], "orders");
    assert_eq!(json["queue_state"][0]["count"], 30);
    assert_eq!(json["outbox_lag"][0]["ready_unpublished"], 1);
}

#[tokio::test]
async fn status_prints_the_oldest_of_1_000_topics_and_the_totals_of_all() {
    let database = postgres::database().await;
    let client = database.connect().await;
    let seed = "SELECT count(outboxd.notify('t' || n, 'r', '{}')) FROM generate_series(1, 1000) n;
                UPDATE outboxd.notification_log SET created_at = now() - interval '1 h', send_at = now() - interval '1 h' WHERE topic = 't777'";
    client.run(seed).await;
    let text = outboxd(&database, &["status"]).await;
    let queue: Vec<&str> =
        text.out.lines().skip_while(|line| *line != "QUEUE").take_while(|line| !line.is_empty()).collect();
    assert_eq!(queue.len(), 2 + 40 + 1, "{}", text.out);
    assert!(queue[2].contains("t777"), "{}", text.out);
    assert_eq!(queue[42].trim(), "and 960 more; in all 1000 QUEUED: SELECT * FROM outboxd.queue_state");
    let json = outboxd(&database, &["status", "--json"]).await.json();
    assert_eq!(json["queue_state"].as_array().unwrap().len(), 1_000);
}

#[tokio::test]
async fn status_watch_redraws_until_it_is_ended_and_shows_what_changed() {
    let database = postgres::database().await;
    let client = database.connect().await;
    let mut watch = tokio::process::Command::new(env!("CARGO_BIN_EXE_outboxd"))
        .args(["status", "--watch"])
        .env_clear()
        .env("DATABASE_URL", database.url())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut frames = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut seen = async |part: &str| {
        let seen = async {
            while let Some(line) = frames.next_line().await.unwrap() {
                if line.contains(part) {
                    return line;
                }
            }
            panic!("it ended before {part} was seen")
        };
        tokio::time::timeout(Duration::from_secs(30), seen).await.unwrap_or_else(|_| panic!("{part} was never seen"))
    };
    assert!(seen("HEALTH").await.contains("\x1b[H"), "each frame begins at the top");
    client.run("SELECT outboxd.notify('quiz', 'r', '{}')").await;
    seen("QUEUED").await;
    client.run("SELECT outboxd.pause('quiz')").await;
    seen("topic quiz since").await;
}

#[tokio::test]
async fn doctor_exits_1_when_something_is_critical_and_says_what_to_do() {
    let world = World::new(Carrier::Memory).await;
    let ran = outboxd(&world.database, &["doctor"]).await;
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(
        ran.out.contains("critical workers") && ran.out.contains("→ Start an instance: outboxd run"),
        "{}",
        ran.out
    );
    let _instance = world.setup.start().await;
    world.until("SELECT bool_and(level = 'ok') FROM outboxd.health").await;
    assert_eq!(outboxd(&world.database, &["doctor", "--strict"]).await.code, 0);
    world.run("SELECT outboxd.pause('quiz')").await;
    assert_eq!(outboxd(&world.database, &["doctor"]).await.code, 0, "a warning");
    let strict = outboxd(&world.database, &["doctor", "--strict", "--json"]).await;
    assert_eq!((strict.code, &strict.json()["ok"]), (1, &true.into()));
}

#[tokio::test]
async fn dead_lists_shows_and_retries() {
    let database = postgres::database().await;
    let client = database.connect().await;
    make_dead(&client, 30).await;
    client.run("INSERT INTO outboxd.attempt (notification_id, token, number, started_at, duration_ms, outcome, http_status, channel, error) VALUES (1, 1, 1, now(), 12, 'failed', 503, 'push', 'answered 503')").await;
    let list = outboxd(&database, &["dead", "list", "--topic", "orders", "--since", "10m30s", "--limit", "3"]).await;
    assert_eq!(list.code, 0, "{}", list.err);
    assert_eq!(list.out.lines().count(), 4, "{}", list.out);
    assert!(list.out.contains("device-1 "), "{}", list.out);
    let all = outboxd(&database, &["dead", "list", "--since", "10m30s", "--http-status", "503", "--json"]).await;
    assert_eq!(all.json().as_array().unwrap().len(), 10);
    let none = outboxd(&database, &["dead", "list", "--error-like", "nothing%"]).await;
    assert_eq!(none.out, "  no dead letters match\n");

    let show = outboxd(&database, &["dead", "show", "1"]).await;
    assert!(
        show.out.contains("status           FAILED")
            && show.out.contains("ATTEMPTS")
            && show.out.contains("answered 503"),
        "{}",
        show.out
    );
    assert_eq!(outboxd(&database, &["dead", "show", "4711"]).await.code, 1);

    assert_eq!(outboxd(&database, &["dead", "retry", "1", "2"]).await.out, "1 is QUEUED again\n2 is QUEUED again\n");
    let count = outboxd(&database, &["dead", "retry", "--topic", "orders", "--dry-run"]).await;
    assert_eq!(count.out, "28 dead letters match\n");
    let unasked = outboxd(&database, &["dead", "retry", "--topic", "orders"]).await;
    assert_eq!(unasked.code, 2);
    assert!(unasked.err.contains("28 dead letters match; add --yes"), "{}", unasked.err);
    let discarded = outboxd(&database, &["dead", "discard", "3", "1"]).await;
    assert_eq!(discarded.out, "3 is CANCELED: discarded\n");
    let refused =
        "outboxd: notification 1 is QUEUED: only FAILED ones are discarded (one on its way: outboxd.cancel(id))\n";
    assert_eq!(discarded.err, refused, "it is said once");
    let filter = ["dead", "discard", "--topic", "orders", "--since", "7m30s"];
    let count = outboxd(&database, &[&filter[..], &["--dry-run"]].concat()).await;
    assert_eq!(count.out, "4 dead letters match\n", "{}", count.err);
    let unasked = outboxd(&database, &filter).await;
    assert!(unasked.code == 2 && unasked.err.contains("add --yes to discard them"), "{}", unasked.err);
    let discarded = outboxd(&database, &[&filter[..], &["--yes"]].concat()).await;
    assert_eq!(discarded.out, "4 are CANCELED: discarded\n", "{}", discarded.err);
    let done = outboxd(&database, &["dead", "retry", "--topic", "orders", "--yes"]).await;
    assert_eq!(done.out, "23 are QUEUED again\n");
    assert_eq!(client.count("outbox").await, 25);
}

#[tokio::test]
async fn a_big_retry_is_followed_to_its_end() {
    let world = World::new(Carrier::Memory).await;
    make_dead(&world.app, 1500).await;
    let _instance = world.setup.start().await;
    let ran = outboxd(&world.database, &["dead", "retry", "--topic", "orders", "--yes"]).await;
    assert_eq!((ran.code, ran.out.as_str()), (0, "finished: 1500 of 1500 are QUEUED again\n"), "{}", ran.err);
}

#[tokio::test]
async fn a_missing_schema_and_a_missing_server_are_told_apart() {
    let database = postgres::empty_database().await;
    let ran = outboxd(&database, &["doctor"]).await;
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("run `outboxd migrate`"), "{}", ran.err);
    let nowhere = Database { port: crate::support::process::free_port(), name: "x".into() };
    assert_eq!(outboxd(&nowhere, &["status"]).await.code, 69);
}
