//! A provider that answers at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result};
use outboxd_throwaway::evidence::{Subject, row_of};
use outboxd_throwaway::provider::{Provider, Reply};

/// When each notification arrived first, and how many requests there were.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    /// By notification.
    pub(super) first: HashMap<i64, Instant>,
    /// Repeats included.
    pub(super) requests: usize,
}

/// The running sink; it stops when dropped.
#[derive(Debug)]
pub(super) struct Sink {
    provider: Provider,
    arrivals: Arc<Mutex<Arrivals>>,
}

impl Sink {
    /// Starts it on a free loopback port.
    pub(super) fn start() -> Result<Sink> {
        let arrivals = Arc::new(Mutex::new(Arrivals::default()));
        let written = Arc::clone(&arrivals);
        let provider = Provider::with_ledger(move |call| {
            if let Some(Subject::Row(id, _)) = row_of(&call.webhook_id) {
                let mut arrivals = lock(&written);
                arrivals.requests += 1;
                arrivals.first.entry(id).or_insert(call.at);
            }
            Reply::ok()
        });
        Ok(Sink { provider: provider.context("no free port on 127.0.0.1")?, arrivals })
    }

    /// Where to send.
    pub(super) fn url(&self) -> String {
        self.provider.url("/")
    }

    /// How many notifications have arrived.
    pub(super) fn arrived(&self) -> usize {
        lock(&self.arrivals).first.len()
    }

    /// What has arrived so far; starts anew.
    pub(super) fn take(&self) -> Arrivals {
        std::mem::take(&mut *lock(&self.arrivals))
    }
}

fn lock(arrivals: &Mutex<Arrivals>) -> MutexGuard<'_, Arrivals> {
    arrivals.lock().unwrap_or_else(PoisonError::into_inner)
}
