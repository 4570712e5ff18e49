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
//!
//! **Stretches.** Where a lane has a backlog, what lies below such a number is settled: nobody can add to it. It is published by
//! stretches, "from here to there", and no row of it is written until its claim. The number is shared by all instances, so
//! that each row is reserved either by itself or in a stretch, whoever does it. Not with an in-process queue.

mod lanes;

use std::sync::Arc;
use std::time::{Duration, Instant};

use self::lanes::{From, Lanes};
use crate::config::RelayConfig;
use crate::failpoint;
use crate::holds::Holds;
use crate::publisher::{Allowance, Error, IdleWorkers, Publisher};
use crate::store::doorbell::Holders;
use crate::store::instance::InstanceId;
use crate::store::publish::{self, Fresh, LaneScan, Stretches, Topic};
use crate::store::{self, Store};

/// How old the knowledge of topics may be: an operator's pause takes effect within a second.
const TOPICS_MAX_AGE: Duration = Duration::from_millis(400);
/// How often the bounds are moved while there is work, and how often if fewer rows than this have passed: whoever looks at all
/// locks is felt by everybody who takes one.
const BOUND_EVERY: Duration = Duration::from_millis(50);
const BOUND_EVERY_IDLE: Duration = Duration::from_millis(500);
const BOUND_ROWS: u64 = 100;
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

