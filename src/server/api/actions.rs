//! Actions on one notification, topic, channel or schedule: the functions that operators call in SQL.
//!
//! **Guarantee.** The change and its entry in `outboxd.audit` are one transaction. **Limit.** Running instances learn
//! of it within a second or two, not at once.

use axum::Json;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::input::{InPath, InQuery};
use super::reach;
use crate::server::access::Caller;
use crate::server::problem::{Problem, Shape};
use crate::server::readiness::Ready;
use crate::store::action::{Acted, ChannelAction, NotificationAction, ScheduleAction, TopicAction};

/// What an operator does with a topic.
pub(in crate::server) const ACT_ON: &str = "act on";

/// Does it to one notification: retry, cancel, resend or discard.
#[utoipa::path(
    post,
    path = "/v1/notifications/{id}/{action}",
    operation_id = "actOnNotification",
    tag = "actions",
    params(
        ("id" = i64, Path, description = "The notification"),
        ("action" = inline(NotificationAction), Path, description = "retry: FAILED or CANCELED back to work. cancel: takes it back. resend: a \
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
    InPath((id, action)): InPath<(i64, NotificationAction)>,
) -> Result<Json<Acted>, Problem> {
    reach::notification(&store, &caller, id).await?;
    Ok(Json(store.act_on_notification(caller.name(), action, id).await?))
}

/// Holds or frees a topic: pause or resume.
#[utoipa::path(
    post,
    path = "/v1/topics/{topic}/{action}",
    operation_id = "actOnTopic",
    tag = "actions",
    params(
        ("topic" = String, Path, description = "The topic"),
        ("action" = inline(TopicAction), Path, description = "pause: its work waits, on all instances within a second. resume: ends that")
    ),
    responses(
        (status = 204, description = "It is so"),
        (status = 404, description = "There is no such action, or nobody knows a topic of that name to pause", body = Shape)
    )
)]
pub(super) async fn on_topic(
    caller: Caller,
    Ready(store): Ready,
    InPath((topic, action)): InPath<(String, TopicAction)>,
) -> Result<StatusCode, Problem> {
    caller.check_topic(ACT_ON, &topic)?;
    store.act_on_topic(caller.name(), action, &topic).await?;
    Ok(StatusCode::NO_CONTENT)
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
        ("action" = inline(ChannelAction), Path, description = "pause, resume; probe: tries it with one call; close_circuit: ends an open \
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
    InPath((channel, action)): InPath<(String, ChannelAction)>,
    InQuery(of): InQuery<OfChannel>,
) -> Result<StatusCode, Problem> {
    reach::everything(&caller, "a channel")?;
    store.act_on_channel(caller.name(), action, &channel, &of.origin).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What an action on a schedule took back.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Canceled {
    /// Notifications that were prepared for slots still to come, and are CANCELED now.
    canceled: i64,
}

/// Keeps a schedule from running, lets it run again, or ends it: pause, resume or drop.
#[utoipa::path(
    post,
    path = "/v1/schedules/{schedule}/{action}",
    operation_id = "actOnSchedule",
    tag = "actions",
    params(
        ("schedule" = String, Path, description = "Its name"),
        ("action" = inline(ScheduleAction), Path, description = "pause: no slot runs, and what was prepared is canceled. resume: runs again \
            from its next slot on. drop: ends it for good and cancels what was not yet released; its runs stay on record")
    ),
    responses(
        (status = 200, description = "It is so", body = Canceled),
        (status = 404, description = "There is no such schedule or action", body = Shape),
        (status = 409, description = "It takes longer than a request may, and nothing was changed", body = Shape)
    )
)]
pub(super) async fn on_schedule(
    caller: Caller,
    Ready(store): Ready,
    InPath((schedule, action)): InPath<(String, ScheduleAction)>,
) -> Result<Json<Canceled>, Problem> {
    reach::schedule(&store, &caller, &schedule).await?;
    Ok(Json(Canceled { canceled: store.act_on_schedule(caller.name(), action, &schedule).await? }))
}
