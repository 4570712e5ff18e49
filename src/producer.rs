//! 1. Release: due PENDING rows become QUEUED, with their outbox rows, in one transaction. The relay publishes them at
//!    once.
//!
//! **Guarantee.** A row is released once, however many instances release, and rows of one ordering key in their order:
//! a row goes only if no earlier due row of its key is left behind. **Limit.** A row is released when its topic's turn
//! comes; while a campaign of a million is due, that is within a few batches.
//!
//! Topics take turns. What is due is found by its second, and in each second by topic (`store::due`): topics that wait
//! for their time cost nothing, however many. A topic that has more than it was given goes on from where its last release
//! ended, in turns with the others.
//!
//! May change: how searches and turns are planned. Must not: the guard of `producer/release_due.sql`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

pub mod embed;

use crate::failpoint;
use crate::store::due::Search;
use crate::store::release::{Cursor, DueTopic, Released, TopicScan};
use crate::store::{self, BATCH_ROWS, Store};

/// Topics with a backlog that are remembered; the next round of the search finds the others again.
const TOPICS_MAX: usize = 1_000;
/// What a step of a search over live entries takes at most. What it takes beyond that is the price of dead ones.
const STEP_TIME: Duration = Duration::from_micros(50);
/// What is due and cannot go is held by another producer, which commits soon, or by somebody's open transaction.
const LOCKED_WAIT: Duration = Duration::from_millis(50);
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
    /// Topics with rows that are due.
    topics: BTreeMap<String, Topic>,
    search: Search,
    /// Something is due that could not go.
    is_held_up: bool,
}

#[derive(Debug, Clone, Copy)]
struct Topic {
    /// Releases begin after this.
    cursor: Cursor,
    /// The last release took all it might.
    is_backlogged: bool,
}

impl Producer {
    /// A producer that has seen nothing yet.
    pub fn new(store: Store) -> Producer {
        Producer { store, topics: BTreeMap::new(), search: Search::new(Instant::now()), is_held_up: false }
    }

    /// One bounded batch.
    pub async fn pass(&mut self) -> store::Result<Counts> {
        self.find_topics().await?;
        let scans = self.plan();
        if scans.is_empty() {
            self.is_held_up = false;
            return Ok(Counts::default());
        }
        let released = self.store.release_due(&scans).await?;
        self.note(&scans, &released);
        self.is_held_up = released.rows == 0;
        if released.rows > 0 {
            failpoint::hit("after_release").await;
        }
        if !released.keys.is_empty() {
            self.store.admit(&released.keys).await?;
        }
        Ok(Counts { released: released.rows })
    }

    /// How long until there is something to release by its time; `None`: not within a minute, as far as we know.
    pub fn next_due(&self) -> Option<Duration> {
        let next_in = self.search.next_at().map(|at| at.saturating_duration_since(Instant::now()));
        next_in.into_iter().chain(self.is_held_up.then_some(LOCKED_WAIT)).min()
    }

    async fn find_topics(&mut self) -> store::Result<()> {
        let mut found = Vec::new();
        for (part, place) in self.search.parts(Instant::now()) {
            let began = Instant::now();
            let (topics, searched) = self.store.due_topics(&place).await?;
            self.search.note(part, &searched, began.elapsed().saturating_sub(STEP_TIME * searched.steps));
            found.extend(topics);
        }
        if self.topics.len() + found.len() > TOPICS_MAX {
            self.topics.clear();
        }
        for DueTopic { topic, start } in found {
            let known = self.topics.entry(topic).or_insert(Topic { cursor: start, is_backlogged: false });
            known.cursor = known.cursor.min(start);
        }
        Ok(())
    }

    /// What to release: of every topic that has something due a share.
    fn plan(&self) -> Vec<TopicScan> {
        let backlogged = self.topics.values().filter(|topic| topic.is_backlogged).count();
        let share = |rows: u32, of: usize| (rows / u32::try_from(of.max(1)).unwrap_or(u32::MAX)).max(1);
        let backlog_rows_max = share(BATCH_ROWS, backlogged);
        let fresh_rows_max = if backlogged == 0 && self.topics.len() == 1 {
            BATCH_ROWS
        } else {
            FRESH_ROWS_MAX.min(share(BATCH_ROWS * 4, self.topics.len() - backlogged))
        };
        let scan = |(name, topic): (&String, &Topic)| TopicScan {
            topic: name.clone(),
            after: topic.cursor,
            rows_max: if topic.is_backlogged { backlog_rows_max } else { fresh_rows_max },
        };
        self.topics.iter().map(scan).collect()
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
        self.topics.retain(|_, topic| topic.is_backlogged);
    }
}
