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
    /// How its rows are told apart, so that a caller can go on after one.
    pub key: Key,
    sql: &'static str,
}

/// What a row of a view is known by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// Nothing: only the first rows are given.
    None,
    /// Its names, in ascending order.
    Names,
    /// Its number, the newest first.
    Number,
}

/// The first rows alone. Payloads are shown one at a time, by id: a page of them would have no bound.
macro_rules! first {
    ($name:literal, $order:literal) => {
        View {
            name: $name,
            key: Key::None,
            sql: concat!(
                "SELECT row_to_json(v)::text, NULL FROM (SELECT * FROM outboxd.",
                $name,
                " v WHERE $2::text[] IS NULL ORDER BY ",
                $order,
                " LIMIT $1) v"
            ),
        }
    };
}

macro_rules! by_names {
    ($name:literal, $names:literal) => {
        View {
            name: $name,
            key: Key::Names,
            sql: concat!(
                "SELECT row_to_json(v)::text, to_json(ARRAY[",
                $names,
                "])::text FROM (SELECT * FROM outboxd.",
                $name,
                " v WHERE $2::text[] IS NULL OR ARRAY[",
                $names,
                "] > $2 ORDER BY ARRAY[",
                $names,
                "] LIMIT $1) v"
            ),
        }
    };
}

macro_rules! by_number {
    ($name:literal, $number:literal) => {
        View {
            name: $name,
            key: Key::Number,
            sql: concat!(
                "SELECT row_to_json(v)::text, to_json(ARRAY[",
                $number,
                "::text])::text FROM (SELECT * FROM outboxd.",
                $name,
                " v WHERE $2::text[] IS NULL OR ",
                $number,
                " < $2[1]::bigint ORDER BY ",
                $number,
                " DESC LIMIT $1) v"
            ),
        }
    };
}

/// Every public view but `notifications`, which is searched. What each answers is its comment in `sql/views/`.
pub const VIEWS: &[View] = &[
    first!("health", "v.level = 'ok', v.name"),
    by_names!("queue_state", "v.topic, v.status"),
    first!("outbox_lag", "1"),
    first!("stuck", "v.since"),
    View {
        name: "dead_letters",
        key: Key::None,
        sql: "SELECT row_to_json(v)::text, NULL FROM (SELECT d.id, d.topic, d.recipient, d.channel, d.attempts, d.error, \
              d.http_status, d.failed_at, d.created_at FROM outboxd.dead_letters d WHERE $2::text[] IS NULL \
              ORDER BY d.failed_at DESC LIMIT $1) v",
    },
    by_number!("attempts", "v.id"),
    by_number!("workers", "v.worker"),
    by_number!("instances", "v.worker"),
    first!("throughput", "v.minute DESC"),
    by_names!("latency", "v.topic"),
    by_names!("channel_health", "v.channel, coalesce(v.origin, '')"),
    by_number!("bulk_actions", "v.id"),
    by_names!("schedules", "v.name"),
    by_number!("schedule_runs", "v.run"),
    by_names!("events_waiting", "v.topic"),
    by_names!("event_consumers", "v.topic, v.consumer_group"),
    by_number!("audit", "v.id"),
];

impl Store {
    /// The first rows of a view after the one with this key, each an object of its columns; and the key of the last one, if
    /// it has one.
    pub async fn read_view(
        &self,
        view: &View,
        after: Option<&[String]>,
        rows_max: i32,
    ) -> Answer<(Vec<Value>, Option<String>)> {
        let query = Query { sql: view.sql, types: &[Type::INT4, Type::TEXT_ARRAY], commit: Commit::Request };
        let rows = self.ask(&query, &[&rows_max, &after]).await?;
        let last = match rows.last() {
            Some(row) => row.value::<Option<String>>(1)?,
            None => None,
        };
        let rows = rows.iter().map(|row| Ok(parsed(row.value(0)?))).collect::<Answer<_>>()?;
        Ok((rows, last))
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
