//! Push what was reserved, remember to confirm it, and know how much room the window has.
//!
//! Reserving and confirming are short transactions; between them, while the queue is called, none is open. What
//! was reserved and never confirmed is found by the sweep 5 s later.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use metrics::{counter, histogram};
use tokio::sync::Mutex;

use crate::failpoint;
use crate::queue::{self, Queue};
use crate::rollup::Rollup;
use crate::store::publish::Reserved;
use crate::store::{self, Store};

/// How old the last look at the queue's depth may be.
const DEPTH_MAX_AGE: Duration = Duration::from_millis(25);
/// The share of the window that topics with a backlog may fill; the rest is for topics with little to say, which
/// so have at most this much in front of them.
const BACKLOG_SHARE: u32 = 8;

/// Why nothing was published.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Postgres did not do its part.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The queue did not do its part.
    #[error(transparent)]
    Queue(#[from] queue::Error),
}

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
    /// The highest push counter this process has seen.
    counter: AtomicI64,
    /// Instances that share the window.
    sharers: AtomicI64,
    room: Mutex<Room>,
    unconfirmed: std::sync::Mutex<Vec<i64>>,
    published: AtomicU64,
    rollup: Rollup,
}

#[derive(Debug, Clone, Copy)]
struct Room {
    /// In the queue at the last look.
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
    /// A publisher with the whole window to itself until told otherwise.
    pub fn new(store: Store, queue: Arc<dyn Queue>, window: u32) -> Publisher {
        let shared = Shared {
            window,
            counter: AtomicI64::new(0),
            sharers: AtomicI64::new(1),
            room: Mutex::new(Room { waiting: 0, pushed: 0, seen_at: None }),
            unconfirmed: std::sync::Mutex::default(),
            published: AtomicU64::new(0),
            rollup: Rollup::default(),
        };
        Publisher { store, queue, shared: Arc::new(shared) }
    }

    /// The queue's push counter, as last seen by this process.
    pub fn counter(&self) -> i64 {
        self.shared.counter.load(Ordering::Relaxed)
    }

    /// What this instance counts; here, because every loop has a publisher.
    pub fn rollup(&self) -> &Rollup {
        &self.shared.rollup
    }

    /// Messages pushed by this process so far.
    pub fn published(&self) -> u64 {
        self.shared.published.load(Ordering::Relaxed)
    }

    /// How many instances share the window.
    pub fn set_sharers(&self, instances: i64) {
        self.shared.sharers.store(instances.max(1), Ordering::Relaxed);
    }

    fn note_published(&self, rows: u64) {
        counter!("outboxd_published_total").increment(rows);
        self.shared.published.fetch_add(rows, Ordering::Relaxed);
    }

    /// Pushes in one round trip. On success the publications wait to be confirmed; after an error nothing is known to have
    /// arrived and the sweep will find them.
    pub async fn push(&self, reserved: Reserved) -> Result<(), Error> {
        let rows = reserved.messages.len() as u64;
        if rows == 0 {
            return Ok(());
        }
        let pushed = self.queue.push(&reserved.messages).await?;
        self.shared.counter.fetch_max(pushed.counter, Ordering::Relaxed);
        self.shared.room.lock().await.pushed += rows;
        self.keep_unconfirmed(reserved.publications);
        self.note_published(rows);
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
    pub async fn confirm(&self) -> Result<(), Error> {
        let publications = self.take_unconfirmed();
        if publications.is_empty() {
            return Ok(());
        }
        let confirmed = self.store.confirm(&publications).await;
        Ok(self.keep_unless(confirmed, publications)?)
    }

    /// What may be published now. Asks the queue at most every 25 ms, and counts own pushes in between.
    pub async fn allowance(&self) -> Result<Allowance, Error> {
        let mut room = self.shared.room.lock().await;
        if room.seen_at.is_none_or(|at| at.elapsed() > DEPTH_MAX_AGE) {
            let depth = self.queue.depth().await?;
            *room = Room { waiting: depth.waiting, pushed: 0, seen_at: Some(Instant::now()) };
        }
        let sharers = u64::try_from(self.shared.sharers.load(Ordering::Relaxed)).unwrap_or(1);
        // A share of what was free at the last look, less what we have taken of it since: the others take theirs meanwhile.
        let share = |limit: u32| {
            let free = u64::from(limit).saturating_sub(room.waiting);
            u32::try_from(free.div_ceil(sharers).saturating_sub(room.pushed)).unwrap_or(u32::MAX)
        };
        let window = self.shared.window;
        Ok(Allowance { backlog: share((window / BACKLOG_SHARE).max(1)), fresh: share(window) })
    }

    fn unconfirmed(&self) -> std::sync::MutexGuard<'_, Vec<i64>> {
        self.shared.unconfirmed.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
