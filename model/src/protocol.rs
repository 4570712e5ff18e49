//! The protocol: from a state to every state that one step can lead to.
//!
//! A step is what Postgres, the queue or the provider does at once: one statement, one push, one call. Whatever is
//! read in one statement and written in another is two steps, with memory of a process in between. Anything may come
//! between any two steps, and a process may die there.

mod app;
mod canonical;
mod faults;
mod operator;
mod relay;
mod sweeper;
mod worker;

use crate::action::Action;
use crate::guards::Guards;
use crate::messages::Messages;
use crate::scope::{Queue, Scope};
use crate::state::{Answer, Past, Phase, Process, ROWS_MAX, Row, State, Status, Work, WorkState};

/// A protocol to be checked: a world of a size, and the guards that stand.
#[derive(Debug, Clone, Copy)]
pub struct Protocol {
    /// How large the world is.
    pub scope: Scope,
    /// Which guards stand.
    pub guards: Guards,
    /// Whether no request at all may reach a provider after `cancel()` answered "canceled". That is more than is
    /// promised: the request of an attempt that is recorded as unknown may still be under way.
    pub cancel_is_strict: bool,
    /// Whether states with one future are taken for one. Without it the same is found, among many more states.
    pub is_reduced: bool,
}

/// One step.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    /// What happens.
    pub action: Action,
    /// The world after it.
    pub after: State,
}

/// The steps out of one state.
pub(crate) struct Steps<'a> {
    protocol: &'a Protocol,
    before: &'a State,
    out: &'a mut Vec<Step>,
}

impl Steps<'_> {
    /// Adds one.
    fn add(&mut self, action: Action, change: impl FnOnce(&mut State)) {
        let mut after = *self.before;
        change(&mut after);
        canonical::note_epochs(&mut after);
        if self.protocol.is_reduced {
            canonical::canonicalise(&mut after, &self.protocol.guards);
        }
        self.out.push(Step { action, after });
    }
}

impl Protocol {
    /// The protocol as it is today.
    pub fn today(scope: Scope) -> Protocol {
        Protocol { scope, guards: Guards::TODAY, cancel_is_strict: false, is_reduced: true }
    }

    /// The same with other guards.
    pub fn with(scope: Scope, change: impl FnOnce(&mut Guards)) -> Protocol {
        let mut protocol = Protocol::today(scope);
        change(&mut protocol.guards);
        protocol
    }

    /// Nothing is written, everybody is up.
    pub fn initial(&self) -> State {
        let past = Past {
            called: 0,
            witnessed: 0,
            is_accepted: false,
            was_over: false,
            backs_off: false,
            answer: Answer::None,
            epoch_max: 0,
        };
        let row = Row { status: Status::Unwritten, epoch: 0, seq: 0, work: None, past };
        State {
            rows: [row; ROWS_MAX],
            processes: [self.process(0), self.process(1)],
            pushes: Default::default(),
            shared: Messages::default(),
            memory_numbers: if self.scope.queue == Queue::InProcess { u8::MAX } else { 0 },
            next_seq: 1,
            next_number: 2,
            left: self.scope.budget,
        }
    }

    /// A process that has just started.
    fn process(&self, number: u8) -> Process {
        Process {
            number,
            phase: Phase::Up,
            is_in_process: self.scope.queue == Queue::InProcess,
            memory: Messages::default(),
            knows_loss: false,
            dealt_with: 0,
            claim: None,
            sweep: None,
            admission: None,
            release: None,
        }
    }

    /// Whether every row has been written and has ended.
    pub fn is_done(&self, state: &State) -> bool {
        state.rows[..self.scope.rows.len()].iter().all(|row| row.status.is_ended())
    }

    /// Every step that is possible.
    pub fn steps(&self, before: &State, out: &mut Vec<Step>) {
        let mut steps = Steps { protocol: self, before, out };
        self.app_steps(&mut steps);
        for by in 0..before.processes.len() {
            if before.processes[by].phase == Phase::Up {
                self.producer_steps(&mut steps, by);
                self.relay_steps(&mut steps, by);
                self.admission_steps(&mut steps, by);
                self.worker_steps(&mut steps, by);
                self.sweeper_steps(&mut steps, by);
            }
            self.release_step(&mut steps, by);
            self.process_faults(&mut steps, by);
        }
        self.operator_steps(&mut steps);
        self.time_and_queue_faults(&mut steps);
    }

    /// The rows of the world by id.
    pub(crate) fn ids(&self) -> std::ops::Range<u8> {
        0..u8::try_from(self.scope.rows.len()).unwrap_or(0)
    }

    fn has_key(&self, row: u8) -> bool {
        self.scope.rows[usize::from(row)].has_key
    }

    /// Whether the statements take two rows for rows of one key.
    fn share_key(&self, one: u8, other: u8) -> bool {
        self.has_key(one)
            && self.has_key(other)
            && (!self.guards.key_belongs_to_topic || self.scope.share_key(one, other))
    }
}

impl State {
    /// A row.
    pub fn row(&self, id: u8) -> &Row {
        &self.rows[usize::from(id)]
    }

    fn row_mut(&mut self, id: u8) -> &mut Row {
        &mut self.rows[usize::from(id)]
    }

    /// A row's live work.
    pub fn work(&self, id: u8) -> Option<&Work> {
        self.row(id).work.as_ref()
    }

    fn draw_seq(&mut self) -> u8 {
        self.next_seq += 1;
        self.next_seq - 1
    }

    /// Whether an instance looks dead: `relay/find_dead_instances.sql`.
    fn is_dead(&self, number: u8) -> bool {
        !self.processes.iter().any(|process| process.number == number && process.phase == Phase::Up)
    }
}

impl Row {
    /// Makes its live work, as `notify()`, the producer and `_requeue()` do.
    fn queue(&mut self, has_key: bool, has_retry_at: bool) {
        self.status = Status::Queued;
        self.work = Some(Work {
            state: if has_key { WorkState::Blocked } else { WorkState::Ready },
            epoch: self.epoch,
            attempts: 0,
            has_retry_at: has_retry_at && !has_key,
            is_missed: false,
            has_turn: false,
            cancel: false,
            instance: crate::state::NOBODY,
            lease_is_over: false,
        });
    }

    /// The work goes, the record says how it ended.
    fn end(&mut self, status: Status) {
        if let Some(work) = self.work.take() {
            self.epoch = work.epoch;
        }
        self.status = status;
        self.past.was_over |= matches!(status, Status::Failed | Status::Canceled);
    }
}

impl Work {
    /// Back to be published, found by its time.
    fn make_due(&mut self) {
        self.state = WorkState::Ready;
        self.has_retry_at = true;
        self.instance = crate::state::NOBODY;
        self.lease_is_over = false;
    }
}
