//! The queues of an instance that starts: the one that is configured, with or without its Redis, and those in its process
//! beside it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tracing::{info, warn};

use crate::config::{Config, QueueKind, Role};
use crate::queue::fallback::FallbackQueue;
use crate::queue::owner::Owner;
use crate::queue::split::SplitQueue;
use crate::queue::{self, Error, Loss, Queue};
use crate::store::instance::Presence;

/// How long a Redis that is away is waited for when it is to be told what was pushed.
const NOTING_MAX: Duration = Duration::from_millis(100);

/// The queue that is configured.
pub(super) struct Opened {
    pub(super) queue: Arc<dyn Queue>,
    /// The same, where it is Redis and may be left.
    pub(super) fallback: Option<Arc<FallbackQueue>>,
    /// Redis did not answer, or has no room.
    pub(super) is_away: bool,
}

/// Opens it. A Redis that is away is told of.
pub(super) async fn open(config: &Config, roles: &BTreeSet<Role>, owner: &Arc<Owner>) -> queue::Result<Opened> {
    let (queue, away) = queue::open_if_away(&config.queue, config.redis_url.as_ref(), Some(owner)).await?;
    let is_away = away.is_some();
    let (is_redis, after) = (config.queue.kind != QueueKind::Memory, config.queue.fallback_after);
    let after = match (roles.contains(&Role::Relay) && roles.contains(&Role::Worker), after.filter(|_| is_redis)) {
        (false, Some(_)) => {
            info!("queue.fallback_after has no effect: without Redis only relay and worker in one process can go on");
            None
        }
        (_, after) => after,
    };
    match (&away, after) {
        (Some(error), Some(after)) => {
            let after = humantime::format_duration(after);
            warn!(%error, %after, "Redis is away at the start; deliveries go on through this process after queue.fallback_after");
        }
        (Some(error), None) => warn!(%error, "Redis is away at the start; deliveries wait for Redis"),
        (None, _) => {}
    }
    if after.is_none() {
        return Ok(Opened { queue, fallback: None, is_away });
    }
    let fallback = Arc::new(FallbackQueue::new(queue, config.queue.window));
    Ok(Opened { queue: Arc::clone(&fallback) as Arc<dyn Queue>, fallback: Some(fallback), is_away })
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

/// What others pushed and a queue that was emptied since has lost: to be asked before the first push. A Redis that is
/// away is told what was pushed, and says what it lost to the sweep that reaches it.
pub(super) async fn lost_meanwhile(
    queue: &dyn Queue,
    is_away: bool,
    presence: &Presence,
) -> queue::Result<Option<Loss>> {
    let time_max = if is_away { NOTING_MAX } else { Duration::MAX };
    match tokio::time::timeout(time_max, queue.check_loss(presence.queue_counter())).await {
        Ok(Err(refused @ Error::Unusable(_))) => Err(refused),
        Ok(Err(_)) | Err(_) => Ok(None),
        Ok(Ok(loss)) => Ok(loss),
    }
}
