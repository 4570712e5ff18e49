//! A Redis stream with one consumer group.
//!
//! Guarantee: an entry is in the stream from its push to the acknowledgement of all its messages (see `pack`), which
//! removes it from the group and from the stream at once. So the stream holds what waits and what is in flight and
//! nothing else; it is never trimmed, and no pending entry can be trimmed away.
//!
//! Pending entries belong to their consumer for as long as it shows signs of life, however long its job
//! takes. Those of dead consumers are shared out among the alive (see `fairness`); XCLAIM's min-idle is the
//! lock when two of them disagree about who is alive. A dead consumer is removed once it holds nothing.
//!
//! Limits: entries given back by a closing consumer go to the end. Entries deleted by hand while pending
//! are lost to the queue; when one is found, [`Loss::Entries`] tells it.

mod consumer;
mod pack;
mod pending;
mod reply;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use redis::Pipeline;
use secrecy::SecretString;

use super::broker::Broker;
use super::failure::Failure;
use super::keys::{FIELD, GROUP};
use super::metrics::{self, Gauges};
use super::{Consumer, Depth, Loss, Message, Pushed, Queue, Result, ServerFacts};
use crate::config::QueueConfig;
use consumer::StreamConsumer;
pub use pack::Part;
use pack::{PACK_MAX, pack};

/// KEYS: stream, meta. ARGV: group, then entry ids, each followed by how many messages it carries. Only what this call
/// removes is subtracted: someone else may have removed the rest. A script and not a transaction: Redis refuses to
/// queue even these commands when it is out of memory, and then nothing could be drained.
const REMOVE: &str = r"
local removed = 0
for i = 2, #ARGV, 2 do
  redis.call('XACK', KEYS[1], ARGV[1], ARGV[i])
  removed = removed + redis.call('XDEL', KEYS[1], ARGV[i]) * ARGV[i + 1]
end
if redis.call('XLEN', KEYS[1]) == 0 then
  redis.call('HDEL', KEYS[2], 'held')
elseif removed > 0 then
  redis.call('HINCRBY', KEYS[2], 'held', -removed)
end
";

/// The stream backend.
#[derive(Debug)]
pub(super) struct StreamQueue {
    shared: Arc<Shared>,
    gauges: Gauges,
}

/// What a stream queue and its consumers share.
#[derive(Debug)]
struct Shared {
    broker: Arc<Broker>,
    /// Pending entries found without a body, not yet told as a loss.
    vanished: AtomicU64,
}

impl StreamQueue {
    pub(super) async fn open(config: &QueueConfig, url: Option<&SecretString>) -> Result<StreamQueue> {
        let broker = Broker::open("stream", config, url).await?;
        let shared = Shared { broker, vanished: AtomicU64::new(0) };
        shared.create_group().await?;
        Ok(StreamQueue { shared: Arc::new(shared), gauges: Gauges::new("stream") })
    }
}

impl Shared {
    /// Runs `pipe`; if the group is gone (FLUSHALL, a key deleted by hand) makes it and runs `pipe` again.
    async fn query<T: redis::FromRedisValue>(&self, pipe: &Pipeline) -> std::result::Result<T, Failure> {
        match self.broker.link.query(pipe).await {
            Err(failure) if failure.has_code("NOGROUP") => {
                self.create_group().await?;
                self.broker.link.query(pipe).await
            }
            result => result,
        }
    }

    /// Acknowledges and deletes at once: an entry is never one without the other.
    async fn remove(&self, entries: &[(impl AsRef<str>, usize)]) -> std::result::Result<(), Failure> {
        let mut pipe = redis::pipe();
        pipe.cmd("EVAL").arg(REMOVE).arg(2).arg(&self.broker.keys.main).arg(&self.broker.keys.meta).arg(GROUP);
        for (id, messages) in entries {
            pipe.arg(id.as_ref()).arg(*messages);
        }
        pipe.ignore();
        self.broker.link.query(&pipe).await
    }

