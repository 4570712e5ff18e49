//! The providers: they reply, or misbehave, as the seed says, and keep of each call what the verdict needs.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use outboxd_throwaway::provider::{Call, Provider, Reply};

use super::evidence::{Answer, Arrival, Micros, Subject};
use super::plan::CALL_TIMEOUT;

/// In the order of failover.
pub(super) const CHANNELS: [&str; 2] = ["push", "sms"];
/// Topic of what must always be served at once: the probes.
pub(super) const PROBE: &str = "probe";

/// What everybody reads and writes.
#[derive(Debug, Default)]
struct Shared {
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
    provider: Provider,
}

impl Providers {
    /// Starts them on one free port, a path each.
    pub(super) fn start(began: Instant, seed: u64) -> Result<Providers> {
        let shared = Arc::new(Shared::default());
        let receiving = Arc::clone(&shared);
        let provider = Provider::with_ledger(move |call| receiving.receive(call, began, seed));
        Ok(Providers { shared, provider: provider.context("no free port on 127.0.0.1")? })
    }

    /// Where a channel's provider listens.
    pub(super) fn url(&self, channel: &str) -> String {
        self.provider.url(&format!("/{channel}"))
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
    fn receive(&self, call: &Call, began: Instant, seed: u64) -> Reply {
        let at = Micros::try_from((call.at - began).as_micros()).unwrap_or(Micros::MAX);
        let body: serde_json::Value = serde_json::from_slice(&call.body).unwrap_or_default();
        let arrival = Arrival::of(call, at, body["payload"]["n"].as_i64(), None);
        let Some(mut arrival) = arrival else { return Reply::status(400) };
        let is_down = CHANNELS
            .iter()
            .zip(&self.is_down)
            .any(|(channel, is_down)| *channel == arrival.channel && is_down.load(Ordering::Relaxed));
        let reply = match body["topic"].as_str() {
            Some(PROBE) => Reply::ok(),
            _ if is_down => Reply::status(503),
            _ => draw(seed, &arrival),
        };
        arrival.answer = reply.answers().into();
        let mut ledger = self.lock();
        if arrival.answer == Answer::Accepted {
            ledger.accepted.insert(arrival.subject.clone());
        }
        ledger.arrivals.push(arrival);
        reply
    }
}

/// What comes of one call, of 1,000. What is refused for good is so on every channel: a dead letter for the operator.
fn draw(seed: u64, call: &Arrival) -> Reply {
    let roll = |what: (&str, u32)| {
        let mut hasher = DefaultHasher::new();
        (seed, &call.subject, what).hash(&mut hasher);
        hasher.finish() % 1000
    };
    let quick = Duration::from_millis(1 + roll(("quick", call.attempt)) % 40);
    if roll(("dead", 0)) < 5 && call.attempt < 6 {
        return Reply::status(422).after(quick);
    }
    match roll((&call.channel, call.attempt)) {
        0..30 => Reply::status(503).after(quick),
        30..35 => Reply::status(404).after(quick),
        35..45 => Reply::reset().after(quick),
        // Longer than the caller waits.
        45..52 => Reply::ok().after(CALL_TIMEOUT + quick * 20),
        52..100 => Reply::ok().after(quick * 30),
        _ => Reply::ok().after(quick),
    }
}
