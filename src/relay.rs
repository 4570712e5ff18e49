//! Publish what is unpublished: fresh rows lane by lane, and rows whose timer has run out.
//!
//! Each topic has a lane. A pass takes from every lane that is not paused, so a topic with a million rows does not
//! stand in front of another's single row; lanes with a backlog share a small part of the window.
//!
//! **The lower bound.** A scan starts above its lane's bound, so that it does not walk over the dead entries of
//! everything that has passed. Sequence numbers commit out of order, so the bound may only move up to a number once
//! every transaction that could have drawn a lower one has ended: read the highest number, then the transactions
//! that hold the insert's lock; when none of those is left, scan once more from the old bound, then move it.
//! Whatever comes back below the bound (retries, recalled publications) carries a timer instead.
//! As a net under all this, every lane is scanned from its start again every few seconds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::RelayConfig;
use crate::holds::Holds;
use crate::publisher::{Allowance, Error, IdleWorkers, Publisher};
use crate::store::doorbell::Holders;
use crate::store::instance::InstanceId;
use crate::store::publish::{self, Fresh, LaneScan};
use crate::store::{self, Store};

/// How old the knowledge of topics may be: an operator's pause takes effect within a second.
const TOPICS_MAX_AGE: Duration = Duration::from_millis(400);
/// How often the bounds are moved while there is work.
const BOUND_EVERY: Duration = Duration::from_millis(50);
/// How often lanes are scanned from their start, and how many times longer than such a scan takes.
const RESCAN_EVERY: Duration = Duration::from_secs(5);
const RESCAN_SHARE: u32 = 200;
/// A scan from the bound that costs more than this is done more seldom; in between the cursor serves.
const CHEAP_SCAN: Duration = Duration::from_millis(3);
/// How often timers set by others are looked for.
const TIMER_LOOK_EVERY: Duration = Duration::from_millis(250);
/// How far back a look at the timers goes, but for the thorough ones.
const TIMER_MARGIN: Duration = Duration::from_secs(60);
/// All the way back.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// What a pass did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Rows pushed, or claimed for idle workers of this process.
    pub pushed: u64,
    /// Rows found in all, those parked or behind their key included.
    pub found: u64,
    /// Whether rows were left because the window is full.
    pub is_full: bool,
    /// Whether a lane had more than might be taken of it.
    pub has_more: bool,
}

impl Counts {
    fn add(&mut self, other: Counts) {
        self.pushed += other.pushed;
        self.found += other.found;
        self.is_full |= other.is_full;
    }
}

/// Where fresh rows go.
enum Way {
    /// Past the queue.
    Short(Box<dyn IdleWorkers>),
    /// To the queue, as far as there is room in it.
    Queue(Allowance),
}

impl Way {
    fn allowance(&self) -> Allowance {
        match self {
            Way::Short(workers) => Allowance { backlog: workers.room(), fresh: workers.room() },
            Way::Queue(allowance) => *allowance,
        }
    }
}

/// How thorough a pass is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scan {
    /// From the bounds, or from where the last scan ended if that has become expensive.
    Quick,
    /// From the bounds.
    Exact,
}

#[derive(Debug, Clone, Default)]
struct Lane {
    topic: String,
    /// Paused by an operator, or its first channel is held: not scanned.
    is_shut: bool,
    rewinds: i32,
    /// Nothing fresh is at or below.
    bound: i64,
    /// The last scan ended here.
    cursor: i64,
    /// Where the last scan found its first row.
    lowest: Option<i64>,
    /// The last scan took all it might.
    is_backlogged: bool,
}

/// The relay of one instance.
#[derive(Debug)]
pub struct Relay {
    store: Store,
    publisher: Publisher,
    holds: Arc<Holds>,
    instance: InstanceId,
    batch: u32,
    lanes: BTreeMap<i32, Lane>,
    /// The first lane of the next scan: where there is not room for all, each has its turn.
    turn: i32,
    topics_at: Option<Instant>,
    timer_at: Instant,
    timer_thorough_at: Instant,
    bound: BoundMove,
    rescan_at: Instant,
    exact_at: Instant,
    exact_cost: Duration,
}

