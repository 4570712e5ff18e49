//! 1. Release: due PENDING rows become QUEUED, with their outbox rows, in one transaction. The relay publishes them at
//!    once.
//!
//! **Guarantee.** A row is released once, however many instances release, and rows of one ordering key in their order:
//! a row goes only if no earlier due row of its key is left behind. **Limit.** A row is released when its topic's turn
//! comes; while a campaign of a million is due, that is within a few batches.
//!
//! Topics take turns. A topic search finds the topics with PENDING rows and where each begins, one step down the index
//! per topic. Released rows leave dead index entries behind. While those make topic searches expensive (a foreign
//! snapshot keeps vacuum from them), there are fewer: in between each topic goes on from where its last release ended,
//! and only new topics are searched for. What came in before that point, by a transaction that committed late, is found
//! by the next topic search.
//!
//! May change: how topic searches and turns are planned. Must not: the guard of `producer/release_due.sql`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

pub mod embed;

use crate::failpoint;
use crate::retry::{is_cheap, rest_after};
use crate::store::release::{Cursor, Released, TopicScan, Waiting};
use crate::store::{self, BATCH_ROWS, Store};

/// Topic searches are this far apart if they are expensive.
const SEARCH_EVERY: Duration = Duration::from_secs(1);
/// Topics seen by one topic search; the next one goes on with the rest.
const TOPICS_MAX: u32 = 1_000;
/// Rows of a topic without a backlog, per pass.
const FRESH_ROWS_MAX: u32 = 100;

/// What a pass did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Rows released.
    pub released: u64,
}

/// Releases due rows. Any number of instances share the work.
#[derive(Debug)]
pub struct Producer {
    store: Store,
    /// Topics that have, or lately had, PENDING rows.
    topics: BTreeMap<String, Topic>,
    search: Search,
}

#[derive(Debug, Clone, Copy)]
struct Topic {
    /// Releases begin after this.
    cursor: Cursor,
    /// When its first row is due; `None`: it had none at the last topic search.
    due_at: Option<Instant>,
    /// The last release took all it might.
    is_backlogged: bool,
}

/// The search for topics.
#[derive(Debug)]
struct Search {
    next_at: Instant,
    cost: Duration,
    /// There were more topics than one search shows: the next begins after this one.
    after: String,
}

impl Producer {
    /// A producer that has seen nothing yet.
    pub fn new(store: Store) -> Producer {
        let search = Search { next_at: Instant::now(), cost: Duration::ZERO, after: String::new() };
        Producer { store, topics: BTreeMap::new(), search }
    }

    /// One bounded batch.
    pub async fn pass(&mut self) -> store::Result<Counts> {
        let is_exact = self.find_topics().await?;
        let scans = self.plan(is_exact);
        if scans.is_empty() {
            return Ok(Counts::default());
        }
        let released = self.store.release_due(&scans).await?;
        self.note(&scans, &released);
        if released.rows > 0 {
            failpoint::hit("after_release").await;
        }
        if !released.keys.is_empty() {
            self.store.admit(&released.keys).await?;
        }
        Ok(Counts { released: released.rows })
    }

    /// How long until the next PENDING row is due, as far as we know.
    pub fn next_due(&self) -> Option<Duration> {
        let now = Instant::now();
        self.topics.values().filter_map(|topic| Some(topic.due_at?.saturating_duration_since(now))).min()
    }

    /// Finds topics. True: we know where each begins. False: that is expensive and was done lately; only new topics
    /// were searched for.
    async fn find_topics(&mut self) -> store::Result<bool> {
        let started = Instant::now();
        if !is_cheap(self.search.cost) && started < self.search.next_at {
            let known: Vec<&str> = self.topics.keys().map(String::as_str).collect();
            let new = self.store.new_topics(&known).await?;
            self.learn(new);
            return Ok(false);
        }
        let waiting = self.store.waiting_topics(&self.search.after, TOPICS_MAX).await?;
        self.search.cost = started.elapsed();
        self.search.next_at = Instant::now() + rest_after(self.search.cost, SEARCH_EVERY);
        let is_full = waiting.len() >= TOPICS_MAX as usize;
        self.search.after = waiting.last().filter(|_| is_full).map(|last| last.topic.clone()).unwrap_or_default();
        if self.topics.len() + waiting.len() > TOPICS_MAX as usize {
            self.topics.retain(|_, topic| topic.is_backlogged);
        }
        for topic in self.topics.values_mut() {
            topic.due_at = None;
        }
        self.learn(waiting);
        Ok(true)
    }

    fn learn(&mut self, waiting: Vec<Waiting>) {
        let now = Instant::now();
        for found in waiting {
            let is_backlogged = self.topics.get(&found.topic).is_some_and(|topic| topic.is_backlogged);
            let due_at = Some(now + found.due_in);
            self.topics.insert(found.topic, Topic { cursor: found.start, due_at, is_backlogged });
        }
    }

    /// What to release: after a topic search only topics with something due, else whatever we know.
    fn plan(&self, is_exact: bool) -> Vec<TopicScan> {
        let now = Instant::now();
        let due: Vec<(&String, &Topic)> =
            self.topics.iter().filter(|(_, topic)| !is_exact || topic.due_at.is_some_and(|at| at <= now)).collect();
        let backlogged = due.iter().filter(|(_, topic)| topic.is_backlogged).count();
        let share = |rows: u32, of: usize| (rows / u32::try_from(of.max(1)).unwrap_or(u32::MAX)).max(1);
        let backlog_rows_max = share(BATCH_ROWS, backlogged);
        let fresh_rows_max = if backlogged == 0 && due.len() == 1 {
            BATCH_ROWS
        } else {
            FRESH_ROWS_MAX.min(share(BATCH_ROWS * 4, due.len() - backlogged))
        };
        let scan = |(name, topic): &(&String, &Topic)| TopicScan {
            topic: (*name).clone(),
            after: topic.cursor,
            rows_max: if topic.is_backlogged { backlog_rows_max } else { fresh_rows_max },
        };
        due.iter().map(scan).collect()
    }

    fn note(&mut self, scans: &[TopicScan], released: &Released) {
        for (n, scan) in scans.iter().enumerate() {
            let Some(topic) = self.topics.get_mut(&scan.topic) else { continue };
            let found = released.topics.iter().find(|found| found.scan == n);
            topic.is_backlogged = found.is_some_and(|found| found.rows >= scan.rows_max);
            if let Some(found) = found {
                topic.cursor = found.last;
            }
        }
    }
}
