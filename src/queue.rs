//! 3. Carry: messages from whoever published a row to a worker.
//!
//! Postgres decides, the queue only carries. A message is a hint that a row is ready; whoever takes it still has to
//! claim the row.
//!
//! **Guarantee.** Nothing is delivered that was never pushed, what is taken stays until it is acknowledged, and a queue
//! that lost data says so ([`Queue::check_loss`]). **Limit.** A backend may lose messages (the relay publishes them
//! again) and may deliver copies (the claim drops them).
//!
//! One contract, three backends and [`fallback`], which switches between two of them, and one conformance suite
//! (`tests/it/queue/conformance.rs`) that all of them pass. The redis crate reaches Redis, Sentinel included. `server` and
//! `connection` say which steps between finding a server and the first push are ours, and which tests need them.
//!
//! May change: how a backend keeps its messages. Must not: a queue knows no database.

mod broker;
mod connection;
mod element;
pub mod events;
mod failure;
mod fairness;
pub mod fallback;
mod in_flight;
mod keys;
mod liveness;
mod loss;
mod memory;
mod metrics;
pub mod owner;
mod redis_list;
mod redis_stream;
mod server;
pub mod split;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use secrecy::SecretString;

use self::owner::Owner;
use crate::config::{QueueConfig, QueueKind};

/// What travels: which row, which publication of it, and where it is going, so that a channel's limits are known before
/// the claim.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Message {
    /// `notification_log.id`.
    pub id: i64,
    /// The epoch under which the row was published; the claim compares it.
    pub epoch: i32,
    /// Position on its topic's route.
    pub route_step: i16,
    /// What it is about.
    pub topic: Arc<str>,
}

/// A message in flight: it belongs to its consumer, across crashes, until it is acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// What to claim.
    pub message: Message,
    /// How often the queue has delivered it, this time included.
    pub times_delivered: u32,
    /// How the backend finds it again (a stream entry's id, a list element).
    pub handle: Handle,
}

/// How a backend finds a delivered message again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Handle {
    /// A number used once: the in-process queue.
    Tag(u64),
    /// What Redis knows it by: a list's element, the id of a stream's entry.
    Name(Arc<str>),
}

/// What a push left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pushed {
    /// The queue's push counter after this push, raised in the same transaction (0: the backend has none).
    pub counter: i64,
}

/// The queue lost messages it had accepted; what is published and unclaimed must be published again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loss {
    /// Everything is gone (FLUSHALL, a restart without persistence, another server).
    All,
    /// The newest pushes are gone (failover to a replica that lagged).
    Tail {
        /// The highest counter this side knows was reached.
        seen: i64,
        /// The counter the queue shows now.
        found: i64,
    },
    /// Some entries were deleted by hand while they were in flight at a consumer that died.
    Entries {
        /// How many were found missing.
        count: u64,
    },
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loss::All => write!(f, "everything"),
            Loss::Tail { seen, found } => write!(f, "the newest: counter {found} after {seen}"),
            Loss::Entries { count } => write!(f, "{count} entries"),
        }
    }
}

/// What the queue's server says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerFacts {
    /// Its version.
    pub version: String,
    /// `standalone` or `cluster`.
    pub mode: String,
    /// Its `maxmemory-policy`.
    pub policy: String,
    /// Memory in use, in bytes.
    pub memory_bytes: i64,
    /// Its `maxmemory` in bytes; 0: no limit.
    pub memory_max_bytes: i64,
}

/// How full the queue is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Depth {
    /// Pushed and not yet taken.
    pub waiting: u64,
    /// Taken and not yet acknowledged, by anyone.
    pub in_flight: u64,
}

/// What one pass of housekeeping did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Maintained {
    /// Messages taken over from dead or idle consumers by this one, or moved back to the queue.
    pub reclaimed: u64,
    /// Dead consumers whose traces were removed.
    pub consumers_removed: u64,
}

/// Why the queue did not do it, sorted by what the caller does next.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Away, loading, failing over, timed out: wait and try again. A push may or may not have arrived.
    #[error("the queue is unavailable: {0}")]
    Unavailable(String),
    /// It refuses more for now (maxmemory, a bounded in-process queue).
    #[error("the queue is full: {0}")]
    Full(String),
    /// It can never work like this (evicting policy, too old, wrong type of key, no permission).
    #[error("the queue cannot be used: {0}")]
    Unusable(String),
}

/// The result of a queue call.
pub type Result<T> = std::result::Result<T, Error>;

