//! `/v1`: what apps and operators do without SQL. The same functions, the same words.
//!
//! | path | does | scope |
//! |---|---|---|
//! | `POST /v1/notifications` | writes one notification, or an array of them, in one transaction | write |
//! | `GET /v1/notifications/{id}` | one notification with its attempts | read or write |
//! | `GET /v1/notifications` | searches, a bounded scan at a time | read |
//! | `GET /v1/{view}` | the rows of a view | read; `audit`: operate |
//! | `POST /v1/notifications/{id}/…`, `/v1/topics/…`, `/v1/channels/…`, `/v1/schedules/…`, `/v1/bulk…` | actions | operate |
//!
//! **Guarantee.** No request is answered with 5xx for what it says, and each is bounded: body, time, rows, how many at a
//! time. An action is audited under the name of its token. **Limit.** Whoever was not answered does not know whether it was
//! done; an Idempotency-Key makes it safe to ask again.
//!
//! May change: paths and fields that are added, and bounds. Must not: what a field or a type of problem means, a path
//! without its scope, or a statement that does what an SQL function does.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tokio::sync::Semaphore;
use utoipa::OpenApi;

use super::Readiness;
use super::access::{self, Caller};
use super::problem::{Kind, Problem};
use crate::config::Scope;
use crate::store::view::VIEWS;

pub(super) mod actions;
mod bulk;
pub(super) mod input;
pub(super) mod notifications;
mod posting;
pub(super) mod reach;
pub(super) mod redact;
mod views;

/// Requests at a time; more are told to come again. One token has fewer (`connections`).
const REQUESTS_MAX: usize = 128;

/// All of `/v1`, and its description.
pub(super) fn routes(readiness: Arc<Readiness>) -> Router {
    let scoped = |scope: Scope| middleware::from_fn_with_state(scope, access::require);
    let writing = Router::new().route("/v1/notifications", post(posting::create)).route_layer(scoped(Scope::Write));
    // Who may write may ask what became of it; the handler checks further.
    let asking = Router::new().route("/v1/notifications/{id}", get(notifications::show));
    let mut reading =
        Router::new().route("/v1/notifications", get(notifications::list)).route("/v1/bulk/{id}", get(bulk::show));
    for view in VIEWS.iter().filter(|view| view.name != views::AUDIT) {
        reading = reading.route(&format!("/v1/{}", view.name), get(views::show));
    }
    let operating = Router::new()
        .route("/v1/audit", get(views::show))
        .route("/v1/notifications/{id}/{action}", post(actions::on_notification))
        .route("/v1/topics/{name}/{action}", post(actions::on_topic))
        .route("/v1/channels/{name}/{action}", post(actions::on_channel))
        .route("/v1/schedules/{name}/{action}", post(actions::on_schedule))
        .route("/v1/bulk", post(bulk::start))
        .route("/v1/bulk/{id}/stop", post(bulk::stop))
        .route_layer(scoped(Scope::Operate));
    let permits = Arc::new(Semaphore::new(REQUESTS_MAX));
    writing
        .merge(asking)
        .merge(reading.route_layer(scoped(Scope::Read)))
        .merge(operating)
        .route_layer(middleware::from_fn_with_state(permits, one_of_many))
        .route("/openapi.json", get(describe))
        .with_state(readiness)
}

async fn one_of_many(State(permits): State<Arc<Semaphore>>, request: Request, next: Next) -> Response {
    let Ok(_permit) = permits.try_acquire() else {
        let detail = format!("{REQUESTS_MAX} requests are under way on this instance; try again");
        return Problem::new(Kind::Overloaded, detail).into_response();
    };
    next.run(request).await
}

async fn describe(_: Caller) -> Response {
    ([(CONTENT_TYPE, "application/json")], openapi()).into_response()
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "outboxd",
        description = "Notifications and their operation over HTTP. docs/api.md has examples. Errors are RFC 9457 problems.",
        license(name = "Apache-2.0")
    ),
    paths(
        posting::create,
        notifications::show,
        notifications::list,
        views::show,
        actions::on_notification,
        actions::on_topic,
        actions::on_channel,
        actions::on_schedule,
        bulk::start,
        bulk::show,
        bulk::stop,
        super::live::tickets::issue
    ),
    components(schemas(super::problem::Shape)),
    modifiers(&BearerToken, &Problems)
)]
struct Description;

struct BearerToken;

impl utoipa::Modify for BearerToken {
    fn modify(&self, description: &mut utoipa::openapi::OpenApi) {
        use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        let components = description.components.get_or_insert_with(Default::default);
        components.add_security_scheme("token", scheme);
        description.security = Some(vec![SecurityRequirement::new("token", [] as [&str; 0])]);
    }
}

/// Whatever says no is a problem, also where an operation does not list its status.
struct Problems;

impl utoipa::Modify for Problems {
    fn modify(&self, description: &mut utoipa::openapi::OpenApi) {
        use utoipa::openapi::{Content, Ref, ResponseBuilder};
        let items = description.paths.paths.values_mut();
        let operations = items.flat_map(|item| [&mut item.get, &mut item.post]).flatten();
        for operation in operations {
            let shape = Content::new(Some(Ref::from_schema_name("Problem")));
            let other = ResponseBuilder::new()
                .description("Whatever else says no; docs/api.md lists the types")
                .content("application/problem+json", shape);
            operation.responses.responses.insert("default".to_owned(), other.build().into());
            for (status, response) in &mut operation.responses.responses {
                if let (true, utoipa::openapi::RefOr::T(response)) = (status.as_str() >= "400", response)
                    && let Some(content) = response.content.swap_remove("application/json")
                {
                    response.content.insert("application/problem+json".to_owned(), content);
                }
            }
        }
    }
}

/// What `/v1` takes and gives, as OpenAPI 3.1; `docs/openapi.json` is the same.
pub fn openapi() -> String {
    let mut text = Description::openapi().to_pretty_json().expect("its own types serialize");
    text.push('\n');
    text
}
