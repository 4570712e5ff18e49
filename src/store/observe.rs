//! What readiness and metrics ask: what is written down, never a count of its own.

use super::{Result, Store, query};

/// Rows of one topic in one status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicRows {
    /// The topic.
    pub topic: String,
    /// PENDING, QUEUED, PROCESSING or FAILED.
    pub status: &'static str,
    /// How many.
    pub rows: u64,
}

/// The work there was when it was last counted, by whichever instance.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Census {
    /// By topic and status.
    pub rows: Vec<TopicRows>,
    /// How long the oldest row that was ready had waited to be published, in seconds; 0: none waited.
    pub unpublished_age_s: f64,
    /// When, in seconds since 1970 by the database's clock.
    pub taken_at_s: f64,
}

const STATUSES: [&str; 4] = ["PENDING", "QUEUED", "PROCESSING", "FAILED"];

impl Store {
    /// The newest migration the database has.
    pub async fn schema_version(&self) -> Result<i64> {
        let rows = self.query(query!("metrics_read_schema", Durable, []), &[]).await?;
        Ok(rows.first().map_or(0, |row| row.get(0)))
    }

    /// The last census, if there has been one. Cheap: who counts is the reporter of one instance.
    pub async fn read_census(&self) -> Result<Option<Census>> {
        let found = self.query(query!("metrics_read_census", Durable, []), &[]).await?;
        let Some(first) = found.first() else { return Ok(None) };
        let rows = found.iter().filter_map(|row| {
            let status = STATUSES.into_iter().find(|status| Some(*status) == row.get::<_, Option<&str>>("status"))?;
            let rows = u64::try_from(row.get::<_, i64>("rows")).unwrap_or(0);
            Some(TopicRows { topic: row.get("topic"), status, rows })
        });
        Ok(Some(Census {
            rows: rows.collect(),
            unpublished_age_s: first.get("unpublished_age_s"),
            taken_at_s: first.get("taken_at_s"),
        }))
    }
}
