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
    /// Whether its rows are each of one topic, so that a token may read those of its own.
    pub is_by_topic: bool,
    sql: &'static str,
}

/// Payloads are shown one at a time, by id: a page of them would have no bound.
macro_rules! view {
    ($name:literal by topic, $order:literal) => {
        View {
            name: $name,
            is_by_topic: true,
            sql: concat!(
                "SELECT row_to_json(v)::text FROM (SELECT * FROM outboxd.",
                $name,
                " v WHERE $2::text[] IS NULL OR v.topic LIKE ANY ($2) ORDER BY ",
                $order,
                " LIMIT $1) v"
            ),
        }
    };
    ($name:literal, $order:literal) => {
        View {
            name: $name,
            is_by_topic: false,
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
    view!("queue_state" by topic, "v.topic, v.status"),
    view!("outbox_lag", "1"),
    // Its rows come as they are found: an order would need them all.
    View {
        name: "stuck",
        is_by_topic: true,
        sql: "SELECT row_to_json(v)::text FROM (SELECT v.* FROM outboxd.stuck v \
              WHERE $2::text[] IS NULL OR v.topic LIKE ANY ($2) LIMIT $1) v",
    },
    view!("waiting" by topic, "v.count DESC, v.reason, v.topic, v.channel"),
    View {
        name: "dead_letters",
        is_by_topic: true,
        sql: "SELECT row_to_json(v)::text FROM (SELECT d.id, d.topic, d.recipient, d.channel, d.attempts, d.error, \
              d.http_status, d.failed_at, d.created_at, d.response FROM outboxd.dead_letters d \
              WHERE $2::text[] IS NULL OR d.topic LIKE ANY ($2) ORDER BY d.failed_at DESC LIMIT $1) v",
    },
    view!("attempts", "v.id DESC"),
    view!("workers", "v.worker"),
    view!("instances", "v.worker DESC"),
    view!("throughput", "v.minute DESC"),
    view!("latency" by topic, "v.topic"),
    view!(
        "channel_health",
        "v.circuit = 'closed', v.waiting IS NULL, v.origin IS NOT NULL, v.waiting DESC, v.channel, v.origin"
    ),
    view!("bulk_actions", "v.id DESC"),
    view!("schedules" by topic, "v.name"),
    view!("schedule_runs" by topic, "v.run DESC"),
    view!("events_waiting" by topic, "v.topic"),
    view!("event_consumers" by topic, "v.topic, v.consumer_group"),
    view!("audit", "v.id DESC"),
];

impl Store {
    /// The first rows of a view, each an object of its columns. `topics`: patterns of LIKE, one of which the topic of a row
    /// must match, in views that are by topic.
    pub async fn read_view(&self, view: &View, rows_max: i32, topics: Option<&[String]>) -> Answer<Vec<Value>> {
        let rows = if view.is_by_topic {
            let query = Query { sql: view.sql, types: &[Type::INT4, Type::TEXT_ARRAY], commit: Commit::Request };
            self.ask(&query, &[&rows_max, &topics]).await?
        } else {
            let query = Query { sql: view.sql, types: &[Type::INT4], commit: Commit::Request };
            self.ask(&query, &[&rows_max]).await?
        };
        rows.iter().map(|row| Ok(parsed(row.value(0)?))).collect()
    }

    /// The topic of a schedule; `None`: there is none of this name.
    pub async fn topic_of_schedule(&self, name: &str) -> Answer<Option<String>> {
        let query = Query {
            sql: "SELECT s.topic FROM outboxd.schedules s WHERE s.name = $1",
            types: &[Type::TEXT],
            commit: Commit::Request,
        };
        let rows = self.ask(&query, &[&name]).await?;
        rows.first().map(|row| Ok(row.value(0)?)).transpose()
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
