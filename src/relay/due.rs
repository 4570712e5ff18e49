//! When what came back or late is due: retries, heads of keys, recalled and released rows.
//!
//! A look finds the topics that have such rows, one step down the index each. Rows that went leave dead index entries
//! behind; while those make looks expensive (a foreign snapshot keeps vacuum from them), looks become seldom, and in
//! between the topics known are asked without looking far back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::retry::{is_cheap, rest_after};

/// Looks are this far apart, if nothing wakes us.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What is known of one topic.
#[derive(Debug, Clone, Copy)]
struct Next {
    /// When its next row is due.
    at: Instant,
    /// More was due than was taken.
    is_backlog: bool,
}

/// What is known of due topics.
#[derive(Debug)]
pub(super) struct DueTopics {
    topics: BTreeMap<Arc<str>, Next>,
    look_at: Instant,
    cost: Duration,
    /// Something may have become due since the last look.
    is_woken: bool,
    /// So a look is wanted, but not before this.
    is_look_wanted: bool,
    woken_look_at: Instant,
    /// The topic that was scanned last: the next has its turn.
    turn: Option<Arc<str>>,
}

impl DueTopics {
    pub(super) fn new() -> DueTopics {
        let now = Instant::now();
        DueTopics {
            topics: BTreeMap::new(),
            look_at: now,
            cost: Duration::ZERO,
            is_woken: true,
            is_look_wanted: true,
            woken_look_at: now,
            turn: None,
        }
    }

    /// Everything may be due, however long ago.
    pub(super) fn look_again(&mut self) {
        self.look_at = Instant::now();
    }

    /// Something may be due.
    pub(super) fn wake(&mut self) {
        (self.is_woken, self.is_look_wanted) = (true, true);
    }

    /// Whether to look for topics now.
    pub(super) fn wants_look(&self, now: Instant) -> bool {
        now >= self.look_at || (self.is_look_wanted && now >= self.woken_look_at)
    }

    /// A look found these; it began then.
    pub(super) fn looked(&mut self, found: Vec<(Arc<str>, Duration)>, began: Instant) {
        let now = Instant::now();
        self.cost = now - began;
        self.look_at = now + rest_after(self.cost, LOOK_EVERY);
        self.woken_look_at = if is_cheap(self.cost) { now } else { now + rest_after(self.cost, Duration::ZERO) };
        (self.is_woken, self.is_look_wanted) = (false, false);
        let before = std::mem::take(&mut self.topics);
        let next = |(topic, due_in): (Arc<str>, Duration)| {
            let is_backlog = before.get(&topic).is_some_and(|next| next.is_backlog);
            (topic, Next { at: began + due_in, is_backlog })
        };
        self.topics = found.into_iter().map(next).collect();
    }

    /// Topics with rows whose time has come; after a wake-up without a look, all that are known.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Arc<str>> {
        let is_woken = std::mem::take(&mut self.is_woken);
        let due = self.topics.iter().filter(|(_, next)| is_woken || next.at <= now);
        due.map(|(topic, _)| Arc::clone(topic)).collect()
    }

    /// What to take of these topics, together no more than `rows_max`, beginning after the topic that was scanned last. The
    /// others are asked by the next passes, also those that only a wake-up named.
    pub(super) fn in_turns(&mut self, mut topics: Vec<(Arc<str>, u32)>, rows_max: u32) -> Vec<(Arc<str>, u32)> {
        let next = topics.partition_point(|(topic, _)| self.turn.as_ref().is_some_and(|turn| topic <= turn));
        topics.rotate_left(next);
        let (now, mut room) = (Instant::now(), rows_max);
        topics.retain_mut(|(topic, take)| {
            if let Some(left) = self.topics.get_mut(topic).filter(|_| room == 0) {
                left.at = left.at.min(now);
            }
            *take = room.min(*take);
            room -= *take;
            *take > 0
        });
        self.turn = topics.last().map(|(topic, _)| Arc::clone(topic)).or_else(|| self.turn.take());
        topics
    }

    /// Whether more of a topic was due than was taken.
    pub(super) fn has_backlog(&self, topic: &str) -> bool {
        self.topics.get(topic).is_some_and(|next| next.is_backlog)
    }

    /// Rows of this topic were taken, perhaps not all that are due; the next is due in so long, if it is known.
    pub(super) fn note(&mut self, topic: &Arc<str>, is_backlog: bool, due_in: Option<Duration>) {
        let now = Instant::now();
        // Without a next one it is kept, so that it is asked while looks are seldom; the next look forgets it.
        let at = if is_backlog { now } else { due_in.map_or(self.look_at, |due_in| now + due_in) };
        self.topics.insert(Arc::clone(topic), Next { at, is_backlog });
    }

    /// How long until something is due, leaving out topics that may not go.
    pub(super) fn next_in(&self, may_go: impl Fn(&str) -> bool) -> Duration {
        let now = Instant::now();
        let next = self.topics.iter().filter(|(topic, _)| may_go(topic)).map(|(_, next)| next.at).min();
        let look_at = if self.is_look_wanted { self.look_at.min(self.woken_look_at) } else { self.look_at };
        next.map_or(look_at, |next| next.min(look_at)).saturating_duration_since(now)
    }
}
