//! Goes on without Redis once it has not answered for `queue.fallback_after`, and back to it when it does.
//!
//! Leaving, in this order:
//!
//! 1. The instance's row says that what it publishes may die with it: from now on a death means publishing it again.
//! 2. The queue leaves Redis: nothing more is pushed there.
//! 3. What was published through Redis is due again, under a new epoch. It comes last, so that no push can come after
//!    it.
//!
//! An instance that starts without Redis is one that Redis has not answered since: it leaves in the same steps, and joins
//! when Redis answers, if that may carry a queue.
//!
//! A step that fails is tried again with the next probe. On return, pushes go to Redis at once; the row keeps saying so
//! until nothing is left in the process. What may happen meanwhile is written down in [`crate::queue::fallback`].
//!
//! **Guarantee.** Without Redis nothing waits longer than `fallback_after` and a few seconds, as long as an instance
//! with the roles relay and worker can reach Postgres. **Limit.** Instances that have only one of the two cannot go on,
//! and domain events wait for Redis.

use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics::gauge;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::heartbeat::Heartbeat;
use crate::failpoint;
use crate::queue::fallback::FallbackQueue;
use crate::queue::{self, Error};
use crate::store::repair::Undelivered;
use crate::store::{Result, Store};
use crate::telemetry::outage::Outage;

/// Between probes, at most; each may always take so long.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// What the switch stands on.
#[derive(Debug)]
pub struct Fallback<'a> {
    /// What is switched.
    pub queue: Arc<FallbackQueue>,
    /// How long Redis may be away.
    pub after: Duration,
    /// Since when it may count as away: it was asked first.
    pub answered_at: Instant,
    /// Where what Redis has is made due again.
    pub store: Store,
    /// Says what the instance does, before it does it.
    pub heartbeat: &'a Heartbeat,
}

/// What is known of Redis.
#[derive(Debug)]
pub struct Watch {
    answered_at: Instant,
    is_left: bool,
    /// Whether what was published through Redis is due again.
    is_republished: bool,
    /// Why Redis cannot be used although it answers, as told last.
    refused: Option<String>,
}

impl Watch {
    /// Redis answered then, or was asked first.
    pub fn since(answered_at: Instant) -> Watch {
        Watch { answered_at, is_left: false, is_republished: false, refused: None }
    }
}

/// Probes until `shutdown`.
pub async fn run(fallback: &Fallback<'_>, shutdown: &CancellationToken) {
    let mut watch = Watch::since(fallback.answered_at);
    let mut outage = Outage::default();
    gauge!("outboxd_queue_fallback").set(0.0);
    let every = PROBE_EVERY.min(fallback.after / 4);
    while shutdown.run_until_cancelled(tokio::time::sleep(every)).await.is_some() {
        let Some(passed) = shutdown.run_until_cancelled(fallback.pass(&mut watch)).await else { return };
        outage.note(passed, "neither Redis nor Postgres answers");
    }
}

impl Fallback<'_> {
    /// One probe, and what follows from it.
    pub async fn pass(&self, watch: &mut Watch) -> Result<()> {
        match self.probe(watch).await {
            Ok(()) => self.go_back(watch).await,
            Err(error) if watch.answered_at.elapsed() >= self.after => self.go_on_without(watch, &error).await,
            Err(_) => Ok(()),
        }
    }

    /// A Redis that does not answer at all is not waited for beyond its time; one that is left may take its own.
    async fn probe(&self, watch: &Watch) -> queue::Result<()> {
        if watch.is_left {
            return self.queue.probe().await;
        }
        let time_max = self.after.saturating_sub(watch.answered_at.elapsed()).max(PROBE_EVERY);
        let late = |_| Err(Error::Unavailable("no answer".into()));
        tokio::time::timeout(time_max, self.queue.probe()).await.unwrap_or_else(late)
    }

    async fn go_on_without(&self, watch: &mut Watch, error: &Error) -> Result<()> {
        if !watch.is_left {
            self.heartbeat.presence.set_fallback(Some(watch.answered_at));
            self.heartbeat.beat().await?;
            self.queue.leave_redis();
            (watch.is_left, watch.is_republished) = (true, false);
            gauge!("outboxd_queue_fallback").set(1.0);
            let away_s = watch.answered_at.elapsed().as_secs();
            warn!(%error, away_s, "Redis is away; deliveries go on through this process");
            failpoint::hit("after_leaving").await;
        }
        if let Error::Unusable(why) = error
            && watch.refused.as_ref() != Some(why)
        {
            warn!(%error, "Redis answers and is not used; deliveries go on through this process");
            watch.refused = Some(why.clone());
        }
        if !watch.is_republished {
            let own = [self.heartbeat.instance.get()];
            let rows = self.store.republish(Undelivered::PublishedBy(&own)).await?
                + self.store.republish(Undelivered::InRedis(Duration::ZERO)).await?;
            watch.is_republished = true;
            info!(rows, "what Redis holds is published again");
            self.store.wake_relay();
        }
        Ok(())
    }

    async fn go_back(&self, watch: &mut Watch) -> Result<()> {
        watch.answered_at = Instant::now();
        (watch.is_left, watch.refused) = (false, None);
        if self.queue.return_to_redis() {
            gauge!("outboxd_queue_fallback").set(0.0);
            info!("Redis answers; deliveries go through it again");
        }
        let presence = &self.heartbeat.presence;
        if presence.is_on_fallback() && !self.queue.uses_memory() {
            presence.set_fallback(None);
            self.heartbeat.beat().await?;
        }
        Ok(())
    }
}
