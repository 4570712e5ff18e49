//! Claims as many messages as there are free slots, and starts their calls.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics::{counter, histogram};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;

use super::recorder::{Acks, Finished};
use super::taker::Batch;
use super::{Worker, sender};
use crate::failpoint;
use crate::queue::{Delivery, Message};
use crate::store;
use crate::store::claim::Case;

/// Waits after errors: the first, and at most.
const ERROR_WAIT_MIN: Duration = Duration::from_millis(50);
const ERROR_WAIT_MAX: Duration = Duration::from_secs(2);

pub(super) struct Claimer {
    pub(super) worker: Arc<Worker>,
    pub(super) slots: Arc<Semaphore>,
    pub(super) calls: TaskTracker,
    pub(super) finished: mpsc::Sender<Finished>,
    pub(super) cut_off: CancellationToken,
}

pub(super) async fn run(claimer: Claimer, mut taken: mpsc::Receiver<Batch>, shutdown: CancellationToken) {
    loop {
        let batch = tokio::select! {
            batch = taken.recv() => batch,
            () = shutdown.cancelled() => None,
        };
        let Some(batch) = batch else { return };
        let mut waiting = batch.deliveries.into_iter().peekable();
        while waiting.peek().is_some() {
            let Some(slots) = claimer.free_slots(waiting.len(), &shutdown).await else { return };
            let deliveries: Vec<Delivery> = waiting.by_ref().take(slots.len()).collect();
            claimer.claim(deliveries, slots, &batch.acks, &shutdown).await;
        }
    }
}

impl Claimer {
    /// Waits for one free slot and takes up to `wanted`. `None`: shutdown.
    async fn free_slots(&self, wanted: usize, shutdown: &CancellationToken) -> Option<Vec<OwnedSemaphorePermit>> {
        let first = shutdown.run_until_cancelled(Arc::clone(&self.slots).acquire_owned()).await?.ok()?;
        let mut slots = vec![first];
        while slots.len() < wanted {
            match Arc::clone(&self.slots).try_acquire_owned() {
                Ok(slot) => slots.push(slot),
                Err(_) => break,
            }
        }
        Some(slots)
    }

    async fn claim(
        &self,
        deliveries: Vec<Delivery>,
        mut slots: Vec<OwnedSemaphorePermit>,
        acks: &Acks,
        shutdown: &CancellationToken,
    ) {
        failpoint::hit("after_take").await;
        let Some(cases) = self.claim_patiently(&deliveries, shutdown).await else { return };
        histogram!("outboxd_batch_rows", "step" => "claim").record(cases.len() as f64);
        if cases.iter().any(|(_, case)| matches!(case, Case::Claimed(_))) {
            failpoint::hit("after_claim").await;
        }
        let mut paused = Vec::new();
        let mut done = Vec::new();
        for (message, case) in cases {
            let mut copies = deliveries.iter().filter(|delivery| delivery.message == message);
            let Some(delivery) = copies.next() else { continue };
            done.extend(copies.cloned());
            counter!("outboxd_claims_total", "case" => case.name()).increment(1);
            match case {
                Case::Claimed(claimed) => {
                    self.worker.progress.saw_claimed(claimed.published_at);
                    let slot = slots.pop();
                    let call =
                        sender::Call { claimed: *claimed, delivery: delivery.clone(), claimed_at: Instant::now() };
                    let (worker, finished) = (Arc::clone(&self.worker), self.finished.clone());
                    let (acks, cut_off) = (acks.clone(), self.cut_off.clone());
                    self.calls.spawn(async move {
                        sender::run(&worker, call, acks, &finished, &cut_off).await;
                        drop(slot);
                    });
                }
                Case::Paused => {
                    paused.push(message);
                    done.push(delivery.clone());
                }
                Case::Held | Case::Sent | Case::Stale => done.push(delivery.clone()),
            }
        }
        if !paused.is_empty() {
            if let Err(error) = self.worker.store.unpublish(&paused).await {
                // They stay published; the reconciler finds them.
                warn!(%error, "messages of a paused topic could not be handed back");
            }
            self.worker.nudge.nudge();
        }
        acks.ack(&done).await;
    }

    /// Claims, waiting out any outage. `None`: shutdown; the messages stay ours in the queue and go back with the consumer.
    async fn claim_patiently(
        &self,
        deliveries: &[Delivery],
        shutdown: &CancellationToken,
    ) -> Option<Vec<(Message, Case)>> {
        let distinct: HashSet<Message> = deliveries.iter().map(|delivery| delivery.message).collect();
        let messages: Vec<Message> = distinct.into_iter().collect();
        let mut wait = ERROR_WAIT_MIN;
        loop {
            let worker = &self.worker;
            let paused = worker.holds.paused_lanes();
            match worker.store.claim(&messages, worker.instance.get(), worker.config.lease, &paused).await {
                Ok(cases) => return Some(cases),
                Err(error) => {
                    // Whether the claim was made is unknown after an outage: then the second try finds it PROCESSING and
                    // leaves it to its lease.
                    if !matches!(error, store::Error::Contention(_)) {
                        warn!(%error, messages = messages.len(), "claiming waits");
                    }
                    let pause = tokio::time::sleep(wait.mul_f64(rand::random_range(0.5..1.5)));
                    shutdown.run_until_cancelled(pause).await?;
                    wait = (wait * 2).min(ERROR_WAIT_MAX);
                }
            }
        }
    }
}
