//! From a snapshot to what a template shows.
//!
//! **Guarantee.** The same snapshot gives the same page to everybody with the same rights. **Limit.** What a statement
//! did not find is drawn as absent, not as an error.

use std::collections::BTreeMap;

use chrono::TimeDelta;
use minijinja::context;
use minijinja::value::Value as Context;
use serde_json::Value;

use super::page::Page;
use super::render::drawable;
use super::snapshots::Snapshot;
use super::{chart, listing, notification, part, words};
use crate::config::Scope;
use crate::server::access::Caller;
use crate::store::dashboard::{AUDIT_PAGE, BULK_PAGE};

/// Who reads the page, and from where.
#[derive(Debug, Clone)]
pub(super) struct Viewer {
    pub(super) caller: Caller,
    /// The page's own address: where an action leads back to.
    pub(super) here: String,
}

impl Viewer {
    pub(super) fn may_operate(&self) -> bool {
        self.caller.scope().covers(Scope::Operate)
    }
}

/// A page to draw.
#[derive(Debug)]
pub(super) struct View {
    pub(super) title: String,
    pub(super) template: &'static str,
    pub(super) context: Context,
}

/// `None`: what it is about does not exist. `stale`: why its values are not of now.
pub(super) fn view(
    asked: &Page,
    snapshot: &Snapshot,
    stale: Option<&str>,
    viewer: &Viewer,
    limits: &BTreeMap<String, String>,
) -> Option<View> {
    let (found, at) = (&*snapshot.found, snapshot.at.to_rfc3339());
    let sees_origins = viewer.caller.may_see_payloads();
    let shared = context! { may_operate => viewer.may_operate(), sees_origins, here => viewer.here.clone(), at, stale };
    let page = drawable(found);
    let (template, context) = match asked {
        Page::Now => ("now.html", now(found, stale)),
        Page::Notifications(fields) => ("notifications.html", listing::view(found, fields, viewer)),
        Page::Notification { shows_payload, .. } => {
            ("notification.html", notification::view(found, *shows_payload, viewer)?)
        }
        Page::Dead(_) => ("dead.html", dead(found)),
        Page::Channels(_) => ("channels.html", channels(found, limits)),
        Page::Topics(_) => ("topics.html", context! { page }),
        Page::Schedules(_) => ("schedules.html", context! { page }),
        Page::Events(_) => ("events.html", context! { page }),
        Page::Instances(_) => ("instances.html", context! { page }),
        Page::Audit { before } => ("audit.html", audit(found, before.is_some())),
        Page::Bulk { before } => ("bulk.html", bulk(found, before.is_some())),
        Page::BulkOne { .. } => ("bulk_one.html", context! { b => drawable(found["actions"].get(0)?) }),
    };
    let list = asked.part().map(|asked_part| part::context(asked.section(), asked_part, found)).unwrap_or_default();
    Some(View { title: asked.title(), template, context: context! { ..context, ..shared, ..list } })
}

/// The worst level of the checks.
pub(super) fn worst(health: &Value) -> &'static str {
    let levels: Vec<&str> =
        health["checks"].as_array().into_iter().flatten().filter_map(|check| check["level"].as_str()).collect();
    ["critical", "warn"].into_iter().find(|level| levels.contains(level)).unwrap_or("ok")
}

fn now(found: &Value, stale: Option<&str>) -> Context {
    let (health, work) = (&found["health"], &found["work"]);
    let mut problems = Vec::new();
    let mut fine = Vec::new();
    for check in health["checks"].as_array().into_iter().flatten() {
        let name = check["name"].as_str().unwrap_or_default();
        let mut words = name.replace('_', " ");
        if let Some(first) = words.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        let shown = context! { title => words, link => link(name), ..drawable(check) };
        if check["level"] == "ok" { fine.push(shown) } else { problems.push(shown) }
    }
    let newest = words::time(&work["minute"]).unwrap_or_default();
    context! {
        page => drawable(found),
        level => stale.map_or_else(|| worst(health), |_| "critical"),
        verdict => stale.map_or_else(|| verdict(health, problems.len()), str::to_owned),
        problems,
        fine,
        figures => figures(work),
        throughput => Context::from_safe_string(chart::throughput(&work["minutes"], newest)),
        latency => Context::from_safe_string(chart::latency(&work["latency"], newest)),
    }
}

fn verdict(health: &Value, problems: usize) -> String {
    let checks = health["checks"].as_array();
    let urgent = checks.map_or(0, |checks| checks.iter().filter(|check| check["level"] == "critical").count());
    let things = |n: usize| if n == 1 { "1 thing".to_owned() } else { format!("{n} things") };
    let needs = if urgent == 1 { "needs" } else { "need" };
    match (urgent, problems - urgent) {
        (0, 0) => "All is well".to_owned(),
        (0, more) => format!("{} to look at", things(more)),
        (_, 0) => format!("{} {needs} you now", things(urgent)),
        (_, more) => format!("{} {needs} you now, {more} more to look at", things(urgent)),
    }
}

