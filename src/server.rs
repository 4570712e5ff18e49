//! HTTP: whether the instance lives and is ready, its metrics and version; the API, the live feed and the dashboard.
//!
//! | path | answers | who may ask |
//! |---|---|---|
//! | `/livez` | 200 as long as the process runs, from before it is ready until after the drain | anyone |
//! | `/readyz` | 200, or 503 while starting, draining or without Postgres, queue or schema | anyone |
//! | `/metrics` | Prometheus text | scope `read` |
//! | `/version` | version, commit, schema | scope `read` |
//! | `/v1/live` | domain events over WebSocket; see `live` | a ticket, or a token that may see payloads or write |
//! | `/v1/live/tickets` | POST: a ticket for an app's own client | scope `write` |
//! | `/openapi.json` | what `/v1/…` takes and gives | any token |
//! | `/v1/…` | notifications, views, actions; see `api` | by scope |
//! | `/`, `/notifications`, `/dead`, … | the dashboard; see `dashboard` | scope `read`; to act, `operate` |
//! | `/login`, `/logout` | POST: from a token to the dashboard's session and back | anyone |
//!
//! Off loopback a token is required at start; see `access`. What is asked is bounded: connections, the size and time of
//! a request's head, its body, and the time of an answer.
//!
//! **Guarantee.** It answers from before the instance is ready until after its drain. **Limit.** It shows what this
//! instance knows; `outboxd.health` shows the installation.
//!
//! May change: what is served, and its bounds. Must not: a path without a scope that shows more than a probe needs, a
//! request without a bound, or one that takes the stages' connections to Postgres.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::config::{Config, Role, Scope};
use crate::failpoint;
use crate::telemetry::recorder;

mod access;
mod api;
mod browser;
mod connections;
mod dashboard;
mod live;
mod metrics;
mod problem;
mod readiness;
mod sampler;
mod share;
mod version;

use access::Access;
pub use api::openapi;
use live::Live;
use problem::{Kind, Problem};
pub use readiness::{Parts, Readiness};

/// Bytes of a request's body at most.
const BODY_BYTES_MAX: usize = 1 << 20;
/// Of a form's: some are read before it is known who sends them.
const FORM_BYTES_MAX: usize = 16 << 10;
/// How long an answer may take to be made.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

/// The address cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {addr} (http_addr): {why}{}", self.advice())]
pub struct Error {
    addr: SocketAddr,
    /// Not its source: it is in the text already.
    why: io::Error,
}

impl Error {
    /// Whether another configuration is the only cure; else the address may become free.
    pub fn is_configuration(&self) -> bool {
        matches!(self.why.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::AddrNotAvailable)
    }

    fn advice(&self) -> &'static str {
        match self.why.kind() {
            io::ErrorKind::AddrInUse => "; another program listens there: stop it, or set OUTBOXD_HTTP_ADDR",
            io::ErrorKind::AddrNotAvailable => "; this machine has no such address: set OUTBOXD_HTTP_ADDR",
            io::ErrorKind::PermissionDenied => "; use a port of 1024 or above",
            _ => "",
        }
    }
}

/// The HTTP side of one instance; listens from [`Api::bind`] on, if the instance has the role.
#[derive(Debug)]
pub struct Api(Option<Bound>);

#[derive(Debug)]
struct Bound {
    listener: TcpListener,
    router: Router,
    readiness: Arc<Readiness>,
    live: Arc<Live>,
    stop: CancellationToken,
}

impl Api {
    /// Listens on `http_addr` if the instance has the role `api`. From here on metrics are kept.
    pub async fn bind(config: &Config, roles: &BTreeSet<Role>, readiness: Arc<Readiness>) -> Result<Api, Error> {
        if !roles.contains(&Role::Api) {
            return Ok(Api(None));
        }
        let (listener, addr) = listen(config).await?;
        let access = Arc::new(Access::new(config, readiness.signing_key()));
        info!(%addr, token = !access.is_open(), "listening");
        recorder::handle();
        let stop = CancellationToken::new();
        let live = Live::new(&config.live, Arc::clone(&access), Arc::clone(&readiness));
        let pages = dashboard::routes(config, Arc::clone(&readiness), stop.clone());
        let router = router(access, Arc::clone(&readiness), &live, pages);
        Ok(Api(Some(Bound { listener, router, readiness, live, stop })))
    }

    /// Whether [`Api::bind`] could listen now.
    pub async fn probe(config: &Config, roles: &BTreeSet<Role>) -> Result<(), Error> {
        if roles.contains(&Role::Api) { listen(config).await.map(|_| ()) } else { Ok(()) }
    }

    /// Serves for as long as `work` goes on, in a task of its own: a busy instance still answers its probes.
    pub async fn beside<T>(self, work: impl Future<Output = T>) -> T {
        let Some(Bound { listener, router, readiness, live, stop }) = self.0 else { return work.await };
        // Should nobody wait for us any more, the server ends as well.
        let end = stop.clone().drop_guard();
        let server = tokio::spawn(async move {
            let serve = connections::run(listener, router, &stop);
            tokio::join!(serve, sampler::run(&readiness, &stop), live.run(&stop));
        });
        let outcome = work.await;
        drop(end);
        if let Err(error) = server.await {
            warn!(%error, "the HTTP server failed");
        }
        outcome
    }
}

async fn listen(config: &Config) -> Result<(TcpListener, SocketAddr), Error> {
    let failed = |why| Error { addr: config.http_addr, why };
    let listener = TcpListener::bind(config.http_addr).await.map_err(failed)?;
    let addr = listener.local_addr().map_err(failed)?;
    Ok((listener, addr))
}

fn router(access: Arc<Access>, readiness: Arc<Readiness>, live: &Arc<Live>, pages: Router) -> Router {
    let is_open = access.is_open();
    let health = Router::new().route("/livez", get(|| async { "alive\n" })).route("/readyz", get(readiness::show));
    let health = health.with_state(Arc::clone(&readiness));
    let guarded = Router::new()
        .route("/metrics", get(metrics::show))
        .route("/version", get(version::show))
        .route_layer(middleware::from_fn_with_state(Scope::Read, access::require));
    let mut router = guarded
        .with_state(Arc::clone(&readiness))
        .merge(api::routes(readiness))
        .merge(live::ticket_routes(Arc::clone(live)))
        .merge(access::routes(Arc::clone(&access)).merge(pages).layer(DefaultBodyLimit::max(FORM_BYTES_MAX)))
        .fallback(async || Problem::new(Kind::NotFound, "there is nothing under this path"))
        .layer(middleware::from_fn_with_state(access, access::identify))
        // What a probe carries is not looked at.
        .merge(health)
        .merge(live::routes(Arc::clone(live)))
        .method_not_allowed_fallback(async || {
            Problem::new(Kind::MethodNotAllowed, "this path does not take this method; see Allow")
        })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn(within_time));
    if is_open {
        router = router.layer(middleware::from_fn(browser::only_from_here));
    }
    router.layer(middleware::map_response(browser::add_headers))
}

async fn within_time(request: Request, next: Next) -> Response {
    failpoint::hit("in_request").await;
    match tokio::time::timeout(ANSWER_TIME_MAX, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Problem::new(Kind::Unavailable, "there was no answer in time").into_response(),
    }
}
