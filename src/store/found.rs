//! One notification as callers over HTTP see it.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio_postgres::Row;
use utoipa::ToSchema;

use super::refusal::Values;
use super::request::Answer;
use super::{Error, Query, Result, Store, query};

/// Where a notification is: a row of `outboxd.notifications` without payload and headers.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Found {
    /// The id that notify() returned.
    pub id: i64,
    /// What it is about; decides the route.
    pub topic: String,
    /// As the app gave it; masked for tokens that may not see payloads.
    pub recipient: String,
    /// PENDING, QUEUED, PROCESSING, SENT, FAILED or CANCELED.
    pub status: String,
    /// The channel that delivered it, or was tried last.
    pub channel: Option<String>,
    /// Calls to providers so far, all channels.
    pub attempts: i32,
    /// When it is tried next, if it waits.
    pub next_attempt_at: Option<DateTime<Utc>>,
    /// The instance that is calling the provider now.
    pub worker: Option<i32>,
    /// What the last attempt said.
    pub error: Option<String>,
    /// The provider's HTTP status at the last attempt.
    pub http_status: Option<i16>,
    /// The same (topic, dedup_key) is enqueued once; masked for tokens that may not see payloads.
    pub dedup_key: Option<String>,
    /// Those of a topic with the same key are sent one after the other; masked for tokens that may not see payloads.
    pub ordering_key: Option<String>,
    /// When notify() ran.
    pub created_at: DateTime<Utc>,
    /// Not before this time.
    pub send_at: DateTime<Utc>,
    /// Past this time it is not sent but FAILED.
    pub expires_at: Option<DateTime<Utc>>,
    /// When it became SENT, FAILED or CANCELED.
    pub finished_at: Option<DateTime<Utc>>,
    /// The provider's own id of it.
    pub provider_id: Option<String>,
}

/// One notification, whole, with what was tried.
#[derive(Debug, Serialize, ToSchema)]
pub struct Details {
    /// Where it is.
    #[serde(flatten)]
    pub found: Found,
    /// As the app gave it; absent for tokens that may not see payloads.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub payload: Option<Box<RawValue>>,
    /// As the app gave them; absent for tokens that may not see payloads.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub headers: Option<Box<RawValue>>,
    /// Why it waits; null: it has ended.
    pub waits: Option<Waits>,
    /// The last attempts that did not end in a recorded success, newest first.
    pub attempt_history: Vec<Attempt>,
}

/// Why a notification waits, as `outboxd.why()` says it.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Waits {
    /// As in the views `stuck` and `waiting`.
    pub reason: String,
    /// The same in a sentence, with what it waits behind.
    pub explanation: String,
    /// What to do; null: nothing.
    pub action: Option<String>,
    /// Since when.
    pub since: Option<DateTime<Utc>>,
    /// Until about when, if that is known.
    pub until: Option<DateTime<Utc>>,
    /// The notification that it waits behind.
    pub behind: Option<i64>,
    /// How many of its topic stand before it at a limit.
    pub place: Option<i64>,
    /// The channel that it waits for.
    pub channel: Option<String>,
    /// The origin of the channel that it waits for, where the URL comes from data; for tokens that may not see payloads with
    /// the ends of its host.
    pub origin: Option<String>,
    /// The instance that calls the provider, or published it.
    pub worker: Option<i32>,
    /// Who paused what it waits for; absent for tokens that may not operate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused_by: Option<String>,
}

