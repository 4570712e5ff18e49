//! An app that embeds the crate: order and notification in one transaction, pushed right after its commit.
//!
//! ```text
//! DATABASE_URL=postgres://… REDIS_URL=redis://… cargo run --locked --example after_commit
//! ```
//!
//! Needs a running instance of outboxd on the same database and Redis.

use anyhow::Context;
use outboxd::config::{self, Sources};
use outboxd::{Notification, Producer};
use serde_json::json;
use tokio_postgres::NoTls;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let config = config::load(&Sources::of_process())?.config;
    let url = std::env::var("DATABASE_URL").context("DATABASE_URL is not set")?;
    let (mut client, connection) = tokio_postgres::connect(&url, NoTls).await?;
    let driver = tokio::spawn(connection);
    client.batch_execute("CREATE TABLE IF NOT EXISTS orders (id bigserial PRIMARY KEY, item text NOT NULL)").await?;
    let producer = Producer::connect(&config).await?;

    let tx = client.transaction().await?;
    let order: i64 = tx.query_one("INSERT INTO orders (item) VALUES ('book') RETURNING id", &[]).await?.get(0);
    let paid = Notification::new("orders", "device-1", json!({ "text": format!("order {order} is paid") }));
    let ticket = producer.notify(&tx, &paid).await?;
    tx.commit().await?;
    producer.after_commit(ticket);

    println!("order {order} committed, notification {} on its way", ticket.id());
    producer.close().await;
    drop(client);
    driver.await??;
    Ok(())
}
