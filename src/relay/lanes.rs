//! What a relay knows of the lanes: where each is looked at next, and how much of each may be taken.

use std::collections::BTreeMap;

use crate::publisher::Allowance;
use crate::store::publish::{Fresh, LaneScan, Topic};

#[derive(Debug, Clone, Default)]
pub(super) struct Lane {
    pub(super) topic: String,
    /// Paused by an operator, or its first channel is held: not scanned.
    pub(super) is_shut: bool,
    rewinds: i32,
    /// Nothing fresh is at or below, but for what is settled.
    pub(super) bound: i64,
    /// The last scan ended here.
    cursor: i64,
    /// Where the last scan found its first row.
    lowest: Option<i64>,
    /// The last scan took all it might.
    pub(super) is_backlogged: bool,
    /// Up to here it is published by stretches.
    settled_to: i64,
    /// Up to here it has been.
    stretched_to: i64,
    /// There may be rows between the two.
    is_stretching: bool,
}

impl Lane {
    /// Looks at all of it again.
    fn rewind(&mut self) {
        (self.bound, self.cursor) = (0, 0);
        self.restretch();
    }

    /// Looks at all that is settled again. What was published of it, by this relay or others, is told by the stretches.
    fn restretch(&mut self) {
        self.stretched_to = 0;
        self.is_stretching = self.settled_to > 0;
    }

    fn settle(&mut self, up_to: i64) {
        if up_to > self.settled_to {
            self.settled_to = up_to;
            self.is_stretching = true;
        }
    }
}

/// What a pass looks at.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Lane by lane above what is settled.
    pub(super) fresh: Vec<LaneScan>,
    /// The next stretches.
    pub(super) settled: Vec<LaneScan>,
}

/// From where a pass looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    Start,
    Bound,
    Cursor,
}

/// All lanes.
#[derive(Debug)]
pub(super) struct Lanes {
    lanes: BTreeMap<i32, Lane>,
    /// Rows of a lane at a time.
    batch: u32,
    /// The first lane of the next scan: where there is not room for all, each has its turn.
    turn: i32,
}

impl Lanes {
    /// Lane 0, to be scanned from its start.
    pub(super) fn new(batch: u32) -> Lanes {
        Lanes { lanes: BTreeMap::from([(0, Lane::default())]), batch, turn: 0 }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.values()
    }

    pub(super) fn open(&self) -> impl Iterator<Item = &Lane> {
        self.iter().filter(|lane| !lane.is_shut)
    }

    /// Whether a lane that may be scanned has, or may have, more than a scan takes.
    pub(super) fn have_backlog(&self) -> bool {
        self.open().any(|lane| lane.is_backlogged || lane.is_stretching)
    }

    /// Brings a lane in step with what Postgres says of it.
    pub(super) fn load(&mut self, topic: Topic, is_held: impl Fn(&str) -> bool) {
        let lane = self.lanes.entry(topic.lane).or_default();
        if let Some(name) = topic.name {
            // Resumed, or new to us: look at the whole lane.
            if lane.rewinds != topic.rewinds || lane.topic.is_empty() {
                *lane = Lane { topic: name, rewinds: topic.rewinds, ..Lane::default() };
            }
            lane.is_shut = topic.paused || is_held(&lane.topic);
        }
        lane.settle(topic.settled_to);
    }

    /// Looks at everything again.
    pub(super) fn rewind(&mut self) {
        self.lanes.values_mut().for_each(Lane::rewind);
    }

    /// Looks at all that is settled again.
    pub(super) fn restretch(&mut self) {
        self.lanes.values_mut().for_each(Lane::restretch);
    }

