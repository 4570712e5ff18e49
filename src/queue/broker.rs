//! One Redis as both of its backends use it: keys, a link for what does not block, the push counter.

use std::sync::Arc;
use std::time::Duration;

use redis::Pipeline;
use secrecy::{ExposeSecret, SecretString};

use super::address::Address;
use super::connection::Link;
use super::keys::Keys;
use super::loss::Lineage;
use super::metrics;
use super::server::Server;
use super::{Error, Loss, Pushed, Result, ServerFacts};
use crate::config::QueueConfig;

/// Shared by a queue and its consumers.
#[derive(Debug)]
pub(super) struct Broker {
    pub kind: &'static str,
    pub keys: Keys,
    pub link: Link,
    pub consumer_ttl: Duration,
    lineage: Arc<Lineage>,
}

impl Broker {
    /// Connects, and refuses a Redis that must not carry a queue.
    pub(super) async fn open(
        kind: &'static str,
        config: &QueueConfig,
        url: Option<&SecretString>,
    ) -> Result<Arc<Broker>> {
        let missing = || Error::Unusable(format!("queue.kind {kind:?} needs redis_url"));
        let address = Address::parse(url.ok_or_else(missing)?.expose_secret())?;
        // redis-rs takes the process's provider and panics when several are linked and none is installed.
        // An Err means that someone installed one before us, which serves as well.
        let _installed_before = rustls::crypto::ring::default_provider().install_default();
        let keys = Keys::new(&config.prefix, kind)?;
        let lineage = Arc::new(Lineage::new(&keys.meta));
        let server = Arc::new(Server::new(address, &keys.main));
        let link = Link::new(server, lineage.clone());
        let mut pipe = redis::pipe();
        pipe.cmd("PING").ignore();
        link.query::<()>(&pipe).await?;
        Ok(Arc::new(Broker { kind, keys, link, consumer_ttl: config.consumer_ttl, lineage }))
    }

    /// Runs `pipe`, which pushes `count` messages, and raises the counter in the same transaction.
    pub(super) async fn push(&self, mut pipe: Pipeline, count: usize) -> Result<Pushed> {
        pipe.atomic();
        self.lineage.count(&mut pipe, count);
        let reply = self.link.query(&pipe).await?;
        Ok(Pushed { counter: self.lineage.counted(&self.link, reply).await? })
    }

    pub(super) async fn check_loss(&self, seen: i64) -> Result<Option<Loss>> {
        let loss = self.lineage.check(&self.link, seen).await?;
        if let Some(loss) = &loss {
            metrics::losses(self.kind).increment(1);
            tracing::warn!(backend = self.kind, ?loss, "the queue lost messages");
        }
        Ok(loss)
    }

    /// What INFO says; like at connecting, because CONFIG GET is closed on managed Redis.
    pub(super) async fn server(&self) -> Result<ServerFacts> {
        let mut pipe = redis::pipe();
        pipe.cmd("INFO").arg("memory");
        let (info,): (String,) = self.link.query(&pipe).await?;
        let value = |name: &str| info.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'));
        let bytes = |name: &str| value(name).and_then(|bytes| bytes.parse().ok()).unwrap_or(0);
        Ok(ServerFacts {
            policy: value("maxmemory_policy").unwrap_or_default().to_owned(),
            memory_bytes: bytes("used_memory"),
            memory_max_bytes: bytes("maxmemory"),
        })
    }

    /// Counts what someone else put into our keys and a consumer threw out.
    pub(super) fn dropped_garbage(&self, count: usize) {
        metrics::garbage(self.kind).increment(count as u64);
        tracing::warn!(backend = self.kind, count, "dropped what is no message");
    }
}
