//! What a relay remembers of topics: which are scanned one by one, and from where.
//!
//! The fast path serves topics with few rows. A topic with more rows than a poll reads, or whose channel cannot take
//! all of them, is left out there. It is scanned by itself, in turns with the others, until a scan returns fewer rows
//! than asked for.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::FEW;
use super::publisher::Allowance;
use crate::channel::availability::Flow;
use crate::store::publish::{Found, TopicScan};

/// Topics remembered at most; beyond that only those that are scanned by themselves.
const TOPICS_MAX: usize = 10_000;
/// Topics scanned by one statement.
const SCANS_MAX: usize = 500;

#[derive(Debug, Default)]
struct Topic {
    /// The highest position reserved.
    seq: i64,
    /// It is scanned by itself, from here on.
    from: Option<i64>,
    /// The last scan took all that it might.
    is_backlog: bool,
    is_held: bool,
    /// Rows that may be published; `None`: its channel takes whatever comes.
    room: Option<usize>,
}

impl Topic {
    /// It is scanned by itself, and may be.
    fn is_open(&self) -> bool {
        self.from.is_some() && self.room != Some(0)
    }
}

/// The topics of one relay.
#[derive(Debug)]
pub(super) struct Topics {
    topics: BTreeMap<Arc<str>, Topic>,
    /// Rows of one scan at most.
    batch: u32,
    /// The topic that was scanned last: the next has its turn.
    turn: Option<Arc<str>>,
}

impl Topics {
    pub(super) fn new(batch: u32) -> Topics {
        Topics { topics: BTreeMap::new(), batch, turn: None }
    }

    /// Every topic that is known, for [`Topics::set_flow`].
    pub(super) fn names(&self) -> Vec<Arc<str>> {
        self.topics.keys().cloned().collect()
    }

    /// How much of a topic may be published. What was held or cannot go all at once is scanned by itself from where it
    /// was.
    pub(super) fn set_flow(&mut self, name: &str, flow: Flow, overlap: i64) {
        let Some(topic) = self.topics.get_mut(name) else { return };
        topic.is_held = flow == Flow::Held;
        topic.room = match flow {
            Flow::Room(rows) if rows >= self.batch as usize => None,
            Flow::Room(rows) if topic.is_backlog => Some(rows),
            Flow::Room(rows) => Some(rows.max(FEW)),
            Flow::Held => Some(0),
        };
        if topic.room.is_some() && topic.from.is_none() {
            topic.from = Some(topic.seq.saturating_sub(overlap));
        }
    }

    /// These topics have, or may have, rows that nobody has seen: they are scanned from their start.
    pub(super) fn scan_all(&mut self, names: Vec<Arc<str>>) {
        for name in names {
            self.topics.entry(name).or_default().from = Some(0);
        }
    }

    /// Topics that the fast path leaves out.
    pub(super) fn skipped(&self) -> Vec<Arc<str>> {
        self.topics.iter().filter(|(_, topic)| topic.from.is_some()).map(|(name, _)| Arc::clone(name)).collect()
    }

    /// Whether a topic that may be published has more than was taken.
    pub(super) fn have_backlog(&self) -> bool {
        self.topics.values().any(|topic| topic.is_backlog && topic.room != Some(0))
    }

    /// Whether a topic waits for its channel to take more.
    pub(super) fn wait_for_room(&self) -> bool {
        self.topics.values().any(|topic| topic.is_backlog && topic.room.is_some() && !topic.is_held)
    }

    /// What the fast path found; `is_full`: it took all that it might, so its biggest topics have a backlog.
    pub(super) fn note_fresh(&mut self, found: &Found, is_full: bool) {
        let rows: usize = found.topics.iter().map(|topic| topic.rows).sum();
        for found in &found.topics {
            let topic = self.topics.entry(Arc::clone(&found.topic)).or_default();
            topic.seq = topic.seq.max(found.seq_max);
            if is_full && found.rows * 8 >= rows {
                topic.from = Some(found.seq_max);
                topic.is_backlog = true;
            }
        }
        if self.topics.len() > TOPICS_MAX {
            self.topics.retain(|_, topic| topic.from.is_some());
        }
    }

    /// What to scan topic by topic, together no more than there is room for.
    pub(super) fn plan(&self, allowance: Allowance) -> Vec<TopicScan> {
        let open = || self.topics.values().filter(|topic| topic.is_open());
        let backlogs = open().filter(|topic| topic.is_backlog).count();
        let share = |rows: u32, of: usize| rows.div_ceil(u32::try_from(of.max(1)).unwrap_or(u32::MAX));
        let backlog_share = share(allowance.backlog.min(self.batch), backlogs);
        let other_share = share(allowance.fresh, (open().count() - backlogs).min(SCANS_MAX)).min(self.batch);
        let mut room = allowance.fresh;
        let mut scans = Vec::new();
        for (name, topic) in self.in_turns().filter(|(_, topic)| topic.is_open()).take(SCANS_MAX) {
            let share = if topic.is_backlog { backlog_share } else { other_share };
            let limit = topic.room.map_or(u32::MAX, |rows| u32::try_from(rows).unwrap_or(u32::MAX));
            let rows_max = share.min(limit).min(room);
            if rows_max > 0 {
                room -= rows_max;
                scans.push(TopicScan { topic: Arc::clone(name), after: topic.from.unwrap_or(0), rows_max });
            }
        }
        scans
    }

