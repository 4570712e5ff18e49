//! Leader leases: what one instance does at a time for all, such as retention, schedules and events.
//!
//! **Guarantee.** At most one instance works under a lease: each statement of the work names the owner and
//! checks the lease in the database, under a lock that keeps it from changing its owner meanwhile. An owner that was
//! paused and wakes up late changes nothing. When the owner signs off the next one takes over at its next poll; when
//! it dies, as soon as its lease has run out.
//!
//! **Limit.** The lease says who may begin a statement, not who is computing: between statements two instances may
//! both believe that they own it. Only the database decides.

use std::time::{Duration, Instant};

use tracing::{info, warn};

use super::instance::{InstanceId, millis};
use super::refusal::Values;
use super::{Result, Store, query};

/// A lease is never longer, so that it moves over within seconds.
const LEASE_MAX: Duration = Duration::from_secs(10);
/// Polls of those who do not have it, at most this far apart.
const POLL_INTERVAL_MAX: Duration = Duration::from_secs(5);
/// A lease is renewed after this part of it.
const RENEW_SHARE: u32 = 3;

/// One lease as one instance sees it.
#[derive(Debug)]
pub struct LeaderLease {
    store: Store,
    instance: InstanceId,
    name: &'static str,
    lease: Duration,
    held: Option<Held>,
}

#[derive(Debug, Clone, Copy)]
struct Held {
    owner: i32,
    renew_at: Instant,
}

impl LeaderLease {
    /// A lease that is not ours yet. Who is silent for `heartbeat_ttl` is dead, so no lease is longer than that.
    pub fn new(store: Store, instance: InstanceId, name: &'static str, heartbeat_ttl: Duration) -> LeaderLease {
        LeaderLease { store, instance, name, lease: heartbeat_ttl.min(LEASE_MAX), held: None }
    }

    /// Takes or keeps the lease: the owner's number for the statements done under it, or `None` while somebody else
    /// has it. Call it before each statement; it asks the database only when the lease needs renewing.
    pub async fn hold(&mut self) -> Result<Option<i32>> {
        let owner = self.instance.get();
        let started = Instant::now();
        if let Some(held) = self.held.filter(|held| held.owner == owner && started < held.renew_at) {
            return Ok(Some(held.owner));
        }
        self.held = None;
        let acquired = self.store.acquire_leader_lease(self.name, owner, self.lease).await?;
        if acquired == Acquired::Elsewhere {
            return Ok(None);
        }
        if acquired == Acquired::New {
            info!(lease = self.name, instance = owner, "took over");
        }
        self.held = Some(Held { owner, renew_at: started + self.lease / RENEW_SHARE });
        Ok(Some(owner))
    }

    /// Whether it was ours when it was last asked for.
    pub fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// A statement found the lease gone: ask before the next one.
    pub fn lost(&mut self) {
        self.held = None;
    }

    /// Gives it up, so that the next owner need not wait.
    pub async fn let_go(&mut self) {
        if let Some(held) = self.held.take()
            && let Err(error) = self.store.release_leader_lease(self.name, held.owner).await
        {
            warn!(%error, lease = self.name, "could not give the lease up; it will run out");
        }
    }

    /// How long to wait before asking again, for those who do not have it and for owners who must renew.
    pub fn poll_interval(&self) -> Duration {
        (self.lease / (RENEW_SHARE + 1)).min(POLL_INTERVAL_MAX)
    }
}

/// What became of asking for a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acquired {
    /// It is ours as of now.
    New,
    /// It was ours and still is.
    Kept,
    /// Somebody else has it.
    Elsewhere,
}

impl Store {
    /// Acquires or renews a leader lease for `lease` from now, by the database's clock.
    pub async fn acquire_leader_lease(&self, name: &str, instance: i32, lease: Duration) -> Result<Acquired> {
        let query = query!("upkeep/acquire_leader_lease", Relaxed, [TEXT, INT4, INT8]);
        let rows = self.query(query, &[&name, &instance, &millis(lease)]).await?;
        Ok(match rows.first().map(|row| row.value::<bool>(0)).transpose()? {
            Some(true) => Acquired::New,
            Some(false) => Acquired::Kept,
            None => Acquired::Elsewhere,
        })
    }

    /// Gives a leader lease up.
    pub async fn release_leader_lease(&self, name: &str, instance: i32) -> Result<()> {
        let query = query!("upkeep/release_leader_lease", Durable, [TEXT, INT4]);
        self.query(query, &[&name, &instance]).await.map(|_| ())
    }
}
