//! A queue in Redis with a fallback: while Redis is away, messages go through a queue in this process.
//!
//! Pushes go to Redis, or, from [`FallbackQueue::leave_redis`] to [`FallbackQueue::return_to_redis`], to memory. The
//! consumer takes what is in memory first, then what is in Redis; what is left in memory after the return is worked
//! off. Who leaves, when, and what Postgres is told of it is `upkeep::fallback`'s.
//!
//! **Guarantee.** Once left, Redis keeps nobody waiting: a call to it that is under way ends. Nothing enters memory
//! before `leave_redis` nor after `return_to_redis`. **Limit.** A message may be in Redis and in memory; the claim
//! takes one of them.
//!
//! What may happen, and why each row is still delivered, once:
//!
//! - *It was in Redis, or on its way there, when Redis was left.* After leaving, everything published through Redis is
//!   due again under a new epoch and goes through memory. If Redis comes back with its data, its copies are stale and
//!   dropped at the claim; so are those that a worker holds already.
//! - *Redis comes back empty.* The push counter shows it, and what is published and unclaimed is published again, what
//!   is in memory included: one copy of each is stale.
//! - *The process dies.* Its row in `instance` said so before the first push to memory: what it published is published
//!   again once it is dead, by whoever sweeps. The row says so until memory is empty again.
//! - *Only this instance is cut off.* The others go on through Redis. What their sweeps think lost because Redis is
//!   empty does not include what this one published. Messages of theirs that are waiting in Redis when this one leaves
//!   are published again: wasted messages, no calls.
//! - *It was pushed to Redis without an answer when Redis was left.* The same messages go to memory: copies under one
//!   epoch, of which the claim takes one.
//! - *A worker acknowledges to a Redis that is away.* The acknowledgement is kept and goes along with the next.
//!
//! May change: how the two are switched. Must not: a push to memory before Postgres knows of it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

use super::memory::MemoryQueue;
use super::{
    Acker, Consumer, Delivery, Depth, Error, Handle, Loss, Maintained, Message, Pushed, Queue, Result, ServerFacts,
};

/// As good as for ever: whoever waits so long is told otherwise before.
const UNTIL_SOMETHING_COMES: Duration = Duration::from_secs(86_400);

/// Where pushes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PushTarget {
    Redis,
    Memory,
}

/// A queue in Redis that can be left for one in this process.
#[derive(Debug)]
pub struct FallbackQueue {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    redis: Arc<dyn Queue>,
    memory: MemoryQueue,
    /// Its lock is held while a message enters memory, so that none does after the return.
    target: watch::Sender<PushTarget>,
}

impl FallbackQueue {
    /// `redis`, and beside it a queue in this process for as many messages as `window` asks for.
    pub fn new(redis: Arc<dyn Queue>, window: u32) -> FallbackQueue {
        let (target, _) = watch::channel(PushTarget::Redis);
        FallbackQueue { shared: Arc::new(Shared { redis, memory: MemoryQueue::new(window), target }) }
    }

