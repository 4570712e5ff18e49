//! Whether the instance should be given work: it has started, does not drain, and can use what it stands on.
//!
//! **Guarantee.** It answers in time, and however often it is asked, it asks Postgres and Redis twice a second at most.
//! **Limit.** It says whether this instance can work, not whether the work gets done: `outboxd.health` does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::{StatusCode, request};
use axum::response::{IntoResponse, Response};
use secrecy::SecretSlice;
use serde::Serialize;
use tokio::sync::{Mutex, SetOnce};
use tokio_util::sync::CancellationToken;

use super::access::SigningKey;
use super::problem::{Kind, Problem};
use crate::channel::availability::Availability;
use crate::queue::events::EventStreams;
use crate::queue::{self, Queue};
use crate::store::migrate;
use crate::store::{self, Store};

/// How long one check may take; shorter than the patience of probes.
const CHECK_TIME_MAX: Duration = Duration::from_millis(1500);
/// How old an answer may be: anyone may ask, and asking must not cost the database.
const REPORT_AGE_MAX: Duration = Duration::from_millis(500);

/// What a started instance stands on.
#[derive(Debug)]
pub struct Parts {
    /// The record.
    pub store: Store,
    /// The queue.
    pub queue: Arc<dyn Queue>,
    /// What may not be called now.
    pub availability: Arc<Availability>,
    /// The names of all channels.
    pub channels: Vec<String>,
    /// Domain events; `None`: there is no Redis.
    pub events: Option<EventStreams>,
}

/// Shared by the instance, which tells, and the endpoints, which ask.
#[derive(Debug)]
pub struct Readiness {
    shutdown: CancellationToken,
    signing_key: SigningKey,
    parts: SetOnce<Parts>,
    report: Mutex<Option<(Instant, Report)>>,
}

/// The answer, check by check.
#[derive(Debug, Clone, Serialize)]
struct Report {
    status: &'static str,
    checks: Vec<Check>,
}

/// No details: anyone may ask. They are in the logs and in `outboxd check`.
#[derive(Debug, Clone, Serialize)]
struct Check {
    name: &'static str,
    ok: bool,
    text: String,
}

impl Readiness {
    /// Not ready before [`Readiness::started`], nor after `shutdown`.
    pub fn new(shutdown: CancellationToken) -> Readiness {
        Readiness { shutdown, signing_key: SigningKey::default(), parts: SetOnce::new(), report: Mutex::new(None) }
    }

    /// The instance works.
    pub fn started(&self, parts: Parts, signing_key: SecretSlice<u8>) {
        // An instance starts once; a second call would have nothing new to say.
        let _ = self.signing_key.set(signing_key);
        let _ = self.parts.set(parts);
    }

    /// What signs sessions and tickets, once the instance works.
    pub(super) fn signing_key(&self) -> SigningKey {
        Arc::clone(&self.signing_key)
    }

    /// Waits until the instance works.
    pub(super) async fn parts(&self) -> &Parts {
        self.parts.wait().await
    }

    /// Waits until the instance is told to stop.
    pub(super) async fn draining(&self) {
        self.shutdown.cancelled().await;
    }

    /// What the instance stands on, once it works.
    pub(super) fn parts_now(&self) -> Option<&Parts> {
        self.parts.get()
    }

    /// The record, once the instance works.
    pub(super) fn store(&self) -> Result<&Store, Problem> {
        let parts = self.parts_now().ok_or_else(|| Problem::new(Kind::Unavailable, "outboxd starts; try again"))?;
        Ok(&parts.store)
    }

    async fn report(&self) -> Report {
        if self.shutdown.is_cancelled() {
            return Report::of(vec![check("accepting", Err("draining".to_owned()))]);
        }
        let Some(parts) = self.parts.get() else {
            return Report::of(vec![check("started", Err("starting".to_owned()))]);
        };
        // Whoever comes meanwhile waits for the one report.
        let mut last = self.report.lock().await;
        if let Some((at, report)) = &*last
            && at.elapsed() < REPORT_AGE_MAX
        {
            return report.clone();
        }
        let report = Report::of(run_checks(parts).await);
        *last = Some((Instant::now(), report.clone()));
        report
    }
}

impl Report {
    fn of(checks: Vec<Check>) -> Report {
        let is_ready = checks.iter().all(|check| check.ok);
        Report { status: if is_ready { "ready" } else { "not ready" }, checks }
    }
}

async fn run_checks(parts: &Parts) -> Vec<Check> {
    let (database, schema, queue) = tokio::join!(
        in_time(async { parts.store.ping().await.map_err(|error| store_trouble(&error)) }),
        in_time(async { parts.store.schema_version().await.map_err(|error| store_trouble(&error)) }),
        in_time(async { parts.queue.depth().await.map_err(|error| queue_trouble(&error)) }),
    );
    vec![
        check("started", Ok("started".to_owned())),
        check("accepting", Ok("not draining".to_owned())),
        check("database", database.map(|()| "answers".to_owned())),
        check("schema", schema.and_then(judge_schema)),
        check("queue", queue.map(|depth| format!("{} waiting, {} in flight", depth.waiting, depth.in_flight))),
    ]
}

fn judge_schema(found: i64) -> Result<String, String> {
    let needed = migrate::newest();
    // A newer schema is fine: an old and a new binary run side by side during a deploy.
    if found >= needed {
        Ok(format!("at migration {found}"))
    } else {
        Err(format!("at migration {found}, this binary needs {needed}; run outboxd migrate"))
    }
}

async fn in_time<T>(check: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    match tokio::time::timeout(CHECK_TIME_MAX, check).await {
        Ok(found) => found,
        Err(_) => Err(format!("no answer within {}", humantime::format_duration(CHECK_TIME_MAX))),
    }
}

fn store_trouble(error: &store::Error) -> String {
    match error {
        store::Error::Unavailable(_) => "unavailable",
        store::Error::Contention(_) | store::Error::Locked(_) => "busy",
        store::Error::Refused(_) => "refuses us",
        store::Error::Value(_) | store::Error::Bug(_) => "does not understand us",
    }
    .to_owned()
}

fn queue_trouble(error: &queue::Error) -> String {
    match error {
        queue::Error::Unavailable(_) => "unavailable",
        queue::Error::Full(_) => "full",
        queue::Error::Unusable(_) => "unusable",
    }
    .to_owned()
}

fn check(name: &'static str, outcome: Result<String, String>) -> Check {
    match outcome {
        Ok(text) => Check { name, ok: true, text },
        Err(text) => Check { name, ok: false, text },
    }
}

/// The database, for handlers; 503 while the instance starts.
#[derive(Debug)]
pub(super) struct Ready(pub(super) Store);

impl FromRequestParts<Arc<Readiness>> for Ready {
    type Rejection = Problem;

    async fn from_request_parts(_: &mut request::Parts, readiness: &Arc<Readiness>) -> Result<Ready, Problem> {
        Ok(Ready(readiness.store()?.clone()))
    }
}

/// `/readyz`
pub(super) async fn show(State(readiness): State<Arc<Readiness>>) -> Response {
    let report = readiness.report().await;
    let is_ready = report.checks.iter().all(|check| check.ok);
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(report)).into_response()
}
