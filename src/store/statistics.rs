//! What an instance counted and sees, for the views: counts by the minute, its queue's server, its routes, the
//! snapshot.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde_json::{Map, Value, json};

use super::instance::millis;
use super::refusal::Values;
use super::{Error, Result, Store, query};
use crate::channel::limit::Reached;
use crate::queue::ServerFacts;
use crate::telemetry::shortages::Spell;
use crate::telemetry::statistics::{Channel, Counts, Span, Topic};

/// What an instance sees beside the database.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Its clock minus the database's.
    pub clock_skew_ms: i32,
    /// Its queue's server.
    pub queue: QueueReport,
    /// Whether a pooler that its configuration does not mention shares its sessions; `None`: not asked this time.
    pub sessions_shared: Option<bool>,
    /// The topics that it has routes for; `None`: it only relays, and needs none.
    pub topics: Option<Vec<String>>,
    /// The files it may have open, and what its calls lacked.
    pub files: FilesReport,
    /// The channels whose messages wait for a limit.
    pub limits: Vec<(String, Reached)>,
    /// The topics whose messages wait for their share, each with the calls that can be expected to start in a second.
    pub shares: Vec<(Arc<str>, f64)>,
}

/// Whether an instance has what its calls need.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FilesReport {
    /// It may have so many files open.
    pub limit: u64,
    /// It would use so many.
    pub wanted: u64,
    /// Calls that went back because something was lacking.
    pub short: Option<Spell>,
}

/// What an instance knows of its queue's server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueReport {
    /// The queue is in the process.
    InProcess,
    /// It answers.
    Reachable(ServerFacts),
    /// It does not, because of this.
    Unreachable(String),
}

