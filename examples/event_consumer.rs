//! A consuming service: reads the events of a topic from their Redis stream and handles each once.
//!
//! ```text
//! DATABASE_URL=postgres://… REDIS_URL=redis://… cargo run --locked --example event_consumer -- TOPIC
//! ```
//!
//! It writes to a table of the service's own:
//! `CREATE TABLE IF NOT EXISTS invoices (number bigserial PRIMARY KEY, consumer text, key text, payload jsonb)`.
//!
//! Streams are at-least-once: after a loss of Redis or a crash of this process an event may come again.
//! `outboxd.receive()` in the same transaction as the work makes the second time a no-op that returns the first one's
//! response. One process a group at a time, so that events of one key are handled in order. Whatever goes wrong ends
//! it; started again, it goes on with what it had not acknowledged. `docs/events.md` has the contract,
//! `examples/consumers/` the same in other languages.

use anyhow::Context;
use redis::aio::MultiplexedConnection;
use redis::streams::{StreamReadOptions, StreamReadReply};
use redis::{AsyncCommands, RedisError};
use serde_json::json;
use tokio_postgres::{Client, NoTls};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let topic = std::env::args().nth(1).context("which topic?")?;
    let consumer = std::env::var("CONSUMER").unwrap_or_else(|_| "billing".to_owned());
    let prefix = std::env::var("OUTBOXD_QUEUE_PREFIX").unwrap_or_else(|_| "outboxd".to_owned());
    let stream = format!("{{{prefix}}}:v1:events:topic:{topic}");

    let database_url = std::env::var("DATABASE_URL").context("DATABASE_URL is not set")?;
    let (mut database, connection) = tokio_postgres::connect(&database_url, NoTls).await?;
    tokio::spawn(connection);
    let redis_url = std::env::var("REDIS_URL").context("REDIS_URL is not set")?;
    // Longer than a read waits.
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(Some(std::time::Duration::from_secs(10)));
    let mut streams = redis::Client::open(redis_url)?.get_multiplexed_async_connection_with_config(&config).await?;
    make_group(&mut streams, &stream, &consumer).await?;

    // First what an earlier run was given and did not acknowledge, then what is new.
    let mut after = "0";
    loop {
        let wait = StreamReadOptions::default().group(&consumer, "1").block(2_000).count(100);
        let found: Result<Option<StreamReadReply>, RedisError> =
            streams.xread_options(&[&stream], &[after], &wait).await;
        let entries = match found {
            // Redis lost the group with the stream; outboxd appends what it lost again, so the group begins at 0.
            Err(error) if matches!(error.code(), Some("NOGROUP" | "UNBLOCKED")) => {
                make_group(&mut streams, &stream, &consumer).await?;
                continue;
            }
            found => found?.into_iter().flat_map(|reply| reply.keys).flat_map(|key| key.ids).collect::<Vec<_>>(),
        };
        if entries.is_empty() {
            after = ">";
        }
        for entry in entries {
            if let Some(id) = entry.get::<String>("id") {
                let (key, payload): (Option<String>, Option<String>) = (entry.get("key"), entry.get("payload"));
                let event = Event { id, key: key.unwrap_or_default(), payload: payload.unwrap_or_default() };
                handle(&mut database, &consumer, &event).await?;
            }
            let _acknowledged: i64 = streams.xack(&stream, &consumer, &[&entry.id]).await?;
        }
    }
}

struct Event {
    id: String,
    key: String,
    payload: String,
}

/// One transaction: seen before or not, the work, and the response that a repeat will get.
async fn handle(database: &mut Client, consumer: &str, event: &Event) -> anyhow::Result<()> {
    let tx = database.transaction().await?;
    let row = tx.query_one("SELECT first, response FROM outboxd.receive($1, $2)", &[&consumer, &event.id]).await?;
    let said = if row.get("first") {
        let insert = "INSERT INTO invoices (consumer, key, payload) VALUES ($1, $2, $3::text::jsonb)";
        tx.execute(insert, &[&consumer, &event.key, &event.payload]).await?;
        let response = json!({ "invoiced": event.key });
        tx.execute("SELECT outboxd.respond($1, $2, $3)", &[&consumer, &event.id, &response]).await?;
        format!("invoiced {}", event.key)
    } else {
        format!("seen before, answered {}", row.get::<_, serde_json::Value>("response"))
    };
    tx.commit().await?;
    println!("event {}: {said}", event.id);
    Ok(())
}

async fn make_group(streams: &mut MultiplexedConnection, stream: &str, group: &str) -> Result<(), RedisError> {
    match streams.xgroup_create_mkstream::<_, _, _, ()>(stream, group, "0").await {
        Err(error) if error.code() == Some("BUSYGROUP") => Ok(()),
        made => made,
    }
}
