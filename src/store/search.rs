//! Searching notifications in any history, a bounded scan at a time.
//!
//! The log has no index by status or payload (each would make every `notify()` or outcome dearer). So a search
//! is a scan of an index that there is, from a position on, and ends with the page, with the rows or with its time:
//!
//! | status | scans | order |
//! |---|---|---|
//! | any, with a recipient | what was sent to it, by id | newest first |
//! | none given, SENT, CANCELED | the log by id | newest first |
//! | QUEUED, PROCESSING | the live work by id | newest first |
//! | FAILED | the dead letters by `failed_at` | last failed first |
//! | PENDING | what is due, by topic and `due_at` | topic by topic, the earliest first |
//!
//! **Guarantee.** One call takes some 40 ms, in statements of a few each, whatever is asked and however long the
//! history; from [`Page::next`] on nothing is skipped. **Limit.** A page may be short or empty although there is more:
//! then [`Page::scanned_to`] says how far it got.

use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use tokio_postgres::Row;

use super::found::Found;
use super::refusal::Values;
use super::request::Answer;
use super::{Store, query};
use crate::notification::Status;

/// How long one call scans, about.
const TIME_MAX: Duration = Duration::from_millis(40);
/// Rows scanned by the first statement, and by the last; comparing payloads costs more.
const SCAN_ROWS: (i32, i32) = (200, 4_000);
const SCAN_ROWS_PAYLOADS: (i32, i32) = (20, 400);
/// How far ids and creation times may be out of step: transactions at the same time draw theirs as it comes.
const OUT_OF_STEP: TimeDelta = TimeDelta::minutes(1);

/// What is searched for; everything that is given must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Its topic.
    pub topic: Option<String>,
    /// Its status.
    pub status: Option<Status>,
    /// Its recipient, whole.
    pub recipient: Option<String>,
    /// Created at or after.
    pub since: Option<DateTime<Utc>>,
    /// Created at or before.
    pub until: Option<DateTime<Utc>>,
    /// A JSON object that its payload contains.
    pub contains: Option<String>,
    /// Patterns of LIKE, one of which its topic matches.
    pub topics: Option<Vec<String>>,
}

/// Where a scan stands: on the last row that was scanned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    id: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<DateTime<Utc>>,
}

impl Position {
    /// Whether a search for this comes here. One for what is PENDING in a topic stays in it: whoever may see that topic
    /// alone must not choose where in others a scan begins.
    pub fn is_of(&self, filter: &Filter) -> bool {
        Scan::of(filter) != Scan::Pending || filter.topic.is_none() || filter.topic == self.topic
    }
}

/// What one call found.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// In the order of the scan.
    pub notifications: Vec<Found>,
    /// From where to go on; `None`: there is no more.
    pub next: Option<Position>,
    /// How far it scanned, if it did not fill the page and there may be more.
    pub scanned_to: Option<DateTime<Utc>>,
}

/// The index that a search goes along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scan {
    Log,
    Recipient,
    Live,
    Dead,
    Pending,
}

impl Scan {
    fn of(filter: &Filter) -> Scan {
        match filter.status {
            _ if filter.recipient.is_some() => Scan::Recipient,
            None | Some(Status::Sent | Status::Canceled) => Scan::Log,
            Some(Status::Queued | Status::Processing) => Scan::Live,
            Some(Status::Failed) => Scan::Dead,
            Some(Status::Pending) => Scan::Pending,
        }
    }
}

/// One row of a scan.
struct Seen {
    position: Position,
    matches: bool,
}

impl Store {
    /// The next notifications that match, from a position on; `None`: from the beginning.
    pub async fn search(&self, filter: &Filter, from: Option<Position>, rows_max: usize) -> Answer<Page> {
        let started = Instant::now();
        let scan = Scan::of(filter);
        let mut position = match from {
            Some(position) => position,
            None => self.start(scan, filter).await?,
        };
        let (mut rows, rows_most) = if filter.contains.is_some() { SCAN_ROWS_PAYLOADS } else { SCAN_ROWS };
        let mut ids = Vec::new();
        let next = loop {
            let (seen, is_last) = self.scan(scan, &position, rows, filter).await?;
            let is_over = is_last || seen.last().is_none_or(|last| is_past(scan, filter, &last.position));
            for row in seen {
                position = row.position;
                if row.matches {
                    ids.push(position.id);
                    if ids.len() == rows_max {
                        break;
                    }
                }
            }
            if ids.len() == rows_max {
                break Some(position);
            }
            if is_over {
                break None;
            }
            if started.elapsed() >= TIME_MAX {
                break Some(position);
            }
            rows = (rows * 2).min(rows_most);
        };
        let scanned_to = next.as_ref().filter(|_| ids.len() < rows_max).and_then(|position| position.at);
        Ok(Page { notifications: self.read_notifications(&ids).await?, next, scanned_to })
    }

