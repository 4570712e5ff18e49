//! What the dashboard's pages show. One statement a page, which answers with one JSON document: the page is drawn from it
//! as it is. Lists are bounded in the statements.

use serde_json::Value;
use tokio_postgres::types::ToSql;

use super::refusal::Values;
use super::{Error, Query, Result, Store, query};

/// Dead letters that are looked at to group them by cause.
const DEAD_MAX: i64 = 10_000;
/// Entries of the audit on one page.
pub const AUDIT_PAGE: i64 = 50;
/// Bulk actions on one page.
const BULK_PAGE: i64 = 30;

impl Store {
    /// The checks of `health`, worst first, with what their buttons need.
    pub async fn look_at_health(&self) -> Result<Value> {
        self.look(query!("dashboard/read_health", Durable, []), &[]).await
    }

    /// What waits, and what was done within the hour.
    pub async fn look_at_work(&self) -> Result<Value> {
        self.look(query!("dashboard/read_work", Durable, []), &[]).await
    }

    /// The channels and what holds them.
    pub async fn look_at_channels(&self) -> Result<Value> {
        self.look(query!("dashboard/read_channels", Durable, []), &[]).await
    }

    /// The topics.
    pub async fn look_at_topics(&self) -> Result<Value> {
        self.look(query!("dashboard/read_topics", Durable, []), &[]).await
    }

    /// The newest dead letters, by cause.
    pub async fn look_at_dead(&self) -> Result<Value> {
        self.look(query!("dashboard/read_dead_groups", Durable, [INT8]), &[&DEAD_MAX]).await
    }

    /// The schedules and their last runs.
    pub async fn look_at_schedules(&self) -> Result<Value> {
        self.look(query!("dashboard/read_schedules", Durable, []), &[]).await
    }

    /// Events that wait, and who reads them.
    pub async fn look_at_events(&self) -> Result<Value> {
        self.look(query!("dashboard/read_events", Durable, []), &[]).await
    }

    /// The instances of the last day.
    pub async fn look_at_instances(&self) -> Result<Value> {
        self.look(query!("dashboard/read_instances", Durable, []), &[]).await
    }

    /// What operators did, newest first, before this entry.
    pub async fn look_at_audit(&self, before: Option<i64>) -> Result<Value> {
        self.look(query!("dashboard/read_audit", Durable, [INT8, INT8]), &[&before, &AUDIT_PAGE]).await
    }

    /// Bulk actions, newest first, or this one.
    pub async fn look_at_bulk(&self, id: Option<i64>) -> Result<Value> {
        self.look(query!("dashboard/read_bulk", Durable, [INT8, INT8]), &[&id, &BULK_PAGE]).await
    }

    /// What is known of a notification beside its record.
    pub async fn look_at_life(&self, id: i64) -> Result<Value> {
        self.look(query!("dashboard/read_life", Durable, [INT8]), &[&id]).await
    }

    async fn look(&self, query: &Query, params: &[&(dyn ToSql + Sync)]) -> Result<Value> {
        let rows = self.query(query, params).await?;
        let row = rows.first().ok_or_else(|| Error::Bug("a SELECT without FROM returned no row".into()))?;
        row.value(0)
    }
}