/// Where a check leads to.
fn link(check: &str) -> Option<[&'static str; 2]> {
    Some(match check {
        "workers" | "clock_skew" | "queue" => ["/instances", "Instances"],
        "relay_lag" => ["/notifications?status=QUEUED", "What waits"],
        "overdue" => ["/notifications?status=PENDING", "What is due"],
        "dead_letters" => ["/dead", "Dead letters by cause"],
        "bulk_actions" => ["/bulk", "Bulk actions"],
        "schedules" => ["/schedules", "Schedules"],
        "routes" => ["/topics", "Topics"],
        "events" | "event_streams" => ["/events", "Events"],
        _ => return None,
    })
}

fn figures(work: &Value) -> Context {
    let count = |what: &str| work["total"][what].as_i64().unwrap_or(0);
    let minutes = work["minutes"].as_array();
    let last = words::time(&work["minute"]).map(|now| now - TimeDelta::minutes(1));
    // Not known in the first minute, nor while nobody measured.
    let full = minutes
        .and_then(|minutes| minutes.iter().find(|minute| last.is_some() && words::time(&minute["minute"]) == last));
    let rate = |name: &str| full.and_then(|minute| minute[name].as_i64());
    context! {
        queued => count("queued"),
        processing => count("processing"),
        waiting => count("queued") + count("processing"),
        dead => count("dead"),
        scheduled => count("pending"),
        topics_more => count("topics") - work["topics"].as_array().map_or(0, |topics| topics.len() as i64),
        oldest_s => work["total"]["oldest_s"].as_f64(),
        rate_in => rate("queued"),
        rate_out => rate("sent"),
    }
}

fn dead(found: &Value) -> Context {
    let mut page = found.clone();
    for group in page["groups"].as_array_mut().into_iter().flatten() {
        let mut filter = url::form_urlencoded::Serializer::new(String::new());
        for key in ["topic", "channel", "cause"] {
            filter.append_pair(key, group[key].as_str().unwrap_or_default());
        }
        group["said"] = notification::said(group).into();
        let topic: String =
            url::form_urlencoded::byte_serialize(group["topic"].as_str().unwrap_or("").as_bytes()).collect();
        let filter = filter.finish();
        group["retry"] = format!("/bulk/new?action=retry&{filter}").into();
        group["discard"] = format!("/bulk/new?action=discard&{filter}").into();
        group["list"] = format!("/notifications?status=FAILED&topic={topic}").into();
    }
    context! { page => drawable(&page) }
}

fn channels(found: &Value, limits: &BTreeMap<String, String>) -> Context {
    let mut page = found.clone();
    for channel in page["channels"].as_array_mut().into_iter().flatten() {
        let limits = channel["channel"].as_str().and_then(|name| limits.get(name)).map_or("not configured here", |l| l);
        channel["limits"] = limits.into();
    }
    context! { page => drawable(&page) }
}

fn bulk(found: &Value, is_later: bool) -> Context {
    let mut page = found.clone();
    let mut more = None;
    if let Some(actions) = page["actions"].as_array_mut().filter(|actions| actions.len() > BULK_PAGE) {
        actions.truncate(BULK_PAGE);
        more = actions.last().map(|last| format!("/bulk?before={}", last["id"]));
    }
    context! { page => drawable(&page), more, is_later }
}

fn audit(found: &Value, is_later: bool) -> Context {
    let mut page = found.clone();
    let entries = page["entries"].as_array().map_or(0, Vec::len);
    let last = page["entries"].as_array().and_then(|entries| entries.last()?["id"].as_i64());
    for entry in page["entries"].as_array_mut().into_iter().flatten() {
        let subject = entry["subject"].as_str().unwrap_or_default();
        let is_id = subject.bytes().all(|byte| byte.is_ascii_digit());
        let link = match entry["action"].as_str().unwrap_or_default() {
            "retry" | "cancel" | "resend" | "discard" if is_id => format!("/notifications/{subject}"),
            "stop_bulk" | "bulk_retry_finished" | "bulk_discard_finished" | "bulk_cancel_finished" if is_id => {
                format!("/bulk/{subject}")
            }
            _ => continue,
        };
        entry["link"] = link.into();
    }
    let is_full = i64::try_from(entries).is_ok_and(|entries| entries >= AUDIT_PAGE);
    let more = last.filter(|_| is_full).map(|last| format!("/audit?before={last}"));
    context! { page => drawable(&page), more, is_later }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rates_are_those_of_the_minute_before_this_one_or_not_known() {
        let rate = |minutes: Value| {
            let work = json!({"minute": "2026-01-01T00:10:00+00:00", "minutes": minutes});
            figures(&work).get_attr("rate_out").unwrap().as_i64()
        };
        let minute = |at: &str| json!({"minute": format!("2026-01-01T00:{at}:00+00:00"), "queued": 5, "sent": 7});
        assert_eq!(rate(json!([minute("08"), minute("09"), minute("10")])), Some(7));
        assert_eq!(rate(json!([minute("10")])), None, "the first minute is not over");
        assert_eq!(rate(json!([minute("02"), minute("10")])), None, "nobody measured since");
    }
}
