//! Publishes to this process what some other worker has no route for, and to the shared queue what all have.
//!
//! Beginning, in this order: the instance's row says that what it publishes may die with it; the queue keeps those
//! topics ([`crate::queue::split`]); what it had published to the shared queue is due again under a new epoch, so that
//! nobody else's take matters. Ending: the queue shares them again; the row says so once nothing is left here.
//!
//! **Guarantee.** An instance without a topic's route is not in the way of those that have it. **Limit.** Only where
//! relay and worker are one process: what a relay alone publishes may be taken by any worker, and goes back to Postgres
//! for a while if that has no route.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tracing::info;

use super::heartbeat::Heartbeat;
use crate::channel::availability::Availability;
use crate::queue::split::SplitQueue;
use crate::store::Result;
use crate::store::repair::Undelivered;
use crate::telemetry::outage::{ERROR_WAIT, Outage};

/// What it stands on.
#[derive(Debug)]
pub struct Routes<'a> {
    /// What is split.
    pub queue: Arc<SplitQueue>,
    /// Which topics all workers have a route for.
    pub availability: &'a Availability,
    /// Says what the instance does, before it does it.
    pub heartbeat: &'a Heartbeat,
}

/// The shared topics, once all that follows from them is done.
pub type Done = Option<BTreeSet<String>>;

impl Routes<'_> {
    /// Does what follows from what is known of the others' routes.
    pub async fn pass(&self, done: &mut Done) -> Result<()> {
        let Heartbeat { presence, store, instance, .. } = self.heartbeat;
        let shared = self.availability.shared_topics();
        if let Some(topics) = shared {
            if !presence.keeps_its_own() {
                presence.set_keeps_its_own(true);
                self.heartbeat.beat().await.inspect_err(|_| presence.set_keeps_its_own(false))?;
                info!("another instance lacks routes; topics that it cannot deliver stay in this process");
            }
            self.queue.keep_all_but(Some(topics.clone()));
            if done.as_ref() != Some(&topics) {
                store.republish(Undelivered::PublishedBy(&[instance.get()])).await?;
                store.wake_relay();
                *done = Some(topics);
            }
            return Ok(());
        }
        *done = None;
        self.queue.keep_all_but(None);
        if presence.keeps_its_own() && self.queue.has_nothing_of_its_own() {
            presence.set_keeps_its_own(false);
            self.heartbeat.beat().await?;
            info!("all instances have the routes; every topic goes through the shared queue");
        }
        Ok(())
    }
}

/// Follows what is known until `shutdown`.
pub async fn run(routes: &Routes<'_>, shutdown: &CancellationToken) {
    let (mut outage, mut changes) = (Outage::default(), routes.availability.watch_shared_topics());
    let mut done = Done::default();
    loop {
        let is_shared = changes.borrow_and_update().is_none();
        outage.note(routes.pass(&mut done).await, "topics that others lack a route for go through the shared queue");
        // While something is left here, it is asked again whether it is gone.
        let is_unfinished = outage.is_on() || (is_shared && routes.heartbeat.presence.keeps_its_own());
        let waited = tokio::select! {
            changed = changes.changed() => changed.is_ok(),
            () = tokio::time::sleep(ERROR_WAIT), if is_unfinished => true,
            () = shutdown.cancelled() => false,
        };
        if !waited {
            return;
        }
    }
}
