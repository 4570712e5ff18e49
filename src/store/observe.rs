//! What readiness and metrics ask: cheap looks at the active set, never at the history.

use super::{Result, Store, query};

/// Rows of one topic in one status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicRows {
    /// The topic; empty: it has no lane yet.
    pub topic: String,
    /// PENDING, QUEUED, PROCESSING or FAILED.
    pub status: &'static str,
    /// How many.
    pub rows: u64,
}

/// The work there is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Work {
    /// By topic and status.
    pub rows: Vec<TopicRows>,
    /// How long the oldest row that is ready has waited to be published, in seconds; 0: none waits.
    pub unpublished_age_s: f64,
}

const STATUSES: [&str; 4] = ["PENDING", "QUEUED", "PROCESSING", "FAILED"];

impl Store {
    /// The newest migration the database has.
    pub async fn schema_version(&self) -> Result<i64> {
        let rows = self.query(query!("metrics_read_schema", Durable, []), &[]).await?;
        Ok(rows.first().map_or(0, |row| row.get(0)))
    }

    /// Counts the work there is. Costs as much as the active set is large: not for a request's path.
    pub async fn count_work(&self) -> Result<Work> {
        let live = self.query(query!("metrics_count_work", Durable, []), &[]).await?;
        let log = self.query(query!("metrics_count_log", Durable, []), &[]).await?;
        let ages = live.iter().filter_map(|row| row.get::<_, Option<f64>>("unpublished_age_s"));
        let unpublished_age_s = ages.fold(0.0, f64::max);
        let rows = live.iter().chain(&log).filter_map(|row| {
            let status = STATUSES.into_iter().find(|status| *status == row.get::<_, &str>("status"))?;
            let rows = u64::try_from(row.get::<_, i64>("rows")).unwrap_or(0);
            Some(TopicRows { topic: row.get("topic"), status, rows })
        });
        Ok(Work { rows: rows.collect(), unpublished_age_s })
    }
}
