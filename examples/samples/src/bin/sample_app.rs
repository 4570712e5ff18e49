//! A shop that commits orders, each with its notification in the same transaction. Every fifth order is rolled back:
//! its notification must not be seen.
//!
//! `DATABASE_URL`: the database; `ORDERS`: how many before it ends (default: it goes on).

use std::error::Error;
use std::time::Duration;

use tokio_postgres::NoTls;

const PAUSE: Duration = Duration::from_millis(500);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL")?;
    let orders: u64 = std::env::var("ORDERS").map_or(Ok(u64::MAX), |orders| orders.parse())?;
    let (mut client, connection) = tokio_postgres::connect(&url, NoTls).await?;
    let driver = tokio::spawn(connection);
    client
        .batch_execute(
            "CREATE TABLE IF NOT EXISTS orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, customer text NOT NULL)",
        )
        .await?;
    for number in 1..=orders {
        let customer = format!("customer-{}", number % 7);
        let transaction = client.transaction().await?;
        let order: i64 =
            transaction.query_one("INSERT INTO orders (customer) VALUES ($1) RETURNING id", &[&customer]).await?.get(0);
        let payload = serde_json::json!({ "order": order, "text": "Thank you for your order." });
        let notify = "SELECT outboxd.notify('order.paid', $1, $2::jsonb, ordering_key => $1)";
        transaction.query_one(notify, &[&customer, &payload]).await?;
        if number % 5 == 0 {
            transaction.rollback().await?;
            println!("order {order} of {customer}: rolled back");
        } else {
            transaction.commit().await?;
            println!("order {order} of {customer}: committed");
        }
        tokio::time::sleep(PAUSE).await;
    }
    drop(client);
    driver.await??;
    Ok(())
}
