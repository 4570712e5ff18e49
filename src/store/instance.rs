//! Instances: one row per start, kept alive by heartbeats.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use secrecy::SecretSlice;
use tokio::sync::Notify;

use super::refusal::Values;
use super::{Error, Result, Store, query};
use crate::queue::owner::{Identity, Owner};
use crate::telemetry::VERSION;

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
    /// The database's clock when it registered us. With the number it names our row: numbers come again in a schema
    /// that was made anew or restored.
    pub started_at: DateTime<Utc>,
    /// What the installation's HTTP endpoints sign with.
    pub signing_key: SecretSlice<u8>,
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
    /// The topics that it has routes for; `None`: it only relays.
    pub topics: Option<Vec<String>>,
    /// Where it runs.
    pub host: &'a str,
}

/// What an instance says of itself with each heartbeat.
#[derive(Debug, Clone, Copy, Default)]
pub struct Beat {
    /// When it was registered.
    pub started_at: Option<DateTime<Utc>>,
    /// Calls under way.
    pub in_flight: i32,
    /// The queue's push counter, as last seen.
    pub queue_counter: i64,
    /// When the newest message it claimed was published.
    pub claimed_through: Option<DateTime<Utc>>,
    /// Whether it is stopping.
    pub draining: bool,
    /// Its clock minus the database's when it was registered.
    pub clock_skew_ms: Option<i32>,
    /// For how long it has gone on without its Redis.
    pub fallback_for: Option<Duration>,
    /// Whether what others lack a route for may be in its own process.
    pub keeps_its_own: bool,
}

/// What this instance tells of itself, and what it has heard of the others. Shared by its loops; the heartbeat carries
/// it.
#[derive(Debug, Default)]
pub struct Presence {
    known_as: Mutex<KnownAs>,
    in_flight: AtomicUsize,
    claimed_through: Mutex<Option<DateTime<Utc>>>,
    is_draining: AtomicBool,
    queue_counter: AtomicI64,
    queue_counter_of_all: AtomicI64,
    alive: AtomicI64,
    server: Mutex<Server>,
    server_changed: Notify,
    fallback_since: Mutex<Option<Instant>>,
    keeps_its_own: AtomicBool,
    beats: Mutex<Beats>,
    owner: Arc<Owner>,
}

/// Which server answers.
#[derive(Debug, Default)]
struct Server {
    started_at: Option<DateTime<Utc>>,
    /// Another one did before, and nobody has asked yet.
    has_changed: bool,
}

/// How the database knows us.
#[derive(Debug, Clone, Default)]
struct KnownAs {
    install_id: Arc<str>,
    started_at: Option<DateTime<Utc>>,
    clock_skew_ms: Option<i32>,
}

/// Heartbeats that went through without a gap: since when, and the last.
#[derive(Debug, Default)]
struct Beats {
    since: Option<Instant>,
    last: Option<Instant>,
}

impl Presence {
    /// We have been registered, just now.
    pub fn registered(&self, registered: &Registered) {
        let skew_ms = (Utc::now() - registered.started_at).num_milliseconds();
        *lock(&self.known_as) = KnownAs {
            install_id: Arc::from(&*registered.install_id),
            started_at: Some(registered.started_at),
            clock_skew_ms: Some(i32::try_from(skew_ms).unwrap_or(i32::MAX)),
        };
    }

    /// Whose keys in Redis are ours.
    pub fn owner(&self) -> &Arc<Owner> {
        &self.owner
    }

    /// This installation, as in every `webhook-id`.
    pub fn install_id(&self) -> Arc<str> {
        Arc::clone(&lock(&self.known_as).install_id)
    }

    /// When we were registered.
    pub fn started_at(&self) -> Option<DateTime<Utc>> {
        lock(&self.known_as).started_at
    }

