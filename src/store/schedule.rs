//! Schedules: their slots, the runs of these, and the audience on its way into the log.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::refusal::Values;
use super::release::bounded;
use super::{Result, Store, query};

/// A schedule that is due to be planned.
#[derive(Debug, Clone)]
pub struct Schedule {
    /// Its number.
    pub id: i64,
    /// Raised by each change.
    pub version: i32,
    /// Five fields.
    pub cron: String,
    /// Where they are read.
    pub timezone: String,
    /// How long before the slot it is prepared.
    pub lead: TimeDelta,
    /// How long after the slot it still runs.
    pub catch_up: TimeDelta,
    /// Its slots pass until it is resumed.
    pub is_paused: bool,
    /// Slots after this time count; earlier ones passed while it was paused.
    pub changed_at: DateTime<Utc>,
    /// `None`: nobody has worked it out yet.
    pub next_slot: Option<DateTime<Utc>>,
    /// The database's clock.
    pub now: DateTime<Utc>,
}

/// A slot on record from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// The time that cron named.
    pub at: DateTime<Utc>,
    /// `preparing`, `missed` or `paused`.
    pub state: &'static str,
    /// Why it does not run.
    pub reason: Option<String>,
}

/// A reading of an audience that may begin.
#[derive(Debug, Clone)]
pub struct Reading {
    /// Its number: a later one voids it.
    pub attempt: i32,
    /// Readings begun since one came to its end, with this one.
    pub tries: i32,
    /// What to read.
    pub audience: String,
    /// For a function that wants to know.
    pub slot: DateTime<Utc>,
    /// Rows at most.
    pub rows_max: i64,
    /// Time at most.
    pub time_max: Duration,
}

/// A chunk that was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copied {
    /// Whether that was the last.
    pub is_prepared: bool,
    /// False: the staged rows were lost; the audience must be read again.
    pub is_staged: bool,
    /// Notifications written.
    pub added: u64,
}

/// A run that is being released.
#[derive(Debug, Clone)]
pub struct Finished {
    /// The schedule's name.
    pub schedule: String,
    /// Its slot.
    pub slot: DateTime<Utc>,
    /// Whether nothing of it is PENDING any more.
    pub is_done: bool,
    /// Notifications in all.
    pub prepared: i64,
}

impl Store {
    /// Whether anything is to be planned, prepared, counted or cleared.
    pub async fn schedules_have_work(&self) -> Result<bool> {
        let rows = self.query(query!("schedule/has_work", Relaxed, []), &[]).await?;
        rows.first().map_or(Ok(false), |row| row.value(0))
    }

    /// Schedules whose next slot is near or not known.
    pub async fn schedules_due(&self, schedules_max: u32) -> Result<Vec<Schedule>> {
        let rows = self.query(query!("schedule/load_schedules", Relaxed, [INT4]), &[&bounded(schedules_max)]).await?;
        let schedule = |row: &Row| -> Result<Schedule> {
            Ok(Schedule {
                id: row.value("id")?,
                version: row.value("version")?,
                cron: row.value("cron")?,
                timezone: row.value("timezone")?,
                lead: TimeDelta::milliseconds(row.value("lead_ms")?),
                catch_up: TimeDelta::milliseconds(row.value("catch_up_ms")?),
                is_paused: row.value("is_paused")?,
                changed_at: row.value("changed_at")?,
                next_slot: row.value("next_slot")?,
                now: row.value("now")?,
            })
        };
        rows.iter().map(schedule).collect()
    }

    /// Moves a schedule on to `next`, or to what keeps it from having a next slot; the slots passed become runs.
    pub async fn begin_runs(
        &self,
        owner: i32,
        schedule: &Schedule,
        next: std::result::Result<DateTime<Utc>, String>,
        slots: &[Slot],
    ) -> Result<u64> {
        let types = query!(
            "schedule/begin_runs",
            Durable,
            [INT4, INT8, INT4, TIMESTAMPTZ, TIMESTAMPTZ, TEXT, TIMESTAMPTZ_ARRAY, TEXT_ARRAY, TEXT_ARRAY]
        );
        let (next_slot, error) = match next {
            Ok(slot) => (Some(slot), None),
            Err(error) => (None, Some(error)),
        };
        let at: Vec<DateTime<Utc>> = slots.iter().map(|slot| slot.at).collect();
        let states: Vec<&str> = slots.iter().map(|slot| slot.state).collect();
        let reasons: Vec<Option<&str>> = slots.iter().map(|slot| slot.reason.as_deref()).collect();
        let (id, version, was) = (schedule.id, schedule.version, schedule.next_slot);
        let params: [&(dyn ToSql + Sync); 9] =
            [&owner, &id, &version, &was, &next_slot, &error, &at, &states, &reasons];
        Ok(self.query(types, &params).await?.len() as u64)
    }

