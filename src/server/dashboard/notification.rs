//! One notification: its life as a line of events, and why it waits.
//!
//! **Guarantee.** What happened is told in the order of its times. **Limit.** Attempts past their retention are
//! missing.

use chrono::TimeDelta;
use minijinja::context;
use minijinja::value::Value as Context;
use serde_json::{Value, json};

use super::render::{drawable, status_tone};
use super::view::Viewer;
use super::words::time;

/// What is shown of one, from its record and what is known beside it.
pub(super) fn view(found: &Value, shows_payload: bool, viewer: &Viewer) -> Option<Context> {
    let (n, life) = (&found["notification"], &found["life"]);
    let id = n["id"].as_i64()?;
    let may_see = viewer.caller.may_see_payloads();
    let payload = (may_see && shows_payload).then(|| serde_json::to_string_pretty(&n["payload"]).unwrap_or_default());
    let headers = n["headers"].as_object();
    let trace_id = headers.and_then(|headers| {
        let parent = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("traceparent"))?.1.as_str()?;
        parent.split('-').nth(1).map(str::to_owned)
    });
    let headers: Vec<Vec<String>> = headers
        .into_iter()
        .flatten()
        // Its trace id is shown for itself.
        .filter(|(name, _)| !name.eq_ignore_ascii_case("traceparent"))
        .map(|(name, value)| vec![name.clone(), value.as_str().unwrap_or_default().to_owned()])
        .collect();
    Some(context! {
        n => drawable(n),
        why => why(n),
        events => drawable(&Value::from(events(n))),
        route => drawable(&Value::from(route(n, life))),
        payload, trace_id, headers,
        may_see_payload => may_see,
        sql => sql(id, n["status"].as_str().unwrap_or_default()),
    })
}

/// What happened to it, oldest first, and what comes next.
fn events(n: &Value) -> Vec<Value> {
    let status = n["status"].as_str().unwrap_or_default();
    let mut events = vec![json!({"what": "Written", "at": n["created_at"], "tone": "t-info"})];
    // A notification is due a moment after it was written; only a later time is an event of its own.
    let is_later = match (time(&n["created_at"]), time(&n["send_at"])) {
        (Some(created), Some(send_at)) => (send_at - created).num_seconds() >= 1,
        _ => false,
    };
    if is_later {
        events.push(json!({"what": "Due", "at": n["send_at"], "next": status == "PENDING", "tone": ""}));
    }
    let attempts = n["attempt_history"].as_array().into_iter().flatten().rev();
    events.extend(attempts.map(|attempt| {
        let outcome = attempt["outcome"].as_str().unwrap_or_default();
        let what = match attempt["number"].as_i64() {
            Some(number) => format!("Attempt {number}: {outcome}"),
            None => format!("A call: {outcome}"),
        };
        let tone = match outcome {
            "late success" => "t-ok",
            "unknown" | "duplicate" => "t-warn",
            _ => "t-bad",
        };
        let fields = ["channel", "http_status", "duration_ms", "worker", "response"];
        let mut event: serde_json::Map<String, Value> =
            fields.iter().map(|field| ((*field).to_owned(), attempt[*field].clone())).collect();
        event.extend([
            ("what".to_owned(), what.into()),
            ("tone".to_owned(), tone.into()),
            ("at".to_owned(), attempt["ended_at"].clone()),
            ("text".to_owned(), said(attempt).into()),
        ]);
        Value::Object(event)
    }));
    let tone = status_tone(status);
    match status {
        "SENT" => end(
            &mut events,
            json!({"what": "Sent", "at": n["finished_at"], "channel": n["channel"],
            "http_status": n["http_status"], "tone": tone}),
        ),
        "FAILED" => {
            end(&mut events, json!({"what": "Given up", "at": n["finished_at"], "text": n["error"], "tone": tone}))
        }
        "CANCELED" => end(&mut events, json!({"what": "Canceled", "at": n["finished_at"], "tone": tone})),
        "PROCESSING" => {
            events.push(json!({"what": "Being sent now", "worker": n["worker"], "next": true, "tone": tone}))
        }
        "QUEUED" => {
            events.push(json!({"what": "Next attempt", "at": n["next_attempt_at"], "next": true, "tone": tone}))
        }
        _ => {}
    }
    // How long after it was due, for what has happened.
    if let Some(due) = time(&n[if is_later { "send_at" } else { "created_at" }]) {
        for event in events.iter_mut().filter(|event| event["next"] != true) {
            let after = time(&event["at"]).map(|at| (at - due).as_seconds_f64() * 1e3);
            event["after_ms"] = after.filter(|after| *after > 0.0).into();
        }
    }
    events
}

/// The end comes after what was recorded with it, and before what was heard of a call later.
fn end(events: &mut Vec<Value>, event: Value) {
    let ended = time(&event["at"]).map(|ended| ended + TimeDelta::seconds(1));
    let later = |other: &Value| ended.is_some_and(|ended| time(&other["at"]).is_some_and(|at| at > ended));
    let at = events.iter().position(later).unwrap_or(events.len());
    events.insert(at, event);
}

/// The error of an attempt or a dead letter, without the status that stands before it.
pub(super) fn said(row: &Value) -> String {
    let error = row["error"].as_str().unwrap_or_default();
    let status = format!("status {}", row["http_status"]);
    error.strip_prefix(&status).map_or(error, |rest| rest.trim_start_matches([':', ' '])).to_owned()
}

