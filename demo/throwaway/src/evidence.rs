//! What was seen, by whom: the app's log, the providers' ledger, the rows at the end. The verdict joins them.
//!
//! Times are microseconds since the start, by one clock.

use std::collections::{HashMap, HashSet};

use anyhow::{Context, Result};
use tokio_postgres::Client;

use super::provider::Call;

/// Microseconds since the start.
pub type Micros = u64;

/// What a notification is known by: the app's own number, or where the app gave none, id and time of the row.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// The app's number, in the payload.
    Number(i64),
    /// `notification_log.id` and `created_at` in microseconds since 1970.
    Row(i64, i64),
}

/// How a transaction of the app ended, as the app saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// COMMIT returned.
    Committed,
    /// Rolled back, or ended before COMMIT was sent.
    RolledBack,
    /// COMMIT was sent and its answer was not seen.
    Unknown,
}

/// What the app asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// A notification, perhaps one of several that share a dedup key.
    Notification { dedup_key: Option<String>, is_delayed: bool },
    /// A domain event.
    Event,
}

/// One line of the app's log.
#[derive(Debug, Clone)]
pub struct Write {
    pub number: i64,
    pub asked: Asked,
    /// Numbers of one key are written one after the other, upwards.
    pub key: Option<String>,
    pub began: Micros,
    pub ended: Micros,
    pub outcome: Outcome,
}

/// What a provider did with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// 200, perhaps too late to be seen.
    Accepted,
    /// This status.
    Refused(u16),
    /// No answer: the connection was cut.
    Cut,
}

impl From<Option<u16>> for Answer {
    fn from(status: Option<u16>) -> Answer {
        match status {
            Some(200..=299) => Answer::Accepted,
            Some(status) => Answer::Refused(status),
            None => Answer::Cut,
        }
    }
}

/// One line of the ledger, written before the provider replied.
#[derive(Debug, Clone)]
pub struct Arrival {
    pub at: Micros,
    pub subject: Subject,
    pub channel: String,
    pub webhook_id: String,
    /// The header `outboxd-attempt`.
    pub attempt: u32,
    pub answer: Answer,
}

impl Arrival {
    /// Of a call at a provider whose path is the channel; `number` is the app's, if it gave one. `None` if it is not
    /// outboxd's.
    pub fn of(call: &Call, at: Micros, number: Option<i64>, status: Option<u16>) -> Option<Arrival> {
        Some(Arrival {
            at,
            subject: number.map(Subject::Number).or_else(|| row_of(&call.webhook_id))?,
            channel: call.path.trim_start_matches('/').to_owned(),
            webhook_id: call.webhook_id.clone(),
            attempt: call.header("outboxd-attempt").and_then(|text| text.parse().ok()).unwrap_or(0),
            answer: status.into(),
        })
    }
}

/// The row inside `ntf-<install>-<id>-<created>`.
pub fn row_of(webhook_id: &str) -> Option<Subject> {
    let mut parts = webhook_id.split('-').skip(2);
    Some(Subject::Row(parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// A notification's row at the end.
#[derive(Debug, Clone, Default)]
pub struct Row {
    pub id: i64,
    pub status: String,
    pub dedup_key: Option<String>,
    /// Which call was recorded last, from 1; 0: none.
    pub attempts: u32,
    /// Rows of `outboxd.attempts`, each with the number of its call; late ones and duplicates have none.
    pub witnesses: Vec<Option<u32>>,
    /// One of them is a late success: it came after the row had ended otherwise.
    pub is_late: bool,
    /// How many of them are probes of an open circuit that failed.
    pub probes: usize,
}

/// An event as the consumer of its stream saw it.
#[derive(Debug, Clone, Copy)]
pub struct Sighting {
    pub at: Micros,
    pub number: i64,
}

/// From one moment to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub from: Micros,
    pub until: Micros,
}

impl Span {
    /// Whether the two have a moment in common.
    pub fn meets(self, from: Micros, until: Micros) -> bool {
        self.from <= until && from <= self.until
    }
}

/// All of it.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    pub writes: Vec<Write>,
    /// Numbers that the app's own table holds at the end: what was committed, and is there.
    pub committed: HashSet<i64>,
    pub rows: HashMap<Subject, Row>,
    /// In order of arrival.
    pub arrivals: Vec<Arrival>,
    /// In order of sight.
    pub sightings: Vec<Sighting>,
    /// From the cut of the replication until the promotion: what was committed then may be gone.
    pub lost_tails: Vec<Span>,
    /// When Redis lost what it had.
    pub redis_losses: Vec<Span>,
    /// What an operator sent back to work: it goes last of its key.
    pub retried: HashSet<Subject>,
}

const ROWS: &str = "
    SELECT n.id, (extract(epoch FROM n.created_at) * 1000000)::bigint, n.payload ->> $1, n.status, n.dedup_key,
           n.attempts, coalesce(a.numbers, '{}'), coalesce(a.is_late, false), coalesce(a.probes, 0)
      FROM outboxd.notifications n
      LEFT JOIN (SELECT notification_id, array_agg(number) AS numbers, bool_or(outcome = 'late success') AS is_late,
                        count(*) FILTER (WHERE number IS NULL AND outcome = 'failed') AS probes
                   FROM outboxd.attempts GROUP BY 1) a ON a.notification_id = n.id";

/// The rows as they are now; `number` is the field of the payload with the app's own number, if it gives one.
pub async fn rows(client: &Client, number: Option<&str>) -> Result<HashMap<Subject, Row>> {
    let as_u32 = |number: i32| u32::try_from(number).ok();
    let mut rows = HashMap::new();
    for row in client.query(ROWS, &[&number]).await.context("the rows")? {
        let number = row.get::<_, Option<&str>>(2).and_then(|text| text.parse().ok());
        let subject = number.map_or_else(|| Subject::Row(row.get(0), row.get(1)), Subject::Number);
        let seen = Row {
            id: row.get(0),
            status: row.get(3),
            dedup_key: row.get(4),
            attempts: as_u32(row.get(5)).unwrap_or(0),
            witnesses: row.get::<_, Vec<Option<i32>>>(6).iter().map(|number| number.and_then(as_u32)).collect(),
            is_late: row.get(7),
            probes: usize::try_from(row.get::<_, i64>(8)).unwrap_or(0),
        };
        rows.insert(subject, seen);
    }
    Ok(rows)
}

/// Rows that outboxd's own statements must never write, each with the rule it breaks.
pub async fn illegal_rows(client: &Client) -> Result<Vec<(i64, String)>> {
    let rows = client.query(include_str!("illegal_rows.sql"), &[]).await.context("the rules of rows")?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_webhook_id_tells_the_row() {
        assert_eq!(row_of("ntf-a-7-99"), Some(Subject::Row(7, 99)));
        assert_eq!(row_of("ntf-a"), None);
    }
}
