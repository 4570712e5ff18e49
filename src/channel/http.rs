//! One exchange over HTTP/1.1 or HTTP/2: separate timeouts, bounded answers, no redirects, no retries of the
//! transport's own.
//!
//! Over HTTP/2 a server that retires a connection names the streams it has not processed (RFC 9113, 8.7). Common
//! servers do so every thousand requests, and ten failures in a row open a circuit, so these, and only these, go out
//! again at once.

use std::error::Error as StdError;
use std::fmt::Write as _;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{HeaderMap, RETRY_AFTER};
use http::{Method, StatusCode};
use reqwest::dns::Resolve;
use reqwest::{Body, Client, Request, Response};
use tokio::time::{Instant, timeout_at};
use url::Url;

use super::answer::{Answer, Answers, Body as AnswerBody};
use super::connections::{Connections, Refused};
use super::outcome::{Cause, Failed, Outcome, Shortage, classify};
use super::retry_after;
use crate::config::ChannelConfig;
use crate::tls;
use body::BodyState;

mod body;
mod client;
mod failure;

use client::Clients;
pub(super) use client::Egress;

/// Bytes of an answer that are kept for the attempt's record.
const EXCERPT_BYTES_MAX: usize = 1024;
/// A connection that could be used again is worth waiting this long for the rest of a 2xx answer.
const DRAIN_MAX: Duration = Duration::from_millis(500);
/// How often one attempt goes out again because the server says that it did not process it.
const UNPROCESSED_MAX: u32 = 2;

/// The clients of one channel and its limits.
#[derive(Debug)]
pub(super) struct Http {
    clients: Clients,
    method: Method,
    timeout: Duration,
    first_byte_timeout: Duration,
    response_bytes_max: usize,
    retry_after_max: Duration,
    /// How a 2xx is read; None: it is a delivery.
    answers: Option<Answers>,
}

impl Http {
    pub(super) fn new(
        config: &ChannelConfig,
        resolver: Arc<dyn Resolve>,
        egress: Egress,
        answers: Option<Answers>,
        connections: Arc<Connections>,
    ) -> Result<Http, Box<dyn StdError + Send + Sync>> {
        let connect_timeout = config.connect_timeout.min(config.timeout);
        Ok(Http {
            clients: Clients::new(tls::client_config()?, resolver, egress, connect_timeout, connections)?,
            method: match config.method {
                crate::config::Method::Post => Method::POST,
                crate::config::Method::Put => Method::PUT,
            },
            timeout: config.timeout,
            first_byte_timeout: config.first_byte_timeout,
            response_bytes_max: config.response_bytes_max,
            retry_after_max: config.retry_after_max,
            answers,
        })
    }

    /// Makes the call: the provider processes it at most once.
    pub(super) async fn call(&self, origin: &Arc<str>, url: &Url, headers: HeaderMap, body: Bytes) -> Outcome {
        let started = Instant::now();
        let lease = match self.clients.lease(origin) {
            Ok(lease) => lease,
            Err(Refused::Short(shortage)) => return Outcome::Short(shortage),
            Err(Refused::Unusable(error)) => return Outcome::Failed(failure::no_client(&error, started)),
        };
        let deadline = started + self.timeout;
        for _ in 0..=UNPROCESSED_MAX {
            let (state, tracked) = BodyState::track(started, body.clone());
            let mut request = Request::new(self.method.clone(), url.clone());
            *request.headers_mut() = headers.clone();
            *request.body_mut() = Some(Body::wrap(tracked));
            match self.exchange(&lease.client, request, &state, started, deadline).await {
                Ok(response) => return self.read(response, started, deadline).await,
                Err(Broken::Failed(failed)) => return Outcome::Failed(failed),
                Err(Broken::Short(shortage)) => return Outcome::Short(shortage),
                Err(Broken::Unprocessed) => {}
            }
        }
        Outcome::Failed(failure::not_processed(started))
    }

    async fn exchange(
        &self,
        client: &Client,
        request: Request,
        body: &BodyState,
        started: Instant,
        deadline: Instant,
    ) -> Result<Response, Broken> {
        let mut pending = pin!(client.execute(request));
        loop {
            let due = self.answer_due(body, deadline);
            match timeout_at(due, &mut pending).await {
                Ok(Ok(response)) => return Ok(response),
                Ok(Err(error)) if failure::is_unprocessed(&error) => return Err(Broken::Unprocessed),
                Ok(Err(error)) => return Err(failure::no_answer(error, body, started)),
                Err(_) if Instant::now() >= self.answer_due(body, deadline) => {
                    return Err(Broken::Failed(failure::out_of_time(body, started)));
                }
                // The request went out while we waited, so its answer is due later.
                Err(_) => {}
            }
        }
    }

