//! Retry, discard or cancel of everything that a filter finds: first how many, exactly, then the number typed, then the
//! act.
//!
//! **Guarantee.** What is done is what was counted, never more: the count says up to which notification it counted
//! (`id_max`) and, for dead letters, what failed until when (`until`), and the action keeps to both. **Limit.** What
//! was retried or sent meanwhile by others is not done again, so it may be fewer.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Form, Query, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use minijinja::context;
use serde::Deserialize as _;
use serde::de::IntoDeserializer as _;
use serde::de::value::Error as UnknownName;
use serde_json::{Map, Value};

use super::action::{Fields, answer, said};
use super::render;
use super::view::Viewer;
use super::{Dashboard, Drawn, words};
use crate::server::access::Caller;
use crate::server::api::reach;
use crate::server::problem::{Kind, Problem};
use crate::store::action::{Bulk, BulkAction, BulkRun};

/// The keys of a filter that stand in the address.
const KEYS: [&str; 7] = ["topic", "channel", "cause", "http_status", "error_like", "recipient", "since"];

/// `GET /bulk/new?action=retry&topic=…`: how many it would be.
pub(super) async fn preview(
    State(dashboard): State<Arc<Dashboard>>,
    caller: Caller,
    Query(asked): Query<BTreeMap<String, String>>,
    request: Parts,
) -> Response {
    let mut filter: Map<String, Value> = Map::new();
    for key in KEYS {
        // An empty channel is a filter: none was called.
        let given = asked.get(key).filter(|value| key == "channel" || !value.is_empty());
        filter.extend(given.map(|value| (key.to_owned(), value.as_str().into())));
    }
    let action = asked.get("action").map_or("retry", String::as_str);
    let counted = match kind(action) {
        Ok(kind) => dashboard.bulk(&caller, kind, &Value::Object(filter.clone()).to_string(), BulkRun::Dry).await,
        Err(problem) => Err(problem),
    };
    let is_one = counted.as_ref().is_ok_and(|counted| counted.matched == 1);
    let (title, what) = match (action, is_one) {
        ("cancel", false) => {
            ("Cancel all that wait or are scheduled", "notifications that wait or are scheduled match")
        }
        ("cancel", true) => {
            ("Cancel all that wait or are scheduled", "notification that waits or is scheduled matches")
        }
        ("discard", false) => ("Discard all that match", "dead letters match"),
        ("discard", true) => ("Discard all that match", "dead letter matches"),
        (_, false) => ("Retry all that match", "dead letters match"),
        (_, true) => ("Retry all that match", "dead letter matches"),
    };
    let filters: Vec<Vec<String>> = filter
        .iter()
        .map(|(key, value)| {
            let value = value.as_str().filter(|value| !value.is_empty()).unwrap_or("none");
            vec![key.replace('_', " "), value.to_owned()]
        })
        .collect();
    let page = match &counted {
        Ok(counted) => {
            filter.insert("id_max".to_owned(), counted.id_max.into());
            filter.extend(counted.until.clone().map(|until| ("until".to_owned(), until.into())));
            let filter = Value::Object(filter).to_string();
            let frozen = format!(
                "Only notifications up to {} are touched: what is written or fails from now on stays as it is. Up to 1,000 are done \
                 at once; more are worked off in batches, beside live traffic, and can be stopped.",
                counted.id_max
            );
            let sql =
                format!("SELECT * FROM outboxd.{action}_where('{}', dry_run => false);", filter.replace('\'', "''"));
            let back = if action == "cancel" { "/notifications?status=QUEUED" } else { "/dead" };
            context! { matched => counted.matched, filter, frozen, sql, back }
        }
        Err(problem) => context! { problem => problem.detail() },
    };
    let body = render::render("bulk_new.html", context! { title, what, action, filters, ..page });
    let viewer = Viewer { caller, here: "/bulk/new".to_owned() };
    let alert = dashboard.alert(&viewer).await;
    let drawn = Drawn { status: StatusCode::OK, title: title.to_owned(), parts: render::parts(&body), alert };
    dashboard.page(drawn, "/bulk", false, &viewer, &request)
}

/// `POST /bulk`
pub(super) async fn start(
    State(dashboard): State<Arc<Dashboard>>,
    caller: Caller,
    headers: HeaderMap,
    Form(fields): Form<Fields>,
) -> Response {
    let done = confirmed(&dashboard, &caller, &fields).await;
    dashboard.snapshots.outdate();
    match done {
        Ok((action, Bulk { bulk_id: Some(id), .. })) => {
            said("ok", &format!("Bulk {action} {id} has begun."), &format!("/bulk/{id}"))
        }
        Ok((action, bulk)) => {
            let done = words::count(bulk.done);
            let text = match action {
                "cancel" => format!("{done} canceled."),
                "discard" => format!("{done} discarded."),
                _ if bulk.done == 1 => "1 is tried again.".to_owned(),
                _ => format!("{done} are tried again."),
            };
            said("ok", &text, if action == "cancel" { "/" } else { "/dead" })
        }
        Err(problem) => answer(Err(problem), "/dead", &headers),
    }
}

async fn confirmed<'a>(dashboard: &Dashboard, caller: &Caller, fields: &'a Fields) -> Result<(&'a str, Bulk), Problem> {
    let text = |name: &str| fields.get(name).map(String::as_str).unwrap_or_default();
    let typed: String = text("typed").chars().filter(char::is_ascii_digit).collect();
    if typed.is_empty() || typed != text("matched") {
        let detail = format!("nothing was done: type {} to confirm", text("matched"));
        return Err(Problem::new(Kind::BadRequest, detail));
    }
    let action = fields.get("action").map(String::as_str).unwrap_or_default();
    // Without a bound it would be more than was counted.
    let filter: Map<String, Value> = serde_json::from_str(text("filter")).unwrap_or_default();
    let is_frozen = filter.contains_key("id_max") && (action == "cancel" || filter.contains_key("until"));
    if !is_frozen {
        return Err(Problem::new(Kind::BadRequest, "nothing was done: the filter was not counted before"));
    }
    let bulk = dashboard.bulk(caller, kind(action)?, text("filter"), BulkRun::Real).await?;
    Ok((action, bulk))
}

fn kind(action: &str) -> Result<BulkAction, Problem> {
    let unknown = |_: UnknownName| Problem::new(Kind::BadRequest, "action is retry, discard or cancel");
    BulkAction::deserialize(action.into_deserializer()).map_err(unknown)
}

impl Dashboard {
    async fn bulk(&self, caller: &Caller, kind: BulkAction, filter: &str, run: BulkRun) -> Result<Bulk, Problem> {
        reach::filter(caller, filter)?;
        Ok(self.readiness.store()?.act_on_all(caller.name(), kind, filter, run).await?)
    }
}
