//! A Redis stream with one consumer group.
//!
//! Guarantee: an entry is one message, and is in the stream from its push to its acknowledgement, which
//! removes it from the group and from the stream at once. So the stream holds what waits and what is in flight and
//! nothing else; it is never trimmed, and no pending entry can be trimmed away.
//!
//! Pending entries belong to their consumer for as long as it sends heartbeats, however long its job
//! takes. Those of dead consumers are shared out among the alive (see `fairness`); XCLAIM's min-idle is the
//! lock when two of them disagree about who is alive. A dead consumer is removed once it holds nothing.
//!
//! Limits: entries given back by a closing consumer go to the end. Entries deleted by hand while pending
//! are lost to the queue; when one is found, [`Loss::Entries`] tells it.

mod consumer;
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
use super::owner::Owner;
use super::{Consumer, Depth, Loss, Message, Pushed, Queue, Result, ServerFacts, element};
use crate::config::QueueConfig;
use consumer::StreamConsumer;

/// KEYS: stream. ARGV: group, then entry ids. A script and not a transaction: Redis refuses to queue even these
/// commands when it is out of memory, and then nothing could be drained. In chunks: Lua can unpack only so many
/// arguments.
const REMOVE: &str = r"
for i = 2, #ARGV, 1000 do
  local last = math.min(i + 999, #ARGV)
  redis.call('XACK', KEYS[1], ARGV[1], unpack(ARGV, i, last))
  redis.call('XDEL', KEYS[1], unpack(ARGV, i, last))
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
    /// Connects to nothing yet.
    pub(super) fn new(
        config: &QueueConfig,
        url: Option<&SecretString>,
        owner: Option<&Arc<Owner>>,
    ) -> Result<StreamQueue> {
        let shared = Shared { broker: Broker::new("stream", config, url, owner)?, vanished: AtomicU64::new(0) };
        Ok(StreamQueue { shared: Arc::new(shared), gauges: Gauges::new("stream") })
    }

    /// Connects. The group is made here; whoever finds none makes it too, so a Redis that answers later has one.
    pub(super) async fn reach(&self) -> Result<()> {
        Ok(self.shared.create_group().await?)
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
    async fn remove(&self, entries: &[impl AsRef<str>]) -> std::result::Result<(), Failure> {
        let mut pipe = redis::pipe();
        pipe.cmd("EVAL").arg(REMOVE).arg(1).arg(&self.broker.keys.main).arg(GROUP);
        for id in entries {
            pipe.arg(id.as_ref());
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
        for message in messages {
            pipe.cmd("XADD").arg(&keys.main).arg("*").arg(FIELD).arg(element::encode(message)).ignore();
        }
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
        Ok(Some(Loss::Entries { count }))
    }

    async fn server(&self) -> Result<Option<ServerFacts>> {
        self.shared.broker.server().await.map(Some)
    }

    async fn depth(&self) -> Result<Depth> {
        let keys = &self.shared.broker.keys;
        let mut pipe = redis::pipe();
        pipe.cmd("XLEN").arg(&keys.main).cmd("XPENDING").arg(&keys.main).arg(GROUP);
        let (length, pending): (u64, reply::PendingSummary) = self.shared.query(&pipe).await?;
        let depth = Depth { waiting: length.saturating_sub(pending.0), in_flight: pending.0 };
        self.gauges.show(depth);
        Ok(depth)
    }
}
