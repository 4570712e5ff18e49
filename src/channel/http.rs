//! One exchange over HTTP/1.1 or HTTP/2: separate timeouts, bounded answers, no redirects, no retries of the
//! transport's own.
//!
//! The client below may move a request to a fresh connection when a reused one was closed by the peer before
//! anything of the request was written; `tests/it/channel/transport.rs` shows that it does not do so later.
//! Over HTTP/2 a server that retires a connection names the streams it has not processed (RFC 9113, 8.7).
//! Common servers do so every thousand requests, so these, and only these, go out again at once.

use std::error::Error as StdError;
use std::fmt::Write as _;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{HeaderMap, RETRY_AFTER};
use http::{Method, Request};
use tokio::time::{Instant, timeout_at};

use super::guard::{Guarded, Refused};
use super::outcome::{Cause, Failed, Outcome, classify};
use super::retry_after;
use crate::client::{self, Answer, Client, Handover, Place, Revoked, Tracked};
use crate::config::ChannelConfig;
use crate::retry::Failure;
use crate::tls;

/// Bytes of an answer that are kept for the attempt's record.
const EXCERPT_BYTES_MAX: usize = 1024;
/// A connection that could be used again is worth waiting this long for the rest of a 2xx answer.
const DRAIN_MAX: Duration = Duration::from_millis(500);
/// How often one attempt goes out again because the server says that it did not look at it.
const UNPROCESSED_MAX: u32 = 2;

/// The client of one channel and its limits.
#[derive(Debug)]
pub(super) struct Http {
    client: Client,
    method: Method,
    timeout: Duration,
    first_byte_timeout: Duration,
    response_bytes_max: usize,
    retry_after_max: Duration,
}

impl Http {
    pub(super) fn new(config: &ChannelConfig, resolver: Guarded) -> Result<Http, Box<dyn StdError + Send + Sync>> {
        let connect_timeout = config.connect_timeout.min(config.timeout);
        let client = Client::new(tls::client_config()?, Arc::new(resolver), connect_timeout);
        Ok(Http {
            client,
            method: match config.method {
                crate::config::Method::Post => Method::POST,
                crate::config::Method::Put => Method::PUT,
            },
            timeout: config.timeout,
            first_byte_timeout: config.first_byte_timeout,
            response_bytes_max: config.response_bytes_max,
            retry_after_max: config.retry_after_max,
        })
    }

    /// Makes the call: the provider processes it at most once.
    pub(super) async fn call(&self, place: &Place, mut headers: HeaderMap, body: Bytes) -> Outcome {
        let started = Instant::now();
        let deadline = started + self.timeout;
        for _ in 0..=UNPROCESSED_MAX {
            let (handover, tracked) = Handover::new(started, body.clone());
            let mut request = Request::new(tracked);
            *request.method_mut() = self.method.clone();
            *request.headers_mut() = headers;
            match self.exchange(place, request, &handover, started, deadline).await {
                Ok(answer) => return self.read(answer, started, deadline).await,
                Err(Broken::Failed(failed)) => return Outcome::Failed(failed),
                Err(Broken::Unprocessed(again)) => headers = again,
            }
        }
        let error = "the provider did not process the request".to_owned();
        Outcome::Failed(failed(Failure::Transient, Cause::NoAnswer, error, started))
    }

