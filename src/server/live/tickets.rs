//! `POST /v1/live/tickets`: an app's backend asks for what its clients need to listen.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

use super::Live;
use super::request::{TOPICS_MAX, check_key, check_topic};
use crate::server::access::Caller;
use crate::server::problem::{Kind, Problem};

/// How long a ticket is good for unless the backend says otherwise.
const TTL_S: u64 = 60 * 60;
const TTL_S_MAX: u64 = 24 * 60 * 60;

/// What a client may listen to.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    /// Names of topics, up to 16.
    topics: Vec<String>,
    /// The only key of events that the client sees.
    key: Option<String>,
    /// Seconds, up to a day; an hour if absent.
    ttl: Option<u64>,
}

/// What the client presents.
#[derive(Debug, Serialize)]
pub(super) struct Issued {
    /// For `?ticket=…`, or as `ticket.…` in Sec-WebSocket-Protocol.
    ticket: String,
    /// RFC 3339, UTC.
    expires_at: String,
}

pub(super) async fn issue(
    State(live): State<Arc<Live>>,
    caller: Caller,
    asked: Result<Json<Asked>, JsonRejection>,
) -> Result<(StatusCode, Json<Issued>), Problem> {
    let bad = |detail: String| Problem::new(Kind::BadRequest, detail);
    let Json(Asked { topics, key, ttl }) = asked.map_err(|rejection| bad(rejection.body_text()))?;
    if !(1..=TOPICS_MAX).contains(&topics.len()) {
        return Err(bad(format!("topics names 1 to {TOPICS_MAX} topics")));
    }
    for topic in &topics {
        check_topic(topic)?;
        if !caller.may_use_topic(topic) {
            let detail = format!("the token {:?} may not listen to {topic:?} (tokens.*.topics)", caller.name());
            return Err(Problem::new(Kind::Forbidden, detail));
        }
    }
    check_key(key.as_deref())?;
    let ttl = ttl.unwrap_or(TTL_S);
    if !(1..=TTL_S_MAX).contains(&ttl) {
        return Err(bad(format!("ttl is a number of seconds from 1 to {TTL_S_MAX}")));
    }
    let (ticket, until_s) = live.access.issue(&caller, topics, key, Duration::from_secs(ttl));
    let until = chrono::DateTime::from_timestamp(i64::try_from(until_s).unwrap_or(i64::MAX), 0).unwrap_or_default();
    let expires_at = until.to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
    Ok((StatusCode::CREATED, Json(Issued { ticket, expires_at })))
}
