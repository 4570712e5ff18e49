//! Repair: leases that are over, publications cut short, messages a queue lost, keys nobody admitted.
//!
//! Every repair is a guarded statement that checks again under the row's lock, so a sweep that was paused between
//! reading and writing, or runs on several instances at once, changes nothing that has moved on since.
//!
//! **Guarantee.** Whatever was cut short, by a crash at any step, is published again in bounded time (I8). **Limit.** A
//! row that another's open transaction has locked waits for that transaction.
//!
//! May change: how often, and how much at a time. Must not: a claim in flight is never ended by its own instance, and
//! by others only when its lease is over or its worker dead.

mod leases;
mod report;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use metrics::counter;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use self::report::Counts;
use crate::channel::circuits::ORIGINS_MAX;
use crate::channel::failover::Router;
use crate::config::{ReconcileConfig, RelayConfig};
use crate::failpoint;
use crate::queue::{Loss, Queue};
use crate::retry;
use crate::store::claim::{Calls, Key};
use crate::store::instance::{InstanceId, Presence};
use crate::store::publish::OrderingKey;
use crate::store::repair::{Dead, PAGES_MAX, Scan, Undelivered};
use crate::store::{BATCH_ROWS, StageError, Store};
use crate::telemetry::outage::Outage;
use crate::telemetry::statistics::Statistics;

/// Between sweeps, how many times longer than a sweep takes, and at most: a sweep that was slow because the database
/// was away must not keep the next one waiting.
const SWEEP_EVERY: Duration = Duration::from_secs(3);
const SWEEP_SHARE: u32 = 100;
const SWEEP_REST_MAX: Duration = Duration::from_secs(5);
/// Between searches for keys that nobody admitted.
const KEYS_EVERY: Duration = Duration::from_secs(4);
/// Between searches for circuits that nobody needs to know of any more.
const HELD_EVERY: Duration = Duration::from_secs(30);
/// Keys scanned by one sweep at most; the next goes on from there.
const KEYS_MAX: u32 = 20_000;
/// How long one sweep scans the live rows at most, and how many times longer it rests until it goes on from there.
const SCAN_TIME_MAX: Duration = Duration::from_millis(500);
const SCAN_SHARE: u32 = 10;

/// What the sweeps stand on.
#[derive(Debug)]
pub struct Repair {
    /// The record.
    pub store: Store,
    /// Asked for what it lost.
    pub queue: Arc<dyn Queue>,
    /// What this instance counts.
    pub statistics: Arc<Statistics>,
    /// What follows an unknown outcome.
    pub router: Arc<Router>,
    /// Who we are.
    pub instance: InstanceId,
    /// What the instances have seen of the queue.
    pub presence: Arc<Presence>,
    /// What is in flight here.
    pub calls: Arc<Calls>,
    /// After how long without a heartbeat an instance is dead.
    pub ttl: Duration,
    /// `[relay]`
    pub relay: RelayConfig,
    /// `[reconcile]`
    pub reconcile: ReconcileConfig,
}

/// What a scan of the live rows did.
#[derive(Debug, Default)]
struct Swept {
    leases_ended: u64,
    /// How long the oldest of what is published has waited; known once the scan is through.
    published_for: Option<Duration>,
}

/// When what was last done.
#[derive(Debug)]
pub struct SweepState {
    scan: ScanState,
    keys_at: Instant,
    /// Where the scan of the keys goes on.
    keys_after: OrderingKey,
    reconcile_at: Instant,
    held_at: Instant,
    /// Dead instances whose in-process queues have been dealt with, as of their last heartbeat: one that was only
    /// stopped goes on under its number, publishes, and may die again.
    dealt_with: HashSet<(i32, DateTime<Utc>)>,
    /// Claims that were to be ended and were locked, each with when it last was.
    locked: HashMap<Key, Instant>,
    /// Dead instances that were told of, as of their last heartbeat.
    reported: HashSet<(i32, DateTime<Utc>)>,
    /// The queue says once that it lost messages: kept until they are published again.
    loss: Option<Loss>,
    /// Repairs that fail, each told once.
    failing: HashSet<&'static str>,
}

/// How far the scan of all that is live is.
#[derive(Debug, Default)]
struct ScanState {
    page: u64,
    /// Since when the oldest of what is published, on the way so far, waits to be claimed.
    published_since: Option<Instant>,
}

impl SweepState {
    /// Everything that searches all work is due after its first interval.
    pub fn new(reconcile: &ReconcileConfig) -> SweepState {
        let now = Instant::now();
        SweepState {
            scan: ScanState::default(),
            keys_at: now + KEYS_EVERY,
            keys_after: OrderingKey::default(),
            reconcile_at: now + reconcile.every,
            held_at: now,
            dealt_with: HashSet::new(),
            locked: HashMap::new(),
            reported: HashSet::new(),
            loss: None,
            failing: HashSet::new(),
        }
    }

