//! The worker: claim, call, record, acknowledge.

use super::{Protocol, Steps};
use crate::action::Action;
use crate::scope::Event;
use crate::state::{Claim, Stage, State, Status, WorkState};

impl Protocol {
    pub(super) fn worker_steps(&self, steps: &mut Steps<'_>, by: usize) {
        let process = steps.before.processes[by];
        let Some(claim) = process.claim else {
            for (row, epoch) in process.memory.distinct() {
                self.take(steps, by, (row, epoch), true);
            }
            // Who has fallen back cannot reach the shared queue.
            if !process.is_in_process {
                for (row, epoch) in steps.before.shared.distinct() {
                    self.take(steps, by, (row, epoch), false);
                }
            }
            return;
        };
        match claim.stage {
            Stage::Claimed => self.start_or_undo(steps, by, claim),
            Stage::Calling => self.call(steps, by, claim),
            Stage::Accepted | Stage::Refused | Stage::Unheard | Stage::Late => self.record(steps, by, claim),
        }
        self.renew(steps, by, claim);
    }

    /// `worker/claim_messages.sql`: claimed, or a message that needs no call and is acknowledged at once.
    fn take(&self, steps: &mut Steps<'_>, by: usize, (row, epoch): (u8, u8), from_memory: bool) {
        let number = steps.before.processes[by].number;
        let work = steps.before.work(row).copied();
        let is_claimable = work.is_some_and(|work| {
            (work.epoch == epoch || !self.guards.claim_checks_epoch)
                && match work.state {
                    WorkState::Ready | WorkState::Published => true,
                    WorkState::Processing => !self.guards.claim_checks_state,
                    WorkState::Blocked => false,
                }
        });
        if is_claimable || !self.guards.put_back_checks_row {
            self.put_back(steps, by, (row, epoch), from_memory);
        }
        let Some(work) = work.filter(|_| is_claimable) else {
            steps.add(Action::Drop { by, row, epoch }, |after| acknowledge(after, by, (row, epoch), from_memory));
            return;
        };
        let token = work.epoch + u8::from(self.guards.claim_raises_epoch);
        for is_heard in [true, false] {
            if !is_heard && !steps.before.left.allows(Event::Cut) {
                continue;
            }
            steps.add(Action::Claim { by, row, epoch, is_heard }, |after| {
                if let Some(work) = &mut after.row_mut(row).work {
                    (work.state, work.epoch, work.attempts) = (WorkState::Processing, token, work.attempts + 1);
                    (work.instance, work.has_retry_at, work.lease_is_over) = (number, false, false);
                }
                if is_heard {
                    let claim = Claim { row, token, epoch, from_memory, stage: Stage::Claimed, is_over: false };
                    after.processes[by].claim = Some(claim);
                } else {
                    // The second try finds it PROCESSING, and leaves it to its lease.
                    after.left.spend(Event::Cut);
                    acknowledge(after, by, (row, epoch), from_memory);
                }
            });
        }
    }

    /// `worker/put_back.sql`: a message that cannot start now. Under an old epoch it changes nothing.
    fn put_back(&self, steps: &mut Steps<'_>, by: usize, (row, epoch): (u8, u8), from_memory: bool) {
        if !steps.before.left.allows(Event::PutBack) {
            return;
        }
        let checks = self.guards.put_back_checks_row;
        steps.add(Action::PutBack { by, row }, |after| {
            after.left.spend(Event::PutBack);
            acknowledge(after, by, (row, epoch), from_memory);
            if let Some(work) = &mut after.row_mut(row).work
                && (!checks || work.epoch == epoch && work.state == WorkState::Published)
            {
                work.make_due();
            }
        });
    }

    /// `send` in `src/worker/sender.rs`: the answer must come while the row is ours. Else, and if its channel is
    /// held, the claim is undone: `worker/release_claims.sql`.
    fn start_or_undo(&self, steps: &mut Steps<'_>, by: usize, claim: Claim) {
        let row = claim.row;
        if !claim.is_over {
            steps.add(Action::Start { by, row }, |after| set_stage(after, by, Stage::Calling));
        }
        if !claim.is_over && !steps.before.left.allows(Event::Undo) {
            return;
        }
        let checks = self.guards.undo_checks_token;
        steps.add(Action::Undo { by, row }, |after| {
            if !claim.is_over {
                after.left.spend(Event::Undo);
            }
            drop_claim(after, by, claim);
            let row = after.row_mut(row);
            let Some(work) = &mut row.work else { return };
            if work.state != WorkState::Processing || checks && work.epoch != claim.token {
                return;
            }
            work.attempts = work.attempts.saturating_sub(1);
            work.make_due();
            if work.cancel {
                row.end(Status::Canceled);
            }
        });
    }

