//! `/v1/live`: domain events for an app's own clients, over WebSocket.
//!
//! Every instance reads the event streams for itself, on one connection over all topics that somebody here listens to,
//! and fans out to its own sessions. So it does not matter which instance a client reaches, nor which one appended.
//!
//! ```text
//! Redis streams ── reader ── hub ──┬─ mailbox ── session ── WebSocket
//!                    ▲             ├─ mailbox ── session ── WebSocket
//!                    └ positions   └─ …
//! ```
//!
//! **Guarantee.** A session gets the events of its topics in the order of their streams, each once, or is told of a gap.
//! A client that comes back with the position it has gets what it lacks, as far as the stream holds it. **Limit.** The
//! streams' own: an event that the app replays comes again under a new position. A client that is too slow is dropped.
//!
//! Bounded: sessions, topics of a session and of an instance, what waits for a client, what a client may send, how far
//! it may be behind. Metrics: `outboxd_live_*`.
//!
//! May change: bounds. Must not: the form of messages, for which `docs/live.md` is the contract, or a session that
//! waits for another one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::{Extension, RawQuery, State};
use axum::http::HeaderMap;
use axum::http::header::SEC_WEBSOCKET_PROTOCOL;
use axum::middleware;
use axum::response::Response;
use axum::routing::{get, post};
use metrics::counter;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Readiness;
use super::access::{self, Access, Standing};
use super::connections::Visitor;
use super::problem::{Kind, Problem};
use super::share::{Refusal, Right, Shares};
use crate::config::{LiveConfig, Scope};
use crate::queue::events::Feed;
use hub::{Hub, Listener};
use request::Asked;
use session::{Room, Session};
use socket::Upgrade;

mod end;
mod frame;
mod hub;
mod mailbox;
mod reader;
mod replay;
mod request;
mod session;
mod socket;
pub(super) mod tickets;

/// What a client does with a topic.
const LISTEN: &str = "listen to";
/// Before the ticket, among the subprotocols that a client offers.
const TICKET: &str = "ticket.";
/// Sessions of one ticket: a user's tabs and devices.
const OF_TICKET_MAX: usize = 16;
/// Clients that are being told why they were not let in. Of more the next ones are refused without an upgrade.
const REFUSED_MAX: usize = 32;
/// Sessions that have ended, are being told so, and have given their places to others meanwhile.
const ENDED_MAX: usize = 64;
/// Clients that read what they lack from Redis at a time; the others wait.
const REPLAYS_MAX: usize = 8;

/// What a session ends with at the latest.
#[derive(Debug)]
enum Ends {
    /// Its ticket.
    At(Instant),
    /// The dashboard's session by which it was let in, if it was by one.
    WithSession(Standing),
}

impl Ends {
    /// Waits until then.
    async fn over(&self) {
        match self {
            Ends::At(until) => tokio::time::sleep_until(*until).await,
            Ends::WithSession(standing) => standing.ended().await,
        }
    }
}

/// The live feed of one instance.
#[derive(Debug)]
pub(super) struct Live {
    config: LiveConfig,
    access: Arc<Access>,
    readiness: Arc<Readiness>,
    hub: Hub,
    /// Set once the instance works, if it has a Redis.
    feed: OnceLock<Arc<Feed>>,
    shares: Shares,
    refused: Arc<Semaphore>,
    ended: Arc<Semaphore>,
    replays: Semaphore,
    /// Every session, to be waited for.
    sessions: TaskTracker,
    closing: CancellationToken,
    next: AtomicU64,
}

impl Live {
    pub(super) fn new(config: &LiveConfig, access: Arc<Access>, readiness: Arc<Readiness>) -> Arc<Live> {
        Arc::new(Live {
            config: config.clone(),
            access,
            readiness,
            hub: Hub::default(),
            feed: OnceLock::new(),
            shares: Shares::new(config.sessions_max),
            refused: Arc::new(Semaphore::new(REFUSED_MAX)),
            ended: Arc::new(Semaphore::new(ENDED_MAX)),
            replays: Semaphore::new(REPLAYS_MAX),
            sessions: TaskTracker::new(),
            closing: CancellationToken::new(),
            next: AtomicU64::new(0),
        })
    }

    /// Reads and fans out until the instance drains or `stop`; then every session is closed and waited for.
    pub(super) async fn run(&self, stop: &CancellationToken) {
        let read = async {
            let Some(streams) = self.readiness.parts().await.events.clone() else {
                return self.closing.cancelled().await;
            };
            let feed = Arc::clone(self.feed.get_or_init(|| Arc::new(streams.feed())));
            reader::run(&self.hub, &feed, &self.closing).await;
        };
        let close = async {
            stop.run_until_cancelled(self.readiness.draining()).await;
            self.closing.cancel();
        };
        tokio::join!(self.closing.run_until_cancelled(read), close);
        self.sessions.close();
        self.sessions.wait().await;
    }