/// Moving the bounds up to `target` once none of `holders` is left.
#[derive(Debug)]
struct BoundMove {
    next_at: Instant,
    target: i64,
    holders: Option<Holders>,
}

impl Relay {
    /// A relay that has seen nothing yet: its first pass scans every lane from the start.
    pub fn new(
        store: Store,
        publisher: Publisher,
        holds: Arc<Holds>,
        instance: InstanceId,
        config: &RelayConfig,
    ) -> Relay {
        let now = Instant::now();
        Relay {
            store,
            publisher,
            holds,
            instance,
            batch: config.batch,
            lanes: BTreeMap::from([(0, Lane::default())]),
            turn: 0,
            topics_at: None,
            timer_at: now,
            timer_thorough_at: now,
            bound: BoundMove { next_at: now, target: 0, holders: None },
            rescan_at: now + RESCAN_EVERY,
            exact_at: now,
            exact_cost: Duration::ZERO,
        }
    }

    /// One bounded batch: timers that have run out, then fresh rows.
    pub async fn pass(&mut self, scan: Scan) -> Result<Counts, Error> {
        self.load_topics().await?;
        let mut counts = Counts::default();
        if Instant::now() >= self.timer_at {
            let allowance = self.publisher.allowance().await?;
            counts.add(self.publish_due(allowance).await?);
        }
        let way = self.way().await?;
        counts.add(self.publish_fresh(scan, way).await?);
        counts.has_more = self.lanes.values().any(|lane| lane.is_backlogged && !lane.is_shut);
        Ok(counts)
    }

    /// To idle workers, unless there is a backlog, which needs all workers there are; or they are too few for each lane to
    /// be looked at; or they would wait for a scan from the start.
    async fn way(&self) -> Result<Way, Error> {
        let open = || self.lanes.values().filter(|lane| !lane.is_shut);
        let is_short = Instant::now() < self.rescan_at && !open().any(|lane| lane.is_backlogged);
        let idle = is_short.then(|| self.publisher.idle_workers()).flatten();
        Ok(match idle.filter(|workers| workers.room() as usize >= open().count()) {
            Some(workers) => Way::Short(workers),
            None => Way::Queue(self.publisher.allowance().await?),
        })
    }

    /// Forgets what it knows of the topics, so that the next pass asks.
    pub fn reload_topics(&mut self) {
        self.topics_at = None;
    }

    /// After an error: what was being taken may have been given back below the bounds.
    pub fn rewind(&mut self) {
        for lane in self.lanes.values_mut() {
            (lane.bound, lane.cursor) = (0, 0);
        }
        self.bound.holders = None;
    }

    /// Timers may have been set: look at the next pass.
    pub fn look_at_timers(&mut self) {
        self.timer_at = Instant::now();
    }

    /// How long until the next timer runs out, if one is set.
    pub async fn next_timer(&mut self) -> Result<Option<Duration>, Error> {
        let look_back = self.look_back();
        Ok(self.store.next_timer(look_back).await?)
    }

    async fn load_topics(&mut self) -> Result<(), Error> {
        if self.topics_at.is_some_and(|at| at.elapsed() < TOPICS_MAX_AGE) {
            return Ok(());
        }
        for topic in self.store.topics().await? {
            let lane = self.lanes.entry(topic.lane).or_default();
            // Resumed, or new to us: look at the whole lane.
            if lane.rewinds != topic.rewinds || lane.topic.is_empty() {
                *lane = Lane { topic: topic.name, rewinds: topic.rewinds, ..Lane::default() };
            }
            lane.is_shut = topic.paused || self.holds.topic_is_held(&lane.topic);
        }
        self.topics_at = Some(Instant::now());
        Ok(())
    }