/// The channels of its route; which one it is at, and which are behind it.
fn route(n: &Value, life: &Value) -> Vec<Value> {
    let channels: Vec<&str> = life["route"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let step = life["work"]["route_step"].as_u64().and_then(|step| usize::try_from(step).ok());
    let here = step.or_else(|| channels.iter().position(|channel| n["channel"] == **channel));
    let class = |at: usize| match here {
        Some(here) if at < here => "past",
        Some(here) if at == here => "here",
        _ => "",
    };
    channels.iter().enumerate().map(|(at, channel)| json!({"channel": channel, "class": class(at)})).collect()
}

/// Why it is not sent yet, in the words of `outboxd.why()`; `None`: it has ended.
fn why(n: &Value) -> Option<Context> {
    let waits = &n["waits"];
    let (tone, link) = match waits["reason"].as_str()? {
        "circuit open" | "channel paused" | "provider asked to wait" => ("t-warn", Some(["/channels", "Channels"])),
        "topic paused" => ("t-warn", Some(["/topics", "Topics"])),
        "no route" | "never released" | "never published" | "published without progress" | "lease expired" => {
            ("t-warn", Some(["/instances", "Instances"]))
        }
        _ => ("t-info", None),
    };
    Some(context! { tone, waits => drawable(waits), link => link.map(Vec::from) })
}

/// What the page shows and its buttons do, for psql.
fn sql(id: i64, status: &str) -> String {
    let mut lines = vec![
        format!("SELECT * FROM outboxd.notifications WHERE id = {id};"),
        format!("SELECT * FROM outboxd.attempts WHERE notification_id = {id};"),
    ];
    match status {
        "FAILED" => lines.extend([format!("SELECT outboxd.retry({id});"), format!("SELECT outboxd.discard({id});")]),
        "CANCELED" => lines.push(format!("SELECT outboxd.retry({id});")),
        "SENT" => lines.push(format!("SELECT outboxd.resend({id});")),
        _ => lines.extend([format!("SELECT * FROM outboxd.why({id});"), format!("SELECT outboxd.cancel({id});")]),
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(status: &str) -> Value {
        json!({"id": 7, "topic": "orders", "status": status, "channel": "sms", "created_at": "2026-01-01T00:00:00Z",
               "send_at": "2026-01-01T00:00:00.001Z", "finished_at": "2026-01-01T00:00:09Z", "attempt_history": [
               {"number": 2, "outcome": "unknown", "ended_at": "2026-01-01T00:00:05Z"},
               {"number": 1, "outcome": "failed", "ended_at": "2026-01-01T00:00:01Z"}]})
    }

    #[test]
    fn a_life_is_told_in_order() {
        let told = |n: &Value| -> Vec<String> {
            events(n).iter().map(|event| event["what"].as_str().unwrap().to_owned()).collect()
        };
        let (first, second) = ("Attempt 1: failed", "Attempt 2: unknown");
        assert_eq!(told(&record("SENT")), ["Written", first, second, "Sent"]);
        assert_eq!(told(&record("FAILED")), ["Written", first, second, "Given up"]);
        assert_eq!(told(&record("QUEUED")), ["Written", first, second, "Next attempt"]);
        let mut late = record("SENT");
        late["finished_at"] = "2026-01-01T00:00:03Z".into();
        assert_eq!(told(&late), ["Written", first, "Sent", second], "what is heard later comes later");
        let answered = json!({"error": "status 404 Not Found: gone", "http_status": 404});
        assert_eq!(said(&answered), "Not Found: gone", "HTTP 404 stands before it");
        let mut later = record("PENDING");
        later["send_at"] = "2026-01-01T09:00:00Z".into();
        later["attempt_history"] = json!([]);
        assert_eq!(told(&later), ["Written", "Due"]);
    }

    #[test]
    fn what_happened_is_told_with_its_time_since_the_notification_was_due() {
        let after = |n: &Value| -> Vec<Option<f64>> { events(n).iter().map(|e| e["after_ms"].as_f64()).collect() };
        assert_eq!(after(&record("SENT")), [None, Some(1e3), Some(5e3), Some(9e3)]);
        assert_eq!(after(&record("QUEUED")), [None, Some(1e3), Some(5e3), None], "the next attempt has not happened");
        let mut later = record("SENT");
        later["send_at"] = "2026-01-01T00:00:04Z".into();
        later["attempt_history"] = json!([]);
        assert_eq!(after(&later), [None, None, Some(5e3)]);
        later["status"] = "CANCELED".into();
        later["finished_at"] = "2026-01-01T00:00:02Z".into();
        assert_eq!(after(&later), [None, None, None], "it was canceled before");
    }

    #[test]
    fn the_route_shows_where_it_is() {
        let life = json!({"route": ["push", "sms", "alimtalk"], "work": {"route_step": 1}});
        let classes: Vec<Value> = route(&record("QUEUED"), &life).iter().map(|step| step["class"].clone()).collect();
        assert_eq!(classes, ["past", "here", ""]);
    }

    #[test]
    fn who_waits_is_told_why() {
        let mut held = record("QUEUED");
        held["waits"] = json!({"reason": "circuit open", "explanation": "The circuit of sms is open."});
        assert!(why(&held).unwrap().to_string().contains("The circuit of sms is open."));
        assert!(why(&record("SENT")).is_none());
    }
}
