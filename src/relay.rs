//! 2. Publish what is unpublished: reserve → push → confirm, the only way into the queue.
//!
//! **The fast path** is one scan over what was committed lately, whatever its topic. Ids commit out of order, so it
//! begins a little below the last id drawn, now or at the previous poll, and now and then further below. It admits
//! heads on the way: those that are blocked although no row of their key has the turn.
//!
//! **Topic by topic** go backlogs, topics whose channel cannot take everything, and the full scan: every five seconds
//! each topic is scanned from its beginning. A topic that fills its share is scanned on at once, in turns with the
//! others.
//!
//! **Due rows** (whatever came back, heads of keys, released rows) carry a time and are found by it. What cannot go now
//! is not scanned: its topic is paused or has no route here, its route waits for a circuit, or a second of work waits
//! for it.
//!
//! **Guarantee.** The fast path is only speed and may miss. A row without a key is published by the next full scan, a row
//! with a time by the search each second; a key that nobody admitted is found by [`repair`]. What was reserved and not confirmed, or lost by the queue, is published again by [`repair`].
//! **Limit.** A row may be in the queue twice; the claim drops the copy.
//!
//! May change: how far and how often is scanned. Must not: no transaction is open while the queue is called, and
//! nothing enters the queue without a publication row.

mod due;
pub(crate) mod listener;
pub(crate) mod pace;
pub mod publisher;
pub mod repair;
mod topics;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::info;

use self::due::DueTopics;
use self::publisher::Publisher;
use self::topics::Topics;
use crate::channel::availability::{Availability, Flow};
use crate::failpoint;
use crate::retry::rest_after;
use crate::store::due::Part;
use crate::store::instance::InstanceId;
use crate::store::publish::{Found, FreshScan};
use crate::store::{BATCH_ROWS, StageError, Store};

/// How far below the last id the fast path begins, and how far once in a while.
const OVERLAP: i64 = 500;
const OVERLAP_WIDE: i64 = 5_000;
const WIDE_EVERY: Duration = Duration::from_millis(100);
/// How often every topic is scanned from its beginning.
const FULL_SCAN_EVERY: Duration = Duration::from_secs(5);
/// How old the knowledge of what may go now may be.
const FLOW_MAX_AGE: Duration = Duration::from_millis(5);
/// Rows that came back may always take so much of the window, however long the backlogs.
const DUE_MIN: u32 = 100;
/// A topic with few rows may always have so many published, although its channel has enough waiting: its line takes
/// turns with the others'.
pub(crate) const FEW: usize = 10;
/// How far back rows that came back are searched for while that is expensive.
const DUE_BACK: Duration = Duration::from_secs(60);
/// All the way back.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// What a pass did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Rows pushed.
    pub pushed: u64,
    /// Keys whose head was admitted: it is due now.
    pub admitted: u64,
    /// Whether rows were left because the window is full, or their channel has enough waiting.
    pub is_full: bool,
    /// Whether there is more than was taken.
    pub has_more: bool,
}

/// The relay of one instance.
#[derive(Debug)]
pub struct Relay {
    store: Store,
    publisher: Publisher,
    availability: Arc<Availability>,
    instance: InstanceId,
    topics: Topics,
    due: DueTopics,
    /// The last id drawn at the previous poll.
    last_id: i64,
    wide_at: Instant,
    full_scan_at: Instant,
    flow_at: Instant,
}

impl Relay {
    /// A relay that has seen nothing yet: its first pass scans every topic from its beginning.
    pub fn new(store: Store, publisher: Publisher, availability: Arc<Availability>, instance: InstanceId) -> Relay {
        let now = Instant::now();
        Relay {
            store,
            publisher,
            availability,
            instance,
            topics: Topics::new(BATCH_ROWS),
            due: DueTopics::new(),
            last_id: i64::MAX,
            wide_at: now,
            full_scan_at: now,
            flow_at: now,
        }
    }

    /// One bounded batch of each kind.
    pub async fn pass(&mut self) -> Result<Counts, StageError> {
        let mut counts = Counts::default();
        let full_scan_began = self.full_scan_if_due().await?;
        self.learn_flow();
        self.publish_fresh(&mut counts).await?;
        self.publish_topics(&mut counts).await?;
        if let Some(began) = full_scan_began {
            self.full_scan_at = Instant::now() + rest_after(began.elapsed(), FULL_SCAN_EVERY);
        }
        self.publish_due(&mut counts).await?;
        counts.has_more |= self.topics.have_backlog();
        counts.is_full |= self.topics.wait_for_room();
        Ok(counts)
    }

    /// An operator said something, or something failed: scan everything again.
    pub fn rescan(&mut self) {
        let now = Instant::now();
        (self.full_scan_at, self.flow_at) = (now, now);
        self.due.search_now();
    }

    /// Something may have become due.
    pub fn wake(&mut self) {
        self.due.wake();
    }

    /// How long until something is due.
    pub fn next_due(&self) -> Duration {
        self.due.next_in(|topic| self.availability.flow(topic) != Flow::Held)
    }

    /// Says when the full scan began, if it is time for one.
    async fn full_scan_if_due(&mut self) -> Result<Option<Instant>, StageError> {
        let began = Instant::now();
        if began < self.full_scan_at {
            return Ok(None);
        }
        let topics = self.store.fresh_topics().await?;
        self.topics.scan_all(topics);
        self.flow_at = began;
        Ok(Some(began))
    }