    async fn exchange<'a>(
        &'a self,
        place: &'a Place,
        request: Request<Tracked>,
        handover: &Handover,
        started: Instant,
        deadline: Instant,
    ) -> Result<Answer<'a>, Broken> {
        let mut pending = pin!(self.client.send(place, request));
        loop {
            let due = self.answer_due(handover, deadline);
            match timeout_at(due, &mut pending).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(client::Error::Unprocessed(headers))) => return Err(Broken::Unprocessed(headers)),
                Ok(Err(error)) => return Err(Broken::Failed(no_answer(&error, handover, started))),
                Err(_) if Instant::now() >= self.answer_due(handover, deadline) => {
                    return Err(Broken::Failed(out_of_time(handover, started)));
                }
                // The request went out while we waited, so its answer is due later.
                Err(_) => {}
            }
        }
    }

    /// When to stop waiting for the answer's head, as far as known now. While the request has not gone out
    /// this is a time to look again.
    fn answer_due(&self, handover: &Handover, deadline: Instant) -> Instant {
        let sent_at = handover.taken_at().unwrap_or_else(Instant::now);
        deadline.min(sent_at + self.first_byte_timeout)
    }

    /// The status decides; the body only explains, so running out of time in it changes nothing.
    async fn read(&self, mut answer: Answer<'_>, started: Instant, deadline: Instant) -> Outcome {
        let status = answer.status();
        let duration = started.elapsed();
        if status.is_success() {
            self.drain(&mut answer, deadline.min(Instant::now() + DRAIN_MAX), &mut Vec::new()).await;
            return Outcome::Sent { status: status.as_u16(), duration };
        }
        let retry_after = answer
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| retry_after::parse(value.as_bytes(), SystemTime::now(), self.retry_after_max));
        let mut excerpt = Vec::new();
        self.drain(&mut answer, deadline, &mut excerpt).await;
        let mut error = format!("status {}", status.as_u16());
        if let Some(reason) = status.canonical_reason() {
            let _infallible = write!(error, " {reason}");
        }
        Outcome::Failed(Failed {
            failure: classify(status.as_u16()),
            cause: Cause::Status,
            status: Some(status.as_u16()),
            error,
            excerpt: printable(&excerpt),
            retry_after,
            duration: started.elapsed(),
        })
    }

    /// Reads to the end, the limit or the deadline. What is left is abandoned with its connection.
    async fn drain(&self, answer: &mut Answer<'_>, deadline: Instant, excerpt: &mut Vec<u8>) {
        let mut bytes_left = self.response_bytes_max;
        while let Ok(Ok(Some(chunk))) = timeout_at(deadline, answer.chunk()).await {
            let room = EXCERPT_BYTES_MAX - excerpt.len();
            excerpt.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if chunk.len() >= bytes_left {
                break;
            }
            bytes_left -= chunk.len();
        }
    }
}

/// How an exchange can end without an answer.
enum Broken {
    /// The server says that it did not process the request with these headers.
    Unprocessed(HeaderMap),
    /// Anything else.
    Failed(Failed),
}

fn out_of_time(handover: &Handover, started: Instant) -> Failed {
    let (failure, error) = match handover.revoke() {
        Revoked::NotSent => (Failure::Transient, "timeout before the request went out"),
        Revoked::TooLate => (Failure::Ambiguous, "timeout after the request went out"),
    };
    failed(failure, Cause::Timeout, error.to_owned(), started)
}

fn no_answer(error: &client::Error, handover: &Handover, started: Instant) -> Failed {
    if let Some(refused) = find::<Refused>(error) {
        return failed(Failure::Permanent, Cause::Guard, refused.to_string(), started);
    }
    match handover.revoke() {
        Revoked::NotSent if matches!(error, client::Error::ConnectTimeout) => {
            failed(Failure::Transient, Cause::Timeout, "timeout while connecting".to_owned(), started)
        }
        Revoked::NotSent => failed(Failure::Transient, Cause::Connect, format!("connect: {}", root(error)), started),
        Revoked::TooLate => {
            let error = format!("no answer after the request went out: {}", root(error));
            failed(Failure::Ambiguous, Cause::NoAnswer, error, started)
        }
    }
}

fn failed(failure: Failure, cause: Cause, error: String, started: Instant) -> Failed {
    Failed { failure, duration: started.elapsed(), ..Failed::refused(cause, error) }
}

/// The innermost cause: it says what happened, and the outer ones would name the URL.
fn root(error: &client::Error) -> String {
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

/// Text that can be stored and shown: Postgres takes no NUL, a terminal should not be told to clear itself.
fn printable(bytes: &[u8]) -> Option<String> {
    let text: String = String::from_utf8_lossy(bytes)
        .chars()
        .map(|c| if c.is_control() && c != '\n' && c != '\t' { char::REPLACEMENT_CHARACTER } else { c })
        .collect();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests;
