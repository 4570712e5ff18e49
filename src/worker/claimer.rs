//! Claims as many messages as there are free slots, and starts their calls.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics::{counter, histogram};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;

use super::recorder::{self, Acks, Finished};
use super::slots::{Slot, Slots};
use super::taker::Batch;
use super::{Worker, sender, short_way};
use crate::failpoint;
use crate::queue::{Delivery, Message};
use crate::store;
use crate::store::claim::Case;

/// Claims under way at once: while one waits for the disk, the slots that calls leave meanwhile are filled by the next.
pub(super) const CLAIMS_MAX: usize = 3;
/// How long calls under way may free more slots before a claim.
const GATHER_MAX: Duration = Duration::from_millis(2);
/// Waits after errors: the first, and at most.
const ERROR_WAIT_MIN: Duration = Duration::from_millis(50);
const ERROR_WAIT_MAX: Duration = Duration::from_secs(2);

pub(super) struct Claimer {
    pub(super) worker: Arc<Worker>,
    pub(super) slots: Arc<Slots<sender::Call>>,
    pub(super) calls: TaskTracker,
    pub(super) finished: mpsc::Sender<Finished>,
    pub(super) cut_off: CancellationToken,
}

/// A message in our hands, and how to acknowledge it.
struct Taken {
    delivery: Delivery,
    acks: Acks,
}

pub(super) async fn run(claimer: Claimer, mut batches: mpsc::Receiver<Batch>, shutdown: CancellationToken) {
    let claimer = Arc::new(claimer);
    let short_way = short_way::open(&claimer);
    let mut claims = JoinSet::new();
    let mut waiting: VecDeque<Taken> = VecDeque::new();
    loop {
        while claims.try_join_next().is_some() {}
        if claims.len() >= CLAIMS_MAX {
            claims.join_next().await;
        }
        let Some((messages, slots)) = claimer.next(&mut waiting, &mut batches, &shutdown).await else { break };
        let (claimer, shutdown) = (Arc::clone(&claimer), shutdown.clone());
        claims.spawn(async move { claimer.claim(messages, slots, &shutdown).await });
    }
    // What is being claimed is called; the rest waits in the queue.
    short_way.close().await;
    while claims.join_next().await.is_some() {}
}

fn taken(batch: Batch) -> impl Iterator<Item = Taken> {
    let Batch { deliveries, acks } = batch;
    deliveries.into_iter().map(move |delivery| Taken { delivery, acks: acks.clone() })
}

impl Claimer {
    /// Waits for messages and for slots to call them. `None`: shutdown.
    async fn next(
        &self,
        waiting: &mut VecDeque<Taken>,
        batches: &mut mpsc::Receiver<Batch>,
        shutdown: &CancellationToken,
    ) -> Option<(Vec<Taken>, OwnedSemaphorePermit)> {
        if waiting.is_empty() {
            waiting.extend(taken(shutdown.run_until_cancelled(batches.recv()).await??));
        }
        while waiting.len() < self.worker.config.concurrency
            && let Ok(batch) = batches.try_recv()
        {
            waiting.extend(taken(batch));
        }
        let slots = shutdown.run_until_cancelled(self.slots.take(waiting.len(), GATHER_MAX)).await??;
        Some((waiting.drain(..slots.num_permits()).collect(), slots))
    }

    async fn claim(self: &Arc<Self>, messages: Vec<Taken>, slots: OwnedSemaphorePermit, shutdown: &CancellationToken) {
        failpoint::hit("after_take").await;
        // Copies of a message that is here as well need no claim of their own.
        let mut done = Vec::new();
        let mut first: HashMap<Message, Taken> = HashMap::with_capacity(messages.len());
        for taken in messages {
            done.extend(first.insert(taken.delivery.message, taken));
        }
        let distinct: Vec<Message> = first.keys().copied().collect();
        let Some(cases) = self.claim_patiently(&distinct, shutdown).await else { return };
        histogram!("outboxd_batch_rows", "step" => "claim").record(cases.len() as f64);
        if cases.iter().any(|(_, case)| matches!(case, Case::Claimed(_))) {
            failpoint::hit("after_claim").await;
        }
        count_cases(&cases);
        let (mut calls, mut paused) = (Vec::with_capacity(cases.len()), Vec::new());
        let claimed_at = Instant::now();
        for (message, case) in cases {
            match (case, first.remove(&message)) {
                (Case::Claimed(claimed), Some(Taken { delivery, acks })) => {
                    self.worker.progress.saw_claimed(claimed.published_at);
                    calls.push(sender::Call { claimed, delivery, acks, claimed_at });
                }
                (case, taken) => {
                    paused.extend(matches!(case, Case::Paused).then_some(message));
                    done.extend(taken);
                }
            }
        }
        self.start(calls, slots);
        if !paused.is_empty() {
            if let Err(error) = self.worker.store.unpublish(&paused).await {
                // They stay published; the reconciler finds them.
                warn!(%error, "messages of a paused topic could not be handed back");
            }
            self.worker.nudge.nudge();
        }
        for (acks, deliveries) in recorder::by_consumer(done.into_iter().map(|taken| (taken.acks, taken.delivery))) {
            acks.ack(&deliveries).await;
        }
    }

    /// Has the calls made in the slots taken for them.
    pub(super) fn start(self: &Arc<Self>, calls: Vec<sender::Call>, slots: OwnedSemaphorePermit) {
        for _ in 0..self.slots.call(calls, slots) {
            let claimer = Arc::clone(self);
            self.calls.spawn(async move { claimer.make_calls().await });
        }
    }

    /// One slot.
    async fn make_calls(&self) {
        let mut slot = Slot::of(&self.slots);
        while let Some(call) = slot.next().await {
            sender::run(&self.worker, call, &self.finished, &self.cut_off).await;
        }
    }

    /// Claims, waiting out any outage. `None`: shutdown; the messages stay ours in the queue and go back with the consumer.
    async fn claim_patiently(
        &self,
        messages: &[Message],
        shutdown: &CancellationToken,
    ) -> Option<Vec<(Message, Case)>> {
        let mut wait = ERROR_WAIT_MIN;
        loop {
            let worker = &self.worker;
            let paused = worker.holds.paused_lanes();
            match worker.store.claim(messages, worker.instance.get(), worker.config.lease, &paused).await {
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

/// Mostly they are all of one kind.
fn count_cases(cases: &[(Message, Case)]) {
    for same in cases.chunk_by(|(_, one), (_, next)| one.name() == next.name()) {
        counter!("outboxd_claims_total", "case" => same[0].1.name()).increment(same.len() as u64);
    }
}