/// The relay of one instance.
#[derive(Debug)]
pub struct Relay {
    store: Store,
    publisher: Publisher,
    holds: Arc<Holds>,
    instance: InstanceId,
    batch: u32,
    lanes: Lanes,
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
    /// At the latest, and rows found since the last time.
    due_at: Instant,
    rows: u64,
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
            lanes: Lanes::new(config.batch),
            topics_at: None,
            timer_at: now,
            timer_thorough_at: now,
            bound: BoundMove { next_at: now, due_at: now, rows: 0, target: 0, holders: None },
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
        counts.has_more = self.lanes.have_backlog();
        self.bound.rows += counts.found;
        Ok(counts)
    }

    /// To idle workers, unless there is a backlog, which needs all workers there are; or they are too few for each lane to
    /// be looked at; or they would wait for a scan from the start.
    async fn way(&self) -> Result<Way, Error> {
        let is_short = Instant::now() < self.rescan_at && !self.lanes.have_backlog();
        let idle = is_short.then(|| self.publisher.idle_workers()).flatten();
        Ok(match idle.filter(|workers| workers.room() as usize >= self.lanes.open().count()) {
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
        self.lanes.rewind();
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
        let is_used = self.publisher.stretches() == Stretches::Used;
        for topic in self.store.topics().await? {
            let settled_to = if is_used { topic.settled_to } else { 0 };
            self.lanes.load(Topic { settled_to, ..topic }, |topic| self.holds.topic_is_held(topic));
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
        let now = Instant::now();
        let is_rescan = matches!(way, Way::Queue(_)) && now >= self.rescan_at;
        let is_exact = scan == Scan::Exact || self.exact_cost < CHEAP_SCAN || now >= self.exact_at;
        if is_rescan {
            self.lanes.restretch();
        }
        let from = match (is_rescan, is_exact) {
            (true, _) => From::Start,
            (false, true) => From::Bound,
            (false, false) => From::Cursor,
        };
        let plan = self.lanes.plan(from, way.allowance());
        let (mut counts, mut cost) = (Counts::default(), Duration::ZERO);
        if plan.fresh.is_empty() && plan.settled.is_empty() {
            counts.is_full = self.lanes.open().next().is_some();
        }
        if !plan.settled.is_empty() {
            let started = Instant::now();
            let taken = self.reserve_stretch(&plan.settled).await;
            let fresh = taken.inspect_err(|_| self.rewind())?;
            cost += scan_cost(started, &fresh);
            if !fresh.reserved.messages.is_empty() {
                failpoint::hit("after_stretch").await;
            }
            self.lanes.note_stretches(&plan.settled, &fresh);
            counts.add(self.carry(fresh).await?);
        }
        if plan.fresh.is_empty() {
            return Ok(counts);
        }
        let started = Instant::now();
        let taken = match way {
            Way::Short(workers) => workers.claim(&plan.fresh).await,
            Way::Queue(_) => self.reserve_fresh(&plan.fresh).await,
        };
        let fresh = taken.inspect_err(|_| self.rewind())?;
        // A claim waits for the disk.
        if (is_exact || is_rescan) && fresh.claimed == 0 {
            self.note_cost(is_rescan, cost + scan_cost(started, &fresh));
        }
        self.lanes.note_fresh(&plan.fresh, &fresh);
        counts.add(self.carry(fresh).await?);
        Ok(counts)
    }

    async fn reserve_fresh(&self, scans: &[LaneScan]) -> store::Result<Fresh> {
        let confirm = self.publisher.take_unconfirmed();
        let stretches = self.publisher.stretches();
        let fresh = self.store.reserve_fresh(scans, self.instance.get(), &confirm, stretches).await;
        self.publisher.keep_unless(fresh, confirm)
    }

    async fn reserve_stretch(&self, scans: &[LaneScan]) -> store::Result<Fresh> {
        let confirm = self.publisher.take_unconfirmed();
        let fresh = self.store.reserve_stretch(scans, self.instance.get(), &confirm).await;
        self.publisher.keep_unless(fresh, confirm)
    }

    fn note_cost(&mut self, is_rescan: bool, cost: Duration) {
        if is_rescan {
            self.rescan_at = Instant::now() + RESCAN_EVERY.max(cost * RESCAN_SHARE);
        } else {
            self.exact_cost = cost;
            self.exact_at = Instant::now() + BOUND_EVERY.max(cost * 20);
        }
    }

    /// Pushes what was reserved, gives keys their turn, and has new topics named.
    async fn carry(&mut self, fresh: Fresh) -> Result<Counts, Error> {
        let pushed = fresh.claimed + fresh.reserved.messages.len() as u64;
        let counts = Counts { pushed, found: fresh.rows(), ..Counts::default() };
        self.publisher.push(fresh.reserved).await?;
        if !fresh.keys.is_empty() {
            let admitted = self.store.admit(&fresh.keys, self.instance.get()).await?;
            self.publisher.push(admitted).await?;
        }
        let known = self.lanes.iter().map(|lane| lane.topic.as_str()).collect();
        let unknown = publish::of_unknown_topics(&fresh.unnamed, &known);
        if !unknown.is_empty() {
            self.store.register_topics(&unknown).await?;
            self.reload_topics();
        }
        Ok(counts)
    }

    /// One step of moving the bounds up; does nothing until it is time.
    pub async fn move_bounds(&mut self) -> Result<(), Error> {
        let now = Instant::now();
        let is_begun = self.bound.holders.is_some();
        if now < self.bound.next_at || !(is_begun || now >= self.bound.due_at || self.bound.rows >= BOUND_ROWS) {
            return Ok(());
        }
        self.bound.next_at = now + BOUND_EVERY;
        match self.bound.holders.take() {
            None => {
                (self.bound.due_at, self.bound.rows) = (now + BOUND_EVERY_IDLE, 0);
                // The number first, then the holders: whoever drew a number up to it and has not ended is among them.
                self.bound.target = self.store.highest_seq().await?;
                let holders = self.store.holders().await?;
                if self.lanes.are_beyond(self.bound.target) {
                    self.store.unsettle(self.bound.target).await?;
                    self.lanes.unsettle();
                }
                if holders.is_empty() {
                    self.finish_move().await?;
                } else {
                    self.bound.holders = Some(holders);
                }
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
        if self.lanes.open().all(|lane| lane.bound >= target) {
            return Ok(());
        }
        let way = self.way().await?;
        let plan = self.lanes.plan(From::Bound, way.allowance());
        self.publish_fresh(Scan::Exact, way).await?;
        self.lanes.move_bounds(&plan.fresh, target);
        self.settle_backlogs(&plan.fresh, target).await
    }

    /// Of what was just scanned, what has more than a batch left up to the target is published by stretches from now on.
    async fn settle_backlogs(&mut self, scanned: &[LaneScan], target: i64) -> Result<(), Error> {
        let lanes = self.lanes.long(scanned, target);
        if lanes.is_empty() || self.publisher.stretches() == Stretches::Unused {
            return Ok(());
        }
        for (lane, settled_to) in self.store.settle(&lanes, target, self.publisher.is_alone()).await? {
            self.lanes.settle(lane, settled_to);
        }
        Ok(())
    }
}

/// What a scan took, without what reserving its rows took.
fn scan_cost(started: Instant, fresh: &Fresh) -> Duration {
    started.elapsed().saturating_sub(Duration::from_micros(50 * fresh.rows()))
}
