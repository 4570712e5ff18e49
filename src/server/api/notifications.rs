//! `GET /v1/notifications…`: one with what was tried, or a search.
//!
//! **Guarantee.** A search is bounded in time and rows, and goes on where it ended. **Limit.** Pages are no snapshot:
//! what changes meanwhile may be seen twice or not at all.

use axum::Json;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::input::{InPath, InQuery};
use super::redact;
use crate::config::Scope;
use crate::notification::Status;
use crate::server::access::Caller;
use crate::server::problem::{Kind, Problem, Shape};
use crate::server::readiness::Ready;
use crate::store::Store;
use crate::store::found::{Details, Found};
use crate::store::search::{Filter, Position};

/// Notifications of a page, unless told otherwise, and at most.
const PAGE: usize = 50;
const PAGE_MAX: usize = 200;

/// One notification with its attempts.
///
/// A token with topics is told of these alone.
#[utoipa::path(
    get,
    path = "/v1/notifications/{id}",
    operation_id = "getNotification",
    tag = "notifications",
    params(("id" = i64, Path, description = "The id that was given when it was written")),
    responses(
        (status = 200, description = "Where it is", body = Details),
        (status = 404, description = "There is none, or its retention has passed", body = Shape)
    )
)]
pub(super) async fn show(
    caller: Caller,
    Ready(store): Ready,
    InPath(id): InPath<i64>,
) -> Result<Json<Details>, Problem> {
    if caller.scope() != Scope::Write {
        caller.check(Scope::Read)?;
    }
    let details = details(&store, &caller, id).await?.ok_or_else(|| no_notification(id))?;
    Ok(Json(details))
}

pub(super) fn no_notification(id: i64) -> Problem {
    Problem::new(Kind::NotFound, format!("there is no notification {id}; its retention may have passed"))
}

/// One notification as this caller may see it.
pub(in crate::server) async fn details(store: &Store, caller: &Caller, id: i64) -> Result<Option<Details>, Problem> {
    let details = store.read_notification(id).await?;
    let mut details = details.filter(|details| caller.may_use_topic(&details.found.topic));
    // Who acted is for those who act.
    if caller.check(Scope::Operate).is_err() {
        details.iter_mut().filter_map(|details| details.waits.as_mut()).for_each(|waits| waits.paused_by = None);
    }
    if !caller.may_see_payloads() {
        details.iter_mut().for_each(redact::details);
    }
    Ok(details)
}

/// What is searched for; everything that is given must hold.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(in crate::server) struct Asked {
    /// Its topic.
    topic: Option<String>,
    /// PENDING, QUEUED, PROCESSING, SENT, FAILED or CANCELED.
    #[param(pattern = "^(PENDING|QUEUED|PROCESSING|SENT|FAILED|CANCELED)?$")]
    status: Option<String>,
    /// Its recipient, whole.
    recipient: Option<String>,
    /// Created at or after this time.
    since: Option<DateTime<Utc>>,
    /// Created at or before this time.
    until: Option<DateTime<Utc>>,
    /// An id, a dedup_key, or a JSON object that the payload contains; the last needs a token that may see payloads.
    q: Option<String>,
    /// Notifications at most, 1 to 200; 50 unless told otherwise.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<usize>,
    /// `next` of the page before.
    #[param(min_length = 1)]
    cursor: Option<String>,
}

/// A page of a search.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::server) struct Listed {
    /// What was found, without payload and headers.
    notifications: Vec<Found>,
    /// The `cursor` of the next page; null: there is no more.
    next: Option<String>,
    /// How far back this one searched, if it did not fill the page although there may be more: a search scans for a bounded
    /// time. Go on with `next`.
    scanned_to: Option<DateTime<Utc>>,
}

/// Searches notifications, a bounded scan at a time.
///
/// FAILED ones come last failed first, PENDING ones by topic and time, all others newest first.
#[utoipa::path(
    get,
    path = "/v1/notifications",
    operation_id = "searchNotifications",
    tag = "notifications",
    params(Asked),
    responses(
        (status = 200, description = "A page", body = Listed),
        (status = 400, description = "A parameter cannot be read", body = Shape),
        (status = 403, description = "The token may not search payloads, or not this topic", body = Shape)
    )
)]
pub(super) async fn list(
    caller: Caller,
    Ready(store): Ready,
    InQuery(asked): InQuery<Asked>,
) -> Result<Json<Listed>, Problem> {
    search(&store, &caller, asked).await.map(Json)
}

