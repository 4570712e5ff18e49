//! What may not go now: topics and channels an operator paused, origins whose circuit is open or whose provider
//! asked us to wait. One picture per instance, brought in step with the others' through Postgres.

use std::collections::HashSet;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::channel::board::{Board, SharedHold};
use crate::channel::circuit::{HoldChange, HoldReason, Pass, Verdict};
use crate::channel::failover::Router;
use crate::channel::{CHANNEL_WIDE, Outcome};
use crate::config::Config;
use crate::retry::{HoldDecision, decide_on_hold};
use crate::store::Store;
use crate::store::instance::InstanceId;

/// How old the picture may be: a pause takes effect within a second.
const REFRESH_EVERY: Duration = Duration::from_millis(500);
/// Work of a paused channel looks again after this.
const PAUSED_WAIT: Duration = Duration::from_secs(1);
/// How long a probe may take before another instance makes one.
const PROBE_FOR: Duration = Duration::from_secs(70);

/// The holds of this instance.
#[derive(Debug)]
pub struct Holds {
    store: Store,
    instance: InstanceId,
    router: Arc<Router>,
    board: Board,
    concurrency: usize,
    paused: RwLock<Paused>,
}

#[derive(Debug, Default)]
struct Paused {
    channels: HashSet<String>,
    topics: HashSet<String>,
}

/// Whether a call may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum May {
    /// Yes. A probe is ours only once [`Holds::take_probe`] says so.
    Call(Pass),
    /// Not before this wait is over.
    Wait(Duration),
}

/// How much of a topic may be published now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// Nothing: paused, or its channel is held.
    Held,
    /// So many rows: a second of work for its channel may wait.
    Room(usize),
}

impl Holds {
    /// Nothing is held until the first refresh.
    pub fn new(store: Store, instance: InstanceId, router: Arc<Router>, config: &Config) -> Holds {
        let board = Board::new(&config.channels);
        Holds { store, instance, router, board, concurrency: config.worker.concurrency, paused: RwLock::default() }
    }

