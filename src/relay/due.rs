//! When rows are due: retries, heads of keys, recalled and released rows.
//!
//! A topic search finds the topics that have such rows, one step down the index each. Rows that went leave dead index
//! entries behind. While those make topic searches expensive (a foreign snapshot keeps vacuum from them), there are
//! fewer, and in between the topics known are asked without going far back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::retry::{is_cheap, rest_after};

/// Topic searches are this far apart, if nothing wakes us.
const SEARCH_EVERY: Duration = Duration::from_secs(1);

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
    search_at: Instant,
    cost: Duration,
    /// Something may have become due since the last topic search.
    is_woken: bool,
    /// So a topic search is wanted, but not before this.
    is_search_wanted: bool,
    woken_search_at: Instant,
    /// The topic that was scanned last: the next has its turn.
    turn: Option<Arc<str>>,
}

impl DueTopics {
    pub(super) fn new() -> DueTopics {
        let now = Instant::now();
        DueTopics {
            topics: BTreeMap::new(),
            search_at: now,
            cost: Duration::ZERO,
            is_woken: true,
            is_search_wanted: true,
            woken_search_at: now,
            turn: None,
        }
    }

    /// Everything may be due, however long ago.
    pub(super) fn search_now(&mut self) {
        self.search_at = Instant::now();
    }

    /// Something may be due.
    pub(super) fn wake(&mut self) {
        (self.is_woken, self.is_search_wanted) = (true, true);
    }

    /// Whether to search for topics now.
    pub(super) fn wants_search(&self, now: Instant) -> bool {
        now >= self.search_at || (self.is_search_wanted && now >= self.woken_search_at)
    }

    /// A topic search found these; it began then.
    pub(super) fn searched(&mut self, found: Vec<(Arc<str>, Duration)>, began: Instant) {
        let now = Instant::now();
        self.cost = now - began;
        self.search_at = now + rest_after(self.cost, SEARCH_EVERY);
        self.woken_search_at = if is_cheap(self.cost) { now } else { now + rest_after(self.cost, Duration::ZERO) };
        (self.is_woken, self.is_search_wanted) = (false, false);
        let before = std::mem::take(&mut self.topics);
        let next = |(topic, due_in): (Arc<str>, Duration)| {
            let is_backlog = before.get(&topic).is_some_and(|next| next.is_backlog);
            (topic, Next { at: began + due_in, is_backlog })
        };
        self.topics = found.into_iter().map(next).collect();
    }

    /// Topics with rows whose time has come; after a wake-up without a topic search, all that are known.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Arc<str>> {
        let is_woken = std::mem::take(&mut self.is_woken);
        let due = self.topics.iter().filter(|(_, next)| is_woken || next.at <= now);
        due.map(|(topic, _)| Arc::clone(topic)).collect()
    }

    /// What to reserve of these topics, together no more than `rows_max`, beginning after the topic that was scanned
    /// last. The others are asked by the next passes, also those that only a wake-up named.
    pub(super) fn in_turns(&mut self, mut topics: Vec<(Arc<str>, u32)>, rows_max: u32) -> Vec<(Arc<str>, u32)> {
        let next = topics.partition_point(|(topic, _)| self.turn.as_ref().is_some_and(|turn| topic <= turn));
        topics.rotate_left(next);
        let (now, mut room) = (Instant::now(), rows_max);
        topics.retain_mut(|(topic, rows)| {
            if let Some(left) = self.topics.get_mut(topic).filter(|_| room == 0) {
                left.at = left.at.min(now);
            }
            *rows = room.min(*rows);
            room -= *rows;
            *rows > 0
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
        // Without a next one it is kept, so that it is asked while topic searches are seldom; the next one forgets it.
        let at = if is_backlog { now } else { due_in.map_or(self.search_at, |due_in| now + due_in) };
        self.topics.insert(Arc::clone(topic), Next { at, is_backlog });
    }

    /// How long until something is due, leaving out topics that may not go.
    pub(super) fn next_in(&self, may_go: impl Fn(&str) -> bool) -> Duration {
        let now = Instant::now();
        let next = self.topics.iter().filter(|(topic, _)| may_go(topic)).map(|(_, next)| next.at).min();
        let search_at = if self.is_search_wanted { self.search_at.min(self.woken_search_at) } else { self.search_at };
        next.map_or(search_at, |next| next.min(search_at)).saturating_duration_since(now)
    }
}