/// Opens the queue that is configured. Connects, and refuses a Redis that must not carry one.
pub async fn open(config: &QueueConfig, redis_url: Option<&SecretString>) -> Result<Arc<dyn Queue>> {
    match open_if_away(config, redis_url, None).await? {
        (queue, None) => Ok(queue),
        (_, Some(away)) => Err(away),
    }
}

/// The same for an instance that starts: with a Redis that is away, or full, the queue is there and each call tries to
/// reach it; the error is returned beside it. Keys of another owner are refused. What somebody must act on is refused as before, if Redis says so now.
pub async fn open_if_away(
    config: &QueueConfig,
    redis_url: Option<&SecretString>,
    owner: Option<&Arc<Owner>>,
) -> Result<(Arc<dyn Queue>, Option<Error>)> {
    let (queue, reached): (Arc<dyn Queue>, Result<()>) = match config.kind {
        QueueKind::Memory => (Arc::new(memory::MemoryQueue::new(config.window)), Ok(())),
        QueueKind::List => {
            let queue = redis_list::ListQueue::new(config, redis_url, owner)?;
            let reached = queue.reach().await;
            (Arc::new(queue), reached)
        }
        QueueKind::Stream => {
            let queue = redis_stream::StreamQueue::new(config, redis_url, owner)?;
            let reached = queue.reach().await;
            (Arc::new(queue), reached)
        }
    };
    match reached {
        Ok(()) => Ok((queue, None)),
        Err(refused @ Error::Unusable(_)) => Err(refused),
        Err(away) => Ok((queue, Some(away))),
    }
}

/// Finds the Redis that [`open`] would use, refuses what it would refuse, and tells what the server says of itself.
/// Writes nothing.
pub async fn inspect(config: &QueueConfig, redis_url: &SecretString) -> Result<ServerFacts> {
    broker::inspect(config, redis_url).await
}

/// One queue, shared by all instances that are configured with it (the in-process one: by one process).
#[async_trait]
pub trait Queue: Send + Sync + std::fmt::Debug {
    /// `memory`, `list` or `stream`: where pushes go now.
    fn kind(&self) -> &'static str;

    /// Appends all messages in order, in one round trip. After an error the caller must assume that any
    /// of them may have arrived.
    async fn push(&self, messages: &[Message]) -> Result<Pushed>;

    /// Registers a consumer that takes and acknowledges under `name` (unique per instance run and worker).
    async fn consumer(&self, name: &str) -> Result<Box<dyn Consumer>>;

    /// Compares the queue with the highest counter known to have been reached (`seen`: of this process and
    /// of every instance, as kept in Postgres; 0: none). `Some` at most once per loss and process; from then on
    /// the queue as it is counts. Call it every second, and once before a process's first push: that push's
    /// counter would replace, in Postgres, the one that shows what was lost before. `seen` is remembered as soon as the
    /// call begins, whatever becomes of it: a queue that is away now is compared with it when it answers.
    async fn check_loss(&self, seen: i64) -> Result<Option<Loss>>;

    /// How full it is.
    async fn depth(&self) -> Result<Depth>;

    /// What its server says of itself; `None`: there is no server.
    async fn server(&self) -> Result<Option<ServerFacts>> {
        Ok(None)
    }
}

/// One consumer of a [`Queue`]. `take` needs exclusive use; acknowledging does not wait for it.
#[async_trait]
pub trait Consumer: Send {
    /// Waits up to `wait` for a first message and returns up to `max` in the order they were pushed.
    /// What an earlier run under this name, or a call that stopped waiting, left unacknowledged comes first.
    /// Cancel-safe: a message moved while nobody waits any more is found by a later call.
    async fn take(&mut self, max: usize, wait: Duration) -> Result<Vec<Delivery>>;

    /// A handle that acknowledges from other tasks.
    fn acker(&self) -> Box<dyn Acker>;

    /// Sends this consumer's heartbeat and takes over what dead ones hold; call it at least
    /// every third of the consumer TTL. Bounded work: at most 1,000 elements or entries of dead consumers per call.
    /// What it took over comes with the next `take`.
    async fn maintain(&mut self) -> Result<Maintained>;

    /// Gives back what was taken and not acknowledged, for others to take at once, and signs off.
    async fn close(self: Box<Self>) -> Result<()>;
}

/// Acknowledges deliveries: removes them for good. Only after Postgres has the outcome.
#[async_trait]
pub trait Acker: Send + Sync {
    /// Removes all of them in one round trip. Removing what is already gone is no error.
    async fn ack(&self, deliveries: &[Delivery]) -> Result<()>;
}