    fn learn_flow(&mut self) {
        let began = Instant::now();
        if began < self.flow_at {
            return;
        }
        for topic in self.topics.names() {
            let flow = self.availability.flow(&topic);
            self.topics.set_flow(&topic, flow, OVERLAP);
        }
        self.flow_at = Instant::now() + rest_after(began.elapsed(), FLOW_MAX_AGE);
    }

    async fn publish_fresh(&mut self, counts: &mut Counts) -> Result<(), StageError> {
        let rows_max = self.publisher.allowance().await?.fresh.min(BATCH_ROWS);
        if rows_max == 0 {
            counts.is_full = true;
            return Ok(());
        }
        let now = Instant::now();
        let is_wide = now >= self.wide_at;
        let mut skip = self.topics.skipped();
        skip.extend(self.availability.paused_topics());
        let overlap = if is_wide { OVERLAP_WIDE } else { OVERLAP };
        let only = self.availability.routed_topics();
        let scan = FreshScan { last_id: self.last_id, overlap, skip: &skip, only: only.as_deref(), rows_max };
        let confirm = self.publisher.take_unconfirmed();
        let fresh = self.store.reserve_fresh(scan, self.instance.get(), &confirm).await;
        let fresh = self.publisher.keep_unless(fresh, confirm)?;
        let rows = fresh.found.reserved.messages.len();
        let is_full = rows + fresh.keys.len() >= rows_max as usize;
        self.topics.note_fresh(&fresh.found, is_full);
        if is_full {
            counts.has_more = true;
        } else {
            if self.last_id != i64::MAX && fresh.last_id < self.last_id {
                self.begin_anew();
            }
            self.last_id = fresh.last_id;
            if is_wide {
                self.wide_at = now + WIDE_EVERY;
            }
        }
        self.push(fresh.found, counts).await?;
        if !fresh.keys.is_empty() {
            let admitted = self.store.admit(&fresh.keys).await?;
            counts.admitted += admitted;
            if admitted > 0 {
                self.due.wake();
            }
        }
        Ok(())
    }

    /// Ids went back: the schema was made anew or restored, or a server without the last commits took over. What is
    /// remembered of positions would hide the new rows.
    fn begin_anew(&mut self) {
        info!("ids went back; every topic is scanned from its beginning");
        self.topics = Topics::new(BATCH_ROWS);
        self.rescan();
    }

    async fn publish_topics(&mut self, counts: &mut Counts) -> Result<(), StageError> {
        let scans = self.topics.plan(self.publisher.allowance().await?);
        if scans.is_empty() {
            counts.is_full |= self.topics.have_backlog();
            return Ok(());
        }
        let confirm = self.publisher.take_unconfirmed();
        let found = self.store.reserve_topics(&scans, self.instance.get(), &confirm).await;
        let found = self.publisher.keep_unless(found, confirm)?;
        self.topics.note_scans(&scans, &found, OVERLAP);
        self.push(found, counts).await
    }

    async fn publish_due(&mut self, counts: &mut Counts) -> Result<(), StageError> {
        let mut is_search = false;
        for (part, place) in self.due.parts(Instant::now()) {
            let began = Instant::now();
            let found = self.store.returned_topics(&place).await?;
            self.due.searched(part, found, began);
            is_search |= part == Part::Round;
        }
        let due: Vec<Arc<str>> = self.due.due(Instant::now());
        let allowance = self.publisher.allowance().await?;
        let rows_max = allowance.backlog.max(allowance.fresh.min(DUE_MIN)).min(BATCH_ROWS);
        let share = rows_max.div_ceil(u32::try_from(due.len().max(1)).unwrap_or(u32::MAX));
        let may_take = |topic: Arc<str>| match self.availability.flow(&topic) {
            // What has moved on along its route does not wait for the first channel; asked for once a second.
            Flow::Held => (is_search && self.availability.has_later_channels(&topic)).then_some((topic, share)),
            Flow::Room(room) => {
                let room = if self.due.has_backlog(&topic) { room } else { room.max(FEW) };
                Some((topic, share.min(u32::try_from(room).unwrap_or(u32::MAX))))
            }
        };
        let may_go: Vec<(Arc<str>, u32)> = due.into_iter().filter_map(may_take).collect();
        let scans = self.due.in_turns(may_go, rows_max);
        if scans.is_empty() {
            return Ok(());
        }
        let back = if is_search { FOREVER } else { DUE_BACK };
        let step = |(topic, _): &(Arc<str>, u32)| i16::from(self.availability.flow(topic) == Flow::Held);
        let steps: Vec<i16> = scans.iter().map(step).collect();
        let due = self.store.reserve_due(&scans, &steps, back, self.instance.get()).await?;
        for (topic, rows_max) in &scans {
            let found = due.found.topics.iter().find(|found| found.topic == *topic);
            let next = due.next.iter().find(|(name, _)| name == topic).map(|(_, due_in)| *due_in);
            let has_more = found.is_some_and(|found| found.rows >= *rows_max as usize);
            counts.has_more |= has_more;
            self.due.note(topic, has_more, next);
        }
        self.push(due.found, counts).await
    }

    async fn push(&self, found: Found, counts: &mut Counts) -> Result<(), StageError> {
        let rows = found.reserved.messages.len() as u64;
        if rows == 0 {
            return Ok(());
        }
        for topic in &found.topics {
            self.availability.note_published(&topic.topic, topic.rows);
        }
        failpoint::hit("after_reserve").await;
        self.publisher.push(found.reserved).await?;
        counts.pushed += rows;
        Ok(())
    }
}
