//! Faults of one instance's process.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::Ongoing;
use crate::instances::Instance;

const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// The drain is 5 s.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
/// How far a clock jumps, at least and at most.
const JUMP_S: std::ops::Range<i64> = 30..7200;

/// SIGKILL, a while, a new one.
pub(super) async fn kill(ongoing: &Ongoing<'_>) -> Result<()> {
    let mut instance = ongoing.world.instances[ongoing.fault.target].lock().await;
    ongoing.begins();
    end(&mut instance, "KILL").await?;
    ongoing.lasts().await;
    instance.start()
}

/// SIGTERM, its drain, a new one.
pub(super) async fn drain(ongoing: &Ongoing<'_>) -> Result<()> {
    let mut instance = ongoing.world.instances[ongoing.fault.target].lock().await;
    ongoing.begins();
    end(&mut instance, "TERM").await?;
    instance.start()
}

async fn end(instance: &mut Instance, signal: &str) -> Result<()> {
    let began = Instant::now();
    if instance.is_running() {
        instance.signal(signal)?;
    }
    while instance.is_running() {
        ensure!(began.elapsed() < DRAIN_TIMEOUT, "the instance does not end after SIG{signal}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    instance.note_end().map(|_| ())
}

/// SIGSTOP beyond its lease, SIGCONT.
pub(super) async fn stop(ongoing: &Ongoing<'_>) -> Result<()> {
    let mut instance = ongoing.world.instances[ongoing.fault.target].lock().await;
    ongoing.begins();
    if !instance.is_running() {
        return Ok(());
    }
    instance.signal("STOP")?;
    ongoing.lasts().await;
    instance.signal("CONT")
}

/// Its wall clock jumps, forward or back, and returns.
pub(super) async fn move_clock(ongoing: &Ongoing<'_>) -> Result<()> {
    let instance = ongoing.world.instances[ongoing.fault.target].lock().await;
    ongoing.begins();
    let jump = JUMP_S.start + i64::from(ongoing.fault.dice) % (JUMP_S.end - JUMP_S.start);
    instance.set_clock(if ongoing.fault.dice.is_multiple_of(2) { jump } else { -jump })?;
    ongoing.lasts().await;
    instance.set_clock(0)
}
