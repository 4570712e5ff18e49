//! What may go now: topics and channels that an operator paused, circuits that are open, limits that are reached.
//!
//! Each instance has this in memory. [`Availability::apply`] updates it with what all instances see. What an outcome
//! changes for all of them is returned, to be written where they see it.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::circuit::{CircuitChange, OpenReason, Pass, Verdict};
use super::circuits::{Circuits, Freed, SharedCircuit};
use super::failover::{Route, Router};
use super::share::Shares;
use super::{CHANNEL_WIDE, Outcome};
use crate::config::ChannelConfig;
use crate::retry::moves_on_while_held;

/// Work of a paused channel or topic asks again after this.
pub const PAUSED_WAIT: Duration = Duration::from_secs(1);

/// What may go now, as this instance knows it.
#[derive(Debug)]
pub struct Availability {
    router: Arc<Router>,
    circuits: Circuits,
    shares: Arc<Shares>,
    shared_topics: watch::Sender<Option<BTreeSet<String>>>,
    /// A digest of what each channel calls with.
    credentials: BTreeMap<String, String>,
    paused: RwLock<Paused>,
}

/// What an operator paused.
#[derive(Debug, Default)]
pub struct Paused {
    /// By name.
    pub channels: HashSet<String>,
    /// By name.
    pub topics: HashSet<String>,
}

/// Whether a call may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum May {
    /// Yes. A probe is ours only once the database says so.
    Call(Pass),
    /// Not before this wait is over.
    Wait(Held),
}

/// A channel, or one origin of it, may not be called now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// For how long, as far as is known.
    pub wait: Duration,
    /// Because calls fail. Else it was paused, it refuses our credentials, or it said when to come back.
    pub is_failing: bool,
}

impl Held {
    const PAUSED: Held = Held { wait: PAUSED_WAIT, is_failing: false };

    /// When work of the channel at this position goes on, and with which step of its route (`None`: the same). No
    /// attempt is used up.
    pub fn way_on(self, route: &Route, position: usize) -> (Duration, Option<i16>) {
        match moves_on_while_held(&route.policy, position, self.is_failing) {
            true => (Duration::ZERO, Some(Route::step_after(position))),
            false => (self.wait, None),
        }
    }
}

/// How much of a topic may be published now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// Nothing: paused, without a route, or its channel is held.
    Held,
    /// So many rows: a second of work of the topic, and for its channel, may wait.
    Room(usize),
}

impl Availability {
    /// Everything may go until the first [`Availability::apply`]. `concurrency`: the calls of this instance at most.
    pub fn new(router: Arc<Router>, channels: &BTreeMap<String, ChannelConfig>, concurrency: usize) -> Availability {
        Availability {
            router,
            circuits: Circuits::new(channels),
            shares: Shares::new(concurrency),
            shared_topics: watch::Sender::default(),
            credentials: BTreeMap::new(),
            paused: RwLock::default(),
        }
    }

    /// Tells with each circuit that opens what its channel called with, as a digest.
    pub fn with_credentials(self, credentials: BTreeMap<String, String>) -> Availability {
        Availability { credentials, ..self }
    }

    /// A digest of what a channel calls with.
    pub fn credentials(&self, channel: &str) -> Option<&str> {
        self.credentials.get(channel).map(String::as_str)
    }

    /// Updates it with what all instances see. Says which circuits became free, and whether anything
    /// may go that could not.
    pub fn apply(&self, held: &[SharedCircuit], paused: Paused) -> (Freed, bool) {
        let freed = self.circuits.apply(held, Instant::now());
        let mut known = self.paused.write().unwrap_or_else(PoisonError::into_inner);
        let has_resumed = !known.channels.is_subset(&paused.channels) || !known.topics.is_subset(&paused.topics);
        *known = paused;
        let may_go = freed.is_some() || has_resumed;
        (freed, may_go)
    }

    /// All other workers have routes for these topics; `None`: for all that this instance has one for.
    pub fn share_only(&self, topics: Option<BTreeSet<String>>) {
        self.shared_topics.send_if_modified(|known| {
            let has_changed = *known != topics;
            *known = topics;
            has_changed
        });
    }

    /// The topics that all other workers have routes for; `None`: all that this instance has one for.
    pub fn shared_topics(&self) -> Option<BTreeSet<String>> {
        self.shared_topics.borrow().clone()
    }

    /// Tells each time that they change.
    pub fn watch_shared_topics(&self) -> watch::Receiver<Option<BTreeSet<String>>> {
        self.shared_topics.subscribe()
    }

    /// How topics share the instance's calls.
    pub fn shares(&self) -> &Arc<Shares> {
        &self.shares
    }

    /// Whether an operator paused the topic.
    pub fn topic_is_paused(&self, topic: &str) -> bool {
        self.paused().topics.contains(topic)
    }

    /// The topics that an operator paused.
    pub fn paused_topics(&self) -> Vec<Arc<str>> {
        self.paused().topics.iter().map(|topic| Arc::from(topic.as_str())).collect()
    }