/// A page of what this caller asks for, as it may see it.
pub(in crate::server) async fn search(store: &Store, caller: &Caller, asked: Asked) -> Result<Listed, Problem> {
    let limit = asked.limit.unwrap_or(PAGE);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(Problem::new(Kind::BadRequest, format!("limit is 1 to {PAGE_MAX}")));
    }
    let from = asked.cursor.as_deref().map(position).transpose()?;
    let text = asked.q.as_deref().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
    let mut filter = filter(asked)?;
    narrow(caller, &mut filter)?;
    if from.as_ref().is_some_and(|from| !from.is_of(&filter)) {
        return Err(no_cursor());
    }
    let mut listed = match text {
        Some(text) if text.starts_with('{') => {
            if !caller.may_see_payloads() {
                let name = caller.name();
                let detail = format!("the token {name:?} may not search payloads (tokens.{name}.payloads)");
                return Err(Problem::new(Kind::Forbidden, detail));
            }
            filter.contains = Some(text);
            scan(store, &filter, from, limit).await?
        }
        Some(text) => {
            let notifications = named(store, caller, &text, &filter, limit).await?;
            Listed { notifications, next: None, scanned_to: None }
        }
        None => scan(store, &filter, from, limit).await?,
    };
    if !caller.may_see_payloads() {
        listed.notifications.iter_mut().for_each(redact::found);
    }
    Ok(listed)
}

/// Leaves what is of the caller's topics. A page of PENDING ones ends at any topic, and where it ended is told, so the
/// topic has to be named.
fn narrow(caller: &Caller, filter: &mut Filter) -> Result<(), Problem> {
    filter.topics = caller.topics();
    if filter.topic.is_none() {
        filter.topic = caller.only_topic().map(str::to_owned);
    }
    match &filter.topic {
        Some(topic) => caller.check_topic("read", topic),
        None if filter.topics.is_some() && filter.status == Some(Status::Pending) => {
            let name = caller.name();
            let detail =
                format!("the token {name:?} lists PENDING ones of one topic: name it, as topic (tokens.{name}.topics)");
            Err(Problem::new(Kind::BadRequest, detail))
        }
        None => Ok(()),
    }
}

async fn scan(store: &Store, filter: &Filter, from: Option<Position>, limit: usize) -> Result<Listed, Problem> {
    let page = store.search(filter, from, limit).await?;
    let next = page.next.as_ref().map(cursor);
    Ok(Listed { notifications: page.notifications, next, scanned_to: page.scanned_to })
}

/// By id or dedup_key; the rest of the filter holds as well.
async fn named(
    store: &Store,
    caller: &Caller,
    text: &str,
    filter: &Filter,
    limit: usize,
) -> Result<Vec<Found>, Problem> {
    let by_id = match text.parse() {
        Ok(id) => store.read_notification(id).await?.map(|details| details.found),
        Err(_) => None,
    };
    let limit = i32::try_from(limit).unwrap_or(i32::MAX);
    let by_key = store.find_by_key(text, filter.topic.as_deref(), filter.topics.as_deref(), limit).await?;
    let matches = |found: &Found| {
        caller.may_use_topic(&found.topic)
            && filter.topic.as_ref().is_none_or(|topic| *topic == found.topic)
            && filter.status.is_none_or(|status| status.name() == found.status)
            && filter.recipient.as_ref().is_none_or(|recipient| *recipient == found.recipient)
            && filter.since.is_none_or(|since| since <= found.created_at)
            && filter.until.is_none_or(|until| found.created_at <= until)
    };
    let mut all: Vec<Found> = by_id.into_iter().chain(by_key).filter(matches).collect();
    all.dedup_by_key(|found| found.id);
    Ok(all)
}

fn filter(asked: Asked) -> Result<Filter, Problem> {
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    let status = match given(asked.status) {
        None => None,
        Some(name) => Some(Status::parse(&name.to_ascii_uppercase()).ok_or_else(|| {
            let known = Status::ALL.map(Status::name).join(", ");
            Problem::new(Kind::BadRequest, format!("status is one of {known}, not {name:?}"))
        })?),
    };
    Ok(Filter {
        topic: given(asked.topic),
        status,
        recipient: given(asked.recipient),
        since: asked.since,
        until: asked.until,
        contains: None,
        topics: None,
    })
}

/// Opaque: what is in it may change.
fn cursor(position: &Position) -> String {
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(position).expect("a position serializes"))
}

fn position(cursor: &str) -> Result<Position, Problem> {
    let decoded = URL_SAFE_NO_PAD.decode(cursor).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    decoded.ok_or_else(no_cursor)
}

fn no_cursor() -> Problem {
    Problem::new(Kind::BadRequest, "cursor is none that outboxd gave for this; begin without one")
}
