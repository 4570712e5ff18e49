//! `GET /v1/{view}`: the operators' views as JSON.
//!
//! **Guarantee.** Columns and their names are those of the view in SQL; dead letters come without their payload.
//! **Limit.** In one order, without a filter; a large view is read page by page.

use axum::Json;
use axum::http::Uri;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{IntoParams, PartialSchema, ToSchema};

use super::input::InQuery;
use super::{reach, redact};
use crate::server::access::Caller;
use crate::server::problem::{Kind, Problem, Shape};
use crate::server::readiness::Ready;
use crate::store::view::{Key, VIEWS};

/// Who acted is for those who act.
pub(super) const AUDIT: &str = "audit";
/// Rows, unless told otherwise, and at most.
const ROWS: i32 = 100;
const ROWS_MAX: i32 = 1_000;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct Asked {
    /// Rows at most, 1 to 1000; 100 unless told otherwise.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<i32>,
    /// The `next` of the page before.
    cursor: Option<String>,
}

/// The rows of a view, each an object of its columns; the comments on the view say what they mean.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Rows {
    /// The first ones, in an order that suits the view.
    #[schema(value_type = Vec<Object>)]
    rows: Vec<Value>,
    /// The cursor of the next page. Absent on the last one, and for views of which only the first rows are given: health,
    /// outbox_lag, stuck, throughput and dead_letters, which are searched as notifications.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// The name of a view, for the description of the API.
struct Name;

impl PartialSchema for Name {
    fn schema() -> RefOr<Schema> {
        let names = VIEWS.iter().map(|view| view.name);
        ObjectBuilder::new().schema_type(Type::String).enum_values(Some(names)).into()
    }
}

impl ToSchema for Name {}

/// The rows of a view, page by page.
#[utoipa::path(
    get,
    path = "/v1/{view}",
    operation_id = "readView",
    tag = "views",
    params(("view" = inline(Name), Path, description = "The view's name; audit needs scope operate"), Asked),
    responses(
        (status = 200, description = "Its rows, as many as asked for; of a token with topics, those of its topics", body = Rows),
        (status = 403, description = "The view is about all topics, and the token is not", body = Shape),
        (status = 404, description = "There is no such view", body = Shape)
    )
)]
pub(super) async fn show(
    caller: Caller,
    Ready(store): Ready,
    uri: Uri,
    InQuery(asked): InQuery<Asked>,
) -> Result<Json<Rows>, Problem> {
    let name = uri.path().rsplit('/').next().unwrap_or_default();
    let view = VIEWS
        .iter()
        .find(|view| view.name == name)
        .ok_or_else(|| Problem::new(Kind::NotFound, "there is no such view"))?;
    let limit = asked.limit.unwrap_or(ROWS);
    if !(1..=ROWS_MAX).contains(&limit) {
        return Err(Problem::new(Kind::BadRequest, format!("limit is 1 to {ROWS_MAX}")));
    }
    if !view.is_by_topic {
        reach::everything(&caller, &format!("the view {name}"))?;
    }
    let after = asked.cursor.as_deref().map(|cursor| parse(view.key, cursor)).transpose()?;
    let (mut rows, last) = store.read_view(view, caller.topics().as_deref(), after.as_deref(), limit).await?;
    let is_full = i32::try_from(rows.len()).is_ok_and(|rows| rows >= limit);
    if !caller.may_see_payloads() {
        rows.iter_mut().for_each(redact::row);
    }
    Ok(Json(Rows { rows, next: last.filter(|_| is_full) }))
}

/// The key that a page ended with.
fn parse(key: Key, cursor: &str) -> Result<Vec<String>, Problem> {
    let parts: Option<Vec<String>> = serde_json::from_str(cursor).ok();
    let is_whole = |parts: &Vec<String>| match key {
        Key::None => false,
        Key::Names => parts.iter().all(|part| !part.contains('\0')),
        Key::Number => parts.len() == 1 && parts[0].parse::<i64>().is_ok(),
    };
    parts.filter(is_whole).ok_or_else(|| Problem::new(Kind::BadRequest, "cursor is the `next` of a page of this view"))
}
