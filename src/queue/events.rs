//! Domain events for the app's own consumers: one Redis stream per topic, appended in order.
//!
//! ```text
//! {prefix}:v1:events:topic:<topic>   stream   fields id, key, payload, headers, created_at, position
//! {prefix}:v1:events:meta            hash     appended: the number of the last publication that the streams hold
//! ```
//!
//! **Guarantee.** Events of one call are appended in order, all or none, and only where the last call left off: the
//! number is compared and raised in the script that appends. So Redis itself says what its streams hold, also after it
//! lost some of it, and an owner that was paused and wakes up late appends nothing. **Limit.** A stream keeps about
//! `events.stream_max` events. Entries that somebody removes while the number stays (XTRIM, DEL by hand) are not seen
//! here.

mod feed;
mod groups;

use std::collections::BTreeMap;
use std::sync::Arc;

use secrecy::SecretString;

use super::Result;
use super::broker::Broker;
use super::metrics;
use super::owner::Owner;
use crate::config::QueueConfig;

pub use feed::{Entry, EntryId, Feed, Located, Mark};
pub use groups::{Group, StreamFacts};

/// KEYS: meta, streams. ARGV: the number to find, the number to leave, what a stream keeps; then of each event its
/// stream's index among KEYS, id, key, payload, headers, created_at and position. Returns the number now.
///
/// XLEN fails on a key that is no stream, before anything is written. A script that is let in when memory is short is
/// let through, and the first write is the one that Redis refuses.
const APPEND: &str = r"
local appended = redis.call('HGET', KEYS[1], 'appended') or '0'
if appended ~= ARGV[1] then return tonumber(appended) end
for i = 2, #KEYS do redis.call('XLEN', KEYS[i]) end
for i = 4, #ARGV, 7 do
  redis.call('XADD', KEYS[tonumber(ARGV[i])], 'MAXLEN', '~', ARGV[3], '*', 'id', ARGV[i + 1], 'key', ARGV[i + 2],
    'payload', ARGV[i + 3], 'headers', ARGV[i + 4], 'created_at', ARGV[i + 5], 'position', ARGV[i + 6])
end
redis.call('HSET', KEYS[1], 'appended', ARGV[2])
return tonumber(ARGV[2])
";

/// A domain event, as its consumers see it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Event {
    /// `event.id`; what consumers recognise repeats by.
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
    /// Its position in the stream, from 1 and without gaps.
    pub position: i64,
}

/// The streams of all topics. Cheap to clone.
#[derive(Debug, Clone)]
pub struct EventStreams {
    broker: Arc<Broker>,
    stream_max: u32,
}

impl EventStreams {
    /// In the Redis that also carries the queue. Connects to nothing yet.
    pub fn new(config: &QueueConfig, redis_url: &SecretString, stream_max: u32) -> Result<EventStreams> {
        Ok(EventStreams { broker: Broker::new("events", config, Some(redis_url), None)?, stream_max })
    }

    /// The same for an installation: streams of another are refused.
    pub fn owned(
        config: &QueueConfig,
        redis_url: &SecretString,
        stream_max: u32,
        owner: &Arc<Owner>,
    ) -> Result<EventStreams> {
        Ok(EventStreams { broker: Broker::new("events", config, Some(redis_url), Some(owner))?, stream_max })
    }

    /// The stream of a topic.
    pub fn key(&self, topic: &str) -> String {
        format!("{}:topic:{topic}", self.broker.keys.main)
    }

    /// Events that a stream keeps, about.
    pub fn stream_max(&self) -> u32 {
        self.stream_max
    }

    /// The number of the last publication that the streams hold; 0: they hold nothing.
    pub async fn appended(&self) -> Result<i64> {
        let mut pipe = redis::pipe();
        pipe.cmd("HGET").arg(&self.broker.keys.meta).arg("appended");
        let (appended,): (Option<i64>,) = self.broker.link.query(&pipe).await?;
        Ok(appended.unwrap_or(0))
    }

    /// Appends all events in order if the streams have come to `from`, and leaves them at `to`. Returns where they are
    /// now: `to`, or where somebody else, or a loss, left them. After an error ask [`EventStreams::appended`].
    pub async fn append(&self, from: i64, to: i64, events: &[Event]) -> Result<i64> {
        let mut indexes: BTreeMap<&str, usize> = BTreeMap::new();
        events.iter().for_each(|event| _ = indexes.insert(&event.topic, 0));
        // Lua counts from 1, and the first key is not a stream.
        indexes.values_mut().enumerate().for_each(|(n, index)| *index = n + 2);
        let mut pipe = redis::pipe();
        let eval = pipe.cmd("EVAL").arg(APPEND).arg(indexes.len() + 1).arg(&self.broker.keys.meta);
        indexes.keys().for_each(|topic| _ = eval.arg(self.key(topic)));
        eval.arg(from).arg(to).arg(self.stream_max);
        for event in events {
            eval.arg(indexes[event.topic.as_str()]).arg(event.id).arg(&event.key).arg(&event.payload);
            eval.arg(event.headers.as_deref().unwrap_or("{}")).arg(&event.created_at).arg(event.position);
        }
        let (now,): (i64,) = self.broker.link.query(&pipe).await?;
        Ok(now)
    }

    /// Counts a loss that was found.
    pub fn note_loss(&self) {
        metrics::losses(self.broker.kind).increment(1);
    }
}
