//! Faults of Postgres.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::Signal;

use super::Ongoing;
use crate::evidence::Span;

const TERMINATE_EVERY: Duration = Duration::from_secs(2);
/// How long the standby gets nothing before the primary ends: what is committed then is lost with it.
const TAIL_MS: u64 = 300;
const TAIL_MORE_MS: u64 = 900;

/// Ends all sessions of all instances, again and again.
pub(super) async fn terminate(ongoing: &Ongoing<'_>) -> Result<()> {
    // Nobody stops the server meanwhile.
    let _databases = ongoing.world.databases.lock().await;
    ongoing.begins();
    let until = Instant::now() + ongoing.fault.lasts;
    loop {
        let admin = ongoing.world.admin().await?;
        let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'daemon'";
        admin.client.query_one(sql, &[]).await.context("pg_terminate_backend")?;
        if Instant::now() + TERMINATE_EVERY > until {
            return Ok(());
        }
        tokio::time::sleep(TERMINATE_EVERY).await;
    }
}

/// Stops it, a while, starts it.
pub(super) async fn stop(ongoing: &Ongoing<'_>, signal: &str) -> Result<()> {
    let mut databases = ongoing.world.databases.lock().await;
    ongoing.begins();
    let primary = databases.primary();
    primary.signal(signal)?;
    primary.wait_until_ended().await?;
    ongoing.lasts().await;
    primary.restart().await
}

/// The primary is killed, or freezes, when the standby has not got its last commits; the standby is promoted. A frozen
/// one keeps its connections open and silent, until somebody ends it.
pub(super) async fn fail_over(ongoing: &Ongoing<'_>, signal: Signal) -> Result<()> {
    let world = ongoing.world;
    let mut databases = world.databases.lock().await;
    let from = ongoing.begins();
    databases.cut_replication().await?;
    tokio::time::sleep(Duration::from_millis(TAIL_MS + u64::from(ongoing.fault.dice) % TAIL_MORE_MS)).await;
    databases.primary().signal_all(signal);
    databases.promote().await?;
    world.database_port.store(databases.primary_port(), Ordering::Relaxed);
    world.log().lost_tails.push(Span { from, until: world.now() });
    ongoing.healed();
    ongoing.lasts().await;
    databases.rebuild_standby().await
}
