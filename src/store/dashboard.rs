//! What the dashboard's pages show. One statement a page, which answers with one JSON document: the page is drawn from
//! it as it is. Lists are bounded in the statements, and read in parts from the worst on. `topics`: patterns of LIKE, one
//! of which a topic must match to be shown, counted and found; `None`: every topic is.

use serde_json::Value;
use tokio_postgres::types::ToSql;

use super::refusal::Values;
use super::request::Answer;
use super::{Error, Query, Store, query};

/// Entries of the audit on one page.
pub const AUDIT_PAGE: i64 = 50;
/// Rows of another list on one page; the statements read one more, which says that there is another page.
pub const LIST_PAGE: usize = 50;
/// Bulk actions on one page.
pub const BULK_PAGE: usize = 30;

/// How much is told of errors, and of origins that rows named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// All.
    Whole,
    /// Nothing that may quote a provider, and the ends of a host: none is found by a part of it, or by its place.
    Masked,
}

/// Which part of a list is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Part {
    /// Only names with this in them, in upper or lower case.
    pub name: Option<String>,
    /// After this place.
    pub after: Option<Place>,
}

/// Where a row stands in its list: its rank, two numbers more, and its name, which no other row has.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
pub struct Place(pub i64, pub i64, pub i64, pub String);

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
    pub async fn dashboard_channels(&self, part: &Part, told: Told) -> Answer<Value> {
        let query = query!("dashboard/read_channels", Request, [TEXT, INT8, INT8, INT8, TEXT, BOOL]);
        self.read_part(query, part, &[&(told == Told::Whole)]).await
    }

    /// The topics.
    pub async fn dashboard_topics(&self, part: &Part, topics: Option<&[String]>) -> Answer<Value> {
        let query = query!("dashboard/read_topics", Request, [TEXT, INT8, INT8, INT8, TEXT, TEXT_ARRAY]);
        self.read_part(query, part, &[&topics]).await
    }

    /// The newest dead letters, by cause.
    pub async fn dashboard_dead_groups(&self, part: &Part, topics: Option<&[String]>, told: Told) -> Answer<Value> {
        let query = query!("dashboard/read_dead_groups", Request, [TEXT, INT8, INT8, INT8, TEXT, TEXT_ARRAY, BOOL]);
        self.read_part(query, part, &[&topics, &(told == Told::Whole)]).await
    }

    /// The schedules and their last runs.
    pub async fn dashboard_schedules(&self, part: &Part, topics: Option<&[String]>) -> Answer<Value> {
        let query = query!("dashboard/read_schedules", Request, [TEXT, INT8, INT8, INT8, TEXT, TEXT_ARRAY]);
        self.read_part(query, part, &[&topics]).await
    }

    /// Events that wait, and who reads them.
    pub async fn dashboard_events(&self, part: &Part, topics: Option<&[String]>) -> Answer<Value> {
        let query = query!("dashboard/read_events", Request, [TEXT, INT8, INT8, INT8, TEXT, TEXT_ARRAY]);
        self.read_part(query, part, &[&topics]).await
    }

    /// The instances of the last day.
    pub async fn dashboard_instances(&self, part: &Part) -> Answer<Value> {
        self.read_part(query!("dashboard/read_instances", Request, [TEXT, INT8, INT8, INT8, TEXT]), part, &[]).await
    }

    /// What operators did, newest first, before this entry.
    pub async fn dashboard_audit(&self, before: Option<i64>) -> Answer<Value> {
        self.read_document(query!("dashboard/read_audit", Request, [INT8, INT8]), &[&before, &AUDIT_PAGE]).await
    }

    /// Bulk actions, newest first, before this one.
    pub async fn dashboard_bulk(&self, before: Option<i64>, topics: Option<&[String]>) -> Answer<Value> {
        let query = query!("dashboard/read_bulk", Request, [INT8, INT8, TEXT_ARRAY]);
        self.read_document(query, &[&None::<i64>, &before, &topics]).await
    }

    /// This bulk action.
    pub async fn dashboard_bulk_action(&self, id: i64, topics: Option<&[String]>) -> Answer<Value> {
        let query = query!("dashboard/read_bulk", Request, [INT8, INT8, TEXT_ARRAY]);
        self.read_document(query, &[&id, &None::<i64>, &topics]).await
    }

    /// What is known of a notification beside its record.
    pub async fn dashboard_life(&self, id: i64) -> Answer<Value> {
        self.read_document(query!("dashboard/read_life", Request, [INT8]), &[&id]).await
    }

    /// `more`: what the statement takes after its part.
    async fn read_part(&self, query: &Query, part: &Part, more: &[&(dyn ToSql + Sync)]) -> Answer<Value> {
        let Part { name, after } = part;
        let number = |of: fn(&Place) -> i64| after.as_ref().map(of);
        let (rank, second, third) = (number(|place| place.0), number(|place| place.1), number(|place| place.2));
        let last = after.as_ref().map(|place| &*place.3);
        let part: [&(dyn ToSql + Sync); 5] = [name, &rank, &second, &third, &last];
        self.read_document(query, &[&part, more].concat()).await
    }

    async fn read_document(&self, query: &Query, params: &[&(dyn ToSql + Sync)]) -> Answer<Value> {
        let rows = self.ask(query, params).await?;
        let row = rows.first().ok_or_else(|| Error::Bug("a SELECT without FROM returned no row".into()))?;
        Ok(row.value(0)?)
    }
}