    /// Brings the picture in step with Postgres.
    pub async fn refresh(&self) -> crate::store::Result<()> {
        let holds = self.store.holds(self.instance.get()).await?;
        let topics = self.store.paused_topics().await?;
        let shared: Vec<SharedHold> = holds
            .iter()
            .filter_map(|hold| {
                let reason = HoldReason::parse(hold.reason.as_deref()?)?;
                Some(SharedHold {
                    channel: hold.channel.clone(),
                    origin: hold.origin.clone(),
                    left: hold.left,
                    reason,
                    openings: hold.openings,
                    probe_elsewhere: hold.probe_elsewhere,
                })
            })
            .collect();
        self.board.apply(&shared, Instant::now());
        let paused = Paused {
            channels: holds.iter().filter(|hold| hold.paused).map(|hold| hold.channel.clone()).collect(),
            topics: topics.into_iter().collect(),
        };
        *self.paused.write().unwrap_or_else(std::sync::PoisonError::into_inner) = paused;
        Ok(())
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
    pub fn held(&self) -> Vec<(String, HoldReason)> {
        let now = Instant::now();
        let holds = self.board.holds().into_iter();
        let in_force = holds.filter(|(_, _, hold)| hold.until > now || hold.reason != HoldReason::RetryAfter);
        in_force.map(|(channel, _, hold)| (channel, hold.reason)).collect()
    }

    /// How much of a topic may be published: nothing while it is paused, or its first channel is held as a whole and the route
    /// says to wait.
    pub fn flow(&self, topic: &str) -> Flow {
        if self.topic_is_paused(topic) {
            return Flow::Held;
        }
        let Ok(route) = self.router.route_for(topic) else { return Flow::Room(usize::MAX) };
        let provider = &route.channels[0];
        let channel = provider.channel.name();
        let is_held = || self.held_for(channel, CHANNEL_WIDE).is_some();
        if decide_on_hold(&route.policy, 0) == HoldDecision::Wait && is_held() {
            return Flow::Held;
        }
        Flow::Room(provider.limits.room(self.concurrency, Instant::now()))
    }

    /// So many rows of a topic are on their way to its first channel.
    pub fn note_published(&self, topic: &str, rows: usize) {
        if let Ok(route) = self.router.route_for(topic) {
            route.channels[0].limits.note_published(rows, Instant::now());
        }
    }

    /// Whether a call may be made now. After a [`Pass::Probe`] the caller asks [`Holds::take_probe`], and then reports the
    /// outcome or calls [`Holds::no_call_was_made`].
    pub fn may_call(&self, channel: &str, origin: &str) -> May {
        if self.channel_is_paused(channel) {
            return May::Wait(PAUSED_WAIT);
        }
        let now = Instant::now();
        match self.board.may_call(channel, origin, now) {
            Verdict::Go => May::Call(Pass::Normal),
            Verdict::HeldUntil(until) => May::Wait(until.saturating_duration_since(now)),
            Verdict::Probe => May::Call(Pass::Probe),
        }
    }

    /// How long calls are held for, if they are. Grants nothing.
    pub fn held_for(&self, channel: &str, origin: &str) -> Option<Duration> {
        if self.channel_is_paused(channel) {
            return Some(PAUSED_WAIT);
        }
        self.board.held_for(channel, origin, Instant::now())
    }

    /// Of all instances one makes the probe. `Wait`: another does, or that could not be asked.
    pub async fn take_probe(&self, channel: &str, origin: &str) -> May {
        match self.store.take_probe(channel, origin, self.instance.get(), PROBE_FOR).await {
            Ok(true) => May::Call(Pass::Probe),
            Ok(false) => {
                self.board.probe_is_elsewhere(channel, origin, Instant::now() + PAUSED_WAIT);
                May::Wait(PAUSED_WAIT)
            }
            Err(error) => {
                warn!(%error, channel, "whether the probe is ours could not be asked");
                self.board.give_back_probe(channel, origin);
                May::Wait(PAUSED_WAIT)
            }
        }
    }

    /// A probe that [`Holds::may_call`] granted was never asked for.
    pub fn give_back_probe(&self, channel: &str, origin: &str) {
        self.board.give_back_probe(channel, origin);
    }

    /// The call that was permitted was not made.
    pub async fn no_call_was_made(&self, channel: &str, origin: &str, pass: Pass) {
        if pass == Pass::Probe {
            self.board.give_back_probe(channel, origin);
            self.tell(channel, origin, HoldChange::ProbeAgain).await;
        }
    }

    /// Takes an outcome in and tells the other instances what concerns them.
    pub async fn on_outcome(&self, channel: &str, origin: &Arc<str>, pass: Pass, outcome: &Outcome) {
        if let Some(change) = self.board.on_outcome(channel, origin, pass, Instant::now(), outcome) {
            self.tell(channel, origin, change).await;
        }
    }

    async fn tell(&self, channel: &str, origin: &str, change: HoldChange) {
        let told = match change {
            HoldChange::Hold { wait, reason, openings } => {
                warn!(channel, origin, reason = reason.name(), wait_ms = wait.as_millis(), "calls are held");
                self.store.hold_origin(channel, origin, wait, reason.name(), openings).await
            }
            HoldChange::Release => {
                tracing::info!(channel, origin, "calls go on");
                self.store.release_origin(channel, origin).await
            }
            HoldChange::ProbeAgain => self.store.end_probe(channel, origin, self.instance.get()).await,
        };
        if let Err(error) = told {
            warn!(%error, channel, "the other instances could not be told of a hold");
        }
    }

    fn paused(&self) -> std::sync::RwLockReadGuard<'_, Paused> {
        self.paused.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Keeps the picture fresh until `shutdown`.
pub async fn run(holds: &Holds, shutdown: &CancellationToken) {
    let mut is_stale = false;
    while !shutdown.is_cancelled() {
        match holds.refresh().await {
            Ok(()) => is_stale = false,
            Err(error) => {
                if !is_stale {
                    warn!(%error, "holds and pauses may be out of date");
                }
                is_stale = true;
            }
        }
        shutdown.run_until_cancelled(tokio::time::sleep(REFRESH_EVERY)).await;
    }
}
