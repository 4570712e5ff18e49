//! Carry: the contract that all backends keep, and what each survives.

mod conformance;
mod fallback;
mod faults;
mod list;
mod loss;
mod memory;
mod metrics;
mod stream;
mod topology;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use outboxd::config::{QueueConfig, QueueKind, defaults};
use outboxd::queue::{self, Consumer, Delivery, Message, Queue};
use secrecy::SecretString;

use crate::support::redis::{shared, unique_prefix};

/// Short, so that a dead consumer is noticed within a test; long enough for a busy machine.
const TTL: Duration = Duration::from_millis(600);

/// Nothing that is waited for takes this long unless it is broken.
const PATIENCE: Duration = Duration::from_secs(20);

fn config(kind: QueueKind) -> QueueConfig {
    let prefix = unique_prefix();
    QueueConfig { kind, prefix, consumer_ttl: TTL, deliveries_max: 5, fallback_after: None, ..defaults().queue }
}

async fn open_at(config: &QueueConfig, url: &str) -> queue::Result<Arc<dyn Queue>> {
    queue::open(config, Some(&SecretString::from(url))).await
}

/// A queue on the shared server, apart from every other.
async fn open(kind: QueueKind) -> Arc<dyn Queue> {
    open_at(&config(kind), shared().url()).await.unwrap()
}

fn messages(ids: std::ops::Range<i64>) -> Vec<Message> {
    ids.map(|id| Message { id, epoch: 1, route_step: 0, topic: Arc::from("orders") }).collect()
}

fn ids(deliveries: &[Delivery]) -> Vec<i64> {
    deliveries.iter().map(|delivery| delivery.message.id).collect()
}

/// Takes until `count` deliveries are there, tending meanwhile; tolerates an unavailable queue.
async fn take_all(consumer: &mut Box<dyn Consumer>, count: usize) -> Vec<Delivery> {
    let started = Instant::now();
    let mut taken = Vec::new();
    while taken.len() < count {
        assert!(started.elapsed() < PATIENCE, "only {} of {count} arrived within {PATIENCE:?}", taken.len());
        let _unavailable = consumer.maintain().await;
        taken.extend(consumer.take(count - taken.len(), Duration::from_millis(50)).await.unwrap_or_default());
    }
    taken
}

/// Nothing arrives although it is asked for, twice the TTL long.
async fn assert_nothing_arrives(consumer: &mut Box<dyn Consumer>) {
    let started = Instant::now();
    while started.elapsed() < TTL * 2 {
        consumer.maintain().await.unwrap();
        let taken = consumer.take(10, Duration::from_millis(50)).await.unwrap();
        assert!(taken.is_empty(), "{taken:?}");
    }
}

fn distinct(deliveries: &[Delivery]) -> usize {
    deliveries.iter().map(|delivery| &delivery.message).collect::<HashSet<_>>().len()
}
