//! Reads pauses, circuits and which routes others lack from Postgres more than once a second, so that all instances see
//! the same.
//!
//! **Guarantee.** What an operator paused, resumed, closed or wants probed, and a circuit that another instance opened,
//! take effect here within a second. **Limit.** While Postgres is away, what was read last holds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::channel::availability::{Availability, Paused};
use crate::channel::circuit::OpenReason;
use crate::channel::circuits::{Freed, SharedCircuit};
use crate::channel::credentials;
use crate::config::{ChannelConfig, Role};
use crate::store::circuit::ChannelState;
use crate::store::instance::InstanceId;
use crate::store::{Result, Store};
use crate::telemetry::outage::Outage;

/// How old what was read may be: a pause takes effect within a second.
/// A pause takes effect within a second.
const REFRESH_EVERY: Duration = Duration::from_millis(800);
/// After so long the others know what an instance has said at its registration.
pub const KNOWN_AFTER: Duration = Duration::from_millis(1050);
/// Rows that are made due at a time.
const HASTEN_ROWS: i32 = 10_000;
/// Rows that are made due for a probe.
const PROBE_ROWS: i32 = 10;

/// A digest of what each channel calls with. Circuits that opened when it was called with something else are probed at
/// once, if this instance calls.
pub async fn credentials(
    store: &Store,
    channels: &BTreeMap<String, ChannelConfig>,
    roles: &BTreeSet<Role>,
) -> Result<BTreeMap<String, String>> {
    let digests = credentials::digests(channels, &store.installation_key().await?);
    if roles.contains(&Role::Worker) {
        for (channel, circuits) in store.probe_changed(&digests).await? {
            info!(channel, circuits, "the channel is called with something else now: what is held is probed at once");
        }
    }
    Ok(digests)
}

/// One reading.
pub async fn pass(store: &Store, instance: &InstanceId, availability: &Availability) -> Result<Freed> {
    let asked = Instant::now();
    let (states, topics) = store.held(instance.get()).await?;
    let held: Vec<SharedCircuit> = states.iter().filter_map(|state| shared(state, asked)).collect();
    let paused = Paused {
        channels: states.iter().filter(|state| state.paused).map(|state| state.channel.clone()).collect(),
        topics: topics.paused.into_iter().collect(),
    };
    availability.share_only(topics.shared);
    let (freed, may_go) = availability.apply(&held, paused);
    if may_go {
        store.wake_relay();
    }
    Ok(freed)
}

/// What waits for a circuit that was closed before its time is due at once, and a few of those that wait for one that
/// is to be probed. Postgres made them due already; but who did not know of it yet sent some back until the old time,
/// and now does.
async fn hasten(store: &Store, freed: Freed, unfinished: &mut BTreeSet<(String, Arc<str>)>) -> Result<()> {
    for (channel, origin) in freed.probed {
        store.hasten(&channel, &origin, PROBE_ROWS).await?;
    }
    unfinished.extend(freed.closed_early);
    for (channel, origin) in unfinished.clone() {
        if store.hasten(&channel, &origin, HASTEN_ROWS).await? < i64::from(HASTEN_ROWS) {
            unfinished.remove(&(channel, origin));
        }
        store.wake_relay();
    }
    Ok(())
}

/// A reason that this build does not know is a newer build's: it is left to that one. Without a reason an operator
/// ended it, or only a pause is left.
fn shared(state: &ChannelState, asked: Instant) -> Option<SharedCircuit> {
    let reason = match &state.reason {
        Some(name) => Some(OpenReason::parse(name)?),
        None => None,
    };
    Some(SharedCircuit {
        channel: state.channel.clone(),
        origin: state.origin.clone(),
        left: state.left,
        reason,
        changed_at: asked.checked_sub(state.changed_ago),
        openings: state.openings,
        probe_elsewhere: state.probe_elsewhere,
    })
}

/// Reads until `shutdown`.
pub async fn run(store: &Store, instance: &InstanceId, availability: &Availability, shutdown: &CancellationToken) {
    let mut outage = Outage::default();
    let mut unfinished = BTreeSet::new();
    while !shutdown.is_cancelled() {
        let done = async { hasten(store, pass(store, instance, availability).await?, &mut unfinished).await };
        outage.note(done.await, "pauses and circuits may be out of date");
        shutdown.run_until_cancelled(tokio::time::sleep(REFRESH_EVERY)).await;
    }
}
