//! The short way: what this instance's relay publishes while its own workers are idle does not go through the queue. It
//! saves the round trip to Redis, a sixth of the time from commit to arrival.
//!
//! Nothing else changes: the row is published and unconfirmed until it is claimed. If the process dies in between, the
//! sweep publishes it again, as if the push had been lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use tokio::sync::mpsc;

use super::Worker;
use super::recorder::Acks;
use super::slots::Slots;
use super::taker::Batch;
use crate::publisher::{Publisher, ShortWay};
use crate::queue::{self, Acker, Delivery, Handle};
use crate::store::publish::Reserved;

/// Batches on their way.
const BATCHES_MAX: usize = 16;

/// The publications of one batch, to be confirmed when the last of its rows has been claimed.
#[derive(Debug)]
pub(super) struct Handed {
    publisher: Publisher,
    publications: Vec<i64>,
    unclaimed: AtomicUsize,
}

impl Handed {
    /// So many of its messages have been claimed, or need no claim.
    pub(super) fn claimed(&self, rows: usize) {
        if self.unclaimed.fetch_sub(rows, Ordering::Relaxed) == rows {
            self.publisher.keep_unconfirmed(self.publications.clone());
        }
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

/// Opens the way to these slots; what comes by it arrives at the receiver.
pub(super) fn open<C: Send + 'static>(worker: &Worker, slots: &Arc<Slots<C>>) -> mpsc::Receiver<Batch> {
    let (arrive, arrivals) = mpsc::channel(BATCHES_MAX);
    // The in-process queue is as short.
    if worker.queue.kind() == "memory" || !worker.config.short_way {
        return arrivals;
    }
    let (publisher, slots, acks) = (worker.publisher.clone(), Arc::clone(slots), Acks::new(Box::new(Unqueued)));
    worker.publisher.set_short_way(Some(ShortWay(Box::new(move |reserved: Reserved| {
        let Ok(place) = arrive.try_reserve() else { return Some(reserved) };
        if !slots.are_idle(reserved.messages.len()) {
            return Some(reserved);
        }
        let handed = Handed {
            publisher: publisher.clone(),
            publications: reserved.publications,
            unclaimed: AtomicUsize::new(reserved.messages.len()),
        };
        let deliver = |message| Delivery { message, times_delivered: 1, handle: Handle::Ticket(0) };
        place.send(Batch {
            deliveries: reserved.messages.into_iter().map(deliver).collect(),
            acks: acks.clone(),
            handed: Some(Arc::new(handed)),
        });
        None
    }))));
    arrivals
}
