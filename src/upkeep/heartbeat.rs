//! Says every few seconds that this instance is alive, and hears what the others have said.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::store::Store;
use crate::store::instance::{Description, InstanceId, Presence, Registered};
use crate::telemetry::outage::{ERROR_WAIT, Outage};

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
    /// The topics that we have routes for; `None`: we only relay.
    pub topics: Option<Vec<String>>,
    /// Where we run.
    pub host: String,
    /// How often.
    pub every: Duration,
    /// After how long without a heartbeat we are dead.
    pub ttl: Duration,
    /// What we tell, and where we write down what the others told.
    pub presence: Arc<Presence>,
    /// One heartbeat at a time: an older word must not replace a newer one.
    pub turn: Mutex<()>,
}

impl Heartbeat {
    /// Registers this instance.
    pub async fn register(&self) -> crate::store::Result<Registered> {
        let description = Description {
            ttl: self.ttl,
            roles: self.roles.clone(),
            queue_kind: self.queue_kind,
            topics: self.topics.clone(),
            host: &self.host,
        };
        let registered = self.store.register(&description).await?;
        self.instance.set(registered.id);
        self.presence.registered(&registered);
        Ok(registered)
    }

    /// Says it. `None`: our row is gone.
    async fn tell(&self) -> crate::store::Result<Option<()>> {
        let told = self.store.beat(self.instance.get(), &self.presence.beat()).await;
        let Some(peers) = told.inspect_err(|_| self.presence.beat_failed())? else { return Ok(None) };
        // The next one in time comes before the second is due.
        self.presence.has_beaten(self.every * 2);
        self.presence.heard(&peers);
        Ok(Some(()))
    }

    /// One heartbeat.
    pub async fn beat(&self) -> crate::store::Result<()> {
        let _turn = self.turn.lock().await;
        if self.tell().await?.is_none() {
            self.presence.beat_failed();
            let registered = self.register().await?;
            info!(instance = registered.id, "was not known any more and registered anew");
            self.tell().await?;
        }
        Ok(())
    }
}

/// Beats until `stop`.
pub async fn run(heartbeat: &Heartbeat, stop: &CancellationToken) {
    let mut outage = Outage::default();
    while !stop.is_cancelled() {
        let beaten = heartbeat.beat().await;
        outage.note(beaten, "no heartbeat; after the TTL this instance counts as dead");
        let wait = if outage.is_on() { heartbeat.every.min(ERROR_WAIT) } else { heartbeat.every };
        let asleep = Instant::now();
        stop.run_until_cancelled(tokio::time::sleep(wait)).await;
        let gap = asleep.elapsed();
        if gap > heartbeat.ttl {
            warn!(
                seconds = gap.as_secs(),
                "this process stood still for longer than its TTL; it counted as dead meanwhile"
            );
        }
    }
}
