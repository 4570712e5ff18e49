//! The short way: while half of its workers are idle an instance's relay claims fresh rows for them directly. They are not
//! published, and nothing goes through the queue: a statement less between commit and call, and two round trips where the queue is Redis.
//!
//! The claim is what it is otherwise: guarded by the row's lock and state, written to disk before the call, ended by the
//! outcome or its lease.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use metrics::{counter, histogram};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::claimer::Claimer;
use super::recorder::Acks;
use super::sender;
use crate::failpoint;
use crate::publisher::{IdleWorkers, Publisher, ShortWay};
use crate::queue::{self, Acker, Delivery, Handle, Message};
use crate::store;
use crate::store::claim::Claimed;
use crate::store::publish::{Fresh, LaneScan};

/// An open way.
pub(super) struct Open {
    publisher: Publisher,
    /// One claim at a time goes this way.
    turn: Arc<Semaphore>,
}

/// Opens the way to a claimer's slots, if it is configured.
pub(super) fn open(claimer: &Arc<Claimer>) -> Open {
    let worker = &claimer.worker;
    let way = Open { publisher: worker.publisher.clone(), turn: Arc::new(Semaphore::new(1)) };
    if worker.config.short_way {
        let (claimer, turn) = (Arc::clone(claimer), Arc::clone(&way.turn));
        let acks = Acks::new(Box::new(Unqueued));
        way.publisher.set_short_way(Some(ShortWay(Box::new(move || {
            let turn = Arc::clone(&turn).try_acquire_owned().ok()?;
            let slots = claimer.slots.take_idle()?;
            Some(Box::new(Idle { claimer: Arc::clone(&claimer), acks: acks.clone(), slots, turn }))
        }))));
    }
    way
}

impl Open {
    /// Closes it, once what is being claimed has been handed to its slots.
    pub(super) async fn close(self) {
        self.publisher.set_short_way(None);
        let _the_last = self.turn.acquire().await;
        self.turn.close();
    }
}

/// Idle slots, taken for one claim.
struct Idle {
    claimer: Arc<Claimer>,
    acks: Acks,
    slots: OwnedSemaphorePermit,
    turn: OwnedSemaphorePermit,
}

#[async_trait]
impl IdleWorkers for Idle {
    fn room(&self) -> u32 {
        u32::try_from(self.slots.num_permits()).unwrap_or(u32::MAX)
    }

    /// In a task of its own: whoever stops waiting for it leaves no claimed row without its call.
    async fn claim(self: Box<Self>, scans: &[LaneScan]) -> store::Result<Fresh> {
        let (calls, scans) = (self.claimer.calls.clone(), scans.to_vec());
        match calls.spawn((*self).claim_and_call(scans)).await {
            Ok(fresh) => fresh,
            Err(ended) => match ended.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // The runtime is shutting down, and we with it.
                Err(_) => std::future::pending().await,
            },
        }
    }
}

impl Idle {
    async fn claim_and_call(self, scans: Vec<LaneScan>) -> store::Result<Fresh> {
        let Idle { claimer, acks, slots, turn } = self;
        let worker = &claimer.worker;
        let (instance, stretches) = (worker.instance.get(), worker.publisher.stretches());
        let (fresh, claims) = worker.store.claim_fresh(&scans, instance, worker.config.lease, stretches).await?;
        if !claims.is_empty() {
            failpoint::hit("after_claim").await;
            histogram!("outboxd_batch_rows", "step" => "claim").record(claims.len() as f64);
            counter!("outboxd_claims_total", "case" => "claimed").increment(fresh.claimed);
            worker.publisher.note_short_way(fresh.claimed);
            let claimed_at = Instant::now();
            let call = |claimed: Box<Claimed>| {
                let message = Message { id: claimed.id, epoch: claimed.token - 1 };
                let delivery = Delivery { message, times_delivered: 1, handle: Handle::Ticket(0) };
                sender::Call { claimed, delivery, acks: acks.clone(), claimed_at }
            };
            claimer.start(claims.into_iter().map(call).collect(), slots);
        }
        drop(turn);
        Ok(fresh)
    }
}

/// There is nothing in the queue to remove.
struct Unqueued;

#[async_trait]
impl Acker for Unqueued {
    async fn ack(&self, _: &[Delivery]) -> queue::Result<()> {
        Ok(())
    }
}
