//! Repair: leases that are over, publications cut short, messages a queue lost, keys nobody admitted.
//!
//! Every repair is a guarded statement that checks again under the row's lock, so a sweep that was paused between
//! reading and writing, or runs on several instances at once, changes nothing that has moved on since.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics::counter;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::channel::failover::Router;
use crate::config::{ReconcileConfig, RelayConfig};
use crate::failpoint;
use crate::heartbeat::Seen;
use crate::publisher::{Error, Publisher};
use crate::queue::Queue;
use crate::retry::{self, Decision, Failure, Position};
use crate::store::Store;
use crate::store::instance::InstanceId;
use crate::store::record::{self, Recorder};
use crate::store::sweep::{Expired, Undelivered};
use crate::wakeup::Wake;

/// Between sweeps, how many times longer than a sweep takes, and at most: a sweep that was slow because the database was
/// away must not keep the next one waiting.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
const SWEEP_SHARE: u32 = 100;
const SWEEP_REST_MAX: Duration = Duration::from_secs(5);
/// Between looks for keys that nobody admitted, and how many times longer than one takes.
const KEYS_EVERY: Duration = Duration::from_secs(4);
const KEYS_SHARE: u32 = 20;
/// Keys looked at by one sweep at most; the next goes on from there.
const KEYS_MAX: u32 = 20_000;
/// Claims and publications ended by one sweep at most.
const ROWS_MAX: u32 = 500;

/// What the sweeps stand on.
#[derive(Debug)]
pub struct Sweeper {
    /// The record.
    pub store: Store,
    /// Asked for what it lost.
    pub queue: Arc<dyn Queue>,
    /// The queue's counter, and what this instance counts.
    pub publisher: Publisher,
    /// What follows an unknown outcome.
    pub router: Arc<Router>,
    /// Who we are.
    pub instance: InstanceId,
    /// What the other instances have seen of the queue.
    pub seen: Arc<Seen>,
    /// Tells the relay of rows that are due.
    pub wake: Arc<Wake>,
    /// `[relay]`
    pub relay: RelayConfig,
    /// `[reconcile]`
    pub reconcile: ReconcileConfig,
}

/// What a sweep repaired.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Claims ended because their lease was over or their holder dead.
    pub leases_ended: u64,
    /// Rows of publications that were never confirmed.
    pub recalled: u64,
    /// Rows the queue lost, or that nothing else would have found.
    pub lost: u64,
    /// Heads of keys that nobody had admitted.
    pub admitted: u64,
}

/// When what was last done.
#[derive(Debug)]
pub struct Rounds {
    keys_at: Instant,
    /// Where the walk over the keys goes on.
    keys_after: String,
    reconcile_at: Instant,
    /// Dead instances whose in-process queues have been dealt with.
    buried: HashSet<i32>,
}

impl Rounds {
    /// Everything is due after its first interval.
    pub fn new(reconcile: &ReconcileConfig) -> Rounds {
        let now = Instant::now();
        Rounds {
            keys_at: now + KEYS_EVERY,
            keys_after: String::new(),
            reconcile_at: now + reconcile.every,
            buried: HashSet::new(),
        }
    }
}

/// Sweeps until `shutdown`.
pub async fn run(sweeper: &Sweeper, shutdown: &CancellationToken) {
    let mut rounds = Rounds::new(&sweeper.reconcile);
    let mut is_down = false;
    let mut wait = SWEEP_EVERY;
    while shutdown.run_until_cancelled(tokio::time::sleep(wait)).await.is_some() {
        let started = Instant::now();
        match sweeper.pass(&mut rounds).await {
            Ok(counts) => {
                is_down = false;
                if counts != Counts::default() {
                    info!(?counts, "repaired");
                    sweeper.wake.wake();
                }
                wait = (started.elapsed() * SWEEP_SHARE).clamp(SWEEP_EVERY, SWEEP_REST_MAX);
            }
            Err(error) => {
                if !is_down {
                    warn!(%error, "sweeping waits");
                }
                is_down = true;
                wait = SWEEP_EVERY;
            }
        }
    }
}

impl Sweeper {
    /// One bounded sweep.
    pub async fn pass(&self, rounds: &mut Rounds) -> Result<Counts, Error> {
        let recalled = self.store.recall_publications(self.relay.republish_after, ROWS_MAX).await?;
        let mut counts = Counts { recalled, ..Counts::default() };
        let dead = self.store.dead_instances().await?;
        let dead_ids: Vec<i32> = dead.iter().map(|dead| dead.id).collect();
        let look = self.store.look_over(&dead_ids, ROWS_MAX).await?;
        counts.leases_ended = self.end_leases(&look.expired, &dead_ids).await?;
        let unburied: Vec<i32> =
            dead.iter().filter(|dead| dead.memory && !rounds.buried.contains(&dead.id)).map(|dead| dead.id).collect();
        if !unburied.is_empty() {
            counts.lost += self.store.republish(Undelivered::PublishedBy(&unburied)).await?;
            rounds.buried.extend(unburied);
        }
        counts.lost += self.look_for_loss().await?;
        counts.lost += self.look_for_orphans(look.published_for).await?;
        if Instant::now() >= rounds.keys_at {
            let began = Instant::now();
            counts.admitted = self.admit_forgotten(&mut rounds.keys_after).await?;
            rounds.keys_at = Instant::now() + KEYS_EVERY.max(began.elapsed() * KEYS_SHARE);
        }
        if Instant::now() >= rounds.reconcile_at {
            counts.lost += self.reconcile().await?;
            rounds.reconcile_at = Instant::now() + self.reconcile.every;
        }
        Ok(counts)
    }

