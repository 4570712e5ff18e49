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
    /// What it answers.
    pub about: &'static str,
    sql: &'static str,
}

/// Payloads are shown one at a time, by id: a page of them would have no bound.
macro_rules! view {
    ($name:literal, $order:literal, $about:literal) => {
        View {
            name: $name,
            about: $about,
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

/// Every public view but `notifications`, which is searched.
pub const VIEWS: [View; 17] = [
    view!("health", "v.level = 'ok', v.name", "One row per check: level, value, what to do."),
    view!("queue_state", "v.topic, v.status", "Per topic and status: how many, how old."),
    view!("outbox_lag", "1", "What is ready and not yet published."),
    view!("stuck", "v.since", "What is past its time, and why."),
    View {
        name: "dead_letters",
        about: "What was given up, and why; the last first.",
        sql: "SELECT row_to_json(v)::text FROM (SELECT d.id, d.topic, d.recipient, d.channel, d.attempts, d.error, \
              d.http_status, d.failed_at, d.created_at FROM outboxd.dead_letters d ORDER BY d.failed_at DESC LIMIT $1) v",
    },
    view!("attempts", "v.id DESC", "Failed, unknown, late and duplicate attempts; the last first."),
    view!("workers", "v.worker", "Instances at work, heartbeats, calls in flight."),
    view!("instances", "v.worker DESC", "Stopped and dead instances too."),
    view!("throughput", "v.minute DESC", "Per minute: queued, sent, failed, retried."),
    view!("latency", "v.topic", "Per topic: p50, p95, p99."),
    view!("channel_health", "v.channel, v.origin", "Circuits, pauses, success rate, last error."),
    view!("bulk_actions", "v.id DESC", "Big retries and cancels, and how far they are."),
    view!("schedules", "v.name", "Campaigns."),
    view!("schedule_runs", "v.run DESC", "What became of each slot."),
    view!("events_waiting", "v.topic", "Events not yet in their stream."),
    view!("event_consumers", "v.topic, v.consumer_group", "Who reads the streams, how far behind."),
    view!("audit", "v.id DESC", "What operators did; the last first."),
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
