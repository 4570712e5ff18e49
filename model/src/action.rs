//! The steps of the protocol by name, as a trace tells them.

use std::fmt;

use crate::state::Stage;

/// How the relay found a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// `relay/reserve_fresh.sql`
    FastPath,
    /// `relay/reserve_topics.sql`
    FullScan,
    /// `relay/reserve_due.sql`
    Due,
}

/// One step: an atomic statement, a call, or something that goes wrong. `by` is a process, `row` a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Action {
    // The app.
    Write { row: u8 },
    Begin { row: u8 },
    Commit { row: u8, is_missed: bool },
    // The producer.
    LockDue { by: usize, row: u8 },
    ReleaseDue { by: usize, row: u8 },
    // The relay.
    Reserve { by: usize, row: u8, how: How, is_heard: bool },
    Push { by: usize, row: u8, epoch: u8 },
    GiveUpPush { by: usize, row: u8 },
    Arrive { row: u8, epoch: u8 },
    Confirm { by: usize, row: u8 },
    ReadHead { by: usize, row: u8 },
    Admit { by: usize, row: u8, has_lost: bool },
    // The worker.
    Claim { by: usize, row: u8, epoch: u8, is_heard: bool },
    Drop { by: usize, row: u8, epoch: u8 },
    PutBack { by: usize, row: u8 },
    Start { by: usize, row: u8 },
    Undo { by: usize, row: u8 },
    Call { by: usize, row: u8, token: u8, answer: Stage },
    Record { by: usize, row: u8, token: u8, answer: Stage, is_heard: bool },
    Renew { by: usize, row: u8 },
    // The sweeper.
    Recall { by: usize, row: u8 },
    ReadOverdue { by: usize, row: u8, token: u8 },
    EndLease { by: usize, row: u8, token: u8 },
    RepublishAll { by: usize, is_done: bool },
    RepublishOrphan { by: usize, row: u8 },
    RepublishOfDead { by: usize, number: u8 },
    // The operator.
    Cancel { row: u8 },
    Retry { row: u8 },
    // Time and faults.
    LeaseRunsOut { row: u8, is_fault: bool },
    Crash { by: usize },
    Restart { by: usize, number: u8 },
    Sleep { by: usize },
    Wake { by: usize },
    LoseAll,
    LoseOne { row: u8, epoch: u8 },
    FallBack { by: usize },
    Return { by: usize },
}

impl Action {
    /// Whether it needs nobody's help and no luck: what a fair run without further faults does sooner or later.
    /// A process that sleeps or is down stays so: the other one must be enough.
    pub fn is_recovery(&self) -> bool {
        match self {
            Action::Commit { is_missed, .. } => !is_missed,
            Action::Reserve { is_heard, .. } | Action::Claim { is_heard, .. } | Action::Record { is_heard, .. } => {
                *is_heard
            }
            Action::Call { answer, .. } => *answer == Stage::Accepted,
            Action::LeaseRunsOut { is_fault, .. } => !is_fault,
            Action::RepublishAll { is_done, .. } => *is_done,
            Action::GiveUpPush { .. } | Action::Arrive { .. } | Action::Crash { .. } | Action::Restart { .. } => false,
            Action::Sleep { .. } | Action::Wake { .. } | Action::LoseAll | Action::LoseOne { .. } => false,
            Action::FallBack { .. } | Action::Cancel { .. } | Action::Retry { .. } | Action::PutBack { .. } => false,
            _ => true,
        }
    }
}

fn name(by: usize) -> char {
    if by == 0 { 'A' } else { 'B' }
}

/// A lost reply, as a trace tells it.
fn heard(is_heard: bool) -> &'static str {
    if is_heard { "" } else { "; the reply is lost" }
}

