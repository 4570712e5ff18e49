//! `outboxd send`: one notification from the command line.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::support::command::{Ran, outboxd};
use crate::support::instance::Setup;
use crate::support::postgres::{self, Database};
use crate::support::provider::Reply;
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World};

async fn send(database: &Database, args: &[&str]) -> Ran {
    outboxd(&database.url(), &[&["send"], args].concat(), &[]).await
}

#[tokio::test]
async fn send_prints_the_id_of_what_it_wrote() {
    let database = postgres::database().await;
    let args = ["orders", "device-1", r#"{"n": 1}"#, "--ordering-key", "k", "--header", "traceparent=00-a"];
    let sent = send(&database, &[&args[..], &["--send-at", "2030-01-01T09:00:00+09:00"]].concat()).await;
    assert_eq!(sent.code, 0, "{}", sent.err);
    let app = database.connect().await;
    let row: String = app
        .value(&format!(
            "SELECT concat_ws(' ', status, topic, recipient, payload, ordering_key, headers, send_at AT TIME ZONE 'UTC')
               FROM outboxd.notifications WHERE id = {}",
            sent.out
        ))
        .await;
    assert_eq!(row, r#"PENDING orders device-1 {"n": 1} k {"traceparent": "00-a"} 2030-01-01 00:00:00"#);
}

#[tokio::test]
async fn what_expires_is_told_and_an_unknown_setting_is_refused() {
    let database = postgres::database().await;
    let sent = send(&database, &["orders", "device-1", "{}", "--expires-at", "2030-01-01T00:00:00Z"]).await;
    assert_eq!(sent.code, 0, "{}", sent.err);
    let app = database.connect().await;
    let expires: String = app
        .value(&format!(
            "SELECT (expires_at AT TIME ZONE 'UTC')::text FROM outboxd.notifications WHERE id = {}",
            sent.out
        ))
        .await;
    assert_eq!(expires, "2030-01-01 00:00:00");
    let refused = send(&database, &["orders", "device-1", "{}", "--set", "foo=1"]).await;
    assert_eq!(refused.code, 78);
    assert!(refused.err.contains("--set: foo is not a key"), "{}", refused.err);
}

#[tokio::test]
async fn an_apps_login_waits_by_the_status_alone() {
    let world = World::new(Carrier::Memory).await;
    let _instance = world.setup.start().await;
    let login = format!("shop_{}", world.database.name);
    world.app.batch_execute(&format!("CREATE ROLE {login} LOGIN IN ROLE outboxd_app")).await.unwrap();
    let sent = outboxd(&world.database.url_as(&login), &["send", "orders", "device-1", "{}", "--wait"], &[]).await;
    assert_eq!(sent.code, 0, "{}", sent.err);
    assert!(sent.out.ends_with("\nSENT\n"), "{}", sent.out);
}

#[tokio::test]
async fn the_same_dedup_key_prints_the_first_id() {
    let database = postgres::database().await;
    let args = ["orders", "device-1", "{}", "--dedup-key", "k", "--json"];
    let (first, second) = (send(&database, &args).await, send(&database, &args).await);
    assert_eq!(first.out, second.out);
    assert!(first.out.starts_with("{\"id\":"), "{}", first.out);
}

#[tokio::test]
async fn send_says_what_is_wrong() {
    let database = postgres::database().await;
    let bad = send(&database, &["orders", "device-1", "hello"]).await;
    assert_eq!(bad.code, 2);
    assert!(bad.err.contains("no JSON"), "{}", bad.err);
    let refused = send(&database, &["", "device-1", "{}"]).await;
    assert_eq!(refused.code, 1);
    assert!(refused.err.contains("topic"), "{}", refused.err);
    let empty = postgres::empty_database().await;
    let unmigrated = send(&empty, &["orders", "device-1", "{}"]).await;
    assert_eq!(unmigrated.code, 1);
    assert!(unmigrated.err.contains("outboxd migrate"), "{}", unmigrated.err);
}

#[tokio::test]
async fn wait_follows_it_to_its_end() {
    let world = World::new(Carrier::Memory).await;
    world.provider.script([Reply::ok(), Reply::status(400)]);
    let _instance = world.setup.start().await;
    let sent = send(&world.database, &["orders", "device-1", "{}", "--wait"]).await;
    assert_eq!(sent.code, 0, "{}", sent.err);
    assert!(sent.out.trim_end().ends_with("SENT       attempts 1 by webhook"), "{}", sent.out);
    let failed = send(&world.database, &["orders", "device-1", "{}", "--wait"]).await;
    assert_eq!(failed.code, 1);
    assert!(failed.out.contains("FAILED     attempts 1 by webhook: status 400"), "{}", failed.out);
}

#[tokio::test]
async fn wait_says_why_nothing_happens() {
    let database = postgres::database().await;
    let mut command = Command::new(env!("CARGO_BIN_EXE_outboxd"));
    command.args(["send", "quiz", "device-1", "{}", "--wait"]).env_clear().env("DATABASE_URL", database.url());
    let mut waiting = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().expect("it runs");
    let mut lines = BufReader::new(waiting.stdout.take().unwrap()).lines();
    let mut until = async |wanted: &str| {
        let said = async {
            while let Some(line) = lines.next_line().await.unwrap() {
                if line == wanted {
                    return;
                }
            }
            panic!("it ended before it said: {wanted}")
        };
        tokio::time::timeout(Duration::from_secs(30), said).await.unwrap_or_else(|_| panic!("it never said: {wanted}"))
    };
    until("QUEUED     attempts 0, waits: no instance runs").await;
    let _instance = Setup::new(&database.url())
        .set("channels.hook.url", "https://hook.example")
        .set("routes.orders.channels", vec!["hook"])
        .start()
        .await;
    until("QUEUED     attempts 0, waits: no route").await;
}
