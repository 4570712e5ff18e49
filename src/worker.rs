//! Take, claim, send, record, ack.
//!
//! ```text
//!   queue ──take──► dispatcher ──claim──► sender × concurrency ──outcome──► recorder ──record──► ack
//!                   waits for its         one call each                     what is ready,
//!                   permits, unclaimed                                      in one statement
//! ```
//!
//! No more is claimed than can be called at once, so a crash leaves few outcomes unknown. A message is
//! acknowledged only after Postgres has the outcome; one whose row needs no call is acknowledged at once. While a call is
//! under way its lease is renewed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::channel::failover::Router;
use crate::config::WorkerConfig;
use crate::holds::Holds;
use crate::publisher::Publisher;
use crate::queue::Queue;
use crate::store::Store;
use crate::store::instance::InstanceId;
use crate::telemetry::otlp::Tracer;
use crate::wakeup::Wake;

mod destinations;
mod dispatcher;
mod leases;
mod recorder;
mod room;
mod sender;
mod taker;
mod traced;

use dispatcher::Dispatcher;
use recorder::Finished;

/// Batches taken ahead of the dispatcher.
const PREFETCH_BATCHES: usize = 1;

/// What the workers of one instance stand on.
#[derive(Debug)]
pub struct Worker {
    /// The record.
    pub store: Store,
    /// Where messages come from.
    pub queue: Arc<dyn Queue>,
    /// What this instance counts.
    pub publisher: Publisher,
    /// Which channels a topic uses.
    pub router: Arc<Router>,
    /// What may not be called now.
    pub holds: Arc<Holds>,
    /// Who we are.
    pub instance: InstanceId,
    /// This installation, as in every `webhook-id`.
    pub install_id: Arc<str>,
    /// `[worker]`
    pub config: WorkerConfig,
    /// Deliveries of one message before it counts as a failed attempt.
    pub deliveries_max: u32,
    /// Between signs of life to the queue: a third of the consumer's TTL there.
    pub tend_every: Duration,
    /// Tells the relay of retries.
    pub wake: Arc<Wake>,
    /// What the heartbeat tells.
    pub progress: Arc<Progress>,
    /// Makes spans of calls, if somebody wants them.
    pub tracer: Option<Tracer>,
}

/// What the heartbeat tells of the workers.
#[derive(Debug, Default)]
pub struct Progress {
    in_flight: AtomicUsize,
    claimed_through: Mutex<Option<DateTime<Utc>>>,
    /// Calls under way: token and when it was claimed or renewed, by notification.
    calls: Mutex<HashMap<i64, (i32, Instant)>>,
}

impl Progress {
    /// Calls under way.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// When the newest message of the queue that was claimed was published.
    pub fn claimed_through(&self) -> Option<DateTime<Utc>> {
        *lock(&self.claimed_through)
    }

    fn saw_claimed(&self, published_at: DateTime<Utc>) {
        let mut through = lock(&self.claimed_through);
        *through = (*through).max(Some(published_at));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// How a drain ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drain {
    /// Every call was finished and recorded.
    Clean,
    /// Calls were cut off; their outcomes are unknown and recorded as such.
    Deadline,
}

/// Works until `shutdown`, then finishes what is under way.
pub async fn run(worker: Arc<Worker>, shutdown: CancellationToken) -> Drain {
    let (batches, taken) = mpsc::channel(PREFETCH_BATCHES);
    let (finished, outcomes) = mpsc::channel::<Finished>(worker.config.concurrency * 4);
    // The deadline cuts calls off; until then they may finish.
    let cut_off = CancellationToken::new();
    let dispatcher = Arc::new(Dispatcher::new(Arc::clone(&worker), finished, cut_off.clone()));
    let calls = dispatcher.calls.clone();

    let taker = tokio::spawn(taker::run(Arc::clone(&worker), batches, shutdown.clone()));
    let dispatch = tokio::spawn(dispatcher.run(taken, shutdown.clone()));
    let recorder_stop = CancellationToken::new();
    let recorder = tokio::spawn(recorder::run(Arc::clone(&worker), outcomes, recorder_stop.clone()));
    let leases_stop = CancellationToken::new();
    let leases = tokio::spawn(leases::run(Arc::clone(&worker), leases_stop.clone()));

    shutdown.cancelled().await;
    let deadline = tokio::time::sleep(worker.config.drain);
    tokio::pin!(deadline);
    join(dispatch, "dispatcher").await;
    calls.close();
    let drain = tokio::select! {
        () = calls.wait() => Drain::Clean,
        () = &mut deadline => {
            cut_off.cancel();
            calls.wait().await;
            Drain::Deadline
        }
    };
    // The calls are over and their senders gone, so the recorder ends once it has recorded them all. Without Postgres it
    // would wait for ever; then the leases tell the others.
    let grace = worker.config.drain.min(Duration::from_secs(5));
    let recorded = tokio::time::timeout(grace, recorder).await;
    recorder_stop.cancel();
    if recorded.is_err() {
        warn!("the last outcomes could not be recorded; their leases will run out");
    }
    leases_stop.cancel();
    join(leases, "leases").await;
    join(taker, "taker").await;
    info!(clean = drain == Drain::Clean, "drained");
    if recorded.is_err() { Drain::Deadline } else { drain }
}

async fn join<T>(task: tokio::task::JoinHandle<T>, name: &'static str) {
    if let Err(error) = task.await {
        warn!(%error, task = name, "a task of the worker failed");
    }
}
