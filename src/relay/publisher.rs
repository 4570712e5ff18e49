//! Push what was reserved, remember to confirm it, and know how much room the window has.
//!
//! Reserving and confirming are short transactions; between them, while the queue is called, none is open. What
//! was reserved and never confirmed is found by the sweep 5 s later.

use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics::{counter, histogram};
use tokio::sync::Mutex;

use crate::failpoint;
use crate::queue::Queue;
use crate::store::instance::Presence;
use crate::store::publish::Reserved;
use crate::store::{self, StageError, Store};
use crate::telemetry::statistics::Statistics;

/// How old the last read of the queue's depth may be.
const DEPTH_MAX_AGE: Duration = Duration::from_millis(25);
/// The share of the window that topics with a backlog may fill; the rest is for topics with few rows, which then have
/// at most this much in front of them.
const BACKLOG_SHARE: u32 = 8;

/// Pushes and confirms for the loops of one instance. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Publisher {
    store: Store,
    queue: Arc<dyn Queue>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    window: u32,
    /// How far the queue's counter is, and how many share the window.
    presence: Arc<Presence>,
    statistics: Arc<Statistics>,
    depth: Mutex<LastDepth>,
    unconfirmed: std::sync::Mutex<Vec<i64>>,
}

#[derive(Debug, Clone, Copy)]
struct LastDepth {
    /// In the queue at the last read.
    waiting: u64,
    /// Pushed by this process since.
    pushed: u64,
    seen_at: Option<Instant>,
}

/// How many rows may be published now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// By topics with a backlog, together.
    pub backlog: u32,
    /// By the others.
    pub fresh: u32,
}

impl Publisher {
    /// Publishes what `presence` and `statistics` are told of.
    pub fn new(
        store: Store,
        queue: Arc<dyn Queue>,
        window: u32,
        presence: Arc<Presence>,
        statistics: Arc<Statistics>,
    ) -> Publisher {
        let shared = Shared {
            window,
            presence,
            statistics,
            depth: Mutex::new(LastDepth { waiting: 0, pushed: 0, seen_at: None }),
            unconfirmed: std::sync::Mutex::default(),
        };
        Publisher { store, queue, shared: Arc::new(shared) }
    }

    /// Pushes in one round trip. On success the publications wait to be confirmed; after an error nothing is known to
    /// have arrived and the sweep will find them.
    pub async fn push(&self, reserved: Reserved) -> Result<(), StageError> {
        let rows = reserved.messages.len() as u64;
        if rows == 0 {
            return Ok(());
        }
        let pushed = self.queue.push(&reserved.messages).await?;
        self.shared.presence.saw_queue_counter(pushed.counter);
        self.shared.depth.lock().await.pushed += rows;
        self.keep_unconfirmed(reserved.publications);
        self.shared.statistics.counts().published += rows;
        counter!("outboxd_published_total").increment(rows);
        histogram!("outboxd_batch_rows", "step" => "publish").record(rows as f64);
        failpoint::hit("after_push").await;
        Ok(())
    }

    /// Publications that have arrived and wait to be confirmed, for a statement that does it on the way. If that
    /// statement fails they must be given back by [`Publisher::keep_unconfirmed`].
    pub fn take_unconfirmed(&self) -> Vec<i64> {
        std::mem::take(&mut *self.unconfirmed())
    }

    /// The inverse of [`Publisher::take_unconfirmed`].
    pub fn keep_unconfirmed(&self, publications: Vec<i64>) {
        self.unconfirmed().extend(publications);
    }

    /// Gives them back after an error.
    pub fn keep_unless<T>(&self, done: store::Result<T>, publications: Vec<i64>) -> store::Result<T> {
        if done.is_err() {
            self.keep_unconfirmed(publications);
        }
        done
    }

    /// Confirms what has arrived, in a statement of its own: before a pause.
    pub async fn confirm(&self) -> Result<(), StageError> {
        let publications = self.take_unconfirmed();
        if publications.is_empty() {
            return Ok(());
        }
        let confirmed = self.store.confirm(&publications).await;
        Ok(self.keep_unless(confirmed, publications)?)
    }

    /// What may be published now. Asks the queue at most every 25 ms, and counts own pushes in between.
    pub async fn allowance(&self) -> Result<Allowance, StageError> {
        let mut last = self.shared.depth.lock().await;
        if last.seen_at.is_none_or(|at| at.elapsed() > DEPTH_MAX_AGE) {
            let depth = self.queue.depth().await?;
            *last = LastDepth { waiting: depth.waiting, pushed: 0, seen_at: Some(Instant::now()) };
        }
        let sharers = self.shared.presence.alive();
        // A share of what was free at the last read, less what we have taken of it since: the others take theirs
        // meanwhile.
        let share = |limit: u32| {
            let free = u64::from(limit).saturating_sub(last.waiting);
            u32::try_from(free.div_ceil(sharers).saturating_sub(last.pushed)).unwrap_or(u32::MAX)
        };
        let window = self.shared.window;
        Ok(Allowance { backlog: share((window / BACKLOG_SHARE).max(1)), fresh: share(window) })
    }

    fn unconfirmed(&self) -> std::sync::MutexGuard<'_, Vec<i64>> {
        self.shared.unconfirmed.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
