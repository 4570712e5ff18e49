//! What the buttons do: one call of the store, a word about it, and back to the page.
//!
//! **Guarantee.** Whoever acted sees the effect: what was kept of the pages is outdated. **Limit.** That holds for this
//! instance; pages of others follow within seconds.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{Form, Path, State};
use axum::http::header::{HeaderMap, SET_COOKIE};
use axum::response::{IntoResponse, Redirect, Response};

use super::{Dashboard, FLASH_COOKIE, THEME_COOKIE, cookie, own_page, takes_html, words};
use crate::notification::counted;
use crate::server::access::Caller;
use crate::server::api::actions::ACT_ON;
use crate::server::api::reach;
use crate::server::problem::{Kind, Problem};
use crate::store::Store;
use crate::store::action::{ChannelAction, NotificationAction, ScheduleAction, TopicAction};

/// How long a browser keeps what was said, in seconds: until the next page.
const FLASH_LASTS: u32 = 20;
/// How long it keeps the theme.
const THEME_LASTS: u32 = 31_536_000;

/// The fields of a button's form.
pub(super) type Fields = HashMap<String, String>;

/// `POST /act/{verb}`
pub(super) async fn act(
    State(dashboard): State<Arc<Dashboard>>,
    caller: Caller,
    Path(verb): Path<String>,
    headers: HeaderMap,
    Form(fields): Form<Fields>,
) -> Response {
    let done = match dashboard.readiness.store() {
        Ok(store) => perform(store, &caller, &verb, &fields).await,
        Err(problem) => Err(problem),
    };
    dashboard.snapshots.outdate();
    let back = own_page(fields.get("back").map_or("/", String::as_str));
    answer(done, back, &headers)
}

/// A word about what was done, or why not. Programs get the problem itself.
pub(super) fn answer(done: Result<String, Problem>, back: &str, headers: &HeaderMap) -> Response {
    match done {
        Ok(text) => said("ok", &text, back),
        Err(problem) if takes_html(headers) => said("bad", problem.detail(), back),
        Err(problem) => problem.into_response(),
    }
}

async fn perform(store: &Store, caller: &Caller, verb: &str, fields: &Fields) -> Result<String, Problem> {
    let text = |name: &str| fields.get(name).map(String::as_str).unwrap_or_default();
    let token = caller.name();
    let (name, origin) = (text("name"), text("origin"));
    let whole = if origin.is_empty() { name.to_owned() } else { format!("{name} at {origin}") };
    let one = async |action: NotificationAction| -> Result<String, Problem> {
        let id = number(text("id"))?;
        reach::notification(store, caller, id).await?;
        let acted = store.act_on_notification(token, action, id).await?;
        Ok(match acted.new_id {
            Some(new_id) => format!("Notification {id} is sent again as {new_id}."),
            None => format!("Notification {id}: {}.", acted.outcome),
        })
    };
    match verb {
        "pause_topic" | "resume_topic" | "replay_events" => caller.check_topic(ACT_ON, name)?,
        "pause_channel" | "resume_channel" | "probe_channel" | "close_circuit" => {
            reach::everything(caller, "a channel")?
        }
        "pause_schedule" | "resume_schedule" | "drop_schedule" => reach::schedule(store, caller, name).await?,
        "stop_bulk" => reach::bulk_action(store, caller, number(text("id"))?).await?,
        // Those on a notification look it up themselves.
        _ => {}
    }
    Ok(match verb {
        "retry" => one(NotificationAction::Retry).await?,
        "cancel" => one(NotificationAction::Cancel).await?,
        "resend" => one(NotificationAction::Resend).await?,
        "discard" => one(NotificationAction::Discard).await?,
        "pause_topic" => {
            store.act_on_topic(token, TopicAction::Pause, name).await?;
            format!("Topic {name} is paused.")
        }
        "resume_topic" => {
            store.act_on_topic(token, TopicAction::Resume, name).await?;
            format!("Topic {name} goes on.")
        }
        "pause_channel" => {
            store.act_on_channel(token, ChannelAction::Pause, name, "").await?;
            format!("Channel {name} is paused on all instances.")
        }
        "resume_channel" => {
            store.act_on_channel(token, ChannelAction::Resume, name, "").await?;
            format!("Channel {name} goes on.")
        }
        "probe_channel" => {
            store.act_on_channel(token, ChannelAction::Probe, name, origin).await?;
            format!("The next call of {whole} is a probe: if it succeeds, the circuit closes.")
        }
        "close_circuit" => {
            store.act_on_channel(token, ChannelAction::CloseCircuit, name, origin).await?;
            format!("Nothing holds {whole} any more.")
        }
        "pause_schedule" => {
            let canceled = store.act_on_schedule(token, ScheduleAction::Pause, name).await?;
            format!("Schedule {name} is paused; {}.", taken_back(canceled))
        }
        "resume_schedule" => {
            store.act_on_schedule(token, ScheduleAction::Resume, name).await?;
            format!("Schedule {name} runs again from its next slot on.")
        }
        "drop_schedule" => {
            let canceled = store.act_on_schedule(token, ScheduleAction::Drop, name).await?;
            format!("Schedule {name} is dropped; {}.", taken_back(canceled))
        }
        "replay_events" => {
            let events = store.replay_events(token, name, text("since")).await?;
            format!("Appended again of {name}: {}.", counted(events, "event"))
        }
        "stop_bulk" => {
            let id = number(text("id"))?;
            store.stop_bulk(token, id).await?;
            format!("Bulk action {id} ends after its current batch.")
        }
        _ => return Err(Problem::new(Kind::NotFound, "there is no such action")),
    })
}

/// What was prepared and is canceled.
fn taken_back(canceled: i64) -> String {
    match canceled {
        0 => "nothing had been prepared".to_owned(),
        1 => "1 prepared notification is canceled".to_owned(),
        _ => format!("{} prepared notifications are canceled", words::count(canceled)),
    }
}

fn number(text: &str) -> Result<i64, Problem> {
    text.parse().map_err(|_| Problem::new(Kind::BadRequest, format!("{text:?} is no id")))
}

/// Leads to a page that says this once.
pub(super) fn said(tone: &str, text: &str, back: &str) -> Response {
    let value = url::form_urlencoded::Serializer::new(String::new()).append_pair(tone, text).finish();
    let kept = format!("{FLASH_COOKIE}={value}; Path=/; Max-Age={FLASH_LASTS}; HttpOnly; SameSite=Strict");
    ([(SET_COOKIE, kept)], Redirect::to(back)).into_response()
}

/// `POST /theme`: without the script the theme goes round, as the system has it, dark, light.
pub(super) async fn theme(headers: HeaderMap, Form(fields): Form<Fields>) -> Response {
    let (theme, lasts) = match cookie(&headers, THEME_COOKIE).as_deref() {
        None => ("dark", THEME_LASTS),
        Some("dark") => ("light", THEME_LASTS),
        Some(_) => ("", 0),
    };
    let kept = format!("{THEME_COOKIE}={theme}; Path=/; Max-Age={lasts}; SameSite=Strict");
    ([(SET_COOKIE, kept)], Redirect::to(own_page(fields.get("back").map_or("/", String::as_str)))).into_response()
}
