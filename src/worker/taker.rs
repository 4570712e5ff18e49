//! Takes messages from the queue, ahead of the claim by one batch, and keeps the consumer alive there.
//!
//! Whoever cannot reach Postgres cannot claim: it takes nothing, and what it holds goes back to the queue for those who
//! can. Copies that are still here are dropped at the claim.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::Worker;
use super::recorder::Acks;
use crate::queue::{self, Consumer, Delivery, Queue};
use crate::retry::ErrorWait;

/// How long one take waits for a first message.
const TAKE_WAIT: Duration = Duration::from_millis(500);
/// How long Postgres may be away before what is held goes back: a session that was ended is replaced at once.
const GIVE_BACK_AFTER: Duration = Duration::from_secs(1);

/// Why taking stopped without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    Shutdown,
    PostgresAway,
}

/// Messages taken, and how to acknowledge them.
pub(super) struct Batch {
    pub(super) deliveries: Vec<Delivery>,
    pub(super) acks: Acks,
}

pub(super) async fn run(
    worker: Arc<Worker>,
    queue: Arc<dyn Queue>,
    batches: mpsc::Sender<Batch>,
    shutdown: CancellationToken,
) {
    let name = format!("{}-{}", worker.presence.install_id(), worker.instance.get());
    let mut consumer: Option<Box<dyn Consumer>> = None;
    let mut error_wait = ErrorWait::default();
    let mut is_down = false;
    while !shutdown.is_cancelled() {
        match take_until_error(&worker, &*queue, &name, &mut consumer, &batches, &shutdown, &mut is_down).await {
            Ok(Stop::Shutdown) => break,
            Ok(Stop::PostgresAway) => {
                shutdown.run_until_cancelled(wait_for_postgres(&worker, &mut consumer)).await;
            }
            Err(error) => {
                if !is_down {
                    warn!(%error, "taking waits");
                }
                is_down = true;
                shutdown.run_until_cancelled(tokio::time::sleep(error_wait.next(rand::random()))).await;
                if consumer.is_some() {
                    error_wait = ErrorWait::default();
                }
            }
        }
    }
    // The dispatcher has stopped when nobody receives any more; what it did not claim goes back to the queue.
    batches.closed().await;
    sign_off(consumer).await;
}

/// What was taken and is not done goes back to the queue.
async fn sign_off(consumer: Option<Box<dyn Consumer>>) {
    if let Some(consumer) = consumer
        && let Err(error) = consumer.close().await
    {
        warn!(%error, "the consumer could not sign off; its messages will be taken over");
    }
}

/// Until Postgres answers again.
async fn wait_for_postgres(worker: &Worker, consumer: &mut Option<Box<dyn Consumer>>) {
    if tokio::time::timeout(GIVE_BACK_AFTER, worker.store.answers_again()).await.is_ok() {
        return;
    }
    warn!("Postgres does not answer; nothing is taken, and what was goes back to the queue");
    sign_off(consumer.take()).await;
    worker.store.answers_again().await;
    info!("Postgres answers; taking goes on");
}

/// Ends well only at shutdown, or when Postgres does not answer.
async fn take_until_error(
    worker: &Worker,
    queue: &dyn Queue,
    name: &str,
    consumer: &mut Option<Box<dyn Consumer>>,
    batches: &mpsc::Sender<Batch>,
    shutdown: &CancellationToken,
    is_down: &mut bool,
) -> queue::Result<Stop> {
    let consumer = match consumer {
        Some(consumer) => consumer,
        None => consumer.insert(queue.consumer(name).await?),
    };
    let acks = Acks::new(consumer.acker());
    let mut maintained_at: Option<Instant> = None;
    loop {
        if !worker.store.answers() {
            return Ok(Stop::PostgresAway);
        }
        if maintained_at.is_none_or(|at| at.elapsed() > worker.maintain_every) {
            consumer.maintain().await?;
            maintained_at = Some(Instant::now());
        }
        // Room first: what is taken is out of the other instances' reach.
        let permit = tokio::select! {
            permit = batches.reserve() => permit,
            () = tokio::time::sleep(worker.maintain_every) => continue,
            () = worker.store.falls_silent() => return Ok(Stop::PostgresAway),
            () = shutdown.cancelled() => return Ok(Stop::Shutdown),
        };
        let Ok(permit) = permit else { return Ok(Stop::Shutdown) };
        let taken = tokio::select! {
            taken = consumer.take(worker.config.concurrency, TAKE_WAIT.min(worker.maintain_every)) => taken?,
            () = shutdown.cancelled() => return Ok(Stop::Shutdown),
        };
        // Said once per outage.
        if std::mem::take(is_down) {
            info!("taking goes on");
        }
        if !taken.is_empty() {
            permit.send(Batch { deliveries: taken, acks: acks.clone() });
        }
    }
}
