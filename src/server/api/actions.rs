//! Actions on one notification, topic or channel: the functions that operators call in SQL.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::IntoParams;

use super::input::{InPath, InQuery};
use crate::server::access::Caller;
use crate::server::problem::{Kind, Problem, Shape};
use crate::server::readiness::Ready;
use crate::store::action::{Acted, CircuitAction, HoldAction, NotificationAction};

/// Does it to one notification: retry, cancel, resend or discard.
#[utoipa::path(
    post,
    path = "/v1/notifications/{id}/{action}",
    operation_id = "actOnNotification",
    tag = "actions",
    params(
        ("id" = i64, Path, description = "The notification"),
        ("action" = String, Path, description = "retry: FAILED or CANCELED back to work. cancel: takes it back. resend: a \
            new notification of a SENT one. discard: a dead letter that nobody will retry")
    ),
    responses(
        (status = 200, description = "What happened", body = Acted),
        (status = 404, description = "There is no such notification or action", body = Shape),
        (status = 409, description = "Its status does not allow it", body = Shape)
    )
)]
pub(super) async fn on_notification(
    caller: Caller,
    Ready(store): Ready,
    InPath((id, action)): InPath<(i64, String)>,
) -> Result<Json<Acted>, Problem> {
    let action = match action.as_str() {
        "retry" => NotificationAction::Retry,
        "cancel" => NotificationAction::Cancel,
        "resend" => NotificationAction::Resend,
        "discard" => NotificationAction::Discard,
        _ => return Err(no_such("retry, cancel, resend, discard")),
    };
    Ok(Json(store.act(caller.name(), action, id).await?))
}

/// Holds or frees a topic: pause or resume.
#[utoipa::path(
    post,
    path = "/v1/topics/{topic}/{action}",
    operation_id = "actOnTopic",
    tag = "actions",
    params(
        ("topic" = String, Path, description = "The topic"),
        ("action" = String, Path, description = "pause: its work waits, on all instances within a second. resume: ends that")
    ),
    responses(
        (status = 204, description = "It is so"),
        (status = 404, description = "There is no such action, or nobody knows a topic of that name to pause", body = Shape)
    )
)]
pub(super) async fn on_topic(
    caller: Caller,
    Ready(store): Ready,
    InPath((name, action)): InPath<(String, String)>,
) -> Result<Response, Problem> {
    let action = match action.as_str() {
        "pause" => HoldAction::PauseTopic,
        "resume" => HoldAction::ResumeTopic,
        _ => return Err(no_such("pause, resume")),
    };
    store.hold(caller.name(), action, &name).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct OfChannel {
    /// The origin as in channel_health, where the URL comes from data; for probe and close_circuit.
    origin: String,
}

/// Holds or frees a channel, or tends its circuit: pause, resume, probe or close_circuit.
#[utoipa::path(
    post,
    path = "/v1/channels/{channel}/{action}",
    operation_id = "actOnChannel",
    tag = "actions",
    params(
        ("channel" = String, Path, description = "The channel"),
        ("action" = String, Path, description = "pause, resume; probe: tries it with one call; close_circuit: ends an open \
            circuit or a provider's Retry-After"),
        OfChannel
    ),
    responses(
        (status = 204, description = "It is so"),
        (status = 404, description = "There is no such action, nobody knows a channel of that name to pause, or it is not \
            held", body = Shape)
    )
)]
pub(super) async fn on_channel(
    caller: Caller,
    Ready(store): Ready,
    InPath((name, action)): InPath<(String, String)>,
    InQuery(of): InQuery<OfChannel>,
) -> Result<Response, Problem> {
    let token = caller.name();
    match action.as_str() {
        "pause" => store.hold(token, HoldAction::PauseChannel, &name).await?,
        "resume" => store.hold(token, HoldAction::ResumeChannel, &name).await?,
        "probe" => store.tend_circuit(token, CircuitAction::Probe, &name, &of.origin).await?,
        "close_circuit" => store.tend_circuit(token, CircuitAction::Close, &name, &of.origin).await?,
        _ => return Err(no_such("pause, resume, probe, close_circuit")),
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn no_such(known: &str) -> Problem {
    Problem::new(Kind::NotFound, format!("there is no such action; these are: {known}"))
}
