//! What goes wrong, and time.

use super::{Protocol, Steps};
use crate::action::Action;
use crate::messages::Messages;
use crate::scope::{Event, Queue};
use crate::state::{Claim, Flight, PROCESSES, Phase, Process, Push, Stage, State, WorkState};

impl Protocol {
    /// A process dies, stops, goes on, starts again, or changes its queue. One always stays up.
    pub(super) fn process_faults(&self, steps: &mut Steps<'_>, by: usize) {
        let left = &steps.before.left;
        let (may_crash, may_stall) = (left.allows(Event::Crash), left.allows(Event::Stall));
        let may_fall_back = left.allows(Event::Fallback);
        let process = steps.before.processes[by];
        let other_is_up = steps.before.processes[PROCESSES - 1 - by].phase == Phase::Up;
        if process.phase != Phase::Down && other_is_up && may_crash {
            steps.add(Action::Crash { by }, |after| self.crash(after, by));
        }
        match process.phase {
            Phase::Up if other_is_up && may_stall => steps.add(Action::Sleep { by }, |after| {
                after.left.spend(Event::Stall);
                after.processes[by].phase = Phase::Asleep;
            }),
            Phase::Asleep => steps.add(Action::Wake { by }, |after| self.wake(after, by)),
            Phase::Down => {
                let number = steps.before.next_number;
                steps.add(Action::Restart { by, number }, |after| {
                    after.processes[by] = self.process(number);
                    after.next_number += 1;
                });
            }
            Phase::Up => {}
        }
        if process.phase == Phase::Up && self.scope.queue == Queue::Shared {
            match process.is_in_process {
                false if may_fall_back => steps.add(Action::FallBack { by }, |after| {
                    after.left.spend(Event::Fallback);
                    after.processes[by].is_in_process = true;
                    after.memory_numbers |= u8::from(self.guards.fallback_is_told) << process.number;
                }),
                true => steps.add(Action::Return { by }, |after| {
                    after.processes[by].is_in_process = false;
                    if !self.guards.return_keeps_queue {
                        after.processes[by].memory = Messages::default();
                    }
                }),
                false => {}
            }
        }
    }

    /// Its memory is gone; what Postgres knows of it stays. Locks are released.
    fn crash(&self, after: &mut State, by: usize) {
        after.left.spend(Event::Crash);
        let Process { number, .. } = after.processes[by];
        after.processes[by] = Process { phase: Phase::Down, ..self.process(number) };
        for place in &mut after.pushes {
            if let Some(push) = place.filter(|push| push.number == number && push.flight != Flight::Adrift) {
                *place = Some(Push { flight: Flight::Forgotten, ..push }).filter(|push| push.is_unconfirmed);
            }
        }
    }

    /// It goes on where it was, under its old number: its row of `instance` is still there.
    fn wake(&self, after: &mut State, by: usize) {
        after.processes[by].phase = Phase::Up;
        if self.guards.the_dead_are_dealt_with_again {
            let bit = 1 << after.processes[by].number;
            for process in &mut after.processes {
                process.dealt_with &= !bit;
            }
        }
    }

    /// Leases run out, late pushes arrive, the queue loses what it had.
    pub(super) fn time_and_queue_faults(&self, steps: &mut Steps<'_>) {
        for row in self.ids() {
            self.lease_runs_out(steps, row);
        }
        for place in 0..steps.before.pushes.len() {
            if let Some(push) = steps.before.pushes[place].filter(|push| push.flight == Flight::Adrift)
                && steps.before.shared.has_room()
            {
                let Push { row, epoch, .. } = push;
                steps.add(Action::Arrive { row, epoch }, |after| {
                    after.shared.push(row, epoch);
                    let forgotten = Push { flight: Flight::Forgotten, ..push };
                    after.pushes[place] = Some(forgotten).filter(|push| push.is_unconfirmed);
                });
            }
        }
        if steps.before.left.allows(Event::Loss) && !steps.before.shared.is_empty() {
            self.lose(steps);
        }
    }

    /// Nobody renews it, or its renewals do not come through.
    fn lease_runs_out(&self, steps: &mut Steps<'_>, row: u8) {
        let Some(work) = steps.before.work(row).copied() else { return };
        if work.state != WorkState::Processing || work.lease_is_over {
            return;
        }
        let is_held = |process: &Process| {
            process.phase == Phase::Up
                && process.claim.is_some_and(|claim| (claim.row, claim.token) == (row, work.epoch))
        };
        let is_fault = steps.before.processes.iter().any(is_held);
        if is_fault && !steps.before.left.allows(Event::Expiry) {
            return;
        }
        steps.add(Action::LeaseRunsOut { row, is_fault }, |after| {
            if is_fault {
                after.left.spend(Event::Expiry);
            }
            if let Some(work) = &mut after.row_mut(row).work {
                work.lease_is_over = true;
            }
            for process in &mut after.processes {
                // Whoever has begun its call does not check the clock again.
                let waits =
                    |claim: &&mut Claim| (claim.row, claim.token, claim.stage) == (row, work.epoch, Stage::Claimed);
                if let Some(claim) = process.claim.as_mut().filter(waits) {
                    claim.is_over = true;
                }
            }
        });
    }

    /// FLUSHALL, or a failover that loses the tail. Whoever runs will see it by the push counter; a process that
    /// starts later may not.
    fn lose(&self, steps: &mut Steps<'_>) {
        steps.add(Action::LoseAll, |after| {
            after.shared = Messages::default();
            self.notice_loss(after);
        });
        let messages: Vec<(u8, u8)> = steps.before.shared.distinct().collect();
        if messages.len() > 1 {
            for (row, epoch) in messages {
                steps.add(Action::LoseOne { row, epoch }, |after| {
                    after.shared.remove(row, epoch);
                    self.notice_loss(after);
                });
            }
        }
    }

    fn notice_loss(&self, after: &mut State) {
        after.left.spend(Event::Loss);
        for process in &mut after.processes {
            process.knows_loss |= process.phase != Phase::Down && self.guards.loss_is_noticed;
        }
    }
}
