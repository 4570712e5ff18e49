//! The sample app: it takes orders and, in the same transaction, asks for a notification. It knows nothing of outboxd
//! but the function `notify()`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use chrono::Utc;
use outboxd_throwaway::evidence::Micros;
use outboxd_throwaway::postgres::{Postgres, connect};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// The database it lives in.
pub(super) const DATABASE: &str = "shop";
/// What it notifies about.
pub(super) const TOPIC: &str = "order.paid";
/// One transaction in so many is rolled back after `notify()`.
pub(super) const ROLLED_BACK_ONE_IN: usize = 10;
/// Sessions that take orders at the same time.
const TILLS: usize = 4;

const SCHEMA: &str = "\
    CREATE ROLE shop LOGIN IN ROLE outboxd_app;
    CREATE SCHEMA shop AUTHORIZATION shop;
    SET ROLE shop;
    CREATE TABLE shop.orders (id bigint PRIMARY KEY, phone text NOT NULL, amount integer NOT NULL);
    RESET ROLE;
    CREATE TABLE shop.provider_call (
        arrived_at timestamptz NOT NULL, channel text NOT NULL, order_id bigint, webhook_id text NOT NULL,
        status integer NOT NULL
    );
    COMMENT ON TABLE shop.provider_call IS 'What the simulated providers wrote down before they answered.';";

/// What the app has done so far.
#[derive(Debug, Default)]
pub(super) struct Sales {
    committed: AtomicUsize,
    rolled_back: AtomicUsize,
    /// When each COMMIT had returned.
    commits: Mutex<Vec<(i64, Micros)>>,
}

impl Sales {
    /// Orders committed.
    pub(super) fn committed(&self) -> usize {
        self.committed.load(Ordering::Relaxed)
    }

    /// Orders rolled back on purpose.
    pub(super) fn rolled_back(&self) -> usize {
        self.rolled_back.load(Ordering::Relaxed)
    }

    /// Order and time of every COMMIT.
    pub(super) fn commits(&self) -> Vec<(i64, Micros)> {
        self.commits.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// How many of `orders` will be committed.
pub(super) fn committed_of(orders: usize) -> usize {
    orders - orders / ROLLED_BACK_ONE_IN
}

/// Creates the app's tables, and a login for it that may notify and nothing else.
pub(super) async fn create(postgres: &Postgres) -> Result<()> {
    let admin = connect(&postgres.url(DATABASE)).await?;
    admin.batch_execute(SCHEMA).await.context("the sample app's schema")
}

/// Takes so many orders, evenly over `span`.
pub(super) async fn take_orders(postgres: &Postgres, orders: usize, span: Duration, sales: &Arc<Sales>) -> Result<()> {
    let began = Instant::now();
    let mut tills = JoinSet::new();
    for till in 0..TILLS {
        let client = connect(&postgres.url_as("shop", DATABASE)).await?;
        let sales = Arc::clone(sales);
        tills.spawn(async move {
            for order in (1..=orders).skip(till).step_by(TILLS) {
                sleep_until(began + span.mul_f64(order as f64 / orders as f64)).await;
                sell(&client, order, &sales).await?;
            }
            Ok::<(), tokio_postgres::Error>(())
        });
    }
    while let Some(till) = tills.join_next().await {
        till?.context("the sample app cannot write")?;
    }
    Ok(())
}

/// One order: the row and its notification in one transaction.
async fn sell(client: &tokio_postgres::Client, order: usize, sales: &Sales) -> Result<(), tokio_postgres::Error> {
    let id = i64::try_from(order).unwrap_or(i64::MAX);
    let phone = format!("010-{:04}-{:04}", order / 10_000, order % 10_000);
    let amount = i32::try_from(order % 90 + 10).unwrap_or(10) * 100;
    let payload = serde_json::json!({ "order": id, "text": format!("Order {id} is paid: {amount} won.") });
    client.batch_execute("BEGIN").await?;
    client.execute("INSERT INTO shop.orders (id, phone, amount) VALUES ($1, $2, $3)", &[&id, &phone, &amount]).await?;
    client.query("SELECT outboxd.notify($1, $2, $3::jsonb)", &[&TOPIC, &phone, &payload]).await?;
    if order.is_multiple_of(ROLLED_BACK_ONE_IN) {
        client.batch_execute("ROLLBACK").await?;
        sales.rolled_back.fetch_add(1, Ordering::Relaxed);
        return Ok(());
    }
    client.batch_execute("COMMIT").await?;
    let at = now();
    sales.committed.fetch_add(1, Ordering::Relaxed);
    sales.commits.lock().unwrap_or_else(PoisonError::into_inner).push((id, at));
    Ok(())
}

/// The clock of the app and of the providers, since 1970.
pub(super) fn now() -> Micros {
    Micros::try_from(Utc::now().timestamp_micros()).unwrap_or(0)
}