    /// Whether an operator paused the channel.
    pub fn channel_is_paused(&self, channel: &str) -> bool {
        self.paused().channels.contains(channel)
    }

    /// Origins that may not be called now, or whose circuit waits for its probe: the channel and the reason of each.
    pub fn held(&self) -> Vec<(String, OpenReason)> {
        let now = Instant::now();
        let open = self.circuits.open().into_iter();
        let in_force = open.filter(|(_, _, open)| open.until > now || open.reason != OpenReason::RetryAfter);
        in_force.map(|(channel, _, open)| (channel, open.reason)).collect()
    }

    /// The only topics that are published here; `None`: all are. What has no route here is left to instances that have
    /// one.
    pub fn routed_topics(&self) -> Option<Vec<&str>> {
        self.router.topics().map(Iterator::collect)
    }

    /// How much of a topic may be published: nothing while it is paused, has no route, or its first channel is held as
    /// a whole and the route says to wait.
    pub fn flow(&self, topic: &str) -> Flow {
        if self.topic_is_paused(topic) {
            return Flow::Held;
        }
        let Ok(route) = self.router.route_for(topic) else {
            return if self.router.publishes(topic) { Flow::Room(usize::MAX) } else { Flow::Held };
        };
        let provider = &route.channels[0];
        let channel = provider.channel.name();
        let waits = |held: Held| !moves_on_while_held(&route.policy, 0, held.is_failing);
        if self.held_for(channel, CHANNEL_WIDE).is_some_and(waits) {
            return Flow::Held;
        }
        let now = Instant::now();
        Flow::Room(provider.limits.room(topic, now).min(self.shares.room(topic, now).unwrap_or(usize::MAX)))
    }

    /// Whether a topic that is held has other channels than the first, and is not paused.
    pub fn has_later_channels(&self, topic: &str) -> bool {
        !self.topic_is_paused(topic) && self.router.route_for(topic).is_ok_and(|route| route.channels.len() > 1)
    }

    /// So many rows of a topic are on their way to its first channel.
    pub fn note_published(&self, topic: &Arc<str>, rows: usize) {
        if let Ok(route) = self.router.route_for(topic) {
            let now = Instant::now();
            self.shares.note_published(topic, rows, now);
            route.channels[0].limits.note_published(topic, rows, now);
        }
    }

    /// Whether a call may be made now. After a [`Pass::Probe`] the caller asks the database whether the probe is
    /// his, and then reports the outcome or calls [`Availability::give_back_probe`].
    pub fn may_call(&self, channel: &str, origin: &str) -> May {
        if self.channel_is_paused(channel) {
            return May::Wait(Held::PAUSED);
        }
        let now = Instant::now();
        match self.circuits.may_call(channel, origin, now) {
            Verdict::Go => May::Call(Pass::Normal),
            Verdict::OpenUntil(until) => {
                May::Wait(self.held_by_circuit(channel, origin, until.saturating_duration_since(now)))
            }
            Verdict::Probe => May::Call(Pass::Probe),
        }
    }

    /// How long calls are held for, if they are. Grants nothing.
    pub fn held_for(&self, channel: &str, origin: &str) -> Option<Held> {
        if self.channel_is_paused(channel) {
            return Some(Held::PAUSED);
        }
        self.circuits.held_for(channel, origin, Instant::now()).map(|wait| self.held_by_circuit(channel, origin, wait))
    }

    /// Held for so long, for the reason for which its circuit is open.
    pub fn held_by_circuit(&self, channel: &str, origin: &str, wait: Duration) -> Held {
        Held { wait, is_failing: self.circuits.is_failing(channel, origin) }
    }

    /// How long calls are held because the provider refuses our credentials, if it does.
    pub fn refuses_credentials(&self, channel: &str, origin: &str) -> Option<Held> {
        let wait = self.circuits.refuses_credentials(channel, origin, Instant::now())?;
        Some(Held { wait, is_failing: false })
    }

    /// Another instance makes the probe.
    pub fn probe_is_elsewhere(&self, channel: &str, origin: &str) {
        self.circuits.probe_is_elsewhere(channel, origin, Instant::now() + PAUSED_WAIT);
    }

    /// A probe that [`Availability::may_call`] granted was not made.
    pub fn give_back_probe(&self, channel: &str, origin: &str) {
        self.circuits.give_back_probe(channel, origin);
    }

    /// Takes an outcome in. What it returns concerns all instances.
    pub fn on_outcome(&self, channel: &str, origin: &Arc<str>, pass: Pass, outcome: &Outcome) -> Option<CircuitChange> {
        self.circuits.on_outcome(channel, origin, pass, Instant::now(), outcome)
    }

    fn paused(&self) -> RwLockReadGuard<'_, Paused> {
        self.paused.read().unwrap_or_else(PoisonError::into_inner)
    }
}
