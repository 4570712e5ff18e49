//! Schedules: at each slot everybody in an audience gets a notification.
//!
//! **Guarantee.** Once per slot and recipient, whatever crashes or races: a slot becomes a run in the statement that
//! moves the schedule on; the audience is read in one statement and copied in chunks that know how far they are; and
//! the dedup key names run and recipient, by a keyed hash. One instance does this at a time (see
//! [`crate::store::leader`]); another goes on where it stopped.
//!
//! **Limit.** A slot missed by downtime runs if it is younger than the schedule's `catch_up`, else it is on record as
//! missed. An audience is read as it is `lead` before the slot. A slot that comes while its schedule is paused is on
//! record as paused.
//!
//! A broken audience fails its own run, and so does one that comes to no end three times; the others are prepared beside
//! it. Its code is somebody else's: see [`crate::store::audience`].
//!
//! May change: how runs are planned and prepared. Must not: the dedup key of a run's notification, and that each
//! statement checks the lease.
//!
//! Metrics: `outboxd_schedule_prepared_total`, `outboxd_schedule_runs_failed_total`,
//! `outboxd_schedule_runs_missed_total`.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use chrono::TimeDelta;
use metrics::counter;
use tokio::task::{Id, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::failpoint;
use crate::retry::rest_after;
use crate::store::audience::Overdue;
use crate::store::leader::LeaderLease;
use crate::store::schedule::{Schedule, Slot};
use crate::store::{self, Store};
use crate::telemetry::outage::Outage;

pub mod calendar;
mod preparation;

use calendar::{Calendar, Due, Window};

/// The leader lease's name in the database.
pub const LEASE: &str = "schedules";
/// Between passes.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Schedules dealt with by one pass.
const SCHEDULES_MAX: u32 = 100;
/// Runs prepared at a time: each holds a connection.
const PREPARING_MAX: usize = 3;
/// Runs of which what is released is counted by one pass.
const FINISH_RUNS_MAX: u32 = 20;
/// Rows of canceled runs removed by one pass.
const CLEAR_ROWS: u32 = 5_000;
/// Between looks for readings of audiences that outlived those who waited for them.
const OVERDUE_INTERVAL: Duration = Duration::from_secs(10);

/// What a pass did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Slots that became runs or were missed.
    pub begun: u64,
    /// Runs that have been released.
    pub released: u64,
}

/// Schedules on one instance.
#[derive(Debug)]
pub struct Scheduler {
    store: Store,
    lease: LeaderLease,
    finish_at: Instant,
    overdue_at: Instant,
    /// Runs being prepared, by their tasks.
    tasks: JoinSet<store::Result<()>>,
    preparing: HashMap<Id, i64>,
}

impl Scheduler {
    /// Works only while the lease is ours.
    pub fn new(store: Store, lease: LeaderLease) -> Scheduler {
        let now = Instant::now();
        Scheduler { store, lease, finish_at: now, overdue_at: now, tasks: JoinSet::new(), preparing: HashMap::new() }
    }

    /// One pass: begins the runs that are due, goes on with those that are not prepared, counts what is released.
    pub async fn pass(&mut self, shutdown: &CancellationToken) -> store::Result<Counts> {
        self.reap();
        let Some(owner) = self.lease.hold().await? else { return Ok(Counts::default()) };
        let mut counts = Counts::default();
        if self.store.schedules_have_work().await? {
            self.work(owner, &mut counts, shutdown).await?;
        }
        if Instant::now() >= self.overdue_at {
            for Overdue { pid, login, is_told } in self.store.end_overdue_readings().await? {
                match is_told {
                    true => warn!(pid, login, "ended a reading of an audience that nobody waits for any more"),
                    false => warn!(
                        login,
                        "a reading of an audience that nobody waits for any more goes on, and we may not end it: let a \
                         DBA run SELECT pg_terminate_backend({pid})"
                    ),
                }
            }
            self.overdue_at = Instant::now() + OVERDUE_INTERVAL;
        }
        Ok(counts)
    }

    async fn work(&mut self, owner: i32, counts: &mut Counts, shutdown: &CancellationToken) -> store::Result<()> {
        for schedule in self.store.schedules_due(SCHEDULES_MAX).await? {
            counts.begun += self.begin(owner, &schedule).await?;
        }
        self.start_preparing(owner, shutdown).await?;
        if Instant::now() >= self.finish_at {
            let started = Instant::now();
            for run in self.store.finish_runs(owner, FINISH_RUNS_MAX).await?.iter().filter(|run| run.is_done) {
                info!(schedule = run.schedule, slot = %run.slot, notifications = run.prepared, "released");
                failpoint::hit("after_finish").await;
                counts.released += 1;
            }
            self.finish_at = Instant::now() + rest_after(started.elapsed(), POLL_INTERVAL);
        }
        self.store.clear_recipients(owner, CLEAR_ROWS).await?;
        Ok(())
    }

