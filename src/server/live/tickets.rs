//! `POST /v1/live/tickets`: an app's backend asks for what its clients need to listen.
//!
//! **Guarantee.** A ticket is good for no more than the token that asks for it. **Limit.** It is good until it ends;
//! `access::ticket` says how all are ended.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Schema, Type};

use super::request::{TOPICS_MAX, check_key, check_topic};
use super::{LISTEN, Live};
use crate::config::TOPIC_BYTES_MAX;
use crate::server::access::Caller;
use crate::server::api::input::{self, JsonBytes};
use crate::server::problem::{Kind, Problem, Shape};

/// How long a ticket is good for unless the backend says otherwise.
const TTL_S: u64 = 60 * 60;
const TTL_S_MAX: u64 = 24 * 60 * 60;

/// What a client may listen to.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = TicketRequest)]
pub(in crate::server) struct Asked {
    /// Names of topics, up to 16.
    #[schema(schema_with = topics)]
    topics: Vec<String>,
    /// The only key of events that the client sees.
    #[schema(min_length = 1, max_length = 512)]
    key: Option<String>,
    /// Seconds, up to a day; an hour if absent.
    #[schema(minimum = 1, maximum = 86400)]
    ttl: Option<u64>,
}

/// What the client presents.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Ticket)]
pub(in crate::server) struct Issued {
    /// For `?ticket=…`, or as `ticket.…` in Sec-WebSocket-Protocol.
    ticket: String,
    /// RFC 3339, UTC.
    expires_at: String,
}

/// A ticket for a client of the live feed, `GET /v1/live`.
#[utoipa::path(
    post,
    path = "/v1/live/tickets",
    tag = "live",
    request_body = Asked,
    responses(
        (status = 201, description = "Give it to the client", body = Issued),
        (status = 403, description = "The token may not write, or not use the topic", body = Shape),
        (status = 422, description = "A value is not one that can be taken", body = Shape)
    )
)]
pub(in crate::server) async fn issue(
    State(live): State<Arc<Live>>,
    caller: Caller,
    JsonBytes(bytes): JsonBytes,
) -> Result<(StatusCode, Json<Issued>), Problem> {
    let Asked { topics, key, ttl } = input::parse(&bytes)?;
    let ttl = ttl.unwrap_or(TTL_S);
    check(&topics, key.as_deref(), ttl).map_err(|detail| Problem::new(Kind::Invalid, detail))?;
    topics.iter().try_for_each(|topic| caller.check_topic(LISTEN, topic))?;
    let (ticket, until_s) = live.access.issue(&caller, topics, key, Duration::from_secs(ttl))?;
    let until = chrono::DateTime::from_timestamp(i64::try_from(until_s).unwrap_or(i64::MAX), 0).unwrap_or_default();
    let expires_at = until.to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
    Ok((StatusCode::CREATED, Json(Issued { ticket, expires_at })))
}

/// The description of a list of topics: each has what `publish()` asks of one.
fn topics() -> Schema {
    let topic = ObjectBuilder::new().schema_type(Type::String).min_length(Some(1)).max_length(Some(TOPIC_BYTES_MAX));
    let topics = ArrayBuilder::new().items(topic).min_items(Some(1)).max_items(Some(TOPICS_MAX));
    topics.description(Some("Names of topics, up to 16.")).into()
}

fn check(topics: &[String], key: Option<&str>, ttl: u64) -> Result<(), &'static str> {
    if !(1..=TOPICS_MAX).contains(&topics.len()) {
        return Err("topics names 1 to 16 topics");
    }
    topics.iter().try_for_each(|topic| check_topic(topic))?;
    check_key(key)?;
    if (1..=TTL_S_MAX).contains(&ttl) { Ok(()) } else { Err("ttl is a number of seconds from 1 to 86400") }
}
