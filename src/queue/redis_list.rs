//! Redis lists: a main list and one processing list per consumer.
//!
//! Guarantee: a message is in the main list or in exactly one processing list from its push to its
//! acknowledgement; it moves by BLMOVE and LMOVE only, never through a client. A dead consumer's list is
//! moved back in order.
//!
//! Limits: elements are found by value. Two copies of one publication (same id and epoch) are equal, so
//! acknowledging one may remove the other; the claim in Postgres drops copies anyway. LREM searches from the
//! oldest on: measured 2 µs at 100 held, 11 µs at 1,000 and 44 µs at 4,000, for elements picked at random.
//! A list has no record of deliveries, so the count travels in the element (see `element`).

mod consumer;

use std::sync::Arc;

use async_trait::async_trait;
use secrecy::SecretString;

use super::broker::Broker;
use super::metrics::Gauges;
use super::owner::Owner;
use super::{Consumer, Depth, Loss, Message, Pushed, Queue, Result, ServerFacts, element};
use crate::config::QueueConfig;
use consumer::ListConsumer;

/// The list backend.
#[derive(Debug)]
pub(super) struct ListQueue {
    broker: Arc<Broker>,
    gauges: Gauges,
}

impl ListQueue {
    /// Connects to nothing yet.
    pub(super) fn new(
        config: &QueueConfig,
        url: Option<&SecretString>,
        owner: Option<&Arc<Owner>>,
    ) -> Result<ListQueue> {
        Ok(ListQueue { broker: Broker::new("list", config, url, owner)?, gauges: Gauges::new("list") })
    }

    /// Connects.
    pub(super) async fn reach(&self) -> Result<()> {
        self.broker.ping().await
    }
}

#[async_trait]
impl Queue for ListQueue {
    fn kind(&self) -> &'static str {
        self.broker.kind
    }

    async fn push(&self, messages: &[Message]) -> Result<Pushed> {
        let mut pipe = redis::pipe();
        if !messages.is_empty() {
            let elements: Vec<String> = messages.iter().map(element::encode).collect();
            pipe.cmd("LPUSH").arg(&self.broker.keys.main).arg(elements).ignore();
        }
        self.broker.push(pipe, messages.len()).await
    }

    async fn consumer(&self, name: &str) -> Result<Box<dyn Consumer>> {
        Ok(Box::new(ListConsumer::register(self.broker.clone(), name).await?))
    }

    async fn check_loss(&self, seen: i64) -> Result<Option<Loss>> {
        self.broker.check_loss(seen).await
    }

    async fn server(&self) -> Result<Option<ServerFacts>> {
        self.broker.server().await.map(Some)
    }

    async fn depth(&self) -> Result<Depth> {
        let keys = &self.broker.keys;
        let mut pipe = redis::pipe();
        pipe.cmd("LLEN").arg(&keys.main).cmd("SMEMBERS").arg(&keys.consumers);
        let (waiting, consumers): (u64, Vec<String>) = self.broker.link.query(&pipe).await?;
        let mut pipe = redis::pipe();
        for consumer in &consumers {
            pipe.cmd("LLEN").arg(keys.processing(consumer));
        }
        let lengths: Vec<u64> = if pipe.is_empty() { Vec::new() } else { self.broker.link.query(&pipe).await? };
        let depth = Depth { waiting, in_flight: lengths.iter().sum() };
        self.gauges.show(depth);
        Ok(depth)
    }
}