    /// Whether Redis takes a push: an empty one is a write as well. A full Redis answers, and is drained by being used.
    pub async fn probe(&self) -> Result<()> {
        match self.shared.redis.push(&[]).await {
            Ok(_) | Err(Error::Full(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// From now on pushes go to memory, and nobody waits for Redis.
    pub fn leave_redis(&self) {
        self.shared.target.send_replace(PushTarget::Memory);
    }

    /// From now on pushes go to Redis. Says whether they did not before.
    pub fn return_to_redis(&self) -> bool {
        self.shared.target.send_replace(PushTarget::Redis) == PushTarget::Memory
    }

    /// Whether pushes go to memory, or something that did is still there.
    pub fn uses_memory(&self) -> bool {
        let target = self.shared.target.borrow();
        *target == PushTarget::Memory || self.shared.memory.depth_now() != Depth::default()
    }
}

impl Shared {
    fn is_on_memory(&self) -> bool {
        *self.target.borrow() == PushTarget::Memory
    }

    /// Ends when Redis is left; at once, if it is.
    async fn redis_is_left(&self) {
        // It cannot fail: the sender is in `self`.
        let _ = self.target.subscribe().wait_for(|target| *target == PushTarget::Memory).await;
    }

    /// Asks Redis. `None`: it is left, or was while it did not answer.
    async fn ask<T>(&self, call: impl Future<Output = Result<T>>) -> Option<Result<T>> {
        tokio::select! {
            biased;
            () = self.redis_is_left() => None,
            answer = call => Some(answer),
        }
    }

    /// `None`: pushes go to Redis again.
    fn push_to_memory(&self, messages: &[Message]) -> Option<Result<Pushed>> {
        let target = self.target.borrow();
        (*target == PushTarget::Memory).then(|| self.memory.push_now(messages))
    }
}

#[async_trait]
impl Queue for FallbackQueue {
    fn kind(&self) -> &'static str {
        if self.shared.is_on_memory() { self.shared.memory.kind() } else { self.shared.redis.kind() }
    }

    async fn push(&self, messages: &[Message]) -> Result<Pushed> {
        loop {
            if let Some(pushed) = self.shared.ask(self.shared.redis.push(messages)).await {
                return pushed;
            }
            if let Some(pushed) = self.shared.push_to_memory(messages) {
                return pushed;
            }
        }
    }

    async fn consumer(&self, name: &str) -> Result<Box<dyn Consumer>> {
        let memory = self.shared.memory.consumer(name).await?;
        let ackers = Arc::new(Ackers { memory: memory.acker(), redis: OnceLock::new() });
        Ok(Box::new(FallbackConsumer { shared: self.shared.clone(), name: name.into(), memory, redis: None, ackers }))
    }

    async fn check_loss(&self, seen: i64) -> Result<Option<Loss>> {
        // What Redis lost meanwhile it tells after the return.
        self.shared.ask(self.shared.redis.check_loss(seen)).await.unwrap_or(Ok(None))
    }

    async fn depth(&self) -> Result<Depth> {
        let memory = self.shared.memory.depth_now();
        let redis = self.shared.ask(self.shared.redis.depth()).await.unwrap_or(Ok(Depth::default()))?;
        Ok(Depth { waiting: memory.waiting + redis.waiting, in_flight: memory.in_flight + redis.in_flight })
    }

    async fn server(&self) -> Result<Option<ServerFacts>> {
        self.shared.redis.server().await
    }
}

/// Takes from both. Joins Redis when it first asks it, which may be long after it was made.
struct FallbackConsumer {
    shared: Arc<Shared>,
    name: String,
    memory: Box<dyn Consumer>,
    redis: Option<Box<dyn Consumer>>,
    ackers: Arc<Ackers>,
}

/// The consumer in Redis, registered if it is not yet.
async fn join<'a>(
    redis: &'a mut Option<Box<dyn Consumer>>,
    shared: &Shared,
    name: &str,
    ackers: &Ackers,
) -> Result<&'a mut Box<dyn Consumer>> {
    match redis {
        Some(consumer) => Ok(consumer),
        None => {
            let consumer = shared.redis.consumer(name).await?;
            ackers.redis.get_or_init(|| consumer.acker());
            Ok(redis.insert(consumer))
        }
    }
}

#[async_trait]
impl Consumer for FallbackConsumer {
    async fn take(&mut self, max: usize, wait: Duration) -> Result<Vec<Delivery>> {
        let FallbackConsumer { shared, name, memory, redis, ackers } = self;
        if shared.is_on_memory() {
            return memory.take(max, wait).await;
        }
        // Memory first: nobody else can take that, and it gets no more.
        let from_redis = async { join(redis, shared, name, ackers).await?.take(max, wait).await };
        tokio::select! {
            biased;
            taken = memory.take(max, UNTIL_SOMETHING_COMES) => taken,
            taken = from_redis => taken,
        }
    }

    fn acker(&self) -> Box<dyn Acker> {
        Box::new(FallbackAcker { shared: self.shared.clone(), ackers: self.ackers.clone() })
    }

    async fn maintain(&mut self) -> Result<Maintained> {
        let FallbackConsumer { shared, name, redis, ackers, .. } = self;
        let maintained = shared.ask(async { join(redis, shared, name, ackers).await?.maintain().await }).await;
        maintained.unwrap_or(Ok(Maintained::default()))
    }

    async fn close(self: Box<Self>) -> Result<()> {
        // What was in memory goes back to it when its consumer is dropped.
        match self.redis {
            Some(redis) => self.shared.ask(redis.close()).await.unwrap_or(Ok(())),
            None => Ok(()),
        }
    }
}

/// How each of the two is acknowledged; Redis's comes when it is joined.
struct Ackers {
    memory: Box<dyn Acker>,
    redis: OnceLock<Box<dyn Acker>>,
}

struct FallbackAcker {
    shared: Arc<Shared>,
    ackers: Arc<Ackers>,
}

#[async_trait]
impl Acker for FallbackAcker {
    async fn ack(&self, deliveries: &[Delivery]) -> Result<()> {
        self.ackers.memory.ack(deliveries).await?;
        let is_in_memory = |delivery: &Delivery| matches!(delivery.handle, Handle::Tag(_));
        let Some(redis) = self.ackers.redis.get() else { return Ok(()) };
        if deliveries.iter().all(is_in_memory) {
            return Ok(());
        }
        // Begun even if Redis is left: an acknowledgement that was begun and not confirmed goes along with the next.
        tokio::select! {
            biased;
            acknowledged = redis.ack(deliveries) => acknowledged,
            () = self.shared.redis_is_left() => Ok(()),
        }
    }
}