fn said(answer: Stage) -> &'static str {
    match answer {
        Stage::Accepted => "2xx",
        Stage::Refused => "a failure",
        Stage::Unheard => "an unknown outcome",
        Stage::Late => "a late 2xx",
        Stage::Claimed | Stage::Calling => "nothing",
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Action::Write { row } => write!(f, "the app writes row {row} and commits"),
            Action::Begin { row } => write!(f, "the app writes row {row}, its transaction stays open"),
            Action::Commit { row, is_missed: false } => write!(f, "the app commits row {row}"),
            Action::Commit { row, is_missed: true } => {
                write!(f, "the app commits row {row}, too late for the fast path")
            }
            Action::LockDue { by, row } => write!(f, "{}'s producer locks row {row}", name(by)),
            Action::ReleaseDue { by, row } => write!(f, "{}'s producer releases row {row}", name(by)),
            Action::Reserve { by, row, how, is_heard } => {
                write!(f, "{}'s relay reserves row {row} ({how:?}){}", name(by), heard(is_heard))
            }
            Action::Push { by, row, epoch } => write!(f, "{}'s relay pushes (row {row}, epoch {epoch})", name(by)),
            Action::GiveUpPush { by, row } => write!(f, "{}'s push of row {row} times out, on its way", name(by)),
            Action::Arrive { row, epoch } => write!(f, "(row {row}, epoch {epoch}) arrives late"),
            Action::Confirm { by, row } => write!(f, "{}'s relay confirms the publication of row {row}", name(by)),
            Action::ReadHead { by, row } => write!(f, "{} finds row {row} at the head of its key", name(by)),
            Action::Admit { by, row, has_lost: false } => write!(f, "{} admits row {row}", name(by)),
            Action::Admit { by, row, has_lost: true } => write!(f, "{} loses the race to admit row {row}", name(by)),
            Action::Claim { by, row, epoch, is_heard } => {
                write!(f, "{}'s worker claims (row {row}, epoch {epoch}){}", name(by), heard(is_heard))
            }
            Action::Drop { by, row, epoch } => write!(f, "{}'s worker drops (row {row}, epoch {epoch})", name(by)),
            Action::PutBack { by, row } => write!(f, "{}'s worker puts row {row} back", name(by)),
            Action::Start { by, row } => write!(f, "{}'s worker has time enough to call for row {row}", name(by)),
            Action::Undo { by, row } => write!(f, "{}'s worker undoes its claim of row {row}", name(by)),
            Action::Call { by, row, token, answer } => {
                write!(f, "{} calls the provider for row {row}, token {token}: {}", name(by), said(answer))
            }
            Action::Record { by, row, token, answer, is_heard } => {
                let (by, answer) = (name(by), said(answer));
                write!(f, "{by} records {answer} of row {row}, token {token}{}", heard(is_heard))
            }
            Action::Renew { by, row } => write!(f, "{}'s worker renews its lease of row {row}", name(by)),
            _ => self.fmt_repair(f),
        }
    }
}

impl Action {
    /// The other half of the names: sweeper, operator, faults.
    fn fmt_repair(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Action::Recall { by, row } => write!(f, "{}'s sweep recalls a publication of row {row}", name(by)),
            Action::ReadOverdue { by, row, token } => {
                write!(f, "{}'s sweep finds row {row}, token {token}, overdue", name(by))
            }
            Action::EndLease { by, row, token } => write!(f, "{}'s sweep ends row {row}, token {token}", name(by)),
            Action::RepublishAll { by, is_done } => {
                let end = if is_done { "republishes all" } else { "cannot republish: Postgres is away" };
                write!(f, "{}'s sweep sees that the queue lost messages and {end}", name(by))
            }
            Action::RepublishOrphan { by, row } => {
                write!(f, "{}'s sweep republishes row {row}: the queue is empty", name(by))
            }
            Action::RepublishOfDead { by, number } => {
                write!(f, "{}'s sweep republishes what dead instance {number} had in process", name(by))
            }
            Action::Cancel { row } => write!(f, "an operator cancels row {row}"),
            Action::Retry { row } => write!(f, "an operator retries row {row}"),
            Action::LeaseRunsOut { row, .. } => write!(f, "the lease of row {row} runs out"),
            Action::Crash { by } => write!(f, "{} is killed", name(by)),
            Action::Restart { by, number } => write!(f, "{} starts again, as instance {number}", name(by)),
            Action::Sleep { by } => write!(f, "{} is stopped and looks dead", name(by)),
            Action::Wake { by } => write!(f, "{} goes on", name(by)),
            Action::LoseAll => write!(f, "the queue loses everything"),
            Action::LoseOne { row, epoch } => write!(f, "the queue loses (row {row}, epoch {epoch})"),
            Action::FallBack { by } => write!(f, "{} falls back to its in-process queue", name(by)),
            Action::Return { by } => write!(f, "{} returns to the shared queue", name(by)),
            other => write!(f, "{other:?}"),
        }
    }
}