    /// What a repair did. One that fails says so once, and the others are made all the same.
    fn done<T: Default>(&mut self, repair: &'static str, outcome: Result<T, StageError>) -> T {
        match outcome {
            Ok(done) => {
                if self.failing.remove(repair) {
                    info!(repair, "works again");
                }
                done
            }
            Err(error) => {
                if self.failing.insert(repair) {
                    warn!(%error, repair, "a repair fails and is tried again with every sweep");
                }
                T::default()
            }
        }
    }
}

/// Sweeps until `shutdown`.
pub async fn run(repair: &Repair, shutdown: &CancellationToken) {
    let mut state = SweepState::new(&repair.reconcile);
    let mut outage = Outage::default();
    let mut wait = SWEEP_EVERY;
    while shutdown.run_until_cancelled(repair.rest(wait)).await.is_some() {
        let started = Instant::now();
        // Without Postgres no repair can be made.
        if outage.note(repair.store.ping().await, "sweeping waits").is_none() {
            wait = SWEEP_EVERY;
            continue;
        }
        let counts = repair.pass(&mut state).await;
        if counts != Counts::default() {
            counts.log();
            repair.store.wake_relay();
        }
        let share = if state.scan.page > 0 { SCAN_SHARE } else { SWEEP_SHARE };
        wait = (started.elapsed() * share).clamp(SWEEP_EVERY, SWEEP_REST_MAX);
    }
}

impl Repair {
    /// Waits so long, but not if another server answers: what it has as published is repaired at once.
    async fn rest(&self, wait: Duration) {
        let _ = tokio::time::timeout(wait, self.presence.server_changes()).await;
    }

    /// One bounded sweep. Each repair is made whatever became of the others.
    pub async fn pass(&self, state: &mut SweepState) -> Counts {
        let mut counts = Counts::default();
        let recalled = self.store.recall_publications(self.relay.republish_after, BATCH_ROWS).await;
        counts.recalled = state.done("recall publications", recalled.map_err(StageError::from));

        let dead = self.store.dead_instances(self.instance.get(), self.presence.steady_for()).await;
        let dead = state.done("find dead instances", dead.map_err(StageError::from));
        report::dead_instances(&dead, &mut state.reported);
        let dead_ids: Vec<i32> = dead.iter().map(|dead| dead.id).collect();
        let swept = self.scan(state, &dead_ids).await;
        let swept = state.done("end leases", swept);
        counts.leases_ended = swept.leases_ended;

        let of_dead = self.republish_of_dead(&dead, state).await;
        counts.lost += state.done("republish what dead instances held", of_dead);
        let lost = self.republish_lost(&mut state.loss).await;
        counts.lost += state.done("republish what the queue lost", lost);
        let another = self.republish_after_server_change().await;
        counts.lost += state.done("republish after a change of server", another);
        let orphans = self.republish_orphans(swept.published_for).await;
        counts.lost += state.done("republish orphans", orphans);

        if Instant::now() >= state.keys_at {
            let began = Instant::now();
            let admitted = self.admit_forgotten(&mut state.keys_after).await;
            counts.admitted = state.done("admit keys", admitted);
            state.keys_at = Instant::now() + retry::rest_after(began.elapsed(), KEYS_EVERY);
        }
        if Instant::now() >= state.held_at {
            let forgotten = self.store.forget_held(ORIGINS_MAX).await;
            state.done("forget circuits", forgotten.map_err(StageError::from));
            state.held_at = Instant::now() + HELD_EVERY;
        }
        if Instant::now() >= state.reconcile_at {
            let reconciled = self.reconcile().await;
            counts.lost += state.done("reconcile", reconciled);
            state.reconcile_at = Instant::now() + self.reconcile.every;
        }
        counts
    }

