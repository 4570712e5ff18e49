//! Append domain events to the Redis streams of their topics, in order, on one instance at a time.
//!
//! **Guarantee.** Every event committed by `publish()` is appended at least once, in the order recorded, so in order
//! per key for transactions that the app serialises. What Redis loses afterwards (FLUSHALL, a restart without
//! persistence, a failover) is appended again from Postgres, before anything that comes later. **Limit.** Only what the
//! streams should still hold (`events.stream_max`) and Postgres still keeps (`retention.events`).
//!
//! Postgres fixes the order of waiting events for good, in numbered *publications*. Redis keeps the number of the last
//! one appended; the script that appends raises it. So each pass asks Redis for that number, and appends what comes
//! after it. Interleavings:
//!
//! - *A crash after the reservation, before the append*: the number is above Redis's; the next owner appends it.
//! - *A crash after the append, or no answer to it*: Redis says that it has the number; nothing is appended twice.
//! - *The lease changes its owner in the middle of an append*: the script appends only to where its caller saw the
//!   streams. The first of the two is let in; what it appends is the same, whoever does it. The other finds another
//!   number and asks.
//! - *A loss at any of these points*: the number falls with the entries, because one script wrote both. The next poll
//!   (every second, or the next append) finds it lower, and goes on from there. What waits in Postgres comes after what
//!   was lost.
//! - *A loss during the repair of a loss*: the same again.
//! - *A database set back to an earlier time*: Redis is further than Postgres; numbering goes on above that.
//!
//! **When.** publish() rings the doorbell that notify() rings; this is woken by it, and looks once a second in any case.
//! While nobody rings (an instance is busy and polls, or none can listen) it polls. Who does not have the lease asks for
//! it at the pace of a takeover.
//!
//! May change: how much is appended at a time. Must not: an entry without its number raised in the same script.

mod watch;

use std::time::{Duration, Instant};

use metrics::counter;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::failpoint;
use crate::queue::events::EventStreams;
use crate::store::event::{BatchMax, Progress};
use crate::store::leader::LeaderLease;
use crate::store::{StageError, Store};
use crate::telemetry::outage::{ERROR_WAIT, Outage};
use watch::Watch;

/// The lease's name in the database.
pub const LEASE: &str = "events";
/// Appended in one round trip.
const BATCH: BatchMax = BatchMax { events: 500, bytes: 4 << 20 };
/// Between polls for what waits while nobody rings, and after an append: what was too much for it goes next.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Between polls while publish() rings, and between reads of where Redis is while nothing is appended.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Events on one instance.
#[derive(Debug)]
pub struct Events {
    store: Store,
    streams: EventStreams,
    lease: LeaderLease,
    /// The number that Redis has come to, and when it said so; `None`: ask.
    appended: Option<(i64, Instant)>,
    /// The highest number that Redis was seen at, since the last loss.
    seen: i64,
    watch: Watch,
}

/// What one pass did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events appended.
    pub appended: u64,
    /// How long until the next pass, unless the bell rings.
    pub next_in: Duration,
}

impl Events {
    /// Works only while the lease is ours.
    pub fn new(store: Store, streams: EventStreams, lease: LeaderLease) -> Events {
        let watch = Watch::new(store.clone(), streams.clone());
        Events { store, streams, lease, appended: None, seen: 0, watch }
    }

    /// One bounded batch.
    pub async fn pass(&mut self) -> Result<Counts, StageError> {
        let Some(owner) = self.lease.hold().await? else {
            self.appended = None;
            self.seen = 0;
            return Ok(Counts { appended: 0, next_in: self.lease.poll_interval() });
        };
        self.watch.pass_if_due(owner).await;
        let mut progress = self.store.event_progress().await?;
        let appended = self.ask(owner, &mut progress).await?;
        if appended < progress.newest {
            return self.append(owner, appended, &progress).await;
        }
        if progress.is_restoring {
            let events = self.store.end_event_loss(LEASE, owner).await?;
            info!(events, "what Redis lost is back in the event streams");
        }
        if !progress.has_waiting {
            if progress.appended < appended {
                self.store.confirm_events(LEASE, owner, appended).await?;
            }
            return Ok(Counts { appended: 0, next_in: if progress.is_rung { LOOK_EVERY } else { POLL_INTERVAL } });
        }
        if !self.store.reserve_events(LEASE, owner, appended, BATCH).await? {
            self.lease.lost();
            return Ok(Counts::default());
        }
        failpoint::hit("after_reserve_events").await;
        self.append(owner, appended, &Progress { is_restoring: false, ..progress }).await
    }

    /// Where Redis is. Lower than it was known to be: a loss, which is told once.
    async fn ask(&mut self, owner: i32, progress: &mut Progress) -> Result<i64, StageError> {
        if let Some((appended, at)) = self.appended
            && at.elapsed() < LOOK_EVERY
        {
            return Ok(appended);
        }
        let appended = self.streams.appended().await?;
        let known = self.seen.max(progress.appended);
        // Under repair it is behind what was known, and rises; if it falls, more was lost.
        let is_new = !progress.is_restoring || appended < self.seen;
        if appended < known && is_new && self.store.record_event_loss(LEASE, owner).await? {
            progress.is_restoring = true;
            self.streams.note_loss();
            warn!(found = appended, known, "Redis lost events of its streams; they are appended again from Postgres");
        }
        self.seen = appended;
        self.appended = Some((appended, Instant::now()));
        Ok(appended)
    }

    /// Appends what comes next after `from`.
    async fn append(&mut self, owner: i32, from: i64, progress: &Progress) -> Result<Counts, StageError> {
        let next = self.store.unappended_events(from, self.streams.stream_max(), BATCH).await?;
        // Until Redis has answered, only Redis knows.
        self.appended = None;
        let now = self.streams.append(from, next.goal, &next.events).await?;
        failpoint::hit("after_append").await;
        if now != next.goal {
            return Ok(Counts::default());
        }
        self.seen = now;
        self.appended = Some((now, Instant::now()));
        let events = next.events.len();
        counter!("outboxd_events_appended_total").increment(events as u64);
        if progress.is_restoring {
            self.store.restored_events(LEASE, owner, i64::try_from(events).unwrap_or(i64::MAX)).await?;
        }
        let has_more = events >= BATCH.events as usize || progress.is_restoring;
        Ok(Counts { appended: events as u64, next_in: if has_more { Duration::ZERO } else { POLL_INTERVAL } })
    }

    /// Ends earlier when the bell rings, if that is for us to hear.
    async fn pause(&self, wait: Duration) {
        let rung = async {
            match self.lease.is_held() {
                true => self.store.events_woken().await,
                false => std::future::pending().await,
            }
        };
        // Either way there is a next pass.
        let _ = tokio::time::timeout(wait, rung).await;
    }
}

/// Appends until `shutdown`, while the lease is ours.
pub async fn run(mut events: Events, shutdown: &CancellationToken) {
    let mut outage = Outage::default();
    while !shutdown.is_cancelled() {
        let passed = outage.note(events.pass().await, "appending events waits");
        match passed {
            Some(counts) => shutdown.run_until_cancelled(events.pause(counts.next_in)).await,
            None => shutdown.run_until_cancelled(tokio::time::sleep(ERROR_WAIT)).await,
        };
    }
    events.lease.let_go().await;
}
