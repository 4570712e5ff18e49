//! One state of the world: what Postgres holds, what the queues carry, what each process has in memory.

use crate::messages::Messages;
use crate::scope::Budget;

/// Rows at most.
pub const ROWS_MAX: usize = 3;
/// Instances, each with producer, relay, worker and sweeper.
pub const PROCESSES: usize = 2;
/// Pushes that are under way or not yet confirmed, at most.
pub const PUSHES_MAX: usize = 4;
/// `outbox.instance IS NULL`.
pub const NOBODY: u8 = 15;

/// The world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct State {
    /// `notification_log` and `outbox`, by id.
    pub rows: [Row; ROWS_MAX],
    /// The instances.
    pub processes: [Process; PROCESSES],
    /// `publication`, and the pushes that belong to it.
    pub pushes: [Option<Push>; PUSHES_MAX],
    /// What Redis carries.
    pub shared: Messages,
    /// The instances, by number, that are registered with an in-process queue.
    pub memory_numbers: u8,
    /// The next `outbox.seq`.
    pub next_seq: u8,
    /// The next instance's number.
    pub next_number: u8,
    /// What may still happen.
    pub left: Budget,
}

/// `notification_log.status`, and the time before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// The app has not written it.
    Unwritten,
    /// Its number is drawn, its transaction open.
    Open,
    /// PENDING
    Pending,
    /// QUEUED
    Queued,
    /// SENT
    Sent,
    /// FAILED
    Failed,
    /// CANCELED
    Canceled,
}

impl Status {
    /// Whether the notification has ended.
    pub fn is_ended(self) -> bool {
        matches!(self, Status::Sent | Status::Failed | Status::Canceled)
    }
}

/// One notification: its record, its live work, and what has happened to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Row {
    /// `notification_log.status`
    pub status: Status,
    /// `notification_log.epoch`
    pub epoch: u8,
    /// `outbox.seq`
    pub seq: u8,
    /// Its row of `outbox`.
    pub work: Option<Work>,
    /// What the properties must know.
    pub past: Past,
}

/// `outbox.state`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WorkState {
    /// Waits to be published.
    Ready,
    /// In the queue, or on its way there.
    Published,
    /// Claimed.
    Processing,
    /// Waits behind an earlier row of its key.
    Blocked,
}

/// A row of `outbox`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Work {
    /// `state`
    pub state: WorkState,
    /// `epoch`
    pub epoch: u8,
    /// `channel_attempts`
    pub attempts: u8,
    /// `retry_at IS NOT NULL`. When it is due is a matter of time, and time passes.
    pub has_retry_at: bool,
    /// It committed so late that the fast path has passed it.
    pub is_missed: bool,
    /// `has_turn`
    pub has_turn: bool,
    /// `cancel`
    pub cancel: bool,
    /// `instance`: who published or claimed it.
    pub instance: u8,
    /// `lease_until` has passed.
    pub lease_is_over: bool,
}

/// What `cancel()` answered last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Answer {
    /// It was not asked, or an operator has retried since.
    None,
    /// `canceled`
    Canceled,
    /// `in flight: no further attempt`
    NoFurtherAttempt,
}

/// What has happened to a row: only for the properties, no step asks for it. Tokens are bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Past {
    /// Tokens under which the provider was called.
    pub called: u32,
    /// Tokens whose failure or unknown outcome is recorded in `attempt`.
    pub witnessed: u32,
    /// The provider has accepted it.
    pub is_accepted: bool,
    /// It was FAILED or CANCELED once: it has left the order of its key.
    pub was_over: bool,
    /// An attempt has failed, and the row was not published since: it waits for its `retry_at`.
    pub backs_off: bool,
    /// What the operator was told.
    pub answer: Answer,
    /// The highest epoch it has had.
    pub epoch_max: u8,
}

/// Whether a process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// It works.
    Up,
    /// It is stopped and looks dead; it has forgotten nothing.
    Asleep,
    /// It is gone.
    Down,
}

/// One instance, with what it has in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Process {
    /// `instance.id`; a new one at every start.
    pub number: u8,
    /// Whether it runs.
    pub phase: Phase,
    /// It publishes to its in-process queue.
    pub is_in_process: bool,
    /// Its in-process queue.
    pub memory: Messages,
    /// It has seen that the shared queue lost messages.
    pub knows_loss: bool,
    /// Dead instances, by number, whose queues it has dealt with: `SweepState::dealt_with`.
    pub dealt_with: u8,
    /// The worker's claim.
    pub claim: Option<Claim>,
    /// The sweeper's: a claim that it has read and will end.
    pub sweep: Option<Overdue>,
    /// A head that it has read and will admit: row and seq.
    pub admission: Option<(u8, u8)>,
    /// The producer's: a due row that it has locked.
    pub release: Option<u8>,
}

/// How far a claim has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Claimed.
    Claimed,
    /// The time left was enough; the request goes out.
    Calling,
    /// 2xx.
    Accepted,
    /// The provider refused.
    Refused,
    /// No answer: the provider may have it.
    Unheard,
    /// 2xx, but the row had ended when it was recorded.
    Late,
}

/// A worker's claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Claim {
    /// The row.
    pub row: u8,
    /// The token.
    pub token: u8,
    /// The epoch of its message.
    pub epoch: u8,
    /// Whether the message came from the in-process queue.
    pub from_memory: bool,
    /// How far it has come.
    pub stage: Stage,
    /// By the worker's own clock, too little of the lease is left for a call.
    pub is_over: bool,
}

/// A claim that a sweep has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Overdue {
    /// The row.
    pub row: u8,
    /// The token it had.
    pub token: u8,
    /// Its holder is in the list of the dead that the sweep has read.
    pub holder_is_dead: bool,
}

/// Where a push is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Flight {
    /// Reserved; the relay will push.
    Reserved,
    /// It has arrived; the relay will confirm.
    Arrived,
    /// The relay gave up waiting; it may still arrive.
    Adrift,
    /// Nobody knows of it any more.
    Forgotten,
}

/// A publication of one row, and its push.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Push {
    /// The row.
    pub row: u8,
    /// The epoch in the message.
    pub epoch: u8,
    /// Who reserved it.
    pub number: u8,
    /// Where it is.
    pub flight: Flight,
    /// Its row of `publication` stands.
    pub is_unconfirmed: bool,
}