    async fn publish_due(&mut self, allowance: Allowance) -> Result<Counts, Error> {
        let mut counts = Counts::default();
        let rows_max = self.batch.min(allowance.fresh);
        if rows_max == 0 {
            return Ok(Counts { is_full: true, ..counts });
        }
        let look_back = self.look_back();
        let (reserved, found) = self.store.reserve_due(look_back, rows_max, self.instance.get()).await?;
        counts.found = found;
        counts.pushed = reserved.messages.len() as u64;
        self.publisher.push(reserved).await?;
        // More may be due right away; else sleep until the next, but look for others' timers now and then.
        let wait = if found >= u64::from(rows_max) {
            Duration::ZERO
        } else {
            self.next_timer().await?.unwrap_or(TIMER_LOOK_EVERY).min(TIMER_LOOK_EVERY)
        };
        self.timer_at = Instant::now() + wait;
        Ok(counts)
    }

    /// How far a look at the timers goes back: fired ones leave dead index entries, so mostly not far.
    fn look_back(&mut self) -> Duration {
        if self.timer_thorough_at <= Instant::now() {
            self.timer_thorough_at = Instant::now() + RESCAN_EVERY;
            return FOREVER;
        }
        TIMER_MARGIN
    }

    async fn publish_fresh(&mut self, scan: Scan, way: Way) -> Result<Counts, Error> {
        let started = Instant::now();
        let is_rescan = matches!(way, Way::Queue(_)) && started >= self.rescan_at;
        let is_exact = scan == Scan::Exact || self.exact_cost < CHEAP_SCAN || started >= self.exact_at;
        let scans = self.plan(is_rescan, is_exact, way.allowance());
        if scans.is_empty() {
            let is_full = self.lanes.values().any(|lane| !lane.is_shut);
            return Ok(Counts { is_full, ..Counts::default() });
        }
        let taken = match way {
            Way::Short(workers) => workers.claim(&scans).await,
            Way::Queue(_) => self.reserve_fresh(&scans).await,
        };
        let fresh = taken.inspect_err(|_| self.rewind())?;
        let found: u64 = fresh.lanes.iter().map(|lane| u64::from(lane.rows)).sum();
        if (is_exact || is_rescan) && fresh.claimed == 0 {
            // What reserving costs is not the scan's cost, and a claim waits for the disk.
            let cost = started.elapsed().saturating_sub(Duration::from_micros(50 * found));
            self.note_cost(is_rescan, cost);
        }
        self.note_lanes(&scans, &fresh);
        let pushed = fresh.claimed + fresh.reserved.messages.len() as u64;
        self.carry(fresh).await?;
        Ok(Counts { pushed, found, ..Counts::default() })
    }

    async fn reserve_fresh(&self, scans: &[LaneScan]) -> store::Result<Fresh> {
        let confirm = self.publisher.take_unconfirmed();
        let fresh = self.store.reserve_fresh(scans, self.instance.get(), &confirm).await;
        if fresh.is_err() {
            self.publisher.keep_unconfirmed(confirm);
        }
        fresh
    }

    /// Which lanes to scan, from where, and how many rows of each: together no more than there is room for.
    fn plan(&self, is_rescan: bool, is_exact: bool, allowance: Allowance) -> Vec<LaneScan> {
        let open = || self.lanes.values().filter(|lane| !lane.is_shut);
        let share = |rows: u32, lanes: usize| rows.div_ceil(u32::try_from(lanes.max(1)).unwrap_or(u32::MAX));
        let backlogged = open().filter(|lane| lane.is_backlogged).count();
        let backlog_take = share(allowance.backlog.min(self.batch), backlogged);
        // A lane with more to say than its share is one with a backlog from the next scan on.
        let fresh_take = share(allowance.fresh, open().count() - backlogged).min(self.batch);
        let mut room = allowance.fresh;
        let mut scans = Vec::new();
        for (&id, lane) in self.lanes.range(self.turn..).chain(self.lanes.range(..self.turn)) {
            let take = if lane.is_backlogged { backlog_take } else { fresh_take }.min(room);
            if take == 0 || lane.is_shut {
                continue;
            }
            let after = match (is_rescan, is_exact) {
                (true, _) => 0,
                (false, true) => lane.bound,
                (false, false) => lane.cursor,
            };
            scans.push(LaneScan { lane: id, after, take });
            room -= take;
        }
        scans
    }

