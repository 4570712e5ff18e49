//! PENDING rows that are due become QUEUED.

use chrono::{DateTime, TimeDelta, Utc};

use super::due::{Place, STEPS_MAX, Searched};
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

/// A topic with PENDING rows that are due.
#[derive(Debug, Clone, PartialEq)]
pub struct DueTopic {
    /// The topic.
    pub topic: String,
    /// Just before its first row that was found.
    pub start: Cursor,
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
    /// Topics with PENDING rows that are due, after this place.
    pub async fn due_topics(&self, after: &Place) -> Result<(Vec<DueTopic>, Searched)> {
        let query = query!("producer/find_due", Relaxed, [TIMESTAMPTZ, TEXT, INT4, INT8]);
        let above = self.origin.above();
        let rows = self.query(query, &[&after.second, &after.topic, &bounded(STEPS_MAX), &above]).await?;
        let topics = rows.iter().filter_map(|row| due_topic(row).transpose()).collect::<Result<_>>()?;
        Ok((topics, Searched::of(&rows)?))
    }

    /// Releases due rows of these topics: the relay finds them by their time, those with a key once they are admitted.
    pub async fn release_due(&self, scans: &[TopicScan]) -> Result<Released> {
        let query =
            query!("producer/release_due", Relaxed, [TEXT_ARRAY, TIMESTAMPTZ_ARRAY, INT8_ARRAY, INT4_ARRAY, INT8]);
        let topics: Vec<&str> = scans.iter().map(|scan| scan.topic.as_str()).collect();
        let (after_at, after_id): (Vec<DateTime<Utc>>, Vec<i64>) = scans.iter().map(|scan| scan.after).unzip();
        let rows_max: Vec<i32> = scans.iter().map(|scan| bounded(scan.rows_max)).collect();
        let rows = self.query(query, &[&topics, &after_at, &after_id, &rows_max, &self.origin.above()]).await?;
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

/// `None`: nothing is due.
fn due_topic(row: &tokio_postgres::Row) -> Result<Option<DueTopic>> {
    let Some(topic) = row.value("topic")? else { return Ok(None) };
    let (first_at, first_id): (DateTime<Utc>, i64) = (row.value("first_at")?, row.value("first_id")?);
    // An app may have chosen the lowest id there is.
    let just_before = first_id.checked_sub(1).map(|id| (first_at, id));
    Ok(Some(DueTopic { topic, start: just_before.unwrap_or((first_at - TimeDelta::microseconds(1), i64::MAX)) }))
}

pub(super) fn bounded(rows: u32) -> i32 {
    i32::try_from(rows).unwrap_or(i32::MAX)
}
