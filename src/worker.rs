//! 4. Take, claim, send, record, acknowledge.
//!
//! ```text
//!   queue ──take──► dispatcher ──claim──► sender × concurrency ──outcome──► recorder ──record──► ack
//!                   waits for its         one call each                     what is ready,
//!                   permits, unclaimed                                      in one statement
//! ```
//!
//! No more is claimed than can be called at once, so a crash leaves few outcomes unknown. A message is acknowledged
//! only after Postgres has the outcome; one whose row needs no call is acknowledged at once. While a call is under way
//! its lease is renewed.
//!
//! **Guarantee.** A provider is called only for a row that this instance has claimed, and only while the lease left
//! exceeds the call's timeout. **Limit.** If the process dies between the call and the record, the outcome is unknown:
//! the sweep ends the lease, counts it, and the row is called again under the same `webhook-id`.
//!
//! May change: how messages wait and take turns. Must not: claim, send, record, acknowledge, in this order.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::channel::availability::Availability;
use crate::channel::failover::Router;
use crate::config::WorkerConfig;
use crate::queue::Queue;
use crate::store::Store;
use crate::store::claim::Calls;
use crate::store::instance::{InstanceId, Presence};
use crate::telemetry::otlp::Tracer;
use crate::telemetry::shortages::Shortages;
use crate::telemetry::statistics::Statistics;

mod arrivals;
mod buffer;
mod circuits;
mod contents;
mod destinations;
mod dispatcher;
mod leases;
mod payloads;
mod put_back;
mod recorder;
mod sender;
mod taker;
mod traced;

use dispatcher::Dispatcher;
use recorder::Finished;
use taker::Batch;

/// What the workers of one instance stand on.
#[derive(Debug)]
pub struct Worker {
    /// The record.
    pub store: Store,
    /// Where messages come from.
    pub queue: Arc<dyn Queue>,
    /// Where those come from that other instances cannot deliver.
    pub own_queue: Option<Arc<dyn Queue>>,
    /// Before the first take: by then the others know for which topics we have no route, and keep those.
    pub first_take_after: Duration,
    /// What this instance counts.
    pub statistics: Arc<Statistics>,
    /// What its process lacked.
    pub shortages: Arc<Shortages>,
    /// Which channels a topic uses.
    pub router: Arc<Router>,
    /// What may be called now.
    pub availability: Arc<Availability>,
    /// Who we are.
    pub instance: InstanceId,
    /// `[worker]`
    pub config: WorkerConfig,
    /// Deliveries of one message before it counts as a failed attempt.
    pub deliveries_max: u32,
    /// Between heartbeats to the queue: a quarter of the consumer's TTL there.
    pub maintain_every: Duration,
    /// What the heartbeat tells.
    pub presence: Arc<Presence>,
    /// Calls under way.
    pub calls: Arc<Calls>,
    /// Makes spans of calls, if somebody wants them.
    pub tracer: Option<Tracer>,
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
    // Of each queue one batch is taken ahead of the dispatcher.
    let (batches, taken) = mpsc::channel(1);
    let (own_batches, own_taken) = mpsc::channel(1);
    let (finished, outcomes) = mpsc::channel::<Finished>(worker.config.concurrency * 4);
    // The deadline cuts calls off; until then they may finish.
    let cut_off = CancellationToken::new();
    let (ends, cuts) = (shutdown.clone(), cut_off.clone());
    // Beside each batch that is read, one that arrives.
    let (arrivals, arrived) = mpsc::channel(1);
    let dispatcher = Arc::new(Dispatcher::new(Arc::clone(&worker), batches.clone(), arrivals, finished, ends, cuts));
    let calls = dispatcher.calls.clone();

    let takers = tokio::spawn(take(Arc::clone(&worker), batches, own_batches, shutdown.clone()));
    let dispatch = tokio::spawn(dispatcher.run(taken, own_taken, arrived));
    let recorder_stop = CancellationToken::new();
    let mut recorder = tokio::spawn(recorder::run(Arc::clone(&worker), outcomes, recorder_stop.clone()));
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
    // The calls are over and their senders gone, so the recorder ends once it has recorded them all. Without Postgres
    // it would wait for ever; then the leases tell the others.
    let grace = worker.config.drain.min(Duration::from_secs(5));
    let recorded = tokio::time::timeout(grace, &mut recorder).await;
    if recorded.is_err() {
        warn!("the last outcomes could not be recorded; their leases will run out");
        recorder_stop.cancel();
        join(recorder, "recorder").await;
    }
    leases_stop.cancel();
    join(leases, "leases").await;
    join(takers, "takers").await;
    info!(clean = drain == Drain::Clean, "drained");
    if recorded.is_err() { Drain::Deadline } else { drain }
}

/// From each queue by itself: neither keeps the other waiting.
async fn take(
    worker: Arc<Worker>,
    batches: mpsc::Sender<Batch>,
    own_batches: mpsc::Sender<Batch>,
    shutdown: CancellationToken,
) {
    let shared = async {
        shutdown.run_until_cancelled(tokio::time::sleep(worker.first_take_after)).await;
        taker::run(Arc::clone(&worker), Arc::clone(&worker.queue), batches, shutdown.clone()).await;
    };
    let own = async {
        if let Some(queue) = worker.own_queue.clone() {
            taker::run(Arc::clone(&worker), queue, own_batches, shutdown.clone()).await;
        }
    };
    tokio::join!(shared, own);
}

async fn join<T>(task: tokio::task::JoinHandle<T>, name: &'static str) {
    if let Err(error) = task.await {
        warn!(%error, task = name, "a task of the worker failed");
    }
}
