//! The operator: cancel and retry.

use super::{Protocol, Steps};
use crate::action::Action;
use crate::scope::Event;
use crate::state::{Answer, Status, WorkState};

impl Protocol {
    pub(super) fn operator_steps(&self, steps: &mut Steps<'_>) {
        for row in self.ids() {
            if steps.before.left.allows(Event::Cancel) {
                self.cancel(steps, row);
            }
            if steps.before.left.allows(Event::Retry) {
                self.retry(steps, row);
            }
        }
    }

    /// `cancel.sql`, `_cancel.sql`: the row is locked before it is read. It waits for a producer that holds it.
    fn cancel(&self, steps: &mut Steps<'_>, row: u8) {
        let is_locked = steps.before.processes.iter().any(|process| process.release == Some(row));
        let spares = self.guards.cancel_spares_processing;
        let found = *steps.before.row(row);
        let answer = match (found.status, found.work) {
            (Status::Pending, _) if !is_locked => Answer::Canceled,
            (Status::Queued, Some(work)) if work.state == WorkState::Processing && spares => Answer::NoFurtherAttempt,
            (Status::Queued, Some(_)) => Answer::Canceled,
            _ => return,
        };
        steps.add(Action::Cancel { row }, |after| {
            after.left.spend(Event::Cancel);
            let row = after.row_mut(row);
            row.past.answer = answer;
            match (&mut row.work, answer) {
                (Some(work), Answer::NoFurtherAttempt) => work.cancel = true,
                _ => row.end(Status::Canceled),
            }
        });
    }

    /// `retry.sql`, `_requeue.sql`: a new number, so it goes last in its key; the epoch goes on where it was.
    fn retry(&self, steps: &mut Steps<'_>, row: u8) {
        let status = steps.before.row(row).status;
        let is_over = matches!(status, Status::Failed | Status::Canceled);
        let is_sent = !self.guards.retry_checks_status && status == Status::Sent;
        if !is_over && !is_sent {
            return;
        }
        let has_key = self.has_key(row);
        let raises = self.guards.retry_raises_epoch;
        steps.add(Action::Retry { row }, |after| {
            after.left.spend(Event::Retry);
            let seq = after.draw_seq();
            let row = after.row_mut(row);
            row.seq = seq;
            row.epoch = if raises { row.epoch + 1 } else { 0 };
            (row.past.answer, row.past.backs_off) = (Answer::None, false);
            row.queue(has_key, true);
        });
    }
}
