//! The relay: reserve, push, confirm; and whoever admits the head of a key.

use super::{Protocol, Steps};
use crate::action::{Action, How};
use crate::scope::Event;
use crate::state::{Flight, PUSHES_MAX, Push, State, Status, WorkState};

impl Protocol {
    pub(super) fn relay_steps(&self, steps: &mut Steps<'_>, by: usize) {
        self.reserve(steps, by);
        let number = steps.before.processes[by].number;
        for place in 0..steps.before.pushes.len() {
            match steps.before.pushes[place] {
                Some(push) if push.number == number && push.flight == Flight::Reserved => {
                    self.push(steps, by, place, push);
                }
                Some(push) if push.number == number && push.flight == Flight::Arrived => {
                    let action = Action::Confirm { by, row: push.row };
                    steps.add(action, |after| after.pushes[place] = None);
                }
                _ => {}
            }
        }
    }

    /// `relay/reserve_fresh.sql`, `relay/reserve_topics.sql`, `relay/reserve_due.sql`: ready → published, under a
    /// publication. A relay pushes what it reserved before it reserves more, and confirms what has arrived on the way.
    fn reserve(&self, steps: &mut Steps<'_>, by: usize) {
        let number = steps.before.processes[by].number;
        let is_own = |push: &Push, flight: Flight| push.number == number && push.flight == flight;
        if steps.before.pushes.iter().flatten().any(|push| is_own(push, Flight::Reserved)) {
            return;
        }
        let is_full =
            steps.before.pushes.iter().flatten().filter(|push| !is_own(push, Flight::Arrived)).count() == PUSHES_MAX;
        for row in self.ids().filter(|_| !is_full) {
            let Some(work) = steps.before.work(row).copied().filter(|work| work.state == WorkState::Ready) else {
                continue;
            };
            let how = match (work.has_retry_at, work.is_missed) {
                (true, _) => How::Due,
                (false, false) => How::FastPath,
                (false, true) if self.guards.relay_scans => How::FullScan,
                (false, true) => continue,
            };
            for is_heard in [true, false] {
                if !is_heard && !steps.before.left.allows(Event::Cut) {
                    continue;
                }
                steps.add(Action::Reserve { by, row, how, is_heard }, |after| {
                    after.row_mut(row).past.backs_off = false;
                    if let Some(work) = &mut after.row_mut(row).work {
                        (work.state, work.has_retry_at, work.instance) = (WorkState::Published, false, number);
                        work.is_missed = false;
                    }
                    for place in &mut after.pushes {
                        *place = place.filter(|push| !is_own(push, Flight::Arrived));
                    }
                    let flight = if is_heard { Flight::Reserved } else { Flight::Forgotten };
                    let push = Push { row, epoch: work.epoch, number, flight, is_unconfirmed: true };
                    if let Some(free) = after.pushes.iter_mut().find(|place| place.is_none()) {
                        *free = Some(push);
                    }
                    if !is_heard {
                        after.left.spend(Event::Cut);
                    }
                });
            }
        }
    }

    /// `Publisher::push` in `src/relay/publisher.rs`: to the queue of this moment. Then the publication may be
    /// confirmed.
    fn push(&self, steps: &mut Steps<'_>, by: usize, place: usize, push: Push) {
        let process = &steps.before.processes[by];
        let is_in_process = process.is_in_process;
        let (row, epoch) = (push.row, push.epoch);
        if !self.guards.push_comes_before_confirm && push.is_unconfirmed {
            steps.add(Action::Confirm { by, row }, |after| {
                after.pushes[place] = Some(Push { is_unconfirmed: false, ..push });
            });
            return;
        }
        let has_room = if is_in_process { process.memory.has_room() } else { steps.before.shared.has_room() };
        if has_room {
            steps.add(Action::Push { by, row, epoch }, |after| {
                let queue = if is_in_process { &mut after.processes[by].memory } else { &mut after.shared };
                queue.push(row, epoch);
                // A publication that was recalled meanwhile needs no confirmation.
                after.pushes[place] = Some(Push { flight: Flight::Arrived, ..push }).filter(|push| push.is_unconfirmed);
            });
        }
        if !is_in_process && steps.before.left.allows(Event::Delay) {
            steps.add(Action::GiveUpPush { by, row }, |after| {
                after.left.spend(Event::Delay);
                after.pushes[place] = Some(Push { flight: Flight::Adrift, ..push });
            });
        }
    }

    /// `relay/admit_heads.sql`, `_admit.sql`: one statement, but what it reads and what its unique index sees are two
    /// moments. The relay, the worker, the sweeper and the operator's functions all do it; here, anybody at any time.
    pub(super) fn admission_steps(&self, steps: &mut Steps<'_>, by: usize) {
        let before = steps.before;
        if let Some((row, seq)) = before.processes[by].admission {
            let is_there =
                before.row(row).seq == seq && before.work(row).is_some_and(|work| work.state == WorkState::Blocked);
            let has_lost = self.guards.one_turn_per_key && self.turn_is_taken(steps, row);
            steps.add(Action::Admit { by, row, has_lost: has_lost || !is_there }, |after| {
                after.processes[by].admission = None;
                if let Some(work) = after.row_mut(row).work.as_mut().filter(|_| is_there && !has_lost) {
                    work.make_due();
                    work.has_turn = true;
                }
            });
            return;
        }
        for head in self.ids().filter(|row| self.is_head(before, *row)) {
            let is_blocked = before.work(head).is_some_and(|work| work.state == WorkState::Blocked);
            if is_blocked && !(self.guards.admission_checks_turn && self.turn_is_taken(steps, head)) {
                steps.add(Action::ReadHead { by, row: head }, |after| {
                    after.processes[by].admission = Some((head, after.row(head).seq));
                });
            }
        }
    }

    /// Whether no live row of its key has a lower number.
    fn is_head(&self, before: &State, row: u8) -> bool {
        let is_live = |row: u8| before.row(row).status == Status::Queued;
        let is_lower = |other: u8| is_live(other) && before.row(other).seq < before.row(row).seq;
        self.has_key(row) && is_live(row) && !self.ids().any(|other| self.share_key(row, other) && is_lower(other))
    }

    fn turn_is_taken(&self, steps: &Steps<'_>, row: u8) -> bool {
        let has_turn = |row: u8| steps.before.work(row).is_some_and(|work| work.has_turn);
        self.ids().any(|other| self.share_key(row, other) && has_turn(other))
    }
}