/// An attempt that did not end in a recorded success.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Attempt {
    /// Counts upwards.
    pub id: i64,
    /// Which call of this notification it was, from 1; absent: it came too late, or was a probe.
    pub number: Option<i32>,
    /// The channel that was called.
    pub channel: Option<String>,
    /// When the call began.
    pub started_at: Option<DateTime<Utc>>,
    /// When the outcome was recorded.
    pub ended_at: DateTime<Utc>,
    /// How long the call took, in milliseconds.
    pub duration_ms: Option<i32>,
    /// failed, unknown, late failure, late success or duplicate.
    pub outcome: String,
    /// The provider's HTTP status, if it answered.
    pub http_status: Option<i16>,
    /// What went wrong.
    pub error: Option<String>,
    /// The beginning of the provider's answer; absent for tokens that may not see payloads.
    pub response: Option<String>,
    /// The instance that made the call.
    pub worker: Option<i32>,
    /// The provider's own id of it.
    pub provider_id: Option<String>,
}

impl Store {
    /// One notification with its attempts; `None`: there is no such, or its retention has passed.
    pub async fn read_notification(&self, id: i64) -> Answer<Option<Details>> {
        let rows = self.ask(read_notifications(), &[&[id].as_slice(), &true]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let found = found(row)?;
        let attempts = self.ask(query!("api/read_attempts", Request, [INT8]), &[&id]).await?;
        let waits = match found.finished_at {
            None => self.ask(query!("api/read_wait", Request, [INT8]), &[&id]).await?,
            Some(_) => Vec::new(),
        };
        Ok(Some(Details {
            found,
            waits: waits.first().map(wait).transpose()?,
            payload: Some(raw(row.value("payload")?)?),
            headers: row.value::<Option<String>>("headers")?.map(raw).transpose()?,
            attempt_history: attempts.iter().map(attempt).collect::<Result<_>>()?,
        }))
    }

    /// Those of these ids that there are, in the order given.
    pub(super) async fn read_notifications(&self, ids: &[i64]) -> Answer<Vec<Found>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let rows = self.ask(read_notifications(), &[&ids, &false]).await?;
        Ok(rows.iter().map(found).collect::<Result<_>>()?)
    }
}

fn read_notifications() -> &'static Query {
    query!("api/read_notifications", Request, [INT8_ARRAY, BOOL])
}

fn raw(text: String) -> Result<Box<RawValue>> {
    RawValue::from_string(text).map_err(|error| Error::Bug(format!("Postgres sent JSON that is none: {error}")))
}

fn found(row: &Row) -> Result<Found> {
    Ok(Found {
        id: row.value("id")?,
        topic: row.value("topic")?,
        recipient: row.value("recipient")?,
        status: row.value("status")?,
        channel: row.value("channel")?,
        attempts: row.value("attempts")?,
        next_attempt_at: row.value("next_attempt_at")?,
        worker: row.value("worker")?,
        error: row.value("error")?,
        http_status: row.value("http_status")?,
        dedup_key: row.value("dedup_key")?,
        ordering_key: row.value("ordering_key")?,
        created_at: row.value("created_at")?,
        send_at: row.value("send_at")?,
        expires_at: row.value("expires_at")?,
        finished_at: row.value("finished_at")?,
        provider_id: row.value("provider_id")?,
    })
}

fn wait(row: &Row) -> Result<Waits> {
    Ok(Waits {
        reason: row.value("reason")?,
        explanation: row.value("explanation")?,
        action: row.value("action")?,
        since: row.value("since")?,
        until: row.value("until")?,
        behind: row.value("behind")?,
        place: row.value("place")?,
        channel: row.value("channel")?,
        origin: row.value("origin")?,
        worker: row.value("worker")?,
        paused_by: row.value("paused_by")?,
    })
}

fn attempt(row: &Row) -> Result<Attempt> {
    Ok(Attempt {
        id: row.value("id")?,
        number: row.value("number")?,
        channel: row.value("channel")?,
        started_at: row.value("started_at")?,
        ended_at: row.value("ended_at")?,
        duration_ms: row.value("duration_ms")?,
        outcome: row.value("outcome")?,
        http_status: row.value("http_status")?,
        error: row.value("error")?,
        response: row.value("response")?,
        worker: row.value("worker")?,
        provider_id: row.value("provider_id")?,
    })
}