    /// The request reaches the provider.
    fn call(&self, steps: &mut Steps<'_>, by: usize, claim: Claim) {
        let Claim { row, token, .. } = claim;
        let answers =
            [(Stage::Accepted, None), (Stage::Refused, Some(Event::Refusal)), (Stage::Unheard, Some(Event::Cut))];
        for (answer, event) in answers {
            if event.is_some_and(|event| !steps.before.left.allows(event)) {
                continue;
            }
            steps.add(Action::Call { by, row, token, answer }, |after| {
                if let Some(event) = event {
                    after.left.spend(event);
                }
                set_stage(after, by, answer);
                let past = &mut after.row_mut(row).past;
                past.called |= 1 << token;
                past.is_accepted |= answer != Stage::Refused;
            });
        }
    }

    /// `recorder::run` in `src/worker/recorder.rs`: record, then acknowledge. If the reply is lost it records again.
    fn record(&self, steps: &mut Steps<'_>, by: usize, claim: Claim) {
        let Claim { row, token, stage: answer, .. } = claim;
        for is_heard in [true, false] {
            if !is_heard && !steps.before.left.allows(Event::Cut) {
                continue;
            }
            steps.add(Action::Record { by, row, token, answer, is_heard }, |after| {
                let is_done = match answer {
                    Stage::Accepted => self.record_sent(after, claim),
                    Stage::Late => self.record_late_sent(after, claim),
                    _ => self.record_failure(after, claim),
                };
                match (is_heard, is_done) {
                    (false, _) => after.left.spend(Event::Cut),
                    (true, true) => drop_claim(after, by, claim),
                    (true, false) => set_stage(after, by, Stage::Late),
                }
            });
        }
    }

    /// `worker/record_sent.sql`. False: there was no row, so the next statement is `worker/record_late_sent.sql`.
    fn record_sent(&self, after: &mut State, claim: Claim) -> bool {
        let row = after.row_mut(claim.row);
        let is_current = |work: &crate::state::Work| work.state == WorkState::Processing && work.epoch == claim.token;
        if !self.guards.late_success_wins && !row.work.as_ref().is_some_and(is_current) {
            return true;
        }
        let is_there = row.work.is_some();
        if is_there {
            row.end(Status::Sent);
        }
        is_there
    }

    /// `worker/record_late_sent.sql` and `worker/drop_sent_work.sql`, in one transaction.
    fn record_late_sent(&self, after: &mut State, claim: Claim) -> bool {
        let row = after.row_mut(claim.row);
        row.status = Status::Sent;
        row.epoch = row.epoch.max(claim.token);
        if self.guards.late_success_drops_work {
            row.work = None;
        }
        true
    }

    /// `worker/record_failures.sql`, by the worker.
    fn record_failure(&self, after: &mut State, claim: Claim) -> bool {
        let row = after.row_mut(claim.row);
        let is_held = row.work.is_some_and(|work| {
            work.state == WorkState::Processing && (work.epoch == claim.token || !self.guards.failure_checks_token)
        });
        if is_held {
            self.end_attempt(after, claim.row, claim.token);
        } else if !self.guards.failure_spares_ended && row.work.is_none() {
            row.status = Status::Failed;
        }
        true
    }

    /// What follows a failed or unknown attempt: the row waits for its next one, or ends.
    pub(super) fn end_attempt(&self, after: &mut State, row: u8, token: u8) {
        let row = after.row_mut(row);
        row.past.witnessed |= 1 << token;
        let Some(work) = &mut row.work else { return };
        row.past.backs_off = true;
        if work.cancel {
            row.end(Status::Canceled);
        } else if work.attempts >= self.scope.attempts_max {
            row.end(Status::Failed);
        } else {
            work.make_due();
        }
    }

    /// `worker/renew_leases.sql`, while a call is under way.
    fn renew(&self, steps: &mut Steps<'_>, by: usize, claim: Claim) {
        let is_ours = |work: &&crate::state::Work| work.state == WorkState::Processing && work.epoch == claim.token;
        if steps.before.work(claim.row).filter(is_ours).is_some_and(|work| work.lease_is_over) {
            steps.add(Action::Renew { by, row: claim.row }, |after| {
                if let Some(work) = &mut after.row_mut(claim.row).work {
                    work.lease_is_over = false;
                }
            });
        }
    }
}

fn set_stage(after: &mut State, by: usize, stage: Stage) {
    if let Some(claim) = &mut after.processes[by].claim {
        claim.stage = stage;
    }
}

/// The claim is over: its message is acknowledged.
fn drop_claim(after: &mut State, by: usize, claim: Claim) {
    after.processes[by].claim = None;
    acknowledge(after, by, (claim.row, claim.epoch), claim.from_memory);
}

fn acknowledge(after: &mut State, by: usize, (row, epoch): (u8, u8), from_memory: bool) {
    let queue = if from_memory { &mut after.processes[by].memory } else { &mut after.shared };
    queue.remove(row, epoch);
}