    async fn end_leases(&self, expired: &[Expired], dead: &[i32]) -> Result<u64, Error> {
        if expired.is_empty() {
            return Ok(0);
        }
        let unknown: Vec<record::Failed> = expired.iter().map(|claim| self.unknown(claim)).collect();
        let record = self.store.record_failures(&unknown, self.instance.get(), Recorder::Sweep(dead)).await?;
        failpoint::hit("after_leases").await;
        let ended = record.waiting.len() + record.failed.len() + record.canceled.len();
        counter!("outboxd_leases_ended_total").increment(ended as u64);
        counter!("outboxd_unknown_outcomes_total").increment(ended as u64);
        counter!("outboxd_retries_total").increment(record.waiting.len() as u64);
        counter!("outboxd_dead_letters_total").increment(record.failed.len() as u64);
        let topics = unknown.iter().map(|failed| (failed.id, &*failed.topic));
        self.publisher.rollup().counts().attempted(topics, &record.failed, &record.waiting);
        if !record.released_keys.is_empty() {
            self.store.admit(&record.released_keys).await?;
        }
        Ok(ended as u64)
    }

    /// Whoever held it is gone without a word: the provider may have it.
    fn unknown(&self, claim: &Expired) -> record::Failed {
        let position = usize::try_from(claim.route_step).unwrap_or(0);
        let attempts = u32::try_from(claim.channel_attempts).unwrap_or(1);
        let (channel, next) = match self.router.route_for(&claim.topic) {
            Ok(route) => {
                let position = position.min(route.channels.len() - 1);
                let at = Position { channel: position, attempts };
                let next = match retry::decide(&route.policy, at, Failure::Ambiguous, None, rand::random()) {
                    // The lease was the wait.
                    Decision::RetryAfter(_) => record::Next::Retry(Duration::ZERO),
                    Decision::NextChannel => record::Next::Channel(i16::try_from(position + 1).unwrap_or(i16::MAX)),
                    Decision::GiveUp => record::Next::GiveUp,
                };
                (Arc::clone(route.channels[position].channel.name()), next)
            }
            Err(_) => (Arc::from(""), record::Next::GiveUp),
        };
        record::Failed {
            id: claim.id,
            token: claim.token,
            created_at: claim.created_at,
            topic: Arc::from(&*claim.topic),
            outcome: "unknown",
            error: format!("worker {} was gone before it recorded an outcome", claim.instance),
            http_status: None,
            channel,
            duration: None,
            response: None,
            next: if claim.expired { record::Next::GiveUp } else { next },
        }
    }

    async fn look_for_loss(&self) -> Result<u64, Error> {
        let seen = self.seen.queue_counter().max(self.publisher.counter());
        let Some(loss) = self.queue.check_loss(seen).await? else { return Ok(0) };
        failpoint::hit("after_loss").await;
        let rows = self.store.republish(Undelivered::All).await?;
        warn!(?loss, rows, "the queue lost messages; what was published and unclaimed is published again");
        counter!("outboxd_lost_messages_republished_total").increment(rows);
        Ok(rows)
    }

    /// Walks on over the keys, a bounded way.
    async fn admit_forgotten(&self, after: &mut String) -> Result<u64, Error> {
        let (keys, next) = self.store.waiting_keys(after, KEYS_MAX).await?;
        *after = next.unwrap_or_default();
        if keys.is_empty() {
            return Ok(0);
        }
        Ok(self.store.admit(&keys).await?)
    }

    /// What was published a while ago cannot be in a queue that is empty: whoever pushed it died before it could tell how
    /// far the counter was, and the queue was emptied since.
    async fn look_for_orphans(&self, published_for: Option<Duration>) -> Result<u64, Error> {
        let is_late = published_for.is_some_and(|waited| waited >= self.relay.republish_after);
        if !is_late || self.is_in_process() || !self.queue_is_empty().await? {
            return Ok(0);
        }
        Ok(self.store.republish(Undelivered::QueueIsEmpty(self.relay.republish_after)).await?)
    }

    async fn reconcile(&self) -> Result<u64, Error> {
        // In-process queues say nothing of each other, and die with their instances.
        if self.is_in_process() {
            return Ok(0);
        }
        let published_for = self.reconcile.published_after;
        let undelivered = match self.queue_is_empty().await? {
            true => Undelivered::QueueIsEmpty(published_for),
            false => Undelivered::Overtaken(published_for),
        };
        Ok(self.store.republish(undelivered).await?)
    }

    fn is_in_process(&self) -> bool {
        self.queue.kind() == "memory"
    }

    /// Nothing waits and nothing is in flight.
    async fn queue_is_empty(&self) -> Result<bool, Error> {
        let depth = self.queue.depth().await?;
        Ok(depth.waiting == 0 && depth.in_flight == 0)
    }
}
