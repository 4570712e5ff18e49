//! What the dashboard's pages show. One statement a page, which answers with one JSON document: the page is drawn from
//! it as it is. Lists are bounded in the statements. `topics`: patterns of LIKE, one of which a topic must match to be
//! shown; `None`: every topic is.

use serde_json::Value;
use tokio_postgres::types::ToSql;

use super::refusal::Values;
use super::request::Answer;
use super::{Error, Query, Store, query};

/// Entries of the audit on one page.
pub const AUDIT_PAGE: i64 = 50;

impl Store {
    /// The checks of `health`, worst first, with what their buttons need.
    pub async fn dashboard_health(&self) -> Answer<Value> {
        self.read_document(query!("dashboard/read_health", Request, []), &[]).await
    }

    /// What waits, and what was done within the hour.
    pub async fn dashboard_work(&self) -> Answer<Value> {
        self.read_document(query!("dashboard/read_work", Request, []), &[]).await
    }

    /// The channels and what holds them.
    pub async fn dashboard_channels(&self) -> Answer<Value> {
        self.read_document(query!("dashboard/read_channels", Request, []), &[]).await
    }

    /// The topics.
    pub async fn dashboard_topics(&self, topics: Option<&[String]>) -> Answer<Value> {
        self.read_document(query!("dashboard/read_topics", Request, [TEXT_ARRAY]), &[&topics]).await
    }

    /// The newest dead letters, by cause.
    pub async fn dashboard_dead_groups(&self, topics: Option<&[String]>) -> Answer<Value> {
        self.read_document(query!("dashboard/read_dead_groups", Request, [TEXT_ARRAY]), &[&topics]).await
    }

    /// The schedules and their last runs.
    pub async fn dashboard_schedules(&self, topics: Option<&[String]>) -> Answer<Value> {
        self.read_document(query!("dashboard/read_schedules", Request, [TEXT_ARRAY]), &[&topics]).await
    }

    /// Events that wait, and who reads them.
    pub async fn dashboard_events(&self, topics: Option<&[String]>) -> Answer<Value> {
        self.read_document(query!("dashboard/read_events", Request, [TEXT_ARRAY]), &[&topics]).await
    }

    /// The instances of the last day.
    pub async fn dashboard_instances(&self) -> Answer<Value> {
        self.read_document(query!("dashboard/read_instances", Request, []), &[]).await
    }

    /// What operators did, newest first, before this entry.
    pub async fn dashboard_audit(&self, before: Option<i64>) -> Answer<Value> {
        self.read_document(query!("dashboard/read_audit", Request, [INT8, INT8]), &[&before, &AUDIT_PAGE]).await
    }

    /// Bulk actions, newest first, or this one.
    pub async fn dashboard_bulk(&self, id: Option<i64>, topics: Option<&[String]>) -> Answer<Value> {
        self.read_document(query!("dashboard/read_bulk", Request, [INT8, TEXT_ARRAY]), &[&id, &topics]).await
    }

    /// What is known of a notification beside its record.
    pub async fn dashboard_life(&self, id: i64) -> Answer<Value> {
        self.read_document(query!("dashboard/read_life", Request, [INT8]), &[&id]).await
    }

    async fn read_document(&self, query: &Query, params: &[&(dyn ToSql + Sync)]) -> Answer<Value> {
        let rows = self.ask(query, params).await?;
        let row = rows.first().ok_or_else(|| Error::Bug("a SELECT without FROM returned no row".into()))?;
        Ok(row.value(0)?)
    }
}
