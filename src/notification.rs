//! Ids and statuses, and how many of what. Pure: no SQL, no clock, no runtime.
//!
//! May change: nothing without a migration. The names of the statuses are those of `notification_log.status`, and public.

use std::fmt;

/// `dead letter` of one, `dead letters` of any other number: for texts that people read. SQL has `outboxd._plural`.
pub fn plural(n: i64, noun: &str) -> String {
    if n == 1 { noun.to_owned() } else { format!("{noun}s") }
}

/// `1 dead letter`, `2 dead letters`.
pub fn counted(n: i64, noun: &str) -> String {
    format!("{n} {}", plural(n, noun))
}

/// The id of a row of `notification_log`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NotificationId(pub i64);

impl fmt::Display for NotificationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What an operator sees in the view `notifications`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// Written, not yet due or not yet released by the producer.
    Pending,
    /// Live: it has an outbox row.
    Queued,
    /// Live and claimed by a worker.
    Processing,
    /// Delivered. Final.
    Sent,
    /// Given up: the dead letter.
    Failed,
    /// Taken back by an operator, or discarded as a dead letter.
    Canceled,
}

impl Status {
    /// Every status, in the order of a notification's life.
    pub const ALL: [Status; 6] =
        [Status::Pending, Status::Queued, Status::Processing, Status::Sent, Status::Failed, Status::Canceled];

    /// The name used in SQL, logs, metrics and the API.
    pub fn name(self) -> &'static str {
        match self {
            Status::Pending => "PENDING",
            Status::Queued => "QUEUED",
            Status::Processing => "PROCESSING",
            Status::Sent => "SENT",
            Status::Failed => "FAILED",
            Status::Canceled => "CANCELED",
        }
    }

    /// The inverse of [`Status::name`].
    pub fn parse(name: &str) -> Option<Status> {
        Status::ALL.into_iter().find(|s| s.name() == name)
    }

    /// Whether nothing more happens to the row by itself.
    pub fn is_terminal(self) -> bool {
        matches!(self, Status::Sent | Status::Failed | Status::Canceled)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_a_round_trip() {
        for status in Status::ALL {
            assert_eq!(Status::parse(status.name()), Some(status));
        }
        assert_eq!(Status::parse("sent"), None);
    }
}
