//! Gives messages that cannot start now back to Postgres, unclaimed, and acknowledges them once it has them.

use std::sync::Arc;
use std::time::Duration;

use metrics::counter;
use tracing::warn;

use super::buffer::Taken;
use super::dispatcher::Dispatcher;
use super::recorder;
use crate::queue::Message;
use crate::retry::ErrorWait;
use crate::store::claim::PutBack;
use crate::store::locks::ASK_AGAIN_AFTER;

/// A message that goes back unclaimed, due again after this wait, perhaps further on its route; else for this origin.
pub(super) type GoesBack = (Taken, Duration, Option<i16>, Option<Arc<str>>);

impl Dispatcher {
    pub(super) fn put_back(self: &Arc<Self>, messages: Vec<GoesBack>) {
        if messages.is_empty() {
            return;
        }
        counter!("outboxd_put_back_total").increment(messages.len() as u64);
        let dispatcher = Arc::clone(self);
        self.calls.spawn(async move { dispatcher.put_back_patiently(messages).await });
    }

    /// Waits out any outage, and locks. What is not put back at the end goes back to the queue with its consumer.
    async fn put_back_patiently(&self, mut messages: Vec<GoesBack>) {
        let mut wait = ErrorWait::default();
        loop {
            let rows: Vec<PutBack> = messages.iter().map(row).collect();
            let (pause, end) = match self.worker.store.put_back(&rows).await {
                Ok(locked) => {
                    let (left, done): (Vec<GoesBack>, Vec<GoesBack>) = messages.into_iter().partition(|(taken, ..)| {
                        let Message { id, epoch, .. } = taken.delivery.message;
                        locked.contains(&(id, epoch))
                    });
                    self.worker.store.wake_relay();
                    let done = done.into_iter().map(|(taken, ..)| (taken.acks, taken.delivery));
                    for (acks, deliveries) in recorder::by_consumer(done) {
                        acks.ack(&deliveries).await;
                    }
                    if left.is_empty() {
                        return;
                    }
                    messages = left;
                    (ASK_AGAIN_AFTER, &self.shutdown)
                }
                Err(error) => {
                    warn!(%error, messages = rows.len(), "messages that cannot start now wait to be put back");
                    (wait.next(rand::random()), &self.cut_off)
                }
            };
            if end.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                return;
            }
        }
    }
}

fn row((taken, wait, next_step, waits_for): &GoesBack) -> PutBack {
    let Message { id, epoch, .. } = taken.delivery.message;
    PutBack { id, epoch, wait: *wait, next_step: *next_step, waits_for: waits_for.clone() }
}
