//! The doorbell: rung by whoever writes while an instance listens, and only then.

use std::time::Duration;

use futures_util::future::poll_fn;
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, Client, NoTls};

use crate::support::postgres::{self, Database};
use crate::support::sql::Sql;

const LISTENING: &str =
    "SELECT setval('outboxd.doorbell', floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)";
/// As long ago as a slow machine allows.
const LISTENING_A_WHILE: &str =
    "SELECT setval('outboxd.doorbell', floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint - 3000)";
/// Ahead of now, as an instance sets it that is busy.
const POLLING: &str =
    "SELECT setval('outboxd.doorbell', floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint + 60000)";
const DOWN: &str =
    "SELECT setval('outboxd.doorbell', floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint - 5100)";

/// A session that listens on the channel, as an instance does that has little to do.
struct Listener {
    client: Client,
    heard: mpsc::UnboundedReceiver<String>,
}

async fn listen(database: &Database) -> Listener {
    let (client, mut connection) = tokio_postgres::connect(&database.url(), NoTls).await.unwrap();
    let (tell, heard) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(notification) = message {
                // Nobody listens any more: the test is over.
                let _ = tell.send(notification.payload().to_string());
            }
        }
    });
    client.run("LISTEN outboxd").await;
    Listener { client, heard }
}

impl Listener {
    /// How often the bell rang so far. A marker sent through the same channel comes after all earlier rings.
    async fn rings(&mut self) -> usize {
        self.client.run("SELECT pg_notify('outboxd', 'marker')").await;
        let mut rings = 0;
        loop {
            let payload = tokio::time::timeout(Duration::from_secs(10), self.heard.recv()).await.unwrap().unwrap();
            match payload.as_str() {
                "" => rings += 1,
                "marker" => return rings,
                other => panic!("unexpected: {other}"),
            }
        }
    }
}

const WRITES: [&str; 8] = [
    "SELECT outboxd.notify('t', 'r', '{}')",
    "SELECT outboxd.notify('t', 'r', '{}'::json)",
    "SELECT outboxd.notify('t', 'r', '{}'::jsonb, dedup_key => md5(random()::text))",
    "SELECT outboxd.notify('t', 'r', '{}', ordering_key => 'k', send_at => now() + interval '1 minute')",
    r#"SELECT outboxd.notify_many('t', '[{"recipient": "r", "payload": 1}, {"recipient": "s", "payload": 1}]')"#,
    "INSERT INTO outboxd.notification_log (topic, recipient, payload) VALUES ('t', 'r', '{}'), ('t', 's', '{}')",
    "INSERT INTO outboxd.notification_log (id, topic, recipient, payload) VALUES (DEFAULT, 't', 'r', '{}')",
    "SELECT outboxd.publish('t', 'k', '{}')",
];

#[tokio::test]
async fn every_kind_of_write_rings_once_if_the_bell_is_fresh_and_never_otherwise() {
    let database = postgres::database().await;
    let mut listener = listen(&database).await;
    let admin = database.connect().await;
    // The app rings with its own rights where it inserts by itself.
    let app = database.connect_as_member_of("outboxd_app").await;
    for write in WRITES {
        for (bell, rings) in [(LISTENING, 1), (LISTENING_A_WHILE, 1), (POLLING, 0), (DOWN, 0)] {
            admin.run(bell).await;
            app.run(write).await;
            assert_eq!(listener.rings().await, rings, "{write} after {bell}");
        }
    }
}

#[tokio::test]
async fn a_bell_that_was_never_set_does_not_ring() {
    let database = postgres::database().await;
    let mut listener = listen(&database).await;
    let app = database.connect().await;
    for write in WRITES {
        app.run(write).await;
    }
    assert_eq!(listener.rings().await, 0);
}

#[tokio::test]
async fn a_write_in_the_very_millisecond_of_beginning_to_listen_rings() {
    let database = postgres::database().await;
    let mut listener = listen(&database).await;
    let app = database.connect().await;
    let set = include_str!("../../sql/queries/relay/set_doorbell.sql").replace("$1", "0");
    for round in 0..200 {
        app.run(&format!("{set}; COMMIT; SELECT outboxd.notify('t', 'r', '{{}}')")).await;
        assert_eq!(listener.rings().await, 1, "round {round}");
    }
}

#[tokio::test]
async fn nothing_rings_before_the_commit_nor_after_a_rollback() {
    let database = postgres::database().await;
    let mut listener = listen(&database).await;
    let app = database.connect().await;
    app.run(LISTENING).await;
    app.run("BEGIN; SELECT outboxd.notify('t', 'r', '{}')").await;
    assert_eq!(listener.rings().await, 0);
    app.run("ROLLBACK").await;
    assert_eq!(listener.rings().await, 0);
    app.run(LISTENING).await;
    app.run("BEGIN; SELECT outboxd.notify('t', 'r', '{}'), outboxd.notify('t', 'r', '{}'); COMMIT").await;
    assert_eq!(listener.rings().await, 1, "one ring a transaction");
}

#[tokio::test]
async fn the_bell_is_read_outside_the_snapshot() {
    let database = postgres::database().await;
    let mut listener = listen(&database).await;
    let app = database.connect().await;
    app.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM outboxd.notification_log").await;
    listener.client.run(LISTENING).await;
    app.run("SELECT outboxd.notify('t', 'r', '{}'); COMMIT").await;
    assert_eq!(listener.rings().await, 1);
}

#[tokio::test]
async fn ring_off_keeps_quiet_and_lets_a_transaction_be_prepared() {
    let database = postgres::database().await;
    let mut listener = listen(&database).await;
    let app = database.connect().await;
    for off in ["off", "OFF", "false", "0"] {
        app.run(LISTENING).await;
        app.run(&format!("SET outboxd.ring = '{off}'")).await;
        for write in WRITES {
            app.run(write).await;
        }
        assert_eq!(listener.rings().await, 0, "ring = {off}");
    }
    app.run(LISTENING).await;
    app.run("BEGIN; SELECT outboxd.notify('t', 'prepared', '{}'); PREPARE TRANSACTION 'two_phase'").await;
    app.run("COMMIT PREPARED 'two_phase'").await;

    app.run("RESET outboxd.ring").await;
    app.run(LISTENING).await;
    let refusal = app.refused("BEGIN; SELECT outboxd.notify('t', 'r', '{}'); PREPARE TRANSACTION 'two_phase'").await;
    assert_eq!(refusal.code, "0A000", "what ring = off is for: {refusal:?}");
    app.run("ROLLBACK").await;
    let prepared = "outbox JOIN outboxd.notifications USING (id) WHERE notifications.recipient = 'prepared'";
    assert_eq!(app.count(prepared).await, 1);
}