    /// When to stop waiting for the answer's head, as far as known now. While the request has not gone out
    /// this is a time to try again.
    fn answer_due(&self, body: &BodyState, deadline: Instant) -> Instant {
        let sent_at = body.sent_at().unwrap_or_else(Instant::now);
        deadline.min(sent_at + self.first_byte_timeout)
    }

    /// The status decides; the body only explains, so running out of time in it changes nothing. Unless the channel
    /// says how to read a 2xx.
    async fn read(&self, mut response: Response, started: Instant, deadline: Instant) -> Outcome {
        let status = response.status();
        let duration = started.elapsed();
        match (&self.answers, status.is_success()) {
            (Some(answers), true) => return self.judge(answers, response, started, deadline).await,
            (None, true) => {
                self.drain(&mut response, deadline.min(Instant::now() + DRAIN_MAX), &mut Vec::new()).await;
                return Outcome::Sent { status: status.as_u16(), duration, provider_id: None };
            }
            (_, false) => {}
        }
        let retry_after = self.retry_after(response.headers());
        let mut excerpt = Vec::new();
        self.drain(&mut response, deadline, &mut excerpt).await;
        Outcome::Failed(Failed {
            failure: classify(status.as_u16()),
            cause: Cause::Status,
            status: Some(status.as_u16()),
            error: named(status),
            excerpt: printable(&excerpt),
            provider_id: None,
            retry_after,
            duration: started.elapsed(),
        })
    }

    /// A 2xx whose body says what became of it.
    async fn judge(&self, answers: &Answers, mut response: Response, started: Instant, deadline: Instant) -> Outcome {
        let (status, headers) = (response.status(), std::mem::take(response.headers_mut()));
        let (bytes, body) = self.whole(&mut response, deadline).await;
        let context = Answer { status, headers: &headers, body: &bytes }.context();
        let provider_id = answers.provider_id(&context);
        let (duration, code) = (started.elapsed(), status.as_u16());
        let Err((failure, reason)) = answers.accepts(&context, body, &bytes) else {
            return Outcome::Sent { status: code, duration, provider_id };
        };
        Outcome::Failed(Failed {
            failure,
            cause: Cause::Answer,
            status: Some(code),
            error: format!("{}, {reason}", named(status)),
            excerpt: printable(&bytes[..bytes.len().min(EXCERPT_BYTES_MAX)]),
            provider_id,
            retry_after: self.retry_after(&headers),
            duration,
        })
    }

    fn retry_after(&self, headers: &HeaderMap) -> Option<Duration> {
        let value = headers.get(RETRY_AFTER)?;
        retry_after::parse(value.as_bytes(), SystemTime::now(), self.retry_after_max)
    }

    /// Reads all of the body, up to the limit and the deadline.
    async fn whole(&self, response: &mut Response, deadline: Instant) -> (Vec<u8>, AnswerBody) {
        let mut bytes = Vec::new();
        loop {
            match timeout_at(deadline, response.chunk()).await {
                Ok(Ok(Some(chunk))) if bytes.len() + chunk.len() > self.response_bytes_max => {
                    return (bytes, AnswerBody::LongerThan(self.response_bytes_max));
                }
                Ok(Ok(Some(chunk))) => bytes.extend_from_slice(&chunk),
                Ok(Ok(None)) => return (bytes, AnswerBody::Whole),
                Ok(Err(_)) | Err(_) => return (bytes, AnswerBody::BrokenOff),
            }
        }
    }

    /// Reads to the end, the limit or the deadline. What is left is abandoned with its connection.
    async fn drain(&self, response: &mut Response, deadline: Instant, excerpt: &mut Vec<u8>) {
        let mut bytes_left = self.response_bytes_max;
        while let Ok(Ok(Some(chunk))) = timeout_at(deadline, response.chunk()).await {
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
    /// The server says that it did not process the request.
    Unprocessed,
    /// We lacked what it takes to ask.
    Short(Shortage),
    /// Anything else.
    Failed(Failed),
}

/// "status 503 Service Unavailable".
fn named(status: StatusCode) -> String {
    let mut name = format!("status {}", status.as_u16());
    if let Some(reason) = status.canonical_reason() {
        let _infallible = write!(name, " {reason}");
    }
    name
}

/// Text that can be stored and shown: Postgres takes no NUL, a terminal should not be told to clear itself.
pub(super) fn printable(bytes: &[u8]) -> Option<String> {
    let text: String = String::from_utf8_lossy(bytes)
        .chars()
        .map(|c| if c.is_control() && c != '\n' && c != '\t' { char::REPLACEMENT_CHARACTER } else { c })
        .collect();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests;
