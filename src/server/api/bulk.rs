//! `/v1/bulk`: what matches a filter is retried, discarded or canceled, here or in the background.
//!
//! **Guarantee.** Unless told otherwise it only counts. **Limit.** What is written after it began is left out.

use axum::Json;
use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::input::{self, InPath, JsonBytes};
use super::{reach, redact};
use crate::server::access::Caller;
use crate::server::problem::{Kind, Problem, Shape};
use crate::server::readiness::Ready;
use crate::store::action::{Bulk, BulkAction, BulkRun};

/// What a bulk action is about; everything that is given must hold.
#[derive(ToSchema)]
#[schema(as = BulkFilter)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes the filter, which Postgres reads")]
struct Filter {
    /// Its topic.
    #[schema(nullable = false)]
    topic: Option<String>,
    /// Due, or for a retry or discard failed, at or after this time.
    #[schema(nullable = false)]
    since: Option<DateTime<Utc>>,
    /// Due, or for a retry or discard failed, before this time.
    #[schema(nullable = false)]
    until: Option<DateTime<Utc>>,
    /// Its recipient, whole.
    #[schema(nullable = false)]
    recipient: Option<String>,
    /// Nothing written after the notification of this id.
    #[schema(nullable = false)]
    id_max: Option<i64>,
    /// Of a retry or discard: a LIKE pattern for its error.
    #[schema(nullable = false)]
    error_like: Option<String>,
    /// Of a retry or discard: its cause, as the dead letters are grouped by it.
    #[schema(nullable = false)]
    cause: Option<String>,
    /// Of a retry or discard: the channel that failed last.
    #[schema(nullable = false)]
    channel: Option<String>,
    /// Of a retry or discard: what the provider answered last.
    #[schema(nullable = false)]
    http_status: Option<i16>,
}

/// What to do, to which.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted<'a> {
    /// retry: dead letters back to work. discard: dead letters that nobody will retry. cancel: what waits is taken back.
    action: BulkAction,
    /// topic, since, until, recipient, id_max; for retry and discard also error_like, cause, channel, http_status.
    #[serde(borrow)]
    #[schema(value_type = Filter)]
    filter: &'a RawValue,
    /// Whether only to count; true unless told otherwise.
    dry_run: Option<bool>,
}

/// Retries, discards or cancels what matches a filter; unless told otherwise it only counts.
///
/// Up to 1,000 are changed at once. More go on in the background, and `bulk_id` says under which number.
#[utoipa::path(
    post,
    path = "/v1/bulk",
    operation_id = "startBulkAction",
    tag = "actions",
    request_body = Wanted<'_>,
    responses(
        (status = 200, description = "What matched and what was done", body = Bulk),
        (status = 422, description = "The filter is not understood", body = Shape)
    )
)]
pub(super) async fn start(
    caller: Caller,
    Ready(store): Ready,
    JsonBytes(body): JsonBytes,
) -> Result<Json<Bulk>, Problem> {
    let wanted: Wanted<'_> = input::parse(&body)?;
    if !wanted.filter.get().starts_with('{') {
        return Err(Problem::new(Kind::Invalid, "filter is an object, such as {\"topic\": \"orders\"}"));
    }
    reach::filter(&caller, wanted.filter.get())?;
    let run = if wanted.dry_run.unwrap_or(true) { BulkRun::Dry } else { BulkRun::Real };
    Ok(Json(store.act_on_all(caller.name(), wanted.action, wanted.filter.get(), run).await?))
}

/// How far a bulk action is: a row of the view bulk_actions.
#[utoipa::path(
    get,
    path = "/v1/bulk/{id}",
    operation_id = "getBulkAction",
    tag = "actions",
    params(("id" = i64, Path, description = "Its bulk_id")),
    responses(
        (status = 200, description = "How far it is", body = Object),
        (status = 404, description = "There is no such bulk action", body = Shape)
    )
)]
pub(super) async fn show(caller: Caller, Ready(store): Ready, InPath(id): InPath<i64>) -> Result<Json<Value>, Problem> {
    let mut row = store
        .read_bulk_action(id)
        .await?
        .filter(|row| reach::covers(&caller, &row["filter"]))
        .ok_or_else(|| no_bulk(id))?;
    if !caller.may_see_payloads() {
        redact::row(&mut row);
    }
    Ok(Json(row))
}

pub(super) fn no_bulk(id: i64) -> Problem {
    Problem::new(Kind::NotFound, format!("there is no bulk action {id}"))
}

/// Ends a bulk action after its current batch; what it has done stays done.
#[utoipa::path(
    post,
    path = "/v1/bulk/{id}/stop",
    operation_id = "stopBulkAction",
    tag = "actions",
    params(("id" = i64, Path, description = "Its bulk_id")),
    responses(
        (status = 204, description = "It is stopped"),
        (status = 404, description = "There is no such bulk action", body = Shape),
        (status = 409, description = "It had ended", body = Shape)
    )
)]
pub(super) async fn stop(caller: Caller, Ready(store): Ready, InPath(id): InPath<i64>) -> Result<StatusCode, Problem> {
    reach::bulk_action(&store, &caller, id).await?;
    store.stop_bulk(caller.name(), id).await?;
    Ok(StatusCode::NO_CONTENT)
}
