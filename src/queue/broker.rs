//! One Redis as both of its backends use it: keys, a link for what does not block, the push counter.

use std::sync::Arc;
use std::time::Duration;

use redis::Pipeline;
use secrecy::SecretString;

use super::connection::{Link, within_reach_timeout};
use super::keys::Keys;
use super::loss::PushCounter;
use super::metrics;
use super::owner::Owner;
use super::server::{Server, facts};
use super::{Error, Loss, Pushed, Result, ServerFacts};
use crate::config::QueueConfig;

/// Shared by a queue and its consumers.
#[derive(Debug)]
pub(super) struct Broker {
    pub kind: &'static str,
    pub keys: Keys,
    pub link: Link,
    pub consumer_ttl: Duration,
    counter: Arc<PushCounter>,
}

impl Broker {
    /// Connects to nothing yet: each call does that if need be, and refuses a Redis that must not carry a queue.
    pub(super) fn new(
        kind: &'static str,
        config: &QueueConfig,
        url: Option<&SecretString>,
        owner: Option<&Arc<Owner>>,
    ) -> Result<Arc<Broker>> {
        let missing = || Error::Unusable(format!("queue.kind {kind:?} needs redis_url"));
        let keys = Keys::new(&config.prefix, kind)?;
        let counter = Arc::new(PushCounter::new(&keys.meta));
        let server = Server::new(url.ok_or_else(missing)?, &keys.main)?.owned(owner, &keys.owner);
        let server = Arc::new(server);
        let link = Link::new(server, counter.clone());
        Ok(Arc::new(Broker { kind, keys, link, consumer_ttl: config.consumer_ttl, counter }))
    }

    /// Asks for an answer.
    pub(super) async fn ping(&self) -> Result<()> {
        let mut pipe = redis::pipe();
        pipe.cmd("PING").ignore();
        Ok(self.link.query::<()>(&pipe).await?)
    }

    /// Runs `pipe`, which pushes `count` messages, and raises the counter in the same transaction.
    pub(super) async fn push(&self, mut pipe: Pipeline, count: usize) -> Result<Pushed> {
        pipe.atomic();
        self.counter.count(&mut pipe, count);
        let reply = self.link.query(&pipe).await?;
        Ok(Pushed { counter: self.counter.after_push(&self.link, reply).await? })
    }

    pub(super) async fn check_loss(&self, seen: i64) -> Result<Option<Loss>> {
        let loss = self.counter.check(&self.link, seen).await?;
        if loss.is_some() {
            metrics::losses(self.kind).increment(1);
        }
        Ok(loss)
    }

    /// What the server says of itself now.
    pub(super) async fn server(&self) -> Result<ServerFacts> {
        let mut pipe = redis::pipe();
        pipe.cmd("INFO");
        let (info,) = self.link.query(&pipe).await?;
        Ok(facts(&info))
    }

    /// Counts what someone else put into our keys and a consumer threw out.
    pub(super) fn dropped_garbage(&self, count: usize) {
        metrics::garbage(self.kind).increment(count as u64);
        tracing::warn!(backend = self.kind, count, "dropped what is no message");
    }
}

/// Finds the server as a [`Link`] does and writes nothing there.
pub(super) async fn inspect(config: &QueueConfig, url: &SecretString) -> Result<ServerFacts> {
    let keys = Keys::new(&config.prefix, "stream")?;
    let server = Server::new(url, &keys.main)?;
    Ok(facts(&within_reach_timeout(server.connect()).await?.info))
}
