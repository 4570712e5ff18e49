//! The load: a backlog written beforehand, and a steady stream of single transactions.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_postgres::Client;

use super::target::Target;

/// What the notifications are about.
const TOPIC: &str = "bench";
/// Brings the request's body, with its envelope, to about 150 bytes.
const TEXT: &str = "Your order has been paid and is on its way.";
/// Rows per transaction of the backlog.
const CHUNK: u32 = 1000;
/// Sessions that commit at the same time.
const SESSIONS: u32 = 4;

/// Writes a backlog.
pub(super) async fn preload(client: &Client, count: u32) -> Result<()> {
    let sql = "SELECT count(outboxd.notify($1, 'device-' || n, jsonb_build_object('text', $2::text)))
                 FROM generate_series(1, $3::int) n";
    let mut left = count;
    while left > 0 {
        let rows = i32::try_from(left.min(CHUNK))?;
        client.query(sql, &[&TOPIC, &TEXT, &rows]).await.context("the backlog cannot be written")?;
        left -= left.min(CHUNK);
    }
    Ok(())
}

/// Commits `rate` notifications a second, a transaction each; returns when each COMMIT had returned.
pub(super) async fn pace(target: &Target, rate: u32, span: Duration) -> Result<Vec<(i64, std::time::Instant)>> {
    let began = Instant::now();
    let count = (f64::from(rate) * span.as_secs_f64()) as u32;
    let mut sessions = JoinSet::new();
    for session in 0..SESSIONS {
        let client = target.connect().await?;
        sessions.spawn(async move {
            let payload = serde_json::json!({ "text": TEXT });
            let statement = client.prepare("SELECT outboxd.notify($1, $2, $3::jsonb)").await?;
            let mut commits = Vec::new();
            for n in (session..count).step_by(SESSIONS as usize) {
                sleep_until(began + Duration::from_secs_f64(f64::from(n) / f64::from(rate))).await;
                let row = client.query_one(&statement, &[&TOPIC, &format!("device-{n}"), &payload]).await?;
                commits.push((row.get::<_, i64>(0), std::time::Instant::now()));
            }
            Ok::<_, tokio_postgres::Error>(commits)
        });
    }
    let mut commits = Vec::new();
    while let Some(session) = sessions.join_next().await {
        commits.extend(session?.context("the load cannot be written")?);
    }
    Ok(commits)
}