    /// Scans on over all that is live, one bounded step after the other, until it is through or this sweep's time is
    /// over. Leases of others are ended only once our own heartbeats have gone through for a whole TTL: whoever was cut
    /// off together with us has then had time to renew them.
    async fn scan(&self, state: &mut SweepState, dead: &[i32]) -> Result<Swept, StageError> {
        let (began, mut swept) = (Instant::now(), Swept::default());
        let ends_leases = self.presence.steady_for() >= self.ttl;
        loop {
            let page = state.scan.page;
            let scan = Scan { dead, ends_leases, page, pages_max: PAGES_MAX, claims_max: BATCH_ROWS };
            let scanned = self.store.scan_live(scan).await?;
            let since = scanned.published_for.and_then(|waited| Instant::now().checked_sub(waited));
            state.scan.published_since = [state.scan.published_since, since].into_iter().flatten().min();
            let ended = self.end_leases(&scanned.expired, dead, &mut state.locked).await?;
            swept.leases_ended += ended;
            self.give_up(&scanned.unusable).await?;
            // If none could be ended, as many as these are locked: the others are not kept waiting.
            if scanned.expired.len() < BATCH_ROWS as usize || ended == 0 {
                state.scan.page += u64::from(PAGES_MAX);
            }
            if state.scan.page >= scanned.pages {
                let through = std::mem::take(&mut state.scan);
                swept.published_for = through.published_since.map(|since| since.elapsed());
                return Ok(swept);
            }
            if began.elapsed() >= SCAN_TIME_MAX {
                return Ok(swept);
            }
        }
    }

    /// What dead instances had in their in-process queues is published again, once.
    async fn republish_of_dead(&self, dead: &[Dead], state: &mut SweepState) -> Result<u64, StageError> {
        state.dealt_with.retain(|known| dead.iter().any(|dead| *known == (dead.id, dead.heartbeat_at)));
        let left: Vec<&Dead> = dead
            .iter()
            .filter(|dead| dead.memory && !state.dealt_with.contains(&(dead.id, dead.heartbeat_at)))
            .collect();
        if left.is_empty() {
            return Ok(0);
        }
        let ids: Vec<i32> = left.iter().map(|dead| dead.id).collect();
        let lost = self.store.republish(Undelivered::PublishedBy(&ids)).await?;
        state.dealt_with.extend(left.into_iter().map(|dead| (dead.id, dead.heartbeat_at)));
        Ok(lost)
    }

    async fn republish_lost(&self, told: &mut Option<Loss>) -> Result<u64, StageError> {
        if let Some(loss) = self.queue.check_loss(self.presence.queue_counter()).await? {
            *told = Some(loss);
        }
        if told.is_none() {
            return Ok(0);
        }
        failpoint::hit("after_loss").await;
        let rows = self.store.republish(Undelivered::All).await?;
        let loss = told.take();
        let loss = loss.map(tracing::field::display);
        warn!(loss, rows, "the queue lost messages; what was published and unclaimed is published again");
        counter!("outboxd_lost_messages_republished_total").increment(rows);
        Ok(rows)
    }

    /// A server that took over may lack the last commits of the one before, claims among them: what it has as published
    /// may have been taken from the queue already.
    async fn republish_after_server_change(&self) -> Result<u64, StageError> {
        if !self.presence.take_server_change() {
            return Ok(0);
        }
        match self.store.republish(Undelivered::All).await {
            Ok(rows) => {
                info!(
                    rows,
                    "Postgres was started anew, or another server took over; what was unclaimed is published again"
                );
                Ok(rows)
            }
            Err(error) => {
                self.presence.put_back_server_change();
                Err(error.into())
            }
        }
    }

    /// Goes on through the keys, a bounded way.
    async fn admit_forgotten(&self, after: &mut OrderingKey) -> Result<u64, StageError> {
        let (keys, next) = self.store.waiting_keys(after, KEYS_MAX).await?;
        *after = next.unwrap_or_default();
        if keys.is_empty() {
            return Ok(0);
        }
        Ok(self.store.admit(&keys).await?)
    }

    /// What was published a while ago cannot be in a queue that is empty: whoever pushed it died before it could tell
    /// how far the counter was, and the queue was emptied since.
    async fn republish_orphans(&self, published_for: Option<Duration>) -> Result<u64, StageError> {
        let is_late = published_for.is_some_and(|waited| waited >= self.relay.republish_after);
        if !is_late || self.is_in_process() || !self.queue_is_empty().await? {
            return Ok(0);
        }
        Ok(self.store.republish(Undelivered::InRedis(self.relay.republish_after)).await?)
    }

    async fn reconcile(&self) -> Result<u64, StageError> {
        // In-process queues say nothing of each other, and die with their instances.
        if self.is_in_process() {
            return Ok(0);
        }
        let published_for = self.reconcile.published_after;
        let undelivered = match self.queue_is_empty().await? {
            true => Undelivered::InRedis(published_for),
            false => Undelivered::Overtaken(published_for),
        };
        Ok(self.store.republish(undelivered).await?)
    }

    fn is_in_process(&self) -> bool {
        self.queue.kind() == "memory"
    }

    /// Nothing waits and nothing is in flight.
    async fn queue_is_empty(&self) -> Result<bool, StageError> {
        let depth = self.queue.depth().await?;
        Ok(depth.waiting == 0 && depth.in_flight == 0)
    }
}
