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
    /// How its rows are told apart, so that a caller can go on after one.
    pub key: Key,
    sql: &'static str,
}

/// What a row of a view is known by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// Nothing: only the first rows are given.
    None,
    /// Its names, in ascending order; before them, where the worst rows come first, what ranks it.
    Names,
    /// Its number, the newest first.
    Number,
}

/// Whether the rows of a view are `each` of one topic, or `all` of it is about all topics.
macro_rules! is_by_topic {
    (each) => {
        true
    };
    (all) => {
        false
    };
}

/// Of a view that is about all topics, a token of some of them gets nothing.
macro_rules! of_topics {
    (each) => {
        "($3::text[] IS NULL OR v.topic LIKE ANY ($3))"
    };
    (all) => {
        "$3::text[] IS NULL"
    };
}

/// The first rows alone. Payloads are shown one at a time, by id: a page of them would have no bound.
macro_rules! first {
    ($topics:ident, $name:literal, $order:literal) => {
        View {
            name: $name,
            is_by_topic: is_by_topic!($topics),
            key: Key::None,
            sql: concat!(
                "SELECT row_to_json(v)::text, NULL FROM (SELECT * FROM outboxd.",
                $name,
                " v WHERE $2::text[] IS NULL AND ",
                of_topics!($topics),
                " ORDER BY ",
                $order,
                " LIMIT $1) v"
            ),
        }
    };
}

macro_rules! by_names {
    ($topics:ident, $name:literal, $names:literal) => {
        View {
            name: $name,
            is_by_topic: is_by_topic!($topics),
            key: Key::Names,
            sql: concat!(
                "SELECT row_to_json(v)::text, to_json(ARRAY[",
                $names,
                "])::text FROM (SELECT * FROM outboxd.",
                $name,
                " v WHERE ($2::text[] IS NULL OR ARRAY[",
                $names,
                "] > $2) AND ",
                of_topics!($topics),
                " ORDER BY ARRAY[",
                $names,
                "] LIMIT $1) v"
            ),
        }
    };
}

macro_rules! by_number {
    ($topics:ident, $name:literal, $number:literal) => {
        View {
            name: $name,
            is_by_topic: is_by_topic!($topics),
            key: Key::Number,
            sql: concat!(
                "SELECT row_to_json(v)::text, to_json(ARRAY[",
                $number,
                "::text])::text FROM (SELECT * FROM outboxd.",
                $name,
                " v WHERE ($2::text[] IS NULL OR ",
                $number,
                " < $2[1]::bigint) AND ",
                of_topics!($topics),
                " ORDER BY ",
                $number,
                " DESC LIMIT $1) v"
            ),
        }
    };
}

/// Every public view but `notifications`, which is searched. What each answers is its comment in `sql/views/`.
pub const VIEWS: &[View] = &[
    first!(all, "health", "v.level = 'ok', v.name"),
    by_names!(each, "queue_state", "v.topic, v.status"),
    first!(all, "outbox_lag", "1"),
    // Its rows come as they are found: an order would need them all.
    View {
        name: "stuck",
        is_by_topic: true,
        key: Key::None,
        sql: "SELECT row_to_json(v)::text, NULL FROM (SELECT v.* FROM outboxd.stuck v \
              WHERE $2::text[] IS NULL AND ($3::text[] IS NULL OR v.topic LIKE ANY ($3)) LIMIT $1) v",
    },
    // The most rows first.
    by_names!(
        each,
        "waiting",
        "lpad((9223372036854775807 - v.count)::text, 19, '0'), v.reason, v.topic, coalesce(v.channel, '')"
    ),
    View {
        name: "dead_letters",
        is_by_topic: true,
        key: Key::None,
        sql: "SELECT row_to_json(v)::text, NULL FROM (SELECT d.id, d.topic, d.recipient, d.channel, d.attempts, d.error, \
              d.http_status, d.failed_at, d.created_at, d.response FROM outboxd.dead_letters d \
              WHERE $2::text[] IS NULL AND ($3::text[] IS NULL OR d.topic LIKE ANY ($3)) ORDER BY d.failed_at DESC LIMIT $1) v",
    },
    by_number!(all, "attempts", "v.id"),
    by_number!(all, "workers", "v.worker"),
    by_number!(all, "instances", "v.worker"),
    first!(all, "throughput", "v.minute DESC"),
    by_names!(each, "latency", "v.topic"),
    // What a circuit holds, then what else is held; whole channels, then origins; the most waiting rows first. A cursor
    // tells nothing of an origin.
    by_names!(
        all,
        "channel_health",
        "(v.circuit = 'closed')::int::text, (v.waiting IS NULL)::int::text, (v.origin IS NOT NULL)::int::text, \
         lpad((9223372036854775807 - coalesce(v.waiting, 0))::text, 19, '0'), v.channel, coalesce(outboxd._origin_place(v.origin), '')"
    ),
    by_number!(all, "bulk_actions", "v.id"),
    by_names!(each, "schedules", "v.name"),
    by_number!(each, "schedule_runs", "v.run"),
    by_names!(each, "events_waiting", "v.topic"),
    by_names!(each, "event_consumers", "v.topic, v.consumer_group"),
    by_number!(all, "audit", "v.id"),
];

impl Store {
    /// The first rows of a view after the one with this key, each an object of its columns; and the key of the last one, if
    /// it has one. `topics`: patterns of LIKE, one of which the topic of a row must match, in views that are by topic; of
    /// others they leave nothing.
    pub async fn read_view(
        &self,
        view: &View,
        topics: Option<&[String]>,
        after: Option<&[String]>,
        rows_max: i32,
    ) -> Answer<(Vec<Value>, Option<String>)> {
        let types = &[Type::INT4, Type::TEXT_ARRAY, Type::TEXT_ARRAY];
        let query = Query { sql: view.sql, types, commit: Commit::Request };
        let rows = self.ask(&query, &[&rows_max, &after, &topics]).await?;
        let last = match rows.last() {
            Some(row) => row.value::<Option<String>>(1)?,
            None => None,
        };
        let rows = rows.iter().map(|row| Ok(parsed(row.value(0)?))).collect::<Answer<_>>()?;
        Ok((rows, last))
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
