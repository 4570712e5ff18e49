//! What readiness and metrics read: stored figures only, nothing is counted for them.

use super::refusal::Values;
use super::{Result, Store, query};
use crate::notification::Status;

/// Rows of one topic in one status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicRows {
    /// The topic.
    pub topic: String,
    /// PENDING, QUEUED, PROCESSING or FAILED.
    pub status: Status,
    /// How many.
    pub rows: u64,
}

/// The work there was when it was last counted, by whichever instance.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    /// By topic and status.
    pub rows: Vec<TopicRows>,
    /// How long the oldest row that was ready had waited to be published, in seconds; 0: none waited.
    pub unpublished_age_s: f64,
    /// When, in seconds since 1970 by the database's clock.
    pub taken_at_s: f64,
}

impl Store {
    /// The newest migration the database has.
    pub async fn schema_version(&self) -> Result<i64> {
        let rows = self.query(query!("server/read_schema_version", Durable, []), &[]).await?;
        rows.first().map_or(Ok(0), |row| row.value(0))
    }

    /// How each check of the view `health` stands: 0 ok, 1 warn, 2 critical.
    pub async fn read_health(&self) -> Result<Vec<(String, i32)>> {
        let rows = self.query(query!("server/read_health", Durable, []), &[]).await?;
        rows.iter().map(|row| Ok((row.value(0)?, row.value(1)?))).collect()
    }

    /// The last snapshot, if there has been one. Cheap: who counts is the reporter of one instance.
    pub async fn read_snapshot(&self) -> Result<Option<Snapshot>> {
        let found = self.query(query!("server/read_snapshot", Durable, []), &[]).await?;
        let Some(first) = found.first() else { return Ok(None) };
        let mut topics = Vec::with_capacity(found.len());
        for row in &found {
            let Some(status) = row.value::<Option<&str>>("status")?.and_then(Status::parse) else { continue };
            let rows = u64::try_from(row.value::<i64>("rows")?).unwrap_or(0);
            topics.push(TopicRows { topic: row.value("topic")?, status, rows });
        }
        Ok(Some(Snapshot {
            rows: topics,
            unpublished_age_s: first.value("unpublished_age_s")?,
            taken_at_s: first.value("taken_at_s")?,
        }))
    }
}
