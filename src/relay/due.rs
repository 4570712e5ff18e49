//! When rows are due: retries, heads of keys, recalled and released rows.
//!
//! A search finds the topics that have such rows by their second (`store::due`): topics whose rows wait for long cost
//! nothing. It is made each second, when something is known to fall due, and when somebody says that something may be.
//! Topics that it found stay known until a round ends that did not find them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::retry::{is_cheap, rest_after};
use crate::store::due::{Part, Place, Search, Searched};

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
    search: Search,
    /// What the round under way has found.
    round: BTreeMap<Arc<str>, Next>,
    /// Something may have become due since the last search.
    is_woken: bool,
    /// So a search is wanted, but not before this.
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
            search: Search::new(now),
            round: BTreeMap::new(),
            is_woken: true,
            is_search_wanted: true,
            woken_search_at: now,
            turn: None,
        }
    }

    /// Everything may be due, however long ago.
    pub(super) fn search_now(&mut self) {
        let now = Instant::now();
        self.search.begin_now(now);
        (self.is_search_wanted, self.woken_search_at) = (true, now);
    }

    /// Something may be due.
    pub(super) fn wake(&mut self) {
        (self.is_woken, self.is_search_wanted) = (true, true);
    }

    /// What to search now.
    pub(super) fn parts(&self, now: Instant) -> Vec<(Part, Place)> {
        let is_due = now >= self.search_at() || (self.is_search_wanted && now >= self.woken_search_at);
        if is_due { self.search.parts(now) } else { Vec::new() }
    }

    fn search_at(&self) -> Instant {
        self.search.next_at().map_or(self.search.round_at(), |at| at.min(self.search.round_at()))
    }

    /// A part of the search found these; it began then.
    pub(super) fn searched(
        &mut self,
        part: Part,
        (found, searched): (Vec<(Arc<str>, Duration)>, Searched),
        began: Instant,
    ) {
        let now = Instant::now();
        let cost = now - began;
        self.woken_search_at = if is_cheap(cost) { now } else { now + rest_after(cost, Duration::ZERO) };
        (self.is_woken, self.is_search_wanted) = (false, false);
        for (topic, due_in) in found {
            let is_backlog = self.has_backlog(&topic);
            let next = Next { at: began + due_in, is_backlog };
            self.topics.insert(Arc::clone(&topic), next);
            if part == Part::Round {
                self.round.insert(topic, next);
            }
        }
        if self.search.note(part, &searched, cost) {
            let round = std::mem::take(&mut self.round);
            self.topics.retain(|topic, _| round.contains_key(topic));
        }
    }

    /// Topics with rows whose time has come; after a wake-up without a search, all that are known.
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
        // Without a next one it is kept, so that it is asked while rounds are seldom; the next one forgets it.
        let at = if is_backlog { now } else { due_in.map_or(self.search.round_at(), |due_in| now + due_in) };
        self.topics.insert(Arc::clone(topic), Next { at, is_backlog });
    }

    /// How long until something is due, leaving out topics that may not go.
    pub(super) fn next_in(&self, may_go: impl Fn(&str) -> bool) -> Duration {
        let now = Instant::now();
        let next = self.topics.iter().filter(|(topic, _)| may_go(topic)).map(|(_, next)| next.at).min();
        let search_at = self.search_at();
        let search_at = if self.is_search_wanted { search_at.min(self.woken_search_at) } else { search_at };
        next.map_or(search_at, |next| next.min(search_at)).saturating_duration_since(now)
    }
}
