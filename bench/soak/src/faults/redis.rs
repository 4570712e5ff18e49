//! Faults of Redis.

use std::sync::atomic::Ordering;

use anyhow::{Context, Result};

use super::Ongoing;

/// SIGKILL, a while, a new, empty one.
pub(super) async fn restart(ongoing: &Ongoing<'_>) -> Result<()> {
    let mut carriers = ongoing.world.carriers.as_ref().context("there is no Redis")?.lock().await;
    ongoing.begins();
    carriers.kill()?;
    ongoing.lasts().await;
    carriers.restart()
}

/// FLUSHALL.
pub(super) async fn flush(ongoing: &Ongoing<'_>) -> Result<()> {
    let carriers = ongoing.world.carriers.as_ref().context("there is no Redis")?.lock().await;
    ongoing.begins();
    carriers.flush().await
}

/// SIGKILL; the replica takes over, with what it has.
pub(super) async fn fail_over(ongoing: &Ongoing<'_>) -> Result<()> {
    let mut carriers = ongoing.world.carriers.as_ref().context("there is no Redis")?.lock().await;
    ongoing.begins();
    carriers.kill()?;
    ongoing.lasts().await;
    carriers.promote().await?;
    ongoing.world.carrier_port.store(carriers.primary_port(), Ordering::Relaxed);
    ongoing.healed();
    carriers.rebuild_replica().await
}
