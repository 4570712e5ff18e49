//! The providers: a real HTTP server that writes each request into the ledger BEFORE it replies, and replies, or
//! misbehaves, as the seed says.
//!
//! It speaks HTTP itself, because a reset after the full request is what a proper server library prevents.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use super::evidence::{Arrival, Micros, Reply, Subject};
use super::plan::CALL_TIMEOUT;

/// In the order of failover.
pub(super) const CHANNELS: [&str; 2] = ["push", "sms"];
/// Topic of what must always be served at once: the probes.
pub(super) const PROBE: &str = "probe";
const REQUEST_BYTES_MAX: usize = 256 * 1024;

/// What everybody reads and writes.
#[derive(Debug)]
struct Shared {
    began: Instant,
    seed: u64,
    ledger: Mutex<Ledger>,
    is_down: [AtomicBool; CHANNELS.len()],
}

#[derive(Debug, Default)]
struct Ledger {
    arrivals: Vec<Arrival>,
    accepted: HashSet<Subject>,
}

/// The running providers; they stop when dropped.
#[derive(Debug)]
pub(super) struct Providers {
    shared: Arc<Shared>,
    addr: SocketAddr,
    _serving: AbortOnDropHandle<()>,
}

/// What comes of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fate {
    reply: Reply,
    after: Duration,
}

impl Providers {
    /// Starts them on one free port, a path each.
    pub(super) async fn start(began: Instant, seed: u64) -> Result<Providers> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("no free port on 127.0.0.1")?;
        let addr = listener.local_addr()?;
        let shared = Arc::new(Shared { began, seed, ledger: Mutex::default(), is_down: Default::default() });
        let serving = AbortOnDropHandle::new(tokio::spawn(accept(listener, Arc::clone(&shared))));
        Ok(Providers { shared, addr, _serving: serving })
    }

    /// Where a channel's provider listens.
    pub(super) fn url(&self, channel: &str) -> String {
        format!("http://{}/{channel}", self.addr)
    }

    /// From now on it answers 503 to everything, or works again.
    pub(super) fn set_down(&self, channel: usize, is_down: bool) {
        self.shared.is_down[channel % CHANNELS.len()].store(is_down, Ordering::Relaxed);
    }

    /// Notifications accepted so far.
    pub(super) fn accepted(&self) -> usize {
        self.shared.lock().accepted.len()
    }

    /// Every call so far, in order of arrival.
    pub(super) fn ledger(&self) -> Vec<Arrival> {
        self.shared.lock().arrivals.clone()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes it down and says what to do with it.
    fn receive(&self, request: &Request) -> Fate {
        let channel = CHANNELS.iter().position(|channel| *channel == request.channel);
        let is_down = channel.is_some_and(|channel| self.is_down[channel].load(Ordering::Relaxed));
        let fate = match request.topic.as_str() {
            PROBE => Fate { reply: Reply::Accepted, after: Duration::ZERO },
            _ if is_down => Fate { reply: Reply::Refused(503), after: Duration::ZERO },
            _ => Fate::draw(self.seed, request),
        };
        let mut ledger = self.lock();
        let at = Micros::try_from(self.began.elapsed().as_micros()).unwrap_or(Micros::MAX);
        if fate.reply == Reply::Accepted {
            ledger.accepted.insert(request.subject.clone());
        }
        ledger.arrivals.push(Arrival {
            at,
            subject: request.subject.clone(),
            channel: request.channel.clone(),
            webhook_id: request.webhook_id.clone(),
            attempt: request.attempt,
            reply: fate.reply,
        });
        fate
    }
}