    /// From the stream's beginning, so that what was pushed before the group existed is taken too.
    async fn create_group(&self) -> std::result::Result<(), Failure> {
        let mut pipe = redis::pipe();
        pipe.cmd("XGROUP").arg("CREATE").arg(&self.broker.keys.main).arg(GROUP).arg("0").arg("MKSTREAM").ignore();
        match self.broker.link.query::<()>(&pipe).await {
            Err(failure) if failure.has_code("BUSYGROUP") => Ok(()),
            result => result,
        }
    }
}

#[async_trait]
impl Queue for StreamQueue {
    fn kind(&self) -> &'static str {
        self.shared.broker.kind
    }

    async fn push(&self, messages: &[Message]) -> Result<Pushed> {
        let keys = &self.shared.broker.keys;
        let mut pipe = redis::pipe();
        for body in pack(messages) {
            pipe.cmd("XADD").arg(&keys.main).arg("*").arg(FIELD).arg(body).ignore();
        }
        pipe.cmd("HINCRBY").arg(&keys.meta).arg("held").arg(messages.len()).ignore();
        self.shared.broker.push(pipe, messages.len()).await
    }

    async fn consumer(&self, name: &str) -> Result<Box<dyn Consumer>> {
        Ok(Box::new(StreamConsumer::register(self.shared.clone(), name).await?))
    }

    async fn check_loss(&self, seen: i64) -> Result<Option<Loss>> {
        if let Some(loss) = self.shared.broker.check_loss(seen).await? {
            return Ok(Some(loss));
        }
        let count = self.shared.vanished.swap(0, Ordering::Relaxed);
        if count == 0 {
            return Ok(None);
        }
        metrics::losses(self.kind()).increment(1);
        tracing::warn!(backend = self.kind(), entries = count, "entries were deleted while pending");
        Ok(Some(Loss::Entries { count }))
    }

    async fn server(&self) -> Result<Option<ServerFacts>> {
        self.shared.broker.server().await.map(Some)
    }

    async fn depth(&self) -> Result<Depth> {
        let keys = &self.shared.broker.keys;
        let mut pipe = redis::pipe();
        pipe.cmd("XLEN").arg(&keys.main).cmd("XPENDING").arg(&keys.main).arg(GROUP);
        pipe.cmd("HGET").arg(&keys.meta).arg("held");
        let (length, pending, held): (u64, reply::PendingSummary, Option<u64>) = self.shared.query(&pipe).await?;
        let depth = depth(length.saturating_sub(pending.0), pending.0, held.unwrap_or(0));
        self.gauges.show(depth);
        Ok(depth)
    }
}

/// How many messages `waiting` and `pending` entries carry that carry `held` together: an entry carries one at least and
/// [`PACK_MAX`] at most. Exact where entries carry one message or all that they can, else rather too many wait than too few,
/// because the window must not be overrun. So the count need not be right after entries were deleted by hand.
fn depth(waiting: u64, pending: u64, held: u64) -> Depth {
    let carried = |messages: u64, entries: u64| messages.clamp(entries, entries * PACK_MAX as u64);
    let waiting_messages = carried(held.saturating_sub(pending), waiting);
    Depth { waiting: waiting_messages, in_flight: carried(held.saturating_sub(waiting_messages), pending) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(waiting: u64, pending: u64, held: u64) -> (u64, u64) {
        let depth = depth(waiting, pending, held);
        (depth.waiting, depth.in_flight)
    }

    #[test]
    fn depth_is_exact_for_single_messages_and_for_full_entries() {
        assert_eq!(counted(0, 0, 0), (0, 0));
        assert_eq!(counted(6, 4, 10), (6, 4));
        assert_eq!(counted(10, 4, 112), (80, 32));
        assert_eq!(counted(0, 4, 30), (0, 30));
        assert_eq!(counted(4, 0, 30), (30, 0));
    }

    #[test]
    fn of_mixed_entries_rather_too_many_wait_than_too_few() {
        // Ten singles wait, four full entries are pending; and the other way round.
        assert_eq!(counted(10, 4, 42), (38, 4));
        assert_eq!(counted(4, 10, 42), (32, 10));
    }

    #[test]
    fn a_count_that_is_wrong_is_kept_within_what_the_entries_can_carry() {
        assert_eq!(counted(0, 0, 500), (0, 0));
        assert_eq!(counted(3, 2, 500), (24, 16));
        assert_eq!(counted(3, 2, 0), (3, 2));
    }
}