    /// Runs to be prepared or gone on with.
    pub async fn runs_preparing(&self, runs_max: u32) -> Result<Vec<i64>> {
        let rows = self.query(query!("schedule/find_preparing", Relaxed, [INT4]), &[&bounded(runs_max)]).await?;
        rows.iter().map(|row| row.value(0)).collect()
    }

    /// Begins a reading, unless one stands, the run has ended or the lease is not ours.
    pub async fn start_reading(&self, owner: i32, run: i64) -> Result<Option<Reading>> {
        let rows = self.query(query!("schedule/start_reading", Durable, [INT4, INT8]), &[&owner, &run]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        Ok(Some(Reading {
            attempt: row.value("attempt")?,
            tries: row.value("tries")?,
            audience: row.value("audience")?,
            slot: row.value("slot")?,
            rows_max: row.value("rows_max")?,
            time_max: Duration::from_millis(u64::try_from(row.value::<i64>("time_max_ms")?).unwrap_or(0)),
        }))
    }

    /// Copies the next chunk into the log. `None`: the run is not to be prepared any more, or not by us.
    pub async fn copy_recipients(&self, owner: i32, run: i64, rows_max: u32) -> Result<Option<Copied>> {
        let query = query!("schedule/copy_recipients", Durable, [INT4, INT8, INT4]);
        let rows = self.query(query, &[&owner, &run, &bounded(rows_max)]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        Ok(Some(Copied {
            is_prepared: row.value::<&str>(0)? == "prepared",
            is_staged: row.value(1)?,
            added: u64::try_from(row.value::<i64>(2)?).unwrap_or(0),
        }))
    }

    /// Ends a run that cannot be prepared; the schedule's name if that was for us to say.
    pub async fn fail_run(&self, owner: i32, run: i64, attempt: Option<i32>, error: &str) -> Result<Option<String>> {
        let query = query!("schedule/fail_run", Durable, [INT4, INT8, INT4, TEXT]);
        let rows = self.query(query, &[&owner, &run, &attempt, &error]).await?;
        rows.first().map(|row| row.value(0)).transpose()
    }

    /// Takes back a try that is not the audience's fault.
    pub async fn take_back_try(&self, run: i64) -> Result<()> {
        self.query(query!("schedule/take_back_try", Relaxed, [INT8]), &[&run]).await?;
        Ok(())
    }

    /// A reading came to no end; the schedule's name, if the run ends with that.
    pub async fn give_up_reading(&self, owner: i32, run: i64, attempt: i32, reason: &str) -> Result<Option<String>> {
        let query = query!("schedule/give_up_reading", Durable, [INT4, INT8, INT4, TEXT]);
        let rows = self.query(query, &[&owner, &run, &attempt, &reason]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let is_failed: bool = row.value(1)?;
        Ok(if is_failed { Some(row.value(0)?) } else { None })
    }

    /// Counts what of prepared runs is released.
    pub async fn finish_runs(&self, owner: i32, runs_max: u32) -> Result<Vec<Finished>> {
        let query = query!("schedule/finish_runs", Relaxed, [INT4, INT4]);
        let rows = self.query(query, &[&owner, &bounded(runs_max)]).await?;
        let finished = |row: &Row| -> Result<Finished> {
            Ok(Finished {
                schedule: row.value(0)?,
                slot: row.value(1)?,
                is_done: row.value(2)?,
                prepared: row.value(3)?,
            })
        };
        rows.iter().map(finished).collect()
    }

    /// Removes a chunk of what was staged for a run that ended early; false: there is none.
    pub async fn clear_recipients(&self, owner: i32, rows_max: u32) -> Result<bool> {
        let query = query!("schedule/clear_recipients", Relaxed, [INT4, INT4]);
        Ok(!self.query(query, &[&owner, &bounded(rows_max)]).await?.is_empty())
    }
}
