//! Three simulated providers: real HTTP servers that write every call into a ledger before they answer it.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use chrono::{DateTime, Utc};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

/// A provider's work takes this long at least and at most.
const LATENCY_MS: std::ops::Range<u64> = 20..120;

/// The channels, in the order of their failover.
pub(super) const CHANNELS: [&str; 3] = ["push", "sms", "alimtalk"];

/// One call as it arrived.
#[derive(Debug, Clone)]
pub(super) struct Call {
    /// The provider's clock, which is the app's too.
    pub(super) at: DateTime<Utc>,
    /// Which provider.
    pub(super) channel: String,
    /// The same on every attempt.
    pub(super) webhook_id: String,
    /// As the app gave it.
    pub(super) recipient: String,
    /// The app's own number, from the payload: what the verdict joins on.
    pub(super) order: Option<i64>,
    /// The answer it was about to get.
    pub(super) status: u16,
}

impl Call {
    /// Whether the provider took it.
    pub(super) fn is_accepted(&self) -> bool {
        self.status < 300
    }
}

#[derive(Debug, Default)]
struct Ledger {
    calls: Vec<Call>,
    accepted: HashSet<i64>,
}

/// What the three providers share.
#[derive(Debug)]
struct Shared {
    ledger: Mutex<Ledger>,
    written: watch::Sender<usize>,
    push_fails: AtomicBool,
}

/// The running providers; they stop when dropped.
#[derive(Debug)]
pub(super) struct Providers {
    shared: Arc<Shared>,
    addr: SocketAddr,
    _serving: AbortOnDropHandle<()>,
}

impl Providers {
    /// Starts them on one free port, a path each.
    pub(super) async fn start() -> Result<Providers> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("no free port on 127.0.0.1")?;
        let addr = listener.local_addr()?;
        let shared = Arc::new(Shared {
            ledger: Mutex::default(),
            written: watch::Sender::new(0),
            push_fails: AtomicBool::new(false),
        });
        let router = Router::new().route("/{channel}", post(answer)).with_state(Arc::clone(&shared));
        let serving = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                eprintln!("outboxd-demo: the simulated providers ended: {error}");
            }
        });
        Ok(Providers { shared, addr, _serving: AbortOnDropHandle::new(serving) })
    }

    /// Where a channel's provider listens.
    pub(super) fn url(&self, channel: &str) -> String {
        format!("http://{}/{channel}", self.addr)
    }

    /// From now on push answers 503, or works again.
    pub(super) fn set_push_fails(&self, fails: bool) {
        self.shared.push_fails.store(fails, Ordering::Relaxed);
    }

    /// Orders that a provider accepted.
    pub(super) fn delivered(&self) -> usize {
        self.shared.lock().accepted.len()
    }

    /// Every call so far, in the order of arrival.
    pub(super) fn calls(&self) -> Vec<Call> {
        self.shared.lock().calls.clone()
    }

    /// The calls after the first `seen`, once there are any.
    pub(super) async fn calls_after(&self, seen: usize) -> Vec<Call> {
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

    fn write(&self, call: Call) {
        let mut ledger = self.lock();
        if call.is_accepted() {
            ledger.accepted.extend(call.order);
        }
        ledger.calls.push(call);
        self.written.send_replace(ledger.calls.len());
    }

    fn decide(&self, channel: &str, recipient: &str) -> StatusCode {
        match channel {
            "push" if self.push_fails.load(Ordering::Relaxed) => StatusCode::SERVICE_UNAVAILABLE,
            // Some numbers are landlines: a permanent refusal, so the next channel has a turn.
            "sms" if recipient.ends_with('7') => StatusCode::UNPROCESSABLE_ENTITY,
            _ => StatusCode::OK,
        }
    }
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    Path(channel): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let at = Utc::now();
    let Ok(envelope) = serde_json::from_slice::<serde_json::Value>(&body) else { return StatusCode::BAD_REQUEST };
    let recipient = envelope["recipient"].as_str().unwrap_or_default().to_owned();
    let status = shared.decide(&channel, &recipient);
    let webhook_id = headers.get("webhook-id").and_then(|id| id.to_str().ok()).unwrap_or_default().to_owned();
    let order = envelope["payload"]["order"].as_i64();
    shared.write(Call { at, channel, webhook_id, recipient, order, status: status.as_u16() });
    if status.is_success() {
        tokio::time::sleep(Duration::from_millis(rand::random_range(LATENCY_MS))).await;
    }
    status
}