    /// Beginning after the topic that was scanned last.
    fn in_turns(&self) -> impl Iterator<Item = (&Arc<str>, &Topic)> {
        let (first, rest) = match &self.turn {
            Some(turn) => (Bound::Excluded(turn), Bound::Included(turn)),
            None => (Bound::Unbounded, Bound::Unbounded),
        };
        let rest = self.turn.as_ref().map(|_| self.topics.range::<Arc<str>, _>((Bound::Unbounded, rest)));
        self.topics.range::<Arc<str>, _>((first, Bound::Unbounded)).chain(rest.into_iter().flatten())
    }

    /// What the scans found. A topic that gave less than asked has nothing left: the fast path serves it again, unless
    /// its channel cannot take everything.
    pub(super) fn note_scans(&mut self, scans: &[TopicScan], found: &Found, overlap: i64) {
        self.turn = scans.last().map(|scan| Arc::clone(&scan.topic));
        for scan in scans {
            let Some(topic) = self.topics.get_mut(&scan.topic) else { continue };
            let found = found.topics.iter().find(|found| found.topic == scan.topic);
            let rows = found.map_or(0, |found| found.rows);
            topic.seq = topic.seq.max(found.map_or(0, |found| found.seq_max));
            topic.is_backlog = rows >= scan.rows_max as usize;
            topic.room = topic.room.map(|room| room.saturating_sub(rows));
            topic.from = match (topic.is_backlog, topic.room) {
                (true, _) => Some(found.map_or(scan.after, |found| found.seq_max)),
                (false, Some(_)) => Some(topic.seq.saturating_sub(overlap)),
                (false, None) => None,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::publish::TopicFound;

    const PLENTY: Allowance = Allowance { backlog: 1_000, fresh: 10_000 };

    fn found(topics: &[(&str, usize, i64)]) -> Found {
        let topic = |&(name, rows, seq_max): &(&str, usize, i64)| TopicFound { topic: Arc::from(name), rows, seq_max };
        Found { topics: topics.iter().map(topic).collect(), ..Found::default() }
    }

    fn planned(topics: &Topics, allowance: Allowance) -> Vec<(String, i64, u32)> {
        topics.plan(allowance).iter().map(|scan| (scan.topic.to_string(), scan.after, scan.rows_max)).collect()
    }

    #[test]
    fn a_topic_that_fills_a_poll_is_gone_on_with_by_itself_until_it_has_no_more() {
        let mut topics = Topics::new(500);
        topics.note_fresh(&found(&[("big", 490, 490), ("small", 10, 500)]), true);
        assert_eq!(topics.skipped().iter().map(|name| &**name).collect::<Vec<_>>(), ["big"]);
        let scans = topics.plan(PLENTY);
        assert_eq!(planned(&topics, PLENTY), [("big".to_owned(), 490, 500)]);
        topics.note_scans(&scans, &found(&[("big", 500, 990)]), 100);
        assert!(topics.have_backlog());
        let scans = topics.plan(PLENTY);
        assert_eq!(planned(&topics, PLENTY), [("big".to_owned(), 990, 500)]);
        topics.note_scans(&scans, &found(&[("big", 3, 993)]), 100);
        assert!(topics.skipped().is_empty() && !topics.have_backlog());
    }

    #[test]
    fn topics_with_a_backlog_share_their_part_of_the_window_and_leave_the_others_theirs() {
        let mut topics = Topics::new(500);
        topics.note_fresh(&found(&[("a", 250, 250), ("b", 250, 500)]), true);
        topics.scan_all(vec![Arc::from("quiet")]);
        let full = Allowance { backlog: 100, fresh: 9_000 };
        let rows: Vec<u32> = planned(&topics, full).into_iter().map(|(_, _, rows_max)| rows_max).collect();
        assert_eq!(rows, [50, 50, 500]);
        let none = Allowance { backlog: 0, fresh: 9_000 };
        assert_eq!(planned(&topics, none), [("quiet".to_owned(), 0, 500)]);
    }

    #[test]
    fn a_held_topic_is_left_out_and_goes_on_from_where_it_was() {
        let mut topics = Topics::new(500);
        topics.note_fresh(&found(&[("a", 5, 5_000)]), false);
        topics.set_flow("a", Flow::Held, 100);
        assert_eq!((topics.skipped().len(), topics.plan(PLENTY).len()), (1, 0));
        topics.set_flow("a", Flow::Room(usize::MAX), 100);
        assert_eq!(planned(&topics, PLENTY), [("a".to_owned(), 4_900, 500)]);
    }

    #[test]
    fn no_more_is_taken_than_the_channel_has_room_for() {
        let mut topics = Topics::new(500);
        topics.note_fresh(&found(&[("a", 5, 5_000)]), false);
        topics.set_flow("a", Flow::Room(40), 100);
        let scans = topics.plan(PLENTY);
        assert_eq!(planned(&topics, PLENTY), [("a".to_owned(), 4_900, 40)]);
        topics.note_scans(&scans, &found(&[("a", 40, 5_040)]), 100);
        assert!(topics.plan(PLENTY).is_empty() && topics.wait_for_room());
        topics.set_flow("a", Flow::Room(7), 100);
        assert_eq!(planned(&topics, PLENTY), [("a".to_owned(), 5_040, 7)]);
    }

    #[test]
    fn topics_take_turns() {
        let mut topics = Topics::new(500);
        let names: Vec<Arc<str>> = (0..SCANS_MAX + 2).map(|n| Arc::from(format!("t{n:04}"))).collect();
        topics.scan_all(names);
        let scans = topics.plan(PLENTY);
        assert_eq!((scans.len(), &*scans[0].topic), (SCANS_MAX, "t0000"));
        topics.turn = scans.last().map(|scan| Arc::clone(&scan.topic));
        assert_eq!(&*topics.plan(PLENTY)[0].topic, format!("t{SCANS_MAX:04}"));
    }
}
