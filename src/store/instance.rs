//! Instances: one row per start, kept alive by heartbeats.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use chrono::{DateTime, Utc};

use super::{Error, Result, Store, query};

/// The number of the instance this process is now. Shared: a process that was away so long that its row was
/// removed registers anew and goes on under a new number.
#[derive(Debug, Clone, Default)]
pub struct InstanceId(Arc<AtomicI32>);

impl InstanceId {
    /// A process that has registered under this number.
    pub fn new(id: i32) -> InstanceId {
        InstanceId(Arc::new(AtomicI32::new(id)))
    }

    /// The number now.
    pub fn get(&self) -> i32 {
        self.0.load(Ordering::Acquire)
    }

    /// Goes on under another number.
    pub fn set(&self, id: i32) {
        self.0.store(id, Ordering::Release);
    }
}

/// Who we are, as the database knows us.
#[derive(Debug, Clone)]
pub struct Registered {
    /// Our number, as in `outbox.instance`.
    pub id: i32,
    /// This installation, as in every `webhook-id`.
    pub install_id: String,
    /// The database's clock when it registered us.
    pub database_time: DateTime<Utc>,
}

/// What an instance says of itself at start.
#[derive(Debug, Clone)]
pub struct Description<'a> {
    /// How long after its last heartbeat it counts as dead.
    pub ttl: Duration,
    /// What it does.
    pub roles: Vec<String>,
    /// Its queue's backend.
    pub queue_kind: &'a str,
    /// Where it runs.
    pub host: &'a str,
}

/// What an instance says of itself with each heartbeat.
#[derive(Debug, Clone, Copy, Default)]
pub struct Beat {
    /// Calls under way.
    pub in_flight: i32,
    /// The queue's push counter, as last seen.
    pub queue_counter: i64,
    /// When the newest message it claimed was published.
    pub claimed_through: Option<DateTime<Utc>>,
    /// Whether it is stopping.
    pub draining: bool,
    /// Its clock minus the database's.
    pub clock_skew_ms: Option<i32>,
}

/// What the others have said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peers {
    /// The highest queue counter any instance has seen.
    pub queue_counter: i64,
    /// Instances alive, this one included.
    pub alive: i64,
}

impl Store {
    /// An instance starts.
    pub async fn register(&self, description: &Description<'_>) -> Result<Registered> {
        let query = query!("instance_register", Durable, [INT8, INT4, TEXT_ARRAY, TEXT, TEXT, TEXT]);
        let ttl_ms = millis(description.ttl);
        let pid = i32::try_from(std::process::id()).unwrap_or(0);
        let version = env!("CARGO_PKG_VERSION");
        let rows = self
            .query(query, &[&ttl_ms, &pid, &description.roles, &description.queue_kind, &description.host, &version])
            .await?;
        let row = rows.first().ok_or_else(|| Error::Bug("an INSERT returned no row".into()))?;
        Ok(Registered { id: row.get(0), install_id: row.get(1), database_time: row.get(2) })
    }

    /// An instance is alive. `None`: its row is gone or was signed off; it must register anew.
    pub async fn beat(&self, instance: i32, beat: &Beat) -> Result<Option<Peers>> {
        let query = query!("instance_beat", Durable, [INT4, INT4, INT8, TIMESTAMPTZ, BOOL, INT4]);
        let rows = self
            .query(
                query,
                &[
                    &instance,
                    &beat.in_flight,
                    &beat.queue_counter,
                    &beat.claimed_through,
                    &beat.draining,
                    &beat.clock_skew_ms,
                ],
            )
            .await?;
        Ok(rows
            .first()
            .map(|row| Peers { queue_counter: row.get::<_, Option<i64>>(0).unwrap_or(0), alive: row.get(1) }))
    }

    /// An instance signs off.
    pub async fn sign_off(&self, instance: i32) -> Result<()> {
        self.query(query!("instance_stop", Durable, [INT4]), &[&instance]).await.map(|_| ())
    }
}

/// Milliseconds, as our statements take spans of time.
pub(super) fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}