impl Fate {
    /// Of 1,000 calls. What is refused for good is so on every channel: a dead letter for the operator.
    fn draw(seed: u64, request: &Request) -> Fate {
        let roll = |what: (&str, u32)| {
            let mut hasher = DefaultHasher::new();
            (seed, &request.subject, what).hash(&mut hasher);
            hasher.finish() % 1000
        };
        let quick = Duration::from_millis(1 + roll(("quick", request.attempt)) % 40);
        if roll(("dead", 0)) < 5 && request.attempt < 6 {
            return Fate { reply: Reply::Refused(422), after: quick };
        }
        match roll((&request.channel, request.attempt)) {
            0..30 => Fate { reply: Reply::Refused(503), after: quick },
            30..35 => Fate { reply: Reply::Refused(404), after: quick },
            35..45 => Fate { reply: Reply::Cut, after: quick },
            // Longer than the caller waits.
            45..52 => Fate { reply: Reply::Accepted, after: CALL_TIMEOUT + quick * 20 },
            52..100 => Fate { reply: Reply::Accepted, after: quick * 30 },
            _ => Fate { reply: Reply::Accepted, after: quick },
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // Dropped with this task, and with it every connection.
    let mut serving = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        while serving.try_join_next().is_some() {}
        let shared = Arc::clone(&shared);
        // A client that goes away ends its connection's task.
        serving.spawn(async move { serve(stream, &shared).await });
    }
}

async fn serve(mut stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(4096);
    loop {
        let Some((length, request)) = Request::read(&buffer) else {
            if buffer.len() > REQUEST_BYTES_MAX || stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
            continue;
        };
        buffer.drain(..length);
        let fate = shared.receive(&request);
        tokio::time::sleep(fate.after).await;
        let status = match fate.reply {
            Reply::Accepted => 200,
            Reply::Refused(status) => status,
            Reply::Cut => return stream.set_zero_linger(),
        };
        stream.write_all(format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n").as_bytes()).await?;
    }
}

/// What of a request the ledger keeps.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    channel: String,
    webhook_id: String,
    attempt: u32,
    topic: String,
    subject: Subject,
}

impl Request {
    /// The first request, once all of it is there, and its length.
    fn read(buffer: &[u8]) -> Option<(usize, Request)> {
        let head_end = buffer.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
        let head = std::str::from_utf8(&buffer[..head_end]).ok()?;
        let header = |wanted: &str| {
            let pairs = head.lines().filter_map(|line| line.split_once(':'));
            pairs.filter(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.trim()).next()
        };
        let length = header("content-length").and_then(|text| text.parse::<usize>().ok()).unwrap_or(0);
        let body = buffer.get(head_end..head_end + length)?;
        let body: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
        let webhook_id = header("webhook-id").unwrap_or_default().to_owned();
        let subject = match body["payload"]["n"].as_i64() {
            Some(number) => Subject::Number(number),
            None => row_of(&webhook_id)?,
        };
        let request = Request {
            channel: head.split(' ').nth(1)?.trim_start_matches('/').to_owned(),
            attempt: header("outboxd-attempt").and_then(|text| text.parse().ok()).unwrap_or(0),
            topic: body["topic"].as_str().unwrap_or_default().to_owned(),
            subject,
            webhook_id,
        };
        Some((head_end + length, request))
    }
}

/// The row inside `ntf-<install>-<id>-<created>`.
fn row_of(webhook_id: &str) -> Option<Subject> {
    let mut parts = webhook_id.split('-').skip(2);
    Some(Subject::Row(parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_taken_once_it_is_whole() {
        let body = r#"{"id":7,"topic":"orders","payload":{"n":42}}"#;
        let head = "POST /push HTTP/1.1\r\nWebhook-Id: ntf-a-7-99\r\noutboxd-attempt: 3\r\nContent-Length:";
        let text = format!("{head} {}\r\n\r\n{body}GET", body.len());
        let whole = text.len() - 3;
        assert_eq!(Request::read(&text.as_bytes()[..whole - 1]), None);
        let (length, request) = Request::read(text.as_bytes()).unwrap();
        assert_eq!((length, request.attempt, request.channel.as_str()), (whole, 3, "push"));
        assert_eq!((request.subject, request.topic.as_str()), (Subject::Number(42), "orders"));
        assert_eq!(row_of(&request.webhook_id), Some(Subject::Row(7, 99)));
    }
}