impl Store {
    /// Adds counts to those of the current minute; the database's clock.
    pub async fn add_counts(&self, counts: &Counts) -> Result<DateTime<Utc>> {
        let query = query!(
            "upkeep/add_counts",
            Relaxed,
            [
                INT8, TEXT_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, TEXT_ARRAY, TEXT_ARRAY, TEXT_ARRAY, INT2_ARRAY,
                INT8_ARRAY, TEXT_ARRAY, TEXT_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, TEXT_ARRAY
            ]
        );
        let published = count(counts.published);
        let (topics, by_topic): (Vec<&str>, Vec<&Topic>) = counts.topics.iter().map(|(name, t)| (&**name, t)).unzip();
        let topic = |of: fn(&Topic) -> u64| -> Vec<i64> { by_topic.iter().map(|topic| count(of(topic))).collect() };
        let (sent, failed, retried) = (topic(|t| t.sent), topic(|t| t.failed), topic(|t| t.retried));
        let (spans, in_span): (Vec<&Span>, Vec<i64>) = counts.spans.iter().map(|(span, &n)| (span, count(n))).unzip();
        let measures: Vec<&str> = spans.iter().map(|span| span.measure).collect();
        let subjects: Vec<&str> = spans.iter().map(|span| &*span.subject).collect();
        let span_origins: Vec<&str> = spans.iter().map(|span| &*span.origin).collect();
        let buckets: Vec<i16> = spans.iter().map(|span| span.bucket).collect();
        let (keys, by_channel): (Vec<&(String, String)>, Vec<&Channel>) = counts.channels.iter().unzip();
        let channels: Vec<&str> = keys.iter().map(|(channel, _)| &**channel).collect();
        let origins: Vec<&str> = keys.iter().map(|(_, origin)| &**origin).collect();
        let calls = |of: fn(&Channel) -> u64| -> Vec<i64> { by_channel.iter().map(|c| count(of(c))).collect() };
        let (calls_sent, calls_failed, unknown) = (calls(|c| c.sent), calls(|c| c.failed), calls(|c| c.unknown));
        let errors: Vec<Option<&str>> = by_channel.iter().map(|channel| channel.last_error.as_deref()).collect();
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 16] = [
            &published,
            &topics,
            &sent,
            &failed,
            &retried,
            &measures,
            &subjects,
            &span_origins,
            &buckets,
            &in_span,
            &channels,
            &origins,
            &calls_sent,
            &calls_failed,
            &unknown,
            &errors,
        ];
        let rows = self.query(query, &params).await?;
        let row = rows.first().ok_or_else(|| Error::Bug("a SELECT without FROM returned no row".into()))?;
        row.value(0)
    }

    /// Writes down what an instance sees. Says whether the views know a route of each of its topics.
    pub async fn report(&self, instance: i32, report: &Report) -> Result<bool> {
        let query = query!(
            "upkeep/report_instance",
            Relaxed,
            [
                INT4, INT4, BOOL, TEXT, TEXT, INT8, INT8, BOOL, TEXT_ARRAY, INT8, INT8, TEXT, INT8, INT8, INT8, TEXT,
                TEXT
            ]
        );
        let (is_reachable, error, facts) = match &report.queue {
            QueueReport::InProcess => (None, None, None),
            QueueReport::Reachable(facts) => (Some(true), None, Some(facts)),
            QueueReport::Unreachable(error) => (Some(false), Some(error.as_str()), None),
        };
        let policy = facts.map(|facts| facts.policy.as_str());
        let (used, at_most) = (facts.map(|facts| facts.memory_bytes), facts.map(|facts| facts.memory_max_bytes));
        let Report { clock_skew_ms, sessions_shared, topics, .. } = report;
        let (limit, wanted) = (count(report.files.limit), count(report.files.wanted));
        let short = report.files.short.as_ref();
        let (lacked, calls) = (short.map(|short| short.error), short.map(|short| count(short.calls)));
        let (since, last) =
            (short.map(|short| millis(short.since.elapsed())), short.map(|short| millis(short.last.elapsed())));
        let (limits, shares) = (limits(&report.limits), shares(&report.shares));
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 17] = [
            &instance,
            clock_skew_ms,
            &is_reachable,
            &error,
            &policy,
            &used,
            &at_most,
            sessions_shared,
            topics,
            &limit,
            &wanted,
            &lacked,
            &calls,
            &since,
            &last,
            &limits,
            &shares,
        ];
        let rows = self.query(query, &params).await?;
        rows.first().map_or(Ok(true), |row| row.value("has_routes"))
    }

    /// Writes down the routes in use by an instance: topic, position, channel.
    pub async fn write_routes(&self, instance: i32, routes: &[(String, i16, String)]) -> Result<()> {
        let query = query!("upkeep/write_routes", Relaxed, [TEXT_ARRAY, INT2_ARRAY, TEXT_ARRAY, INT4]);
        let topics: Vec<&str> = routes.iter().map(|(topic, ..)| topic.as_str()).collect();
        let positions: Vec<i16> = routes.iter().map(|(_, position, _)| *position).collect();
        let channels: Vec<&str> = routes.iter().map(|(.., channel)| channel.as_str()).collect();
        self.query(query, &[&topics, &positions, &channels, &instance]).await.map(|_| ())
    }

    /// Counts the active set, if it is time and nobody else is at it.
    pub async fn take_snapshot(&self) -> Result<()> {
        self.query(query!("upkeep/take_snapshot", Relaxed, []), &[]).await.map(|_| ())
    }

    /// Removes counts that no view shows any more.
    pub async fn forget_counts(&self) -> Result<()> {
        self.query(query!("upkeep/forget_counts", Relaxed, []), &[]).await.map(|_| ())
    }
}

fn count(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// As the views read them: by channel the name of the limit, and the calls that can be expected to start in a second.
fn limits(reached: &[(String, Reached)]) -> Option<String> {
    let limits =
        reached.iter().map(|(name, reached)| (name.clone(), json!([reached.limit.name(), reached.per_second])));
    object(limits.collect())
}

/// By topic the calls that can be expected to start in a second.
fn shares(reached: &[(Arc<str>, f64)]) -> Option<String> {
    object(reached.iter().map(|(topic, per_second)| (topic.to_string(), json!(per_second))).collect())
}

fn object(values: Map<String, Value>) -> Option<String> {
    (!values.is_empty()).then(|| Value::Object(values).to_string())
}
