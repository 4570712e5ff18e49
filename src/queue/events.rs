//! Domain events for the app's own consumers: one Redis stream per topic, appended in order.
//!
//! ```text
//! {prefix}:v1:events:topic:<topic>   stream   fields id, key, payload, headers, created_at
//! ```
//!
//! Guarantee: events of one call are appended in order, all or none. Limit: a stream keeps about [`LENGTH_MAX`] events;
//! what is older is in Postgres and can be appended again by `replay_events()`. An event may be appended twice after a
//! crash; `id` tells, and `outboxd.receive(consumer, id)` makes the consumer idempotent.

use std::sync::Arc;

use secrecy::SecretString;

use super::Result;
use super::broker::Broker;
use crate::config::QueueConfig;

/// Events a stream keeps, about.
pub const LENGTH_MAX: usize = 100_000;

/// A domain event, as its consumers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// `event.id`; what consumers deduplicate by.
    pub id: i64,
    /// Its stream.
    pub topic: String,
    /// Events with one key keep their order.
    pub key: String,
    /// JSON text.
    pub payload: String,
    /// JSON text of an object.
    pub headers: Option<String>,
    /// When the app recorded it, RFC 3339.
    pub created_at: String,
}

/// The streams of all topics. Cheap to clone.
#[derive(Debug, Clone)]
pub struct EventStreams {
    broker: Arc<Broker>,
}

impl EventStreams {
    /// Connects to the Redis that also carries the queue.
    pub async fn open(config: &QueueConfig, redis_url: &SecretString) -> Result<EventStreams> {
        Ok(EventStreams { broker: Broker::open("events", config, Some(redis_url)).await? })
    }

    /// The stream of a topic.
    pub fn key(&self, topic: &str) -> String {
        format!("{}:topic:{topic}", self.broker.keys.main)
    }

    /// Appends all events in order, in one round trip; after an error the caller must assume that they may be there.
    pub async fn append(&self, events: &[Event]) -> Result<()> {
        if events.is_empty() {
            return Ok(());
        }
        let mut pipe = redis::pipe();
        for event in events {
            let add = pipe.cmd("XADD").arg(self.key(&event.topic)).arg("MAXLEN").arg("~").arg(LENGTH_MAX).arg("*");
            add.arg("id").arg(event.id).arg("key").arg(&event.key).arg("payload").arg(&event.payload);
            add.arg("headers").arg(event.headers.as_deref().unwrap_or("{}")).arg("created_at").arg(&event.created_at);
            add.ignore();
        }
        self.broker.push(pipe, events.len()).await.map(|_| ())
    }
}
