//! Tells the other instances what a call's outcome means for them: a circuit that opens or closes, a probe that is
//! taken.

use std::sync::Arc;
use std::time::Duration;

use tracing::{info, warn};

use super::Worker;
use super::buffer::Destination;
use crate::channel::Outcome;
use crate::channel::availability::{Held, May, PAUSED_WAIT};
use crate::channel::circuit::{CircuitChange, OpenReason, Pass};
use crate::channel::circuits::{PROBE_SLACK, STREAK_MAX_AGE};
use crate::masked;
use crate::store::circuit::Opened;

/// Of all instances one makes the probe. `Wait`: another does, or that could not be asked. Whoever takes it and dies
/// keeps it for no longer than the call may take.
pub(super) async fn take_probe(worker: &Worker, channel: &str, origin: &str, timeout: Duration) -> May {
    match worker
        .store
        .take_probe(
            channel,
            origin,
            worker.instance.get(),
            timeout + PROBE_SLACK,
            worker.availability.credentials(channel),
        )
        .await
    {
        Ok(true) => return May::Call(Pass::Probe),
        Ok(false) => worker.availability.probe_is_elsewhere(channel, origin),
        Err(error) => {
            warn!(%error, channel, "whether the probe is ours could not be asked");
            worker.availability.give_back_probe(channel, origin);
        }
    }
    May::Wait(worker.availability.held_by_circuit(channel, origin, PAUSED_WAIT))
}

/// A message that was to be the probe needs no call: another may be.
pub(super) fn give_back_probe(worker: &Worker, pass: Pass, destination: &Destination) {
    if let (Pass::Probe, Some((provider, origin))) = (pass, destination) {
        worker.availability.give_back_probe(provider.channel.name(), origin);
    }
}

/// The call that was permitted was not made.
pub(super) async fn no_call_was_made(worker: &Worker, channel: &str, origin: &str, pass: Pass) {
    if pass == Pass::Probe {
        worker.availability.give_back_probe(channel, origin);
        tell(worker, channel, origin, CircuitChange::ProbeAgain).await;
    }
}

/// Takes an outcome in and tells the others what concerns them. `Some`: it says nothing of its notification, which
/// waits for so long with the others.
pub(super) async fn on_outcome(
    worker: &Worker,
    channel: &str,
    origin: &Arc<str>,
    pass: Pass,
    outcome: &Outcome,
) -> Option<Held> {
    let change = worker.availability.on_outcome(channel, origin, pass, outcome)?;
    if change == CircuitChange::Refused {
        let wait = on_refusal(worker, channel, origin).await?;
        return Some(Held { wait, is_failing: false });
    }
    tell(worker, channel, origin, change).await;
    match change {
        CircuitChange::Open { wait, reason, .. } if pass == Pass::Probe => {
            Some(Held { wait, is_failing: reason == OpenReason::Failures })
        }
        _ => None,
    }
}

/// A 401 or 403. Over all instances no more of them are held against their notifications than open the circuit; what
/// meets it open, for whatever reason, was not processed either. `Some`: the notification waits for so long.
async fn on_refusal(worker: &Worker, channel: &str, origin: &str) -> Option<Duration> {
    let availability = &worker.availability;
    let held_for = || availability.held_for(channel, origin).map(|held| held.wait);
    if let Some(wait) = held_for() {
        return Some(wait);
    }
    let refusals = match worker.store.count_refusal(channel, origin, STREAK_MAX_AGE).await {
        Ok(Some(refusals)) => refusals,
        // We hear of its circuit within a second.
        Ok(None) => return Some(PAUSED_WAIT),
        Err(error) => {
            warn!(%error, channel, "a refusal could not be counted; its notification goes back");
            return Some(PAUSED_WAIT);
        }
    };
    let refusals_max = availability.refusals_max(channel);
    if refusals >= refusals_max
        && let Some(change) = availability.open_refused(channel, origin)
    {
        tell(worker, channel, origin, change).await;
    }
    (refusals > refusals_max).then(|| held_for().unwrap_or(PAUSED_WAIT))
}

async fn tell(worker: &Worker, channel: &str, origin: &str, change: CircuitChange) {
    // Empty: the whole channel.
    let shown = Some(origin).filter(|origin| !origin.is_empty()).map(masked::hosts);
    let told = match change {
        CircuitChange::Open { wait, reason, openings, is_asked } => {
            let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            warn!(channel, origin = shown, reason = reason.name(), wait_ms, "calls are held");
            let credentials = worker.availability.credentials(channel);
            let opened = Opened { wait, reason: reason.name(), openings, is_asked, credentials };
            worker.store.open_circuit(channel, origin, &opened).await
        }
        CircuitChange::Close => {
            info!(channel, origin = shown, "calls go on");
            worker.store.wake_relay();
            worker.store.close_circuit(channel, origin).await
        }
        CircuitChange::ProbeAgain => worker.store.end_probe(channel, origin, worker.instance.get()).await,
        CircuitChange::Recognised => worker.store.forget_refusals(channel, origin).await,
        // Counted, not told.
        CircuitChange::Refused => Ok(()),
    };
    if let Err(error) = told {
        warn!(%error, channel, "the other instances could not be told of a circuit");
    }
}
