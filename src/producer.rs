//! Write and release: due PENDING rows become QUEUED with their outbox rows, and go to the queue at once.

use std::time::{Duration, Instant};

use tracing::warn;

pub mod embed;

use crate::config::ProducerConfig;
use crate::failpoint;
use crate::publisher::{Error, Publisher};
use crate::store::Store;
use crate::store::instance::InstanceId;

/// How often a look at due rows goes all the way back, and how many times longer than it takes.
const THOROUGH_EVERY: Duration = Duration::from_secs(1);
const THOROUGH_SHARE: u32 = 20;
/// How far back the others go: released rows leave dead index entries behind.
const MARGIN: Duration = Duration::from_secs(5);
const FOREVER: Duration = Duration::from_secs(100 * 365 * 86_400);
/// A thorough look that costs less than this is no dearer than a short one.
const CHEAP_LOOK: Duration = Duration::from_millis(3);

/// What a pass did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Rows released, by whatever way they go on.
    pub released: u64,
    /// Rows pushed by this pass.
    pub pushed: u64,
    /// Rows that can never be sent: FAILED.
    pub refused: u64,
}

/// Releases due rows. Any number of instances share the work.
#[derive(Debug)]
pub struct Producer {
    store: Store,
    publisher: Publisher,
    instance: InstanceId,
    batch: u32,
    thorough_at: Instant,
    thorough_cost: Duration,
}

impl Producer {
    /// A producer whose first look goes all the way back.
    pub fn new(store: Store, publisher: Publisher, instance: InstanceId, config: &ProducerConfig) -> Producer {
        Producer {
            store,
            publisher,
            instance,
            batch: config.batch,
            thorough_at: Instant::now(),
            thorough_cost: Duration::ZERO,
        }
    }

    /// One bounded batch.
    pub async fn pass(&mut self) -> Result<Counts, Error> {
        let allowance = self.publisher.allowance().await?;
        // What is released in bulk is a backlog: it may fill only that part of the window.
        let reserve_max = allowance.backlog.min(self.batch);
        let look_back = self.look_back();
        let started = Instant::now();
        let released = self.store.release_due(look_back, self.batch, reserve_max, self.instance.get()).await?;
        let counts = Counts {
            released: released.count(),
            pushed: released.reserved.messages.len() as u64,
            refused: released.refused,
        };
        if look_back == FOREVER {
            self.thorough_cost = started.elapsed().saturating_sub(Duration::from_micros(100 * counts.released));
            self.thorough_at = Instant::now() + THOROUGH_EVERY.max(self.thorough_cost * THOROUGH_SHARE);
        }
        if counts.refused > 0 {
            warn!(rows = counts.refused, "rows that can never be sent are FAILED; see outboxd.dead_letters");
        }
        if counts.pushed > 0 {
            failpoint::hit("after_release").await;
        }
        self.publisher.push(released.reserved).await?;
        Ok(counts)
    }

    /// How long until the next PENDING row is due.
    pub async fn next_due(&mut self) -> Result<Option<Duration>, Error> {
        Ok(self.store.next_due(self.look_back()).await?)
    }

    fn look_back(&self) -> Duration {
        let is_thorough = self.thorough_cost < CHEAP_LOOK || Instant::now() >= self.thorough_at;
        if is_thorough { FOREVER } else { MARGIN }
    }
}
