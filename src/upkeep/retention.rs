//! Retention: what ended long enough ago is deleted, in small steps, on one instance at a time.
//!
//! **Guarantee.** Nothing is deleted before its time, nothing that is still alive at all. A step reads a thousand
//! rows by primary key and lasts milliseconds; the pauses between steps leave the server to the app. No index serves
//! retention: one that named `status` or `finished_at` would make every outcome a non-HOT update.
//!
//! **Limit.** A scan goes up each table once; rows that it had to leave (FAILED, kept longer; a row that ended long
//! after it was written) go with the next scan, which starts about a day later, or after a quarter of the shortest
//! retention. A dedup key is remembered as long as its row. Notifications that are alive are never deleted, however
//! old.
//!
//! Metrics: `outboxd_retention_deleted_total{table}`.

use std::time::{Duration, Instant};

use metrics::counter;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::config::RetentionConfig;
use crate::failpoint;
use crate::store::leader::LeaderLease;
use crate::store::retention::{Kept, Scanned, Step};
use crate::store::{self, Store};
use crate::telemetry::outage::Outage;

/// The leader lease's name in the database.
pub const LEASE: &str = "retention";
/// Rows a step reads.
const STEP_ROWS: u32 = 1_000;
/// After a step we rest this many times as long as it took, and at least so long.
const REST_SHARE: u32 = 3;
const REST_MIN: Duration = Duration::from_millis(10);
const REST_MAX: Duration = Duration::from_secs(2);
/// An instance that starts delivers what waits before it tidies up.
const FIRST_ROUND_AFTER: Duration = Duration::from_secs(2);
/// Between rounds over all tables, at most.
const ROUND_EVERY_MAX: Duration = Duration::from_secs(60);
/// Between scans over the same rows, at most.
const SCAN_EVERY_MAX: Duration = Duration::from_secs(86_400);
/// Most rows end within an hour of being written: the scan stays that far behind, to find them ended.
const LIFE_MAX: Duration = Duration::from_secs(3_600);
/// Rows of instances that ended are kept this long.
const INSTANCES_KEPT: Duration = Duration::from_secs(86_400);
/// Progress of long work is told this often.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// The tables, in the order of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// Ended notifications, with their attempts.
    Notifications,
    /// Everything else that is scanned.
    Scanned(Scanned),
    /// Instances that ended.
    Instances,
}

impl Table {
    /// A round.
    pub const ALL: [Table; 8] = [
        Table::Notifications,
        Table::Scanned(Scanned::Attempts),
        Table::Scanned(Scanned::Events),
        Table::Scanned(Scanned::Inbox),
        Table::Scanned(Scanned::Idempotency),
        Table::Scanned(Scanned::Audit),
        Table::Scanned(Scanned::Runs),
        Table::Instances,
    ];

    /// As metrics and logs name it.
    pub fn name(self) -> &'static str {
        match self {
            Table::Notifications => "notification_log",
            Table::Scanned(scanned) => scanned.name(),
            Table::Instances => "instance",
        }
    }
}

/// Retention on one instance.
#[derive(Debug)]
pub struct Retention {
    store: Store,
    lease: LeaderLease,
    config: RetentionConfig,
}

impl Retention {
    /// Works only while the lease is ours.
    pub fn new(store: Store, lease: LeaderLease, config: RetentionConfig) -> Retention {
        Retention { store, lease, config }
    }

    /// One step in one table. `None` as to being caught up: the lease is not ours.
    pub async fn pass(&mut self, table: Table) -> store::Result<Step> {
        let Some(owner) = self.lease.hold().await? else { return Ok(Step::default()) };
        let config = &self.config;
        let kept = |scanned| match scanned {
            Scanned::Attempts => config.attempts,
            Scanned::Events => config.events,
            Scanned::Inbox => config.inbox,
            Scanned::Idempotency => config.idempotency,
            Scanned::Audit | Scanned::Runs => config.audit,
        };
        let step = match table {
            Table::Notifications => {
                let shortest = config.sent.min(config.failed).min(config.canceled);
                let border = shortest + (shortest / 20).min(LIFE_MAX);
                let kept = Kept { sent: config.sent, failed: config.failed, canceled: config.canceled, border };
                self.store.delete_notifications(owner, STEP_ROWS, kept, scan_every(shortest)).await?
            }
            Table::Scanned(scanned) => {
                let kept = kept(scanned);
                self.store.delete_scanned(scanned, owner, STEP_ROWS, kept, scan_every(kept)).await?
            }
            Table::Instances => self.store.delete_instances(owner, INSTANCES_KEPT).await?,
        };
        if step.deleted > 0 {
            failpoint::hit("after_retention_step").await;
        }
        if step.is_caught_up.is_none() {
            self.lease.lost();
        }
        counter!("outboxd_retention_deleted_total", "table" => table.name()).increment(step.deleted);
        counter!("outboxd_retention_deleted_total", "table" => "attempt").increment(step.attempts);
        Ok(step)
    }

    /// Every table, one after the other. One that fails does not keep the others from theirs, unless Postgres is away.
    async fn round(&mut self, shutdown: &CancellationToken) -> store::Result<()> {
        let mut outcome = Ok(());
        for table in Table::ALL {
            let cleared = self.clear(table, shutdown).await;
            if matches!(cleared, Err(store::Error::Unavailable(_))) {
                return cleared;
            }
            outcome = outcome.and(cleared);
        }
        outcome
    }

    /// One table until nothing in it is over; ends early if the lease is lost or the end has come.
    async fn clear(&mut self, table: Table, shutdown: &CancellationToken) -> store::Result<()> {
        let (mut deleted, mut told_at) = (0, Instant::now());
        loop {
            let started = Instant::now();
            let step = self.pass(table).await?;
            deleted += step.deleted;
            let is_done = step.is_caught_up != Some(false) || shutdown.is_cancelled();
            if deleted > 0 && (is_done || told_at.elapsed() > TELL_EVERY) {
                info!(table = table.name(), deleted, is_done, "retention");
                told_at = Instant::now();
            }
            if is_done {
                return Ok(());
            }
            let rest = (started.elapsed() * REST_SHARE).clamp(REST_MIN, REST_MAX);
            shutdown.run_until_cancelled(tokio::time::sleep(rest)).await;
        }
    }

    fn round_every(&self) -> Duration {
        let config = &self.config;
        let notifications = config.sent.min(config.failed).min(config.canceled);
        let kept = [notifications, config.attempts, config.events, config.inbox, config.idempotency];
        scan_every(kept.into_iter().min().unwrap_or(config.audit)).min(ROUND_EVERY_MAX)
    }
}

fn scan_every(kept: Duration) -> Duration {
    (kept / 4).min(SCAN_EVERY_MAX)
}

/// Keeps retention until `shutdown`, while the lease is ours.
pub async fn run(mut retention: Retention, shutdown: &CancellationToken) {
    let mut outage = Outage::default();
    let mut round_at = Instant::now() + FIRST_ROUND_AFTER;
    while !shutdown.is_cancelled() {
        let outcome = match retention.lease.hold().await {
            Ok(Some(_)) if Instant::now() >= round_at => {
                round_at = Instant::now() + retention.round_every();
                retention.round(shutdown).await
            }
            held => held.map(|_| ()),
        };
        outage.note(outcome, "retention waits");
        shutdown.run_until_cancelled(tokio::time::sleep(retention.lease.poll_interval())).await;
    }
    retention.lease.let_go().await;
}
