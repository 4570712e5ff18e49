//! Says every few seconds that this instance is alive, and hears what the others have said.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::publisher::Publisher;
use crate::store::Store;
use crate::store::instance::{Beat, Description, InstanceId, Registered};
use crate::worker::Progress;

/// What the instances have seen of the queue, together.
#[derive(Debug, Default)]
pub struct Seen {
    queue_counter: AtomicI64,
}

impl Seen {
    /// The highest push counter any instance has seen.
    pub fn queue_counter(&self) -> i64 {
        self.queue_counter.load(Ordering::Relaxed)
    }
}

/// What a heartbeat stands on.
#[derive(Debug)]
pub struct Heartbeat {
    /// Where it is written.
    pub store: Store,
    /// Who we are; a process that was away too long registers anew.
    pub instance: InstanceId,
    /// What we say of ourselves when registering.
    pub roles: Vec<String>,
    /// Our queue's backend.
    pub queue_kind: &'static str,
    /// Where we run.
    pub host: String,
    /// After how long without a heartbeat we are dead.
    pub ttl: Duration,
    /// The queue's counter, and how many share the window.
    pub publisher: Publisher,
    /// What the workers do.
    pub progress: Arc<Progress>,
    /// What the others have seen.
    pub seen: Arc<Seen>,
    /// Whether we are stopping.
    pub draining: AtomicBool,
}

impl Heartbeat {
    /// Registers this instance.
    pub async fn register(&self) -> crate::store::Result<Registered> {
        let description =
            Description { ttl: self.ttl, roles: self.roles.clone(), queue_kind: self.queue_kind, host: &self.host };
        let registered = self.store.register(&description).await?;
        self.instance.set(registered.id);
        Ok(registered)
    }

    /// One heartbeat.
    pub async fn beat(&self, clock_skew_ms: Option<i32>) -> crate::store::Result<()> {
        let beat = Beat {
            in_flight: i32::try_from(self.progress.in_flight()).unwrap_or(i32::MAX),
            queue_counter: self.publisher.counter(),
            claimed_through: self.progress.claimed_through(),
            draining: self.draining.load(Ordering::Relaxed),
            clock_skew_ms,
        };
        match self.store.beat(self.instance.get(), &beat).await? {
            Some(peers) => {
                self.seen.queue_counter.fetch_max(peers.queue_counter, Ordering::Relaxed);
                self.publisher.set_sharers(peers.alive);
            }
            None => {
                let registered = self.register().await?;
                info!(instance = registered.id, "was away too long and registered anew");
            }
        }
        Ok(())
    }
}

/// Our clock minus the database's.
pub fn clock_skew_ms(database_time: DateTime<Utc>) -> i32 {
    i32::try_from((Utc::now() - database_time).num_milliseconds()).unwrap_or(i32::MAX)
}

/// Beats until `stop`.
pub async fn run(heartbeat: &Heartbeat, every: Duration, clock_skew_ms: i32, stop: &CancellationToken) {
    let mut is_down = false;
    while !stop.is_cancelled() {
        match heartbeat.beat(Some(clock_skew_ms)).await {
            Ok(()) => is_down = false,
            Err(error) => {
                if !is_down {
                    warn!(%error, "no heartbeat; the others will take over after the TTL");
                }
                is_down = true;
            }
        }
        let wait = if is_down { every.min(Duration::from_secs(1)) } else { every };
        stop.run_until_cancelled(tokio::time::sleep(wait)).await;
    }
}