    /// A call begins.
    pub fn call_begins(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    /// A call has ended.
    pub fn call_ended(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// A message that was published then has been claimed.
    pub fn saw_claimed(&self, published_at: DateTime<Utc>) {
        let mut through = lock(&self.claimed_through);
        *through = (*through).max(Some(published_at));
    }

    /// The instance stops.
    pub fn is_draining(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
    }

    /// The queue's push counter was seen at this.
    pub fn saw_queue_counter(&self, counter: i64) {
        self.queue_counter.fetch_max(counter, Ordering::Relaxed);
    }

    /// The highest push counter that any instance has seen.
    pub fn queue_counter(&self) -> i64 {
        self.queue_counter.load(Ordering::Relaxed).max(self.queue_counter_of_all.load(Ordering::Relaxed))
    }

    /// Instances alive, this one included.
    pub fn alive(&self) -> u64 {
        u64::try_from(self.alive.load(Ordering::Relaxed)).unwrap_or(1).max(1)
    }

    /// What the others have said.
    pub fn heard(&self, peers: &Peers) {
        self.queue_counter_of_all.fetch_max(peers.queue_counter, Ordering::Relaxed);
        self.alive.store(peers.alive, Ordering::Relaxed);
        self.owner.set(Identity {
            install_id: peers.install_id.clone(),
            database: peers.database.clone(),
            is_moved: peers.is_moved,
        });
        let mut known_as = lock(&self.known_as);
        if *known_as.install_id != *peers.install_id {
            known_as.install_id = Arc::from(&*peers.install_id);
        }
        let mut server = lock(&self.server);
        let before = server.started_at.replace(peers.server_started_at);
        if before.is_some_and(|before| before != peers.server_started_at) {
            server.has_changed = true;
            self.server_changed.notify_one();
        }
    }

    /// Until another server answers than before.
    pub async fn server_changes(&self) {
        self.server_changed.notified().await;
    }

    /// Whether another server answers than before, or the same one started again; told once.
    pub fn take_server_change(&self) -> bool {
        std::mem::take(&mut lock(&self.server).has_changed)
    }

    /// What followed from it could not be done.
    pub fn put_back_server_change(&self) {
        lock(&self.server).has_changed = true;
    }

    /// The instance goes on without its Redis, which answered last at that time; `None`: nothing is left of that.
    pub fn set_fallback(&self, since: Option<Instant>) {
        *lock(&self.fallback_since) = since;
    }

    /// Whether what it published may be in its own process for want of Redis.
    pub fn is_on_fallback(&self) -> bool {
        lock(&self.fallback_since).is_some()
    }

    /// What others lack a route for goes through its own process; or nothing of that is left.
    pub fn set_keeps_its_own(&self, keeps: bool) {
        self.keeps_its_own.store(keeps, Ordering::Relaxed);
    }

    /// Whether what others lack a route for may be in its own process.
    pub fn keeps_its_own(&self) -> bool {
        self.keeps_its_own.load(Ordering::Relaxed)
    }

    /// A heartbeat went through; after a gap longer than this it is the first of a new row of them.
    pub fn has_beaten(&self, gap_max: Duration) {
        let mut beats = self.beats();
        let now = Instant::now();
        if beats.last.is_none_or(|last| now.duration_since(last) > gap_max) {
            beats.since = Some(now);
        }
        beats.last = Some(now);
    }

    /// A heartbeat did not go through: whoever cannot reach Postgres may not be alone in that.
    pub fn beat_failed(&self) {
        *self.beats() = Beats::default();
    }

    /// How long our heartbeats have gone through without a gap. Whoever was cut off together with us has had so much
    /// time to beat and to renew its leases; before that is a whole TTL we call nobody dead.
    pub fn steady_for(&self) -> Duration {
        self.beats().since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn beats(&self) -> MutexGuard<'_, Beats> {
        lock(&self.beats)
    }

    /// What to tell with the next heartbeat.
    pub fn beat(&self) -> Beat {
        let KnownAs { started_at, clock_skew_ms, .. } = *lock(&self.known_as);
        Beat {
            started_at,
            in_flight: i32::try_from(self.in_flight.load(Ordering::Relaxed)).unwrap_or(i32::MAX),
            queue_counter: self.queue_counter.load(Ordering::Relaxed),
            claimed_through: *lock(&self.claimed_through),
            draining: self.is_draining.load(Ordering::Relaxed),
            clock_skew_ms,
            fallback_for: lock(&self.fallback_since).map(|since| since.elapsed()),
            keeps_its_own: self.keeps_its_own(),
        }
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the others have said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peers {
    /// This installation, as the database names it now.
    pub install_id: String,
    /// The server's data and the database in it.
    pub database: String,
    /// An operator said that the installation was moved here.
    pub is_moved: bool,
    /// When the server that answers was started.
    pub server_started_at: DateTime<Utc>,
    /// The highest queue counter any instance has seen.
    pub queue_counter: i64,
    /// Instances alive, this one included.
    pub alive: i64,
}

impl Store {
    /// An instance starts.
    pub async fn register(&self, description: &Description<'_>) -> Result<Registered> {
        let query = query!("upkeep/register_instance", Durable, [INT8, INT4, TEXT_ARRAY, TEXT, TEXT, TEXT, TEXT_ARRAY]);
        let ttl_ms = millis(description.ttl);
        let pid = i32::try_from(std::process::id()).unwrap_or(0);
        let rows = self
            .query(
                query,
                &[
                    &ttl_ms,
                    &pid,
                    &description.roles,
                    &description.queue_kind,
                    &description.host,
                    &VERSION,
                    &description.topics,
                ],
            )
            .await?;
        let row = rows.first().ok_or_else(|| Error::Bug("an INSERT returned no row".into()))?;
        let signing_key = row.value::<Vec<u8>>(3)?.into();
        Ok(Registered { id: row.value(0)?, install_id: row.value(1)?, started_at: row.value(2)?, signing_key })
    }

    /// An instance is alive. `None`: its row is gone or was signed off; it must register anew.
    pub async fn beat(&self, instance: i32, beat: &Beat) -> Result<Option<Peers>> {
        let query =
            query!("upkeep/beat", Durable, [INT4, INT4, INT8, TIMESTAMPTZ, BOOL, INT4, TIMESTAMPTZ, INT8, BOOL]);
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
                    &beat.started_at,
                    &beat.fallback_for.map(millis),
                    &beat.keeps_its_own,
                ],
            )
            .await?;
        let Some(row) = rows.first() else { return Ok(None) };
        self.origin.note(row.value(4)?);
        Ok(Some(Peers {
            queue_counter: row.value::<Option<i64>>(0)?.unwrap_or(0),
            alive: row.value(1)?,
            install_id: row.value(2)?,
            server_started_at: row.value(3)?,
            database: row.value(5)?,
            is_moved: row.value::<Option<bool>>(6)?.unwrap_or(false),
        }))
    }

    /// An instance that was registered then signs off.
    pub async fn sign_off(&self, instance: i32, started_at: Option<DateTime<Utc>>) -> Result<()> {
        self.query(query!("upkeep/sign_off", Durable, [INT4, TIMESTAMPTZ]), &[&instance, &started_at]).await.map(|_| ())
    }
}

/// Milliseconds, as our statements take spans of time.
pub(super) fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}
