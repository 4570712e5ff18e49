//! Why there was no answer, and whether the request may have arrived.

use std::error::Error as StdError;

use tokio::time::Instant;

use super::Broken;
use super::body::{BodyState, Revoked};
use crate::channel::guard::Refused;
use crate::channel::outcome::{Cause, Failed, Shortage};
use crate::retry::Failure;

/// The time was over.
pub(super) fn out_of_time(body: &BodyState, started: Instant) -> Failed {
    let (failure, error) = match body.revoke() {
        Revoked::NotSent => (Failure::Transient, "timeout before the request went out"),
        Revoked::TooLate => (Failure::Ambiguous, "timeout after the request went out"),
    };
    failed(failure, Cause::Timeout, error.to_owned(), started)
}

/// The server said each time that it did not process the request.
pub(super) fn not_processed(started: Instant) -> Failed {
    let error = "the provider did not process the request".to_owned();
    failed(Failure::Transient, Cause::NoAnswer, error, started)
}

/// The client gave up.
pub(super) fn no_answer(error: reqwest::Error, body: &BodyState, started: Instant) -> Broken {
    let error = error.without_url();
    let failed = if let Some(refused) = find::<Refused>(&error) {
        failed(Failure::Permanent, Cause::Guard, refused.to_string(), started)
    } else if error.is_builder() {
        Failed::refused(Cause::Template, "template url: a host or path that no request can hold".to_owned())
    } else {
        match (body.revoke(), Shortage::of(&error)) {
            (Revoked::NotSent, Some(shortage)) => return Broken::Short(shortage),
            (revoked, _) => unanswered(&error, revoked, started),
        }
    };
    Broken::Failed(failed)
}

/// No client could be made.
pub(super) fn no_client(error: &reqwest::Error, started: Instant) -> Failed {
    failed(Failure::Transient, Cause::Connect, format!("no client: {}", root(error)), started)
}

fn unanswered(error: &reqwest::Error, revoked: Revoked, started: Instant) -> Failed {
    match revoked {
        Revoked::NotSent if error.is_timeout() => {
            failed(Failure::Transient, Cause::Timeout, "timeout while connecting".to_owned(), started)
        }
        Revoked::NotSent => failed(Failure::Transient, Cause::Connect, format!("connect: {}", root(error)), started),
        Revoked::TooLate => {
            let error = format!("no answer after the request went out: {}", root(error));
            failed(Failure::Ambiguous, Cause::NoAnswer, error, started)
        }
    }
}

/// Whether HTTP/2 vouches for it (RFC 9113, 8.7): the stream was refused, or came after the last one that the server
/// processed before it retired the connection.
pub(super) fn is_unprocessed(error: &reqwest::Error) -> bool {
    find::<h2::Error>(error).is_some_and(|error| {
        let reason = error.reason();
        error.is_remote()
            && ((error.is_go_away() && reason == Some(h2::Reason::NO_ERROR))
                || (error.is_reset() && reason == Some(h2::Reason::REFUSED_STREAM)))
    })
}

fn failed(failure: Failure, cause: Cause, error: String, started: Instant) -> Failed {
    Failed { failure, duration: started.elapsed(), ..Failed::refused(cause, error) }
}

/// The innermost cause: it says what happened, and the outer ones only repeat that there was no answer.
fn root(error: &reqwest::Error) -> String {
    let mut cause: &dyn StdError = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string().chars().take(200).collect()
}

fn find<'a, E: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a E> {
    let mut cause = Some(error);
    while let Some(current) = cause {
        if let Some(found) = current.downcast_ref() {
            return Some(found);
        }
        cause = current.source();
    }
    None
}

#[cfg(test)]
mod tests;
