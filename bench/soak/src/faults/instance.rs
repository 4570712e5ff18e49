//! Faults of one instance's process.

use std::time::Duration;

use anyhow::Result;
use outboxd_throwaway::until;

use super::Ongoing;
use crate::instances::Instance;

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
    instance.process.launch()
}

/// SIGTERM, its drain, a new one.
pub(super) async fn drain(ongoing: &Ongoing<'_>) -> Result<()> {
    let mut instance = ongoing.world.instances[ongoing.fault.target].lock().await;
    ongoing.begins();
    end(&mut instance, "TERM").await?;
    instance.process.launch()
}

async fn end(instance: &mut Instance, signal: &str) -> Result<()> {
    if !instance.process.has_ended() {
        instance.process.supervisor.signal(signal)?;
    }
    let ended = || async { Ok(instance.process.has_ended()) };
    until(&format!("the instance ends after SIG{signal}"), DRAIN_TIMEOUT, ended).await?;
    instance.note_end().map(|_| ())
}

/// SIGSTOP beyond its lease, SIGCONT.
pub(super) async fn stop(ongoing: &Ongoing<'_>) -> Result<()> {
    let mut instance = ongoing.world.instances[ongoing.fault.target].lock().await;
    ongoing.begins();
    if instance.process.has_ended() {
        return Ok(());
    }
    instance.process.supervisor.signal("STOP")?;
    ongoing.lasts().await;
    instance.process.supervisor.signal("CONT")
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
