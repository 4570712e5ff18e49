//! The sweeper: leases that are over, publications cut short, messages the queue lost.

use super::{Protocol, Steps};
use crate::action::Action;
use crate::scope::Event;
use crate::state::{Flight, Overdue, Phase, Push, State, WorkState};

impl Protocol {
    pub(super) fn sweeper_steps(&self, steps: &mut Steps<'_>, by: usize) {
        for place in 0..steps.before.pushes.len() {
            if let Some(push) = steps.before.pushes[place].filter(|push| push.is_unconfirmed) {
                self.recall(steps, by, place, push);
            }
        }
        self.end_leases(steps, by);
        self.republish_lost(steps, by);
        self.republish_orphans(steps, by);
        self.republish_of_dead(steps, by);
    }

    /// `relay/recall_publications.sql`, 5 s after the reservation. Whoever still pushes must be slow for that.
    fn recall(&self, steps: &mut Steps<'_>, by: usize, place: usize, push: Push) {
        let is_slow = matches!(push.flight, Flight::Reserved | Flight::Arrived) && !steps.before.is_dead(push.number);
        if is_slow && !steps.before.left.allows(Event::Delay) {
            return;
        }
        steps.add(Action::Recall { by, row: push.row }, |after| {
            if is_slow {
                after.left.spend(Event::Delay);
            }
            let is_on_its_way = matches!(push.flight, Flight::Reserved | Flight::Adrift);
            after.pushes[place] = Some(Push { is_unconfirmed: false, ..push }).filter(|_| is_on_its_way);
            let Some(work) = &mut after.row_mut(push.row).work else { return };
            if work.state == WorkState::Published
                || !self.guards.recall_checks_state && work.state != WorkState::Blocked
            {
                work.make_due();
                work.epoch += u8::from(!self.guards.recall_keeps_epoch);
            }
        });
    }

    /// `relay/find_expired_leases.sql`, and then `worker/record_failures.sql`, which decides again under the row's
    /// lock.
    fn end_leases(&self, steps: &mut Steps<'_>, by: usize) {
        if let Some(found) = steps.before.processes[by].sweep {
            let Overdue { row, token, holder_is_dead } = found;
            let holds = steps.before.work(row).is_some_and(|work| {
                work.state == WorkState::Processing
                    && (work.epoch == token || !self.guards.sweep_checks_token)
                    && (work.lease_is_over || holder_is_dead || !self.guards.sweep_checks_lease)
            });
            steps.add(Action::EndLease { by, row, token }, |after| {
                after.processes[by].sweep = None;
                if holds {
                    self.end_attempt(after, row, token);
                }
            });
            return;
        }
        for row in self.ids() {
            let Some(work) = steps.before.work(row).filter(|work| work.state == WorkState::Processing) else {
                continue;
            };
            let holder_is_dead = steps.before.is_dead(work.instance);
            if work.lease_is_over || holder_is_dead {
                let found = Overdue { row, token: work.epoch, holder_is_dead };
                let action = Action::ReadOverdue { by, row, token: work.epoch };
                steps.add(action, |after| after.processes[by].sweep = Some(found));
            }
        }
    }

    /// `relay/republish.sql` for one row.
    fn republish(&self, after: &mut State, row: u8) {
        if let Some(work) = &mut after.row_mut(row).work
            && (work.state == WorkState::Published
                || !self.guards.republish_checks_state && work.state == WorkState::Processing)
        {
            work.make_due();
            work.epoch += u8::from(self.guards.republish_raises_epoch);
        }
    }

    /// `republish_lost`: the push counter shows that the queue lost messages. A process is told of a loss once, so if
    /// the statement fails then nobody is told again.
    fn republish_lost(&self, steps: &mut Steps<'_>, by: usize) {
        let process = &steps.before.processes[by];
        if process.knows_loss && !process.is_in_process {
            steps.add(Action::RepublishAll { by, is_done: true }, |after| {
                after.processes[by].knows_loss = false;
                for row in self.ids() {
                    self.republish(after, row);
                }
            });
            if steps.before.left.allows(Event::Cut) {
                steps.add(Action::RepublishAll { by, is_done: false }, |after| {
                    after.left.spend(Event::Cut);
                    after.processes[by].knows_loss = false;
                });
            }
        }
    }

    /// `republish_orphans`: published for a while although the queue is empty. If it is on its way it must be slow.
    fn republish_orphans(&self, steps: &mut Steps<'_>, by: usize) {
        let before = steps.before;
        if !self.guards.orphans_are_found || before.processes[by].is_in_process || !before.shared.is_empty() {
            return;
        }
        for row in self.ids() {
            let Some(work) = before.work(row).filter(|work| work.state == WorkState::Published) else { continue };
            let is_slow = is_on_its_way(before, row, work.epoch);
            if is_slow && !before.left.allows(Event::Delay) {
                continue;
            }
            steps.add(Action::RepublishOrphan { by, row }, |after| {
                if is_slow {
                    after.left.spend(Event::Delay);
                }
                self.republish(after, row);
            });
        }
    }

    /// `Undelivered::PublishedBy`: what dead instances had in their in-process queues. Once for each.
    fn republish_of_dead(&self, steps: &mut Steps<'_>, by: usize) {
        if !self.guards.dead_queues_are_republished {
            return;
        }
        let before = steps.before;
        for number in 0..before.next_number {
            let bit = 1 << number;
            let is_known = before.memory_numbers & bit != 0 && before.processes[by].dealt_with & bit == 0;
            if !is_known || !before.is_dead(number) || !matters(before, number) {
                continue;
            }
            steps.add(Action::RepublishOfDead { by, number }, |after| {
                after.processes[by].dealt_with |= bit;
                for row in self.ids() {
                    if after.work(row).is_some_and(|work| work.instance == number) {
                        self.republish(after, row);
                    }
                }
            });
        }
    }
}

/// Whether somebody who is up will push this message, or has it in process.
fn is_on_its_way(before: &State, row: u8, epoch: u8) -> bool {
    let is_pushed = |push: &Push| {
        (push.row, push.epoch, push.flight) == (row, epoch, Flight::Reserved) && !before.is_dead(push.number)
    };
    let is_held = |process: &crate::state::Process| process.phase == Phase::Up && process.memory.contain(row, epoch);
    before.pushes.iter().flatten().any(is_pushed) || before.processes.iter().any(is_held)
}

/// Whether a dead instance can still be met: it may come back, or a row bears its number.
fn matters(before: &State, number: u8) -> bool {
    let is_asleep = |process: &crate::state::Process| process.number == number && process.phase == Phase::Asleep;
    let bears = |row: &crate::state::Row| row.work.is_some_and(|work| work.instance == number);
    before.processes.iter().any(is_asleep) || before.rows.iter().any(bears)
}
