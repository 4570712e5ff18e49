//! PENDING rows that are due become QUEUED.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use super::publish::OrderingKey;
use super::refusal::Values;
use super::{Result, Store, query};

/// What one release did.
#[derive(Debug, Default)]
pub struct Released {
    /// Rows released.
    pub rows: u64,
    /// Keys of released rows, to be admitted.
    pub keys: Vec<OrderingKey>,
    /// Per topic in which anything was found.
    pub topics: Vec<TopicFound>,
}

/// Where a release begins in a topic: after this due time and id.
pub type Cursor = (DateTime<Utc>, i64);

/// A topic with PENDING rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Waiting {
    /// The topic.
    pub topic: String,
    /// Just before its first row.
    pub start: Cursor,
    /// How long until that is due.
    pub due_in: Duration,
}

/// What to release of one topic.
#[derive(Debug, Clone, PartialEq)]
pub struct TopicScan {
    /// The topic.
    pub topic: String,
    /// Rows after this only.
    pub after: Cursor,
    /// Rows at most.
    pub rows_max: u32,
}

/// What was found of one topic.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TopicFound {
    /// Which of the scans, from 0.
    pub scan: usize,
    /// Rows found.
    pub rows: u32,
    /// The last of them.
    pub last: Cursor,
}

impl Store {
    /// Topics with PENDING rows, in the order of their names, after this one.
    pub async fn waiting_topics(&self, after: &str, topics_max: u32) -> Result<Vec<Waiting>> {
        let query = query!("producer/find_topics", Relaxed, [TEXT, INT4]);
        let rows = self.query(query, &[&after, &bounded(topics_max)]).await?;
        rows.iter().map(waiting).collect()
    }

    /// Topics with PENDING rows beside those known; some of them, at a price that does not depend on the known ones.
    pub async fn new_topics(&self, known: &[&str]) -> Result<Vec<Waiting>> {
        let rows = self.query(query!("producer/find_new_topics", Relaxed, [TEXT_ARRAY]), &[&known]).await?;
        rows.iter().map(waiting).collect()
    }

    /// Releases due rows of these topics: the relay finds them by their time, those with a key once they are admitted.
    pub async fn release_due(&self, scans: &[TopicScan]) -> Result<Released> {
        let query = query!("producer/release_due", Relaxed, [TEXT_ARRAY, TIMESTAMPTZ_ARRAY, INT8_ARRAY, INT4_ARRAY]);
        let topics: Vec<&str> = scans.iter().map(|scan| scan.topic.as_str()).collect();
        let (after_at, after_id): (Vec<DateTime<Utc>>, Vec<i64>) = scans.iter().map(|scan| scan.after).unzip();
        let rows_max: Vec<i32> = scans.iter().map(|scan| bounded(scan.rows_max)).collect();
        let rows = self.query(query, &[&topics, &after_at, &after_id, &rows_max]).await?;
        let mut released = Released::default();
        for row in &rows {
            let found: i64 = row.value("found")?;
            match row.value::<Option<i64>>("scan")? {
                Some(n) => released.topics.push(TopicFound {
                    scan: usize::try_from(n - 1).unwrap_or(0),
                    rows: u32::try_from(found).unwrap_or(u32::MAX),
                    last: (row.value("last_at")?, row.value("last_id")?),
                }),
                None => {
                    released.rows += u64::try_from(found).unwrap_or(0);
                    if let Some(key) = row.value("ordering_key")? {
                        released.keys.push(OrderingKey { topic: row.value("topic")?, key });
                    }
                }
            }
        }
        Ok(released)
    }
}

fn waiting(row: &tokio_postgres::Row) -> Result<Waiting> {
    let (first_at, first_id): (DateTime<Utc>, i64) = (row.value("first_at")?, row.value("first_id")?);
    // An app may have chosen the lowest id there is.
    let just_before = first_id.checked_sub(1).map(|id| (first_at, id));
    Ok(Waiting {
        topic: row.value("topic")?,
        start: just_before.unwrap_or((first_at - TimeDelta::microseconds(1), i64::MAX)),
        due_in: Duration::from_millis(u64::try_from(row.value::<i64>("due_in_ms")?).unwrap_or(0)),
    })
}

pub(super) fn bounded(rows: u32) -> i32 {
    i32::try_from(rows).unwrap_or(i32::MAX)
}
