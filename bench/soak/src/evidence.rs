//! What was seen, by whom: the app's log, the providers' ledger, the rows at the end. The verdict joins them.
//!
//! Times are microseconds since the start, by one clock.

use std::collections::{HashMap, HashSet};

/// Microseconds since the start.
pub(super) type Micros = u64;

/// What a notification is known by: the app's own number, or where the app gave none, id and time of the row.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Subject {
    /// The app's number, in the payload.
    Number(i64),
    /// `notification_log.id` and `created_at` in microseconds since 1970.
    Row(i64, i64),
}

/// How a transaction of the app ended, as the app saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// COMMIT returned.
    Committed,
    /// Rolled back, or ended before COMMIT was sent.
    RolledBack,
    /// COMMIT was sent and its answer was not seen.
    Unknown,
}

/// What the app asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Asked {
    /// A notification, perhaps one of several that share a dedup key.
    Notification { dedup_key: Option<String>, is_delayed: bool },
    /// A domain event.
    Event,
}

/// One line of the app's log.
#[derive(Debug, Clone)]
pub(super) struct Write {
    pub(super) number: i64,
    pub(super) asked: Asked,
    /// Numbers of one key are written one after the other, upwards.
    pub(super) key: Option<String>,
    pub(super) began: Micros,
    pub(super) ended: Micros,
    pub(super) outcome: Outcome,
}

/// What a provider did with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reply {
    /// 200, perhaps too late to be seen.
    Accepted,
    /// This status.
    Refused(u16),
    /// No answer: the connection was cut.
    Cut,
}

/// One line of the ledger, written before the provider replied.
#[derive(Debug, Clone)]
pub(super) struct Arrival {
    pub(super) at: Micros,
    pub(super) subject: Subject,
    pub(super) channel: String,
    pub(super) webhook_id: String,
    /// The header `outboxd-attempt`.
    pub(super) attempt: u32,
    pub(super) reply: Reply,
}

/// A notification's row at the end.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) id: i64,
    pub(super) status: String,
    pub(super) dedup_key: Option<String>,
    /// Which call was recorded last, from 1; 0: none.
    pub(super) attempts: u32,
    /// Rows of `outboxd.attempts`, each with the number of its call; late ones and duplicates have none.
    pub(super) witnesses: Vec<Option<u32>>,
    /// One of them is a late success: it came after the row had ended otherwise.
    pub(super) is_late: bool,
    /// How many of them are probes of an open circuit that failed.
    pub(super) probes: usize,
}

/// An event as the consumer of its stream saw it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sighting {
    pub(super) at: Micros,
    pub(super) number: i64,
}

/// From one moment to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: Micros,
    pub(super) until: Micros,
}

impl Span {
    /// Whether the two have a moment in common.
    pub(super) fn meets(self, from: Micros, until: Micros) -> bool {
        self.from <= until && from <= self.until
    }
}

/// All of it.
#[derive(Debug, Clone, Default)]
pub(super) struct Evidence {
    pub(super) writes: Vec<Write>,
    /// Numbers that the app's own table holds at the end: what was committed, and is there.
    pub(super) committed: HashSet<i64>,
    pub(super) rows: HashMap<Subject, Row>,
    /// In order of arrival.
    pub(super) arrivals: Vec<Arrival>,
    /// In order of sight.
    pub(super) sightings: Vec<Sighting>,
    /// From the cut of the replication until the promotion: what was committed then may be gone.
    pub(super) lost_tails: Vec<Span>,
    /// When Redis lost what it had.
    pub(super) redis_losses: Vec<Span>,
    /// What an operator sent back to work: it goes last of its key.
    pub(super) retried: HashSet<Subject>,
}