    fn note_cost(&mut self, is_rescan: bool, cost: Duration) {
        if is_rescan {
            self.rescan_at = Instant::now() + RESCAN_EVERY.max(cost * RESCAN_SHARE);
        } else {
            self.exact_cost = cost;
            self.exact_at = Instant::now() + BOUND_EVERY.max(cost * 20);
        }
    }

    fn note_lanes(&mut self, scans: &[LaneScan], fresh: &Fresh) {
        self.turn = scans.last().map_or(0, |scan| scan.lane.saturating_add(1));
        for scan in scans {
            let Some(lane) = self.lanes.get_mut(&scan.lane) else { continue };
            let found = fresh.lanes.iter().find(|found| found.lane == scan.lane);
            lane.lowest = found.map(|found| found.lowest);
            lane.is_backlogged = found.is_some_and(|found| found.rows >= scan.take);
            lane.cursor = found.map_or(lane.cursor, |found| lane.cursor.max(found.highest));
        }
    }

    /// Pushes what was reserved, gives keys their turn, and has new topics named.
    async fn carry(&mut self, fresh: Fresh) -> Result<(), Error> {
        self.publisher.push(fresh.reserved).await?;
        if !fresh.keys.is_empty() {
            let admitted = self.store.admit(&fresh.keys, self.instance.get()).await?;
            self.publisher.push(admitted).await?;
        }
        let known = self.lanes.values().map(|lane| lane.topic.as_str()).collect();
        let unknown = publish::of_unknown_topics(&fresh.unnamed, &known);
        if !unknown.is_empty() {
            self.store.register_topics(&unknown).await?;
            self.reload_topics();
        }
        Ok(())
    }

    /// One step of moving the bounds up; does nothing until it is time.
    pub async fn move_bounds(&mut self) -> Result<(), Error> {
        if Instant::now() < self.bound.next_at {
            return Ok(());
        }
        self.bound.next_at = Instant::now() + BOUND_EVERY;
        match self.bound.holders.take() {
            None => {
                // The number first, then the holders: whoever drew a number up to it and has not ended is among them.
                self.bound.target = self.store.highest_seq().await?;
                self.bound.holders = Some(self.store.holders().await?);
            }
            Some(mut holders) => {
                if !holders.is_empty() {
                    let current = self.store.holders().await?;
                    holders.retain(|holder| current.contains(holder));
                }
                if holders.is_empty() {
                    self.finish_move().await?;
                } else {
                    self.bound.holders = Some(holders);
                }
            }
        }
        Ok(())
    }

    /// Nobody who could have drawn a number up to the target is left: one scan from the old bounds, then move them.
    async fn finish_move(&mut self) -> Result<(), Error> {
        let target = self.bound.target;
        if self.lanes.values().all(|lane| lane.bound >= target || lane.is_shut) {
            return Ok(());
        }
        let way = self.way().await?;
        let scanned: Vec<i32> = self.plan(false, true, way.allowance()).iter().map(|scan| scan.lane).collect();
        self.publish_fresh(Scan::Exact, way).await?;
        for (id, lane) in &mut self.lanes {
            if scanned.contains(id) {
                // With a backlog, everything below the first row found has passed.
                let below = lane.lowest.filter(|_| lane.is_backlogged).map_or(target, |lowest| target.min(lowest - 1));
                lane.bound = lane.bound.max(below);
                lane.cursor = lane.cursor.max(below);
            }
        }
        Ok(())
    }
}
