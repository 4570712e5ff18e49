//! The in-process queue: no Redis, one process, bounded, first in first out.
//!
//! Guarantee: what is pushed is taken in order; what a consumer held when it was dropped goes back to the
//! front. Limit: nothing survives the process, so it counts no pushes; rows published by a dead instance are
//! published again because Postgres knows which instance published them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::metrics::Gauges;
use super::{Acker, Consumer, Delivery, Depth, Error, Handle, Loss, Maintained, Message, Pushed, Queue, Result};

/// The in-process backend.
#[derive(Debug)]
pub(super) struct MemoryQueue {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    arrived: Notify,
    waiting_max: usize,
    gauges: Gauges,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Waiting>,
    /// By tag; a tag is never used twice, so an acknowledgement never hits another delivery.
    held: BTreeMap<u64, Held>,
    last_tag: u64,
    last_consumer: u64,
}

#[derive(Debug)]
struct Waiting {
    message: Message,
    deliveries_before: u32,
}

#[derive(Debug)]
struct Held {
    message: Message,
    times_delivered: u32,
    consumer: u64,
}

impl MemoryQueue {
    /// `window` rows may be published and unclaimed; twice that leaves room for copies of all of them.
    pub(super) fn new(window: u32) -> MemoryQueue {
        MemoryQueue::shown_as("memory", window)
    }

    /// The same, with metrics under this name.
    pub(super) fn shown_as(name: &'static str, window: u32) -> MemoryQueue {
        let shared = Shared {
            state: Mutex::default(),
            arrived: Notify::new(),
            waiting_max: window as usize * 2,
            gauges: Gauges::new(name),
        };
        MemoryQueue { shared: Arc::new(shared) }
    }

    /// All of them or, if they do not fit, none.
    pub(super) fn push_now(&self, messages: &[Message]) -> Result<Pushed> {
        let mut state = self.shared.lock();
        if state.waiting.len() + messages.len() > self.shared.waiting_max {
            return Err(Error::Full(format!("{} messages are waiting in process", state.waiting.len())));
        }
        state.waiting.extend(messages.iter().map(|message| Waiting { message: message.clone(), deliveries_before: 0 }));
        drop(state);
        self.shared.arrived.notify_one();
        Ok(Pushed { counter: 0 })
    }

    pub(super) fn depth_now(&self) -> Depth {
        let state = self.shared.lock();
        let depth = Depth { waiting: state.waiting.len() as u64, in_flight: state.held.len() as u64 };
        self.shared.gauges.show(depth);
        depth
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is complete before anything can panic, so a poisoned state is still a good one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_now(&self, consumer: u64, max: usize) -> Vec<Delivery> {
        let mut state = self.lock();
        let count = max.min(state.waiting.len());
        let mut deliveries = Vec::with_capacity(count);
        for _ in 0..count {
            let Some(Waiting { message, deliveries_before }) = state.waiting.pop_front() else { break };
            state.last_tag += 1;
            let tag = state.last_tag;
            let times_delivered = deliveries_before + 1;
            state.held.insert(tag, Held { message: message.clone(), times_delivered, consumer });
            deliveries.push(Delivery { message, times_delivered, handle: Handle::Tag(tag) });
        }
        if !state.waiting.is_empty() {
            self.arrived.notify_one();
        }
        deliveries
    }

    /// Puts everything a consumer holds back to the front, in the order it was taken.
    fn give_back(&self, consumer: u64) {
        let mut state = self.lock();
        let tags: Vec<u64> = state.held.iter().filter(|(_, h)| h.consumer == consumer).map(|(t, _)| *t).collect();
        for tag in tags.iter().rev() {
            if let Some(held) = state.held.remove(tag) {
                state.waiting.push_front(Waiting { message: held.message, deliveries_before: held.times_delivered });
            }
        }
        if !tags.is_empty() {
            self.arrived.notify_one();
        }
    }
}

#[async_trait]
impl Queue for MemoryQueue {
    fn kind(&self) -> &'static str {
        "memory"
    }

    async fn push(&self, messages: &[Message]) -> Result<Pushed> {
        self.push_now(messages)
    }

    async fn consumer(&self, _name: &str) -> Result<Box<dyn Consumer>> {
        let mut state = self.shared.lock();
        state.last_consumer += 1;
        Ok(Box::new(MemoryConsumer { shared: self.shared.clone(), id: state.last_consumer }))
    }

    async fn check_loss(&self, _seen: i64) -> Result<Option<Loss>> {
        Ok(None)
    }

    async fn depth(&self) -> Result<Depth> {
        Ok(self.depth_now())
    }
}

#[derive(Debug)]
struct MemoryConsumer {
    shared: Arc<Shared>,
    id: u64,
}

#[async_trait]
impl Consumer for MemoryConsumer {
    async fn take(&mut self, max: usize, wait: Duration) -> Result<Vec<Delivery>> {
        let deadline = Instant::now() + wait;
        loop {
            let deliveries = self.shared.take_now(self.id, max);
            if max == 0 || !deliveries.is_empty() {
                return Ok(deliveries);
            }
            if tokio::time::timeout_at(deadline, self.shared.arrived.notified()).await.is_err() {
                return Ok(self.shared.take_now(self.id, max));
            }
        }
    }

    fn acker(&self) -> Box<dyn Acker> {
        Box::new(MemoryAcker { shared: self.shared.clone() })
    }

    async fn maintain(&mut self) -> Result<Maintained> {
        // A consumer that is gone was dropped, and dropping gave everything back.
        Ok(Maintained::default())
    }

    async fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

impl Drop for MemoryConsumer {
    fn drop(&mut self) {
        self.shared.give_back(self.id);
    }
}

#[derive(Debug)]
struct MemoryAcker {
    shared: Arc<Shared>,
}

#[async_trait]
impl Acker for MemoryAcker {
    async fn ack(&self, deliveries: &[Delivery]) -> Result<()> {
        let mut state = self.shared.lock();
        for delivery in deliveries {
            if let Handle::Tag(tag) = &delivery.handle {
                state.held.remove(tag);
            }
        }
        Ok(())
    }
}
