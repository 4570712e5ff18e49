//! Deleting what is past its retention, a short statement at a time.

use std::time::Duration;

use tokio_postgres::Row;

use super::instance::millis;
use super::refusal::Values;
use super::release::bounded;
use super::{Result, Store, query};

/// A table that retention goes up by id or time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scanned {
    /// Attempts.
    Attempts,
    /// Events of `publish()`.
    Events,
    /// Receipts of `receive()`.
    Inbox,
    /// Answers under an Idempotency-Key.
    Idempotency,
    /// Operators' actions.
    Audit,
    /// Runs of schedules.
    Runs,
}

impl Scanned {
    /// As SQL, metrics and logs name it.
    pub fn name(self) -> &'static str {
        match self {
            Scanned::Attempts => "attempt",
            Scanned::Events => "event",
            Scanned::Inbox => "inbox",
            Scanned::Idempotency => "idempotency",
            Scanned::Audit => "audit",
            Scanned::Runs => "schedule_run",
        }
    }
}

/// How long ended notifications are kept.
#[derive(Debug, Clone, Copy)]
pub struct Kept {
    /// SENT.
    pub sent: Duration,
    /// FAILED.
    pub failed: Duration,
    /// CANCELED.
    pub canceled: Duration,
    /// Rows created later than this ago are not read.
    pub border: Duration,
}

/// What one step did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Step {
    /// `None`: the lease was not ours and nothing was done. Else whether the scan has come to what is too young.
    pub is_caught_up: Option<bool>,
    /// Rows deleted.
    pub deleted: u64,
    /// Attempts that went with their notifications.
    pub attempts: u64,
}

impl Store {
    /// One step up notification_log.
    pub async fn delete_notifications(&self, owner: i32, rows: u32, kept: Kept, new_scan: Duration) -> Result<Step> {
        let query = query!("upkeep/delete_notifications", Relaxed, [INT4, INT4, INT8, INT8, INT8, INT8, INT8]);
        let spans = [kept.sent, kept.failed, kept.canceled, kept.border, new_scan].map(millis);
        let rows =
            self.query(query, &[&owner, &bounded(rows), &spans[0], &spans[1], &spans[2], &spans[3], &spans[4]]).await?;
        let attempts = rows.first().map_or(Ok(0), |row| count(row, 2))?;
        Ok(Step { attempts, ..step(&rows)? })
    }

    /// One step up another table.
    pub async fn delete_scanned(
        &self,
        table: Scanned,
        owner: i32,
        rows: u32,
        kept: Duration,
        new_scan: Duration,
    ) -> Result<Step> {
        let (rows, kept, new_scan) = (bounded(rows), millis(kept), millis(new_scan));
        let by_id = query!("upkeep/delete_older_by_id", Relaxed, [TEXT, TEXT, INT4, INT4, INT8, INT8]);
        let by_time = query!("upkeep/delete_older_by_time", Relaxed, [TEXT, TEXT, INT4, INT4, INT8, INT8]);
        let (query, at) = match table {
            Scanned::Attempts | Scanned::Runs => (by_id, "ended_at"),
            Scanned::Audit => (by_id, "at"),
            Scanned::Inbox => (by_time, "received_at"),
            Scanned::Idempotency => (by_time, "at"),
            Scanned::Events => {
                let query = query!("upkeep/delete_events", Relaxed, [INT4, INT4, INT8, INT8]);
                return step(&self.query(query, &[&owner, &rows, &kept, &new_scan]).await?);
            }
        };
        step(&self.query(query, &[&table.name(), &at, &owner, &rows, &kept, &new_scan]).await?)
    }

    /// Rows of instances that ended long ago.
    pub async fn delete_instances(&self, owner: i32, kept: Duration) -> Result<Step> {
        let query = query!("upkeep/delete_instances", Relaxed, [INT4, INT8]);
        step(&self.query(query, &[&owner, &millis(kept)]).await?)
    }
}

fn step(rows: &[Row]) -> Result<Step> {
    let Some(row) = rows.first() else { return Ok(Step::default()) };
    Ok(Step { is_caught_up: row.value(0)?, deleted: count(row, 1)?, attempts: 0 })
}

fn count(row: &Row, column: usize) -> Result<u64> {
    Ok(u64::try_from(row.value::<i64>(column)?).unwrap_or(0))
}
