//! Which queues an instance uses: the one that is configured, and those in its process beside it.

use std::collections::BTreeSet;
use std::sync::Arc;

use tracing::info;

use crate::config::{Config, QueueKind, Role};
use crate::queue::fallback::FallbackQueue;
use crate::queue::split::SplitQueue;
use crate::queue::{self, Queue};

/// The queue that is configured, and, where that is Redis and may be left, how.
pub(super) async fn open(
    config: &Config,
    roles: &BTreeSet<Role>,
) -> queue::Result<(Arc<dyn Queue>, Option<Arc<FallbackQueue>>)> {
    let queue = queue::open(&config.queue, config.redis_url.as_ref()).await?;
    if config.queue.kind == QueueKind::Memory || config.queue.fallback_after.is_none() {
        return Ok((queue, None));
    }
    if !roles.contains(&Role::Relay) || !roles.contains(&Role::Worker) {
        info!("queue.fallback_after has no effect: without Redis only relay and worker in one process can go on");
        return Ok((queue, None));
    }
    let fallback = Arc::new(FallbackQueue::new(queue, config.queue.window));
    Ok((Arc::clone(&fallback) as Arc<dyn Queue>, Some(fallback)))
}

/// The queue, and, where it is shared and what enters it here can be worked off here, how to keep something to ourselves.
pub(super) fn split(
    queue: Arc<dyn Queue>,
    config: &Config,
    roles: &BTreeSet<Role>,
) -> (Arc<dyn Queue>, Option<Arc<SplitQueue>>) {
    let is_shared = config.queue.kind != QueueKind::Memory;
    if !is_shared || !roles.contains(&Role::Relay) || !roles.contains(&Role::Worker) {
        return (queue, None);
    }
    let split = Arc::new(SplitQueue::new(queue, config.queue.window));
    (Arc::clone(&split) as Arc<dyn Queue>, Some(split))
}