    /// Notifications with this dedup_key, of one topic or of any.
    pub async fn find_by_key(
        &self,
        key: &str,
        topic: Option<&str>,
        topics: Option<&[String]>,
        rows_max: i32,
    ) -> Answer<Vec<Found>> {
        let query = query!("api/find_by_key", Request, [TEXT, TEXT, INT4, TEXT_ARRAY]);
        let rows = self.ask(query, &[&key, &topic, &rows_max, &topics]).await?;
        let ids = rows.iter().map(|row| row.value(0)).collect::<super::Result<Vec<i64>>>()?;
        self.read_notifications(&ids).await
    }

    async fn start(&self, scan: Scan, filter: &Filter) -> Answer<Position> {
        let mut position = Position { id: i64::MAX, topic: None, at: None };
        match (scan, filter.until) {
            (Scan::Pending, _) => {
                position = Position { id: 0, topic: Some(filter.topic.clone().unwrap_or_default()), at: None };
            }
            (Scan::Log | Scan::Recipient | Scan::Live, Some(until)) => {
                let until = until.checked_add_signed(OUT_OF_STEP).unwrap_or(until);
                let rows = self.ask(query!("api/find_id_at", Request, [TIMESTAMPTZ]), &[&until]).await?;
                position.id = rows.first().map_or(Ok(i64::MAX), |row| row.value(0))?;
            }
            _ => {}
        }
        Ok(position)
    }

    /// Those that match of the next rows, and the last of them whether it matches or not; whether that was all.
    async fn scan(&self, scan: Scan, from: &Position, rows: i32, filter: &Filter) -> Answer<(Vec<Seen>, bool)> {
        let Filter { topic, recipient, since, until, contains, topics, .. } = filter;
        let (status, id, at) = (filter.status.map(Status::name), &from.id, &from.at);
        let found = match scan {
            Scan::Log => {
                let query = query!(
                    "api/scan_log",
                    Request,
                    [INT8, INT4, TEXT, TEXT, TIMESTAMPTZ, TIMESTAMPTZ, TEXT, TEXT_ARRAY]
                );
                self.ask(query, &[id, &rows, topic, &status, since, until, contains, topics]).await?
            }
            Scan::Recipient => {
                let query = query!(
                    "api/scan_recipient",
                    Request,
                    [INT8, INT4, TEXT, TEXT, TIMESTAMPTZ, TIMESTAMPTZ, TEXT, TEXT, TEXT_ARRAY]
                );
                self.ask(query, &[id, &rows, topic, &status, since, until, contains, recipient, topics]).await?
            }
            Scan::Live => {
                let query = query!(
                    "api/scan_outbox",
                    Request,
                    [INT8, INT4, TEXT, TEXT, TIMESTAMPTZ, TIMESTAMPTZ, TEXT, TEXT_ARRAY]
                );
                self.ask(query, &[id, &rows, topic, &status, since, until, contains, topics]).await?
            }
            Scan::Dead => {
                let query = query!(
                    "api/scan_failed",
                    Request,
                    [TIMESTAMPTZ, INT8, INT4, TEXT, TIMESTAMPTZ, TIMESTAMPTZ, TEXT, TEXT_ARRAY]
                );
                self.ask(query, &[at, id, &rows, topic, since, until, contains, topics]).await?
            }
            Scan::Pending => {
                let query = query!(
                    "api/scan_pending",
                    Request,
                    [TEXT, TIMESTAMPTZ, INT8, INT4, TEXT, TIMESTAMPTZ, TIMESTAMPTZ, TEXT, TEXT_ARRAY]
                );
                let above = from.topic.clone().unwrap_or_default();
                self.ask(query, &[&above, at, id, &rows, topic, since, until, contains, topics]).await?
            }
        };
        let scanned = found.first().map_or(Ok(0), |row| row.value::<i64>(4))?;
        let seen = found.iter().map(|row| seen(scan, row)).collect::<super::Result<Vec<Seen>>>()?;
        Ok((seen, scanned < i64::from(rows)))
    }
}

fn seen(scan: Scan, row: &Row) -> super::Result<Seen> {
    let topic = if scan == Scan::Pending { row.value(1)? } else { None };
    let at: Option<DateTime<Utc>> = row.value(2)?;
    Ok(Seen { position: Position { id: row.value(0)?, topic, at }, matches: row.value(3)? })
}

/// Whether nothing behind this row can match.
fn is_past(scan: Scan, filter: &Filter, last: &Position) -> bool {
    let is_before = |since: DateTime<Utc>, slack: TimeDelta| {
        since.checked_sub_signed(slack).is_some_and(|since| last.at.is_some_and(|at| at < since))
    };
    match (scan, filter.since) {
        (Scan::Log | Scan::Recipient | Scan::Live, Some(since)) => is_before(since, OUT_OF_STEP),
        // What failed before a time was created before it.
        (Scan::Dead, Some(since)) => is_before(since, TimeDelta::zero()),
        (Scan::Pending, _) => filter.topic.is_some() && filter.topic != last.topic,
        _ => false,
    }
}