    /// The feed, once there is one.
    fn feed(&self) -> Result<Arc<Feed>, Problem> {
        if self.closing.is_cancelled() {
            return Err(Problem::new(Kind::Unavailable, "this instance stops; reconnect"));
        }
        match (self.feed.get(), self.readiness.parts_now()) {
            (Some(feed), _) => Ok(Arc::clone(feed)),
            (None, Some(parts)) if parts.events.is_none() => {
                let detail = "events need Redis: set redis_url (REDIS_URL), with queue.kind stream or list";
                Err(Problem::new(Kind::NotImplemented, detail))
            }
            _ => Err(Problem::new(Kind::Unavailable, "this instance is starting")),
        }
    }

    /// Who listens by which right; narrows what was asked to that. Returns the right, and when it ends.
    async fn admit(&self, asked: &mut Asked, headers: &HeaderMap, visitor: &Visitor) -> Result<(Right, Ends), Problem> {
        let peer = visitor.peer();
        let Some(ticket) = asked.ticket.take().or_else(|| offered_ticket(headers)) else {
            let (caller, standing) = self.access.listener(headers, &self.config.allowed_origins, visitor).await?;
            if !caller.may_see_payloads() {
                caller.check(Scope::Write)?;
            }
            asked.wanted.iter().try_for_each(|wanted| caller.check_topic(LISTEN, &wanted.topic))?;
            visitor.is_known(self.access.token_of(&caller))?;
            // A program that forgets its sessions leaves room for the others; without tokens there are no others.
            let all = self.config.sessions_max;
            let max = if self.access.is_open() { all } else { all.div_ceil(2) };
            let token = caller.name().to_owned();
            let right = Right { name: format!("token {token}"), max, token, peer };
            return Ok((right, Ends::WithSession(standing)));
        };
        let name = format!("ticket {ticket}");
        let (caller, ticket) = self.access.redeem(&ticket)?;
        // Whoever holds it shall not use up what its token may ask.
        visitor.is_known(None)?;
        let right = Right { name, max: OF_TICKET_MAX, token: caller.name().to_owned(), peer };
        let refused = |what: &str| Err(Problem::new(Kind::Forbidden, format!("this ticket is not good for {what}")));
        if let Some(wanted) = asked.wanted.iter().find(|wanted| !ticket.topics.iter().any(|t| **t == *wanted.topic)) {
            return refused(&format!("the topic {:?}", wanted.topic));
        }
        if ticket.key.is_some() && asked.key.is_some() && asked.key != ticket.key {
            return refused("this key");
        }
        asked.wanted.iter().try_for_each(|wanted| caller.check_topic(LISTEN, &wanted.topic))?;
        let until = Instant::now() + ticket.left();
        asked.key = asked.key.take().or(ticket.key);
        Ok((right, Ends::At(until)))
    }
}

/// What needs a caller: `POST /v1/live/tickets`.
pub(super) fn ticket_routes(live: Arc<Live>) -> Router {
    Router::new()
        .route("/v1/live/tickets", post(tickets::issue))
        .route_layer(middleware::from_fn_with_state(Scope::Write, access::require))
        .with_state(live)
}

/// What finds out by itself who asks, because a ticket stands above cookies and origins: `GET /v1/live`.
pub(super) fn routes(live: Arc<Live>) -> Router {
    Router::new().route("/v1/live", get(connect)).with_state(live)
}

async fn connect(
    State(live): State<Arc<Live>>,
    Extension(visitor): Extension<Visitor>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    upgrade: Result<Upgrade, Problem>,
) -> Result<Response, Problem> {
    let mut asked = request::parse(query.as_deref().unwrap_or_default())?;
    let (right, ends) = live.admit(&mut asked, &headers, &visitor).await?;
    // Before the check whether we stop, so that whoever is let in is waited for.
    let joined = live.sessions.token();
    let feed = live.feed()?;
    let upgrade = upgrade?;
    let refuse = |detail: &str| {
        counter!("outboxd_live_refused_total").increment(1);
        Problem::new(Kind::Unavailable, detail)
    };
    let token = (!live.access.is_open()).then(|| Arc::from(&*right.token));
    let room = match live.shares.take(right) {
        Ok(share) => Room::Held(share),
        Err(Refusal::OfRight) => {
            let told = Arc::clone(&live.refused).try_acquire_owned();
            Room::None(told.map_err(|_| refuse("this ticket or token has as many sessions as it may; close some"))?)
        }
        Err(Refusal::Full) => {
            return Err(refuse("this instance has as many sessions as it may (live.sessions_max)"));
        }
    };
    let listener = Listener {
        number: live.next.fetch_add(1, Ordering::Relaxed),
        token,
        key: asked.key.map(Arc::from),
        mailbox: Arc::default(),
    };
    let session = Session { live: Arc::clone(&live), feed, wanted: asked.wanted, listener, ends, room };
    Ok(upgrade.answer(move |socket| async move {
        session.run(socket).await;
        drop(joined);
    }))
}

/// The ticket among the subprotocols that a client offers: all that a browser lets a page choose.
fn offered_ticket(headers: &HeaderMap) -> Option<String> {
    let mut offered = socket::names(headers, &SEC_WEBSOCKET_PROTOCOL);
    offered.find_map(|name| name.strip_prefix(TICKET)).map(str::to_owned)
}
