//! A consuming service: reads the events of a topic from their Redis stream and handles each once.
//!
//! ```text
//! DATABASE_URL=postgres://… REDIS_URL=redis://… cargo run --example event_consumer -- TOPIC [COUNT]
//! ```
//!
//! Streams are at-least-once: after a crash an event may come again. `outboxd.receive()` in the same transaction as the
//! work makes the second time a no-op that returns the first one's response. Ends after COUNT events (default: 1).

use anyhow::Context;
use redis::AsyncCommands;
use redis::streams::{StreamReadOptions, StreamReadReply};
use serde_json::json;
use tokio_postgres::{Client, NoTls};

const CONSUMER: &str = "billing";

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let topic = args.next().context("which topic?")?;
    let count: usize = args.next().map_or(Ok(1), |count| count.parse())?;
    let prefix = std::env::var("OUTBOXD_QUEUE_PREFIX").unwrap_or_else(|_| "outboxd".to_owned());
    let stream = format!("{{{prefix}}}:v1:events:topic:{topic}");

    let database_url = std::env::var("DATABASE_URL").context("DATABASE_URL is not set")?;
    let (mut client, connection) = tokio_postgres::connect(&database_url, NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute("CREATE TABLE IF NOT EXISTS invoices (event_id text PRIMARY KEY, key text)").await?;
    let redis_url = std::env::var("REDIS_URL").context("REDIS_URL is not set")?;
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(Some(std::time::Duration::from_secs(10)));
    let mut redis = redis::Client::open(redis_url)?.get_multiplexed_async_connection_with_config(&config).await?;

    let mut last = "0".to_owned();
    let mut handled = 0;
    while handled < count {
        let wait = StreamReadOptions::default().block(5_000).count(100);
        let reply: Option<StreamReadReply> = redis.xread_options(&[&stream], &[&last], &wait).await?;
        for entry in reply.into_iter().flat_map(|reply| reply.keys).flat_map(|key| key.ids) {
            let id: String = entry.get("id").context("an event has an id")?;
            let key: String = entry.get("key").context("an event has a key")?;
            handle(&mut client, &id, &key).await?;
            last = entry.id;
            handled += 1;
        }
    }
    Ok(())
}

/// One transaction: seen before or not, the work, and the response that a repeat will get.
async fn handle(client: &mut Client, id: &str, key: &str) -> anyhow::Result<()> {
    let tx = client.transaction().await?;
    let row = tx.query_one("SELECT first, response FROM outboxd.receive($1, $2)", &[&CONSUMER, &id]).await?;
    if row.get::<_, bool>(0) {
        tx.execute("INSERT INTO invoices (event_id, key) VALUES ($1, $2)", &[&id, &key]).await?;
        let response = json!({ "invoiced": key });
        tx.execute("SELECT outboxd.respond($1, $2, $3)", &[&CONSUMER, &id, &response]).await?;
        println!("event {id}: invoiced {key}");
    } else {
        println!("event {id}: seen before, answered {}", row.get::<_, serde_json::Value>(1));
    }
    tx.commit().await?;
    Ok(())
}