    /// Works out a schedule's slots; those within its lead become runs.
    async fn begin(&self, owner: i32, schedule: &Schedule) -> store::Result<u64> {
        let plan = plan(schedule);
        let (next, slots) = match plan {
            Ok(due) => {
                let runs = due.runs.iter().map(|at| Slot { at: *at, state: "preparing", reason: None });
                let missed =
                    due.missed.into_iter().map(|(at, reason)| Slot { at, state: "missed", reason: Some(reason) });
                let paused = due.paused.iter().map(|at| Slot { at: *at, state: "paused", reason: None });
                let slots: Vec<Slot> = paused.chain(missed).chain(runs).collect();
                (due.next.ok_or_else(|| "no next slot".to_owned()), slots)
            }
            Err(error) => {
                warn!(schedule = schedule.id, %error, "a schedule cannot run; see outboxd.schedules");
                (Err(error.to_string()), Vec::new())
            }
        };
        let begun = self.store.begin_runs(owner, schedule, next, &slots).await?;
        let missed = slots.iter().filter(|slot| slot.state == "missed").count() as u64;
        if begun > 0 && missed > 0 {
            warn!(schedule = schedule.id, slots = missed, "slots were missed; see outboxd.schedule_runs");
            counter!("outboxd_schedule_runs_missed_total").increment(missed);
        }
        if begun > 0 {
            failpoint::hit("after_begin_runs").await;
        }
        Ok(begun)
    }

    async fn start_preparing(&mut self, owner: i32, shutdown: &CancellationToken) -> store::Result<()> {
        // Those at work here are among the first, so ask for as many more.
        let wanted = u32::try_from(PREPARING_MAX + self.preparing.len()).unwrap_or(u32::MAX);
        for run in self.store.runs_preparing(wanted).await? {
            if self.preparing.len() >= PREPARING_MAX {
                break;
            }
            if self.preparing.values().any(|busy| *busy == run) {
                continue;
            }
            let (store, stop) = (self.store.clone(), shutdown.clone());
            let task = self.tasks.spawn(async move { preparation::prepare(&store, owner, run, &stop).await });
            self.preparing.insert(task.id(), run);
        }
        Ok(())
    }

    /// Takes note of the runs that are done with, for better or worse.
    fn reap(&mut self) {
        while let Some(done) = self.tasks.try_join_next_with_id() {
            self.note(done);
        }
    }

    fn note(&mut self, done: Result<(Id, store::Result<()>), tokio::task::JoinError>) {
        let (id, outcome) = match done {
            Ok((id, outcome)) => (id, outcome.map_err(|error| error.to_string())),
            Err(error) => (error.id(), Err(error.to_string())),
        };
        let run = self.preparing.remove(&id);
        if let Err(error) = outcome {
            warn!(run, error, "preparing waits");
        }
    }
}

fn plan(schedule: &Schedule) -> Result<Due, calendar::Error> {
    let calendar = Calendar::parse(&schedule.cron, &schedule.timezone)?;
    match schedule.next_slot {
        Some(next) => calendar.due(next, window(schedule)),
        // First only the slot; what it is due for is worked out at the next pass, from the database.
        None => Ok(Due { next: Some(calendar.after(schedule.changed_at)?), ..Due::default() }),
    }
}

/// While paused nothing is prepared: a slot is dealt with when it has come.
fn window(schedule: &Schedule) -> Window {
    let (lead, paused_until) =
        if schedule.is_paused { (TimeDelta::zero(), schedule.now) } else { (schedule.lead, schedule.changed_at) };
    Window { now: schedule.now, lead, catch_up: schedule.catch_up, paused_until }
}

/// Keeps schedules until `shutdown`, while the lease is ours.
pub async fn run(mut scheduler: Scheduler, shutdown: &CancellationToken) {
    let mut outage = Outage::default();
    while !shutdown.is_cancelled() {
        outage.note(scheduler.pass(shutdown).await, "schedules wait");
        let wait = scheduler.lease.poll_interval();
        let wait = if scheduler.lease.is_held() { wait.min(POLL_INTERVAL) } else { wait };
        shutdown.run_until_cancelled(tokio::time::sleep(wait)).await;
    }
    while let Some(done) = scheduler.tasks.join_next_with_id().await {
        scheduler.note(done);
    }
    scheduler.lease.let_go().await;
}
