//! How a call ended, as types: what the worker records and decides on.

use std::fmt;
use std::time::Duration;

use crate::retry::Failure;

mod shortage;

pub use shortage::Shortage;

/// How one attempt ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The provider accepted it: a 2xx, and what the channel asks of one.
    Sent {
        /// The status.
        status: u16,
        /// From the start of the attempt to the answer.
        duration: Duration,
        /// The provider's own id of it, on channels that say where it stands.
        provider_id: Option<String>,
    },
    /// Nobody was asked, because this process or its machine lacks something: that is not the notification's failure.
    Short(Shortage),
    /// Anything else.
    Failed(Failed),
}

/// An attempt that did not deliver, as far as we know.
#[derive(Debug, Clone, PartialEq)]
pub struct Failed {
    /// What may follow.
    pub failure: Failure,
    /// Where it went wrong.
    pub cause: Cause,
    /// The provider's status, if it answered.
    pub status: Option<u16>,
    /// One line for an operator; holds no secret and no recipient.
    pub error: String,
    /// The beginning of the provider's answer, printable.
    pub excerpt: Option<String>,
    /// The provider's own id of it, if it gave one all the same.
    pub provider_id: Option<String>,
    /// What the provider asked for, capped by the channel.
    pub retry_after: Option<Duration>,
    /// From the start of the attempt to its end.
    pub duration: Duration,
}

/// Where an attempt went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// A template could not be rendered, or gave no usable URL or header. Nothing was called.
    Template,
    /// The guard refused the address. Nothing was called.
    Guard,
    /// No connection.
    Connect,
    /// Out of time.
    Timeout,
    /// The connection ended without an answer.
    NoAnswer,
    /// The provider answered with a status that is not 2xx.
    Status,
    /// The provider answered 2xx, and its answer was not taken for a delivery.
    Answer,
}

impl Cause {
    /// Whether it went wrong before anybody was called.
    pub fn is_before_the_call(self) -> bool {
        matches!(self, Cause::Template | Cause::Guard)
    }

    /// The name used in SQL, logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Template => "template",
            Cause::Guard => "guard",
            Cause::Connect => "connect",
            Cause::Timeout => "timeout",
            Cause::NoAnswer => "no answer",
            Cause::Status => "status",
            Cause::Answer => "answer",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Failed {
    /// A failure in which the provider was never asked and never will be with the same input.
    pub(super) fn refused(cause: Cause, error: String) -> Failed {
        Failed {
            failure: Failure::Permanent,
            cause,
            status: None,
            error,
            excerpt: None,
            provider_id: None,
            retry_after: None,
            duration: Duration::ZERO,
        }
    }

    /// How it is counted: a failure in which nobody was called is no call.
    pub fn outcome(&self) -> &'static str {
        if self.cause.is_before_the_call() { "refused" } else { self.failure.name() }
    }

    /// Whether the provider did not accept our credentials: one such answer is permanent, a streak of them
    /// says that the channel is misconfigured, not the notification.
    pub fn is_unauthorized(&self) -> bool {
        matches!(self.status, Some(401 | 403))
    }
}

/// What a status that is not 2xx means.
pub(super) fn classify(status: u16) -> Failure {
    match status {
        408 | 409 | 425 | 429 | 500..=599 => Failure::Transient,
        _ => Failure::Permanent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_classified_as_documented() {
        for status in [408, 409, 425, 429, 500, 502, 503, 504, 599] {
            assert_eq!(classify(status), Failure::Transient, "{status}");
        }
        for status in [300, 301, 302, 307, 308, 400, 401, 403, 404, 410, 413, 422, 451, 600, 999] {
            assert_eq!(classify(status), Failure::Permanent, "{status}");
        }
    }
}
