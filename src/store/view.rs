//! The operators' views as JSON, a bounded number of rows of each.

use serde_json::Value;
use tokio_postgres::types::Type;

use super::refusal::Values;
use super::request::Answer;
use super::{Commit, Query, Store};

/// A view, in an order that an index has or that is small.
#[derive(Debug)]
pub struct View {
    /// Its name, below `outboxd.`.
    pub name: &'static str,
    sql: &'static str,
}

/// Payloads are shown one at a time, by id: a page of them would have no bound.
macro_rules! view {
    ($name:literal, $order:literal) => {
        View {
            name: $name,
            sql: concat!(
                "SELECT row_to_json(v)::text FROM (SELECT * FROM outboxd.",
                $name,
                " v ORDER BY ",
                $order,
                " LIMIT $1) v"
            ),
        }
    };
}

/// Every public view but `notifications`, which is searched. What each answers is its comment in `sql/views/`.
pub const VIEWS: &[View] = &[
    view!("health", "v.level = 'ok', v.name"),
    view!("queue_state", "v.topic, v.status"),
    view!("outbox_lag", "1"),
    // Its rows come as they are found: an order would need them all.
    View { name: "stuck", sql: "SELECT row_to_json(v)::text FROM (SELECT v.* FROM outboxd.stuck v LIMIT $1) v" },
    view!("waiting", "v.count DESC, v.reason, v.topic, v.channel"),
    View {
        name: "dead_letters",
        sql: "SELECT row_to_json(v)::text FROM (SELECT d.id, d.topic, d.recipient, d.channel, d.attempts, d.error, \
              d.http_status, d.failed_at, d.created_at, d.response FROM outboxd.dead_letters d ORDER BY d.failed_at DESC LIMIT $1) v",
    },
    view!("attempts", "v.id DESC"),
    view!("workers", "v.worker"),
    view!("instances", "v.worker DESC"),
    view!("throughput", "v.minute DESC"),
    view!("latency", "v.topic"),
    view!("channel_health", "v.channel, v.origin"),
    view!("bulk_actions", "v.id DESC"),
    view!("schedules", "v.name"),
    view!("schedule_runs", "v.run DESC"),
    view!("events_waiting", "v.topic"),
    view!("event_consumers", "v.topic, v.consumer_group"),
    view!("audit", "v.id DESC"),
];

impl Store {
    /// The first rows of a view, each an object of its columns.
    pub async fn read_view(&self, view: &View, rows_max: i32) -> Answer<Vec<Value>> {
        let query = Query { sql: view.sql, types: &[Type::INT4], commit: Commit::Request };
        let rows = self.ask(&query, &[&rows_max]).await?;
        rows.iter().map(|row| Ok(parsed(row.value(0)?))).collect()
    }

    /// How far a bulk action is.
    pub async fn read_bulk_action(&self, id: i64) -> Answer<Option<Value>> {
        let query = Query {
            sql: "SELECT row_to_json(v)::text FROM outboxd.bulk_actions v WHERE v.id = $1",
            types: &[Type::INT8],
            commit: Commit::Request,
        };
        let rows = self.ask(&query, &[&id]).await?;
        rows.first().map(|row| Ok(parsed(row.value(0)?))).transpose()
    }
}

/// A number that no program can represent makes a row unreadable for most; then it is shown as text.
fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}
