//! Three simulated providers, which write every call into a ledger before they answer it.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use chrono::{DateTime, Utc};
use outboxd_throwaway::evidence::{Answer, Arrival, Subject};
use outboxd_throwaway::provider::{Call, Provider, Reply};
use tokio::sync::watch;

use super::shop;

/// A provider's work takes this long at least and at most.
const LATENCY_MS: std::ops::Range<u64> = 20..120;

/// The channels, in the order of their failover.
pub(super) const CHANNELS: [&str; 3] = ["push", "sms", "alimtalk"];

/// One call as it arrived: for the verdict, and for people.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// The app's own number, from the payload, is what the verdict joins on.
    pub(super) arrival: Arrival,
    pub(super) recipient: String,
    /// The answer it was about to get.
    pub(super) status: u16,
}

impl Seen {
    /// The provider's clock, which is the app's too.
    pub(super) fn at(&self) -> DateTime<Utc> {
        DateTime::from_timestamp_micros(i64::try_from(self.arrival.at).unwrap_or(i64::MAX)).unwrap_or_default()
    }

    /// The app's number, unless somebody else notified.
    pub(super) fn order(&self) -> Option<i64> {
        match self.arrival.subject {
            Subject::Number(order) => Some(order),
            Subject::Row(..) => None,
        }
    }
}

#[derive(Debug, Default)]
struct Ledger {
    calls: Vec<Seen>,
    accepted: HashSet<Subject>,
}

/// What the three providers share.
#[derive(Debug, Default)]
struct Shared {
    ledger: Mutex<Ledger>,
    written: watch::Sender<usize>,
    push_fails: AtomicBool,
}

/// The running providers; they stop when dropped.
#[derive(Debug)]
pub(super) struct Providers {
    shared: Arc<Shared>,
    provider: Provider,
}

impl Providers {
    /// Starts them on one free port, a path each.
    pub(super) fn start() -> Result<Providers> {
        let shared = Arc::new(Shared::default());
        let receiving = Arc::clone(&shared);
        let provider = Provider::with_ledger(move |call| receiving.receive(call));
        Ok(Providers { shared, provider: provider.context("no free port on 127.0.0.1")? })
    }

    /// Where a channel's provider listens.
    pub(super) fn url(&self, channel: &str) -> String {
        self.provider.url(&format!("/{channel}"))
    }

    /// From now on push answers 503, or works again.
    pub(super) fn set_push_fails(&self, fails: bool) {
        self.shared.push_fails.store(fails, Ordering::Relaxed);
    }

    /// Notifications that a provider accepted.
    pub(super) fn delivered(&self) -> usize {
        self.shared.lock().accepted.len()
    }

    /// Every call so far, in the order of arrival.
    pub(super) fn calls(&self) -> Vec<Seen> {
        self.shared.lock().calls.clone()
    }

    /// The calls after the first `seen`, once there are any.
    pub(super) async fn calls_after(&self, seen: usize) -> Vec<Seen> {
        let mut written = self.shared.written.subscribe();
        // The sender lives as long as we do.
        let _ = written.wait_for(|count| *count > seen).await;
        self.shared.lock().calls[seen..].to_vec()
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes it down and says what to do with it.
    fn receive(&self, call: &Call) -> Reply {
        let body: serde_json::Value = serde_json::from_slice(&call.body).unwrap_or_default();
        let recipient = body["recipient"].as_str().unwrap_or_default().to_owned();
        let status = match call.path.as_str() {
            "/push" if self.push_fails.load(Ordering::Relaxed) => 503,
            // Some numbers are landlines: a permanent refusal, so the next channel has a turn.
            "/sms" if recipient.ends_with('7') => 422,
            _ => 200,
        };
        let arrival = Arrival::of(call, shop::now(), body["payload"]["order"].as_i64(), Some(status));
        let Some(arrival) = arrival else { return Reply::status(400) };
        let mut ledger = self.lock();
        let mut reply = Reply::status(status);
        if arrival.answer == Answer::Accepted {
            ledger.accepted.insert(arrival.subject.clone());
            reply = reply.after(Duration::from_millis(rand::random_range(LATENCY_MS)));
        }
        ledger.calls.push(Seen { arrival, recipient, status });
        self.written.send_replace(ledger.calls.len());
        reply
    }
}
