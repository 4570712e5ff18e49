//! The app writes, the producer releases.

use super::{Protocol, Steps};
use crate::action::Action;
use crate::scope::{App, Event, Written};
use crate::state::Status;

impl Protocol {
    pub(super) fn app_steps(&self, steps: &mut Steps<'_>) {
        for row in self.ids() {
            match (steps.before.row(row).status, self.scope.app) {
                (Status::Unwritten, App::OneAfterAnother) if self.earlier_are_written(steps, row) => {
                    self.write(steps, row);
                }
                (Status::Unwritten, App::AtOnce) => {
                    steps.add(Action::Begin { row }, |after| {
                        let seq = after.draw_seq();
                        let row = after.row_mut(row);
                        (row.status, row.seq) = (Status::Open, seq);
                    });
                }
                (Status::Open, _) => self.commit(steps, row),
                _ => {}
            }
        }
    }

    fn earlier_are_written(&self, steps: &Steps<'_>, row: u8) -> bool {
        (0..row).all(|earlier| steps.before.row(earlier).status != Status::Unwritten)
    }

    /// `notify.sql`, or a plain INSERT.
    fn write(&self, steps: &mut Steps<'_>, row: u8) {
        if self.scope.rows[usize::from(row)].written == Written::Insert {
            steps.add(Action::Write { row }, |after| after.row_mut(row).status = Status::Pending);
            return;
        }
        let has_key = self.has_key(row);
        steps.add(Action::Write { row }, |after| {
            let seq = after.draw_seq();
            after.row_mut(row).seq = seq;
            after.row_mut(row).queue(has_key, false);
        });
        if steps.before.left.allows(Event::Missed) {
            steps.add(Action::Commit { row, is_missed: true }, |after| {
                after.left.spend(Event::Missed);
                let seq = after.draw_seq();
                let row = after.row_mut(row);
                row.seq = seq;
                row.queue(has_key, false);
                if let Some(work) = &mut row.work {
                    work.is_missed = true;
                }
            });
        }
    }

    /// The end of a transaction that was open beside others.
    fn commit(&self, steps: &mut Steps<'_>, row: u8) {
        let has_key = self.has_key(row);
        steps.add(Action::Commit { row, is_missed: false }, |after| after.row_mut(row).queue(has_key, false));
    }

    /// The end of that statement. Postgres does it, also for a process that is stopped.
    pub(super) fn release_step(&self, steps: &mut Steps<'_>, by: usize) {
        if let Some(row) = steps.before.processes[by].release {
            let has_key = self.has_key(row);
            steps.add(Action::ReleaseDue { by, row }, |after| {
                after.processes[by].release = None;
                after.row_mut(row).queue(has_key, true);
            });
        }
    }

    /// `producer/release_due.sql`: lock with SKIP LOCKED and draw the number.
    pub(super) fn producer_steps(&self, steps: &mut Steps<'_>, by: usize) {
        if steps.before.processes[by].release.is_some() {
            return;
        }
        for row in self.ids() {
            let is_locked = steps.before.processes.iter().any(|process| process.release == Some(row));
            if steps.before.row(row).status != Status::Pending || is_locked || self.must_wait(steps, row) {
                continue;
            }
            steps.add(Action::LockDue { by, row }, |after| {
                let seq = after.draw_seq();
                after.row_mut(row).seq = seq;
                after.processes[by].release = Some(row);
            });
        }
    }

    /// Whether an earlier due row of its key is left out, perhaps because another producer holds it.
    fn must_wait(&self, steps: &Steps<'_>, row: u8) -> bool {
        let is_earlier =
            |earlier: u8| self.share_key(earlier, row) && steps.before.row(earlier).status == Status::Pending;
        self.guards.release_waits_for_earlier && (0..row).any(is_earlier)
    }
}