    /// Which lanes to scan, from where, and how many rows of each: together no more than there is room for. A lane is looked at
    /// above what is settled once all of that has been published.
    pub(super) fn plan(&self, from: From, allowance: Allowance) -> Plan {
        let share = |rows: u32, lanes: usize| rows.div_ceil(u32::try_from(lanes.max(1)).unwrap_or(u32::MAX));
        let backlogged = self.open().filter(|lane| lane.is_backlogged).count();
        let backlog_take = share(allowance.backlog.min(self.batch), backlogged);
        // A lane with more to say than its share is one with a backlog from the next scan on.
        let fresh_take = share(allowance.fresh, self.open().count() - backlogged).min(self.batch);
        let mut room = allowance.fresh;
        let mut plan = Plan::default();
        for (&id, lane) in self.lanes.range(self.turn..).chain(self.lanes.range(..self.turn)) {
            let share = if lane.is_backlogged { backlog_take } else { fresh_take };
            if share.min(room) == 0 || lane.is_shut {
                continue;
            }
            let mut take = || {
                let take = share.min(room);
                room -= take;
                take
            };
            if lane.is_stretching {
                plan.settled.push(LaneScan { lane: id, after: lane.stretched_to, take: take() });
            }
            if !lane.is_stretching || from == From::Start {
                let after = match from {
                    From::Start => 0,
                    From::Bound => lane.bound,
                    From::Cursor => lane.cursor,
                };
                plan.fresh.push(LaneScan { lane: id, after, take: take() });
            }
        }
        plan
    }

    /// What stretches were taken.
    pub(super) fn note_stretches(&mut self, scans: &[LaneScan], fresh: &Fresh) {
        self.turn = scans.last().map_or(0, |scan| scan.lane.saturating_add(1));
        for scan in scans {
            let Some(lane) = self.lanes.get_mut(&scan.lane) else { continue };
            // What lies above is looked at next.
            lane.is_backlogged = true;
            if fresh.contested.contains(&scan.lane) {
                continue;
            }
            let found = fresh.lanes.iter().find(|found| found.lane == scan.lane);
            lane.is_stretching = found.is_some_and(|found| found.rows >= scan.take);
            lane.stretched_to = found.map_or(lane.stretched_to, |found| lane.stretched_to.max(found.highest));
            lane.cursor = lane.cursor.max(lane.stretched_to);
        }
    }

    /// What was found above what is settled.
    pub(super) fn note_fresh(&mut self, scans: &[LaneScan], fresh: &Fresh) {
        self.turn = scans.last().map_or(0, |scan| scan.lane.saturating_add(1));
        for scan in scans {
            let Some(lane) = self.lanes.get_mut(&scan.lane) else { continue };
            let found = fresh.lanes.iter().find(|found| found.lane == scan.lane);
            lane.lowest = found.map(|found| found.lowest);
            lane.is_backlogged = found.is_some_and(|found| found.rows >= scan.take);
            lane.cursor = found.map_or(lane.cursor, |found| lane.cursor.max(found.highest));
        }
    }

    /// Nobody who could have drawn a number up to the target is left, and these have been scanned since.
    pub(super) fn move_bounds(&mut self, scanned: &[LaneScan], target: i64) {
        for scan in scanned {
            let Some(lane) = self.lanes.get_mut(&scan.lane) else { continue };
            // With a backlog, everything below the first row found has passed.
            let below = lane.lowest.filter(|_| lane.is_backlogged).map_or(target, |lowest| target.min(lowest - 1));
            lane.bound = lane.bound.max(below);
            lane.cursor = lane.cursor.max(below);
        }
    }

    /// Of these lanes, those with more than a batch left up to the target.
    pub(super) fn long(&self, scanned: &[LaneScan], target: i64) -> Vec<i32> {
        let is_long = |lane: &Lane| {
            lane.is_backlogged && !lane.is_shut && target.saturating_sub(lane.cursor) > i64::from(self.batch)
        };
        scanned.iter().map(|scan| scan.lane).filter(|id| self.lanes.get(id).is_some_and(is_long)).collect()
    }

    /// A lane is settled up to here.
    pub(super) fn settle(&mut self, lane: i32, up_to: i64) {
        if let Some(lane) = self.lanes.get_mut(&lane) {
            lane.settle(up_to);
        }
    }

    /// Whether more has passed than numbers were drawn: they were set back.
    pub(super) fn are_beyond(&self, highest: i64) -> bool {
        self.iter().any(|lane| lane.settled_to.max(lane.bound) > highest)
    }

    /// Nothing is settled, and nothing has passed.
    pub(super) fn unsettle(&mut self) {
        for lane in self.lanes.values_mut() {
            lane.settled_to = 0;
            lane.rewind();
        }
    }
}
