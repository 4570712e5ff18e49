//! From a page's context to HTML. Everything that comes from data is escaped by the engine; what is built here in pieces
//! escapes by itself.
//!
//! **Guarantee.** No data becomes markup. **Limit.** A template that fails is our own fault: the page says so, and the
//! log says why.

use std::fmt::Write as _;
use std::sync::LazyLock;

use chrono::{DateTime, Utc};
use minijinja::value::{Kwargs, Serde, Value};
use minijinja::{Environment, HtmlEscape, State};
use tracing::error;

use super::words;
use crate::notification::plural;

/// Where a page is cut into the parts that are updated one by one.
const CUT: &str = "<!--part-->";

macro_rules! templates {
    ($($name:literal),*) => { [$(($name, include_str!(concat!("templates/", $name)))),*] };
}

static ENGINE: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut engine = Environment::new();
    // What is not there is not written, rather than as `None`.
    engine.set_formatter(|out, state, value| match value.is_none() {
        true => Ok(()),
        false => minijinja::escape_formatter(out, state, value),
    });
    for (name, text) in templates![
        "layout.html",
        "alone.html",
        "now.html",
        "notifications.html",
        "notification.html",
        "dead.html",
        "channels.html",
        "topics.html",
        "schedules.html",
        "events.html",
        "instances.html",
        "audit.html",
        "bulk.html",
        "bulk_one.html",
        "bulk_new.html"
    ] {
        engine.add_template(name, text).expect("the templates compile: a test reads each");
    }
    engine.add_function("count", |n: Option<f64>| n.map_or_else(nothing, |n| words::count(n as i64)));
    engine.add_function("age", |s: Option<f64>| s.map_or_else(nothing, words::span));
    engine.add_function("ms", |ms: Option<f64>| ms.map_or_else(nothing, words::milliseconds));
    engine.add_function("percent", percent);
    engine.add_function("when", |at: Option<&str>| time(at, words::relative));
    engine.add_function("clock", |at: Option<&str>| time(at, words::clock));
    engine.add_function("status", |status: &str| badge(status_tone(status), status));
    engine.add_function("circuit", circuit);
    engine.add_function("run_state", |state: &str| badge(run_tone(state), state));
    engine.add_function("instance_state", |state: &str| badge(instance_tone(state), state));
    engine.add_function("bulk_state", |state: &str| badge(bulk_tone(state), state));
    engine.add_function("advice", advice);
    engine.add_function("share", share);
    engine.add_function("bar", |percent: Option<f64>| bar(percent.unwrap_or(0.0)));
    engine.add_function("act", act);
    engine.add_function("ask", ask);
    engine.add_function("find", find);
    engine.add_function("pages", pages);
    engine.add_function("many", many);
    engine
});

/// JSON as templates see it.
pub(super) fn drawable(json: &serde_json::Value) -> Value {
    Value::from(Serde(json))
}

/// A template with its context. What cannot be rendered is our own fault: it is logged, and the page says so.
pub(super) fn render(name: &str, context: Value) -> String {
    let rendered = ENGINE.get_template(name).and_then(|template| template.render(context));
    rendered.unwrap_or_else(|fault| {
        error!(template = name, error = %fault, "a page cannot be drawn");
        "<div class=\"empty\"><strong>This page cannot be drawn</strong>The log of this instance says why.</div>"
            .to_owned()
    })
}

/// The parts of a body, each with the id under which it is updated.
pub(super) fn parts(body: &str) -> Vec<(String, String)> {
    body.split(CUT).enumerate().map(|(n, part)| (format!("part-{n}"), part.trim().to_owned())).collect()
}

/// The parts in one, each in an element of its id.
pub(super) fn joined(parts: &[(String, String)]) -> Value {
    let mut html = String::new();
    for (id, part) in parts {
        // Infallible: it writes into a String.
        let _ = write!(html, "<div id=\"{id}\">{part}</div>");
    }
    Value::from_safe_string(html)
}

/// Words above a page: what is wrong, and of when its values are.
pub(super) fn note(tone: &str, text: &str, at: &str) -> String {
    let (clock, age) = (time(Some(at), words::clock), time(Some(at), words::relative));
    format!(
        "<div class=\"note {tone}\" role=\"alert\"><i class=\"dot\"></i><div><strong>{}</strong> These are the values of {clock}, {age}.</div></div>",
        HtmlEscape(text)
    )
}

/// The mark beside the first page in the navigation.
pub(super) fn alert(level: &str) -> Value {
    Value::from_safe_string(match level {
        "ok" => String::new(),
        _ => format!("<i class=\"dot {level}\" title=\"{level}\"></i>"),
    })
}

fn nothing() -> String {
    "–".to_owned()
}

fn percent(share: Option<f64>) -> Value {
    let Some(share) = share else { return Value::from(nothing()) };
    let class = match share {
        ..90.0 => "bad",
        ..99.0 => "warn",
        _ => "",
    };
    let digits = if share.fract() == 0.0 { 0 } else { 1 };
    Value::from_safe_string(format!("<span class=\"{class}\">{share:.digits$} %</span>"))
}

fn time(at: Option<&str>, text: fn(DateTime<Utc>, DateTime<Utc>) -> String) -> Value {
    let Some(at) = at.and_then(|at| at.parse::<DateTime<Utc>>().ok()) else { return Value::from(nothing()) };
    let (machine, exact) = (at.to_rfc3339_opts(chrono::SecondsFormat::Millis, true), words::exact(at));
    let text = text(at, Utc::now());
    Value::from_safe_string(format!("<time datetime=\"{machine}\" title=\"{exact}\">{text}</time>"))
}

fn badge(tone: &str, text: &str) -> Value {
    Value::from_safe_string(format!("<span class=\"badge {tone}\">{}</span>", HtmlEscape(text)))
}

pub(super) fn status_tone(status: &str) -> &'static str {
    match status {
        "SENT" => "t-ok",
        "FAILED" => "t-bad",
        "QUEUED" | "PROCESSING" => "t-info",
        _ => "",
    }
}

fn run_tone(state: &str) -> &'static str {
    match state {
        "active" | "released" => "t-ok",
        "invalid" | "failed" => "t-bad",
        "missed" => "t-warn",
        "preparing" | "prepared" => "t-info",
        _ => "",
    }
}

fn instance_tone(state: &str) -> &'static str {
    match state {
        "alive" => "t-ok",
        "dead" => "t-bad",
        "draining" => "t-warn",
        _ => "",
    }
}

fn bulk_tone(state: &str) -> &'static str {
    match state {
        "running" => "t-info",
        "failing" => "t-bad",
        "finished" => "t-ok",
        _ => "t-warn",
    }
}

/// A channel's state: an open circuit before a pause before a wait before calls that fail.
fn circuit(channel: &Value) -> Value {
    let text = |name: &str| channel.get_attr(name).ok().and_then(|value| value.as_str().map(str::to_owned));
    let is_paused = channel.get_attr("paused").is_ok_and(|paused| paused.is_true());
    let mut badges = match text("circuit").as_deref() {
        Some("open") => vec![("t-bad", "circuit open")],
        Some("half-open") => vec![("t-warn", "half-open")],
        _ => Vec::new(),
    };
    if is_paused {
        badges.push(("t-warn", "paused"));
    }
    if badges.is_empty() && text("held_until").is_some() {
        badges.push(("t-warn", "asked to wait"));
    }
    let success = channel.get_attr("success_percent").ok().and_then(|percent| f64::try_from(percent).ok());
    if badges.is_empty() && success.is_some_and(|percent| percent < 90.0) {
        badges.push(("t-warn", "failing"));
    }
    if badges.is_empty() {
        badges.push(("t-ok", "ok"));
    }
    let html: Vec<String> = badges.iter().map(|(tone, text)| badge(tone, text).to_string()).collect();
    Value::from_safe_string(html.join(" "))
}

/// What to do, with its SQL set as code: a step is SQL from its first SELECT on.
fn advice(text: &str) -> Value {
    let step = |step: &str| match step.find("SELECT ").or_else(|| step.find("CONFIG SET")) {
        Some(at) => {
            let (words, code) = step.split_at(at);
            format!("{}<code>{}</code>", HtmlEscape(words), HtmlEscape(code))
        }
        None => HtmlEscape(step).to_string(),
    };
    Value::from_safe_string(text.split("; ").map(step).collect::<Vec<_>>().join("; "))
}

/// A small bar: `part` of `whole`.
fn share(part: Option<f64>, whole: Option<f64>) -> Value {
    let percent = match (part, whole) {
        (Some(part), Some(whole)) if whole > 0.0 => 100.0 * part / whole,
        _ => 0.0,
    };
    Value::from_safe_string(format!("<span class=\"bar\" aria-hidden=\"true\">{}</span>", bar(percent)))
}

fn bar(percent: f64) -> Value {
    let width = percent.clamp(0.0, 100.0);
    Value::from_safe_string(format!(
        "<svg viewBox=\"0 0 100 1\" preserveAspectRatio=\"none\" aria-hidden=\"true\"><rect width=\"{width:.1}\" height=\"1\"/></svg>"
    ))
}

/// A button that acts; nothing for those who may not. The server checks again.
#[expect(clippy::needless_pass_by_value, reason = "the engine hands it over")]
fn act(state: &State<'_, '_>, verb: &str, label: &str, fields: Kwargs) -> Result<Value, minijinja::Error> {
    if !may_operate(state) {
        return Ok(Value::from_safe_string(String::new()));
    }
    let tone: Option<String> = fields.get("tone")?;
    let button = format!("<button class=\"btn {}\">{}</button>", tone.as_deref().unwrap_or(""), HtmlEscape(label));
    Ok(Value::from_safe_string(form(state, verb, &button, &fields)?))
}

/// A button that first says what it will do.
#[expect(clippy::needless_pass_by_value, reason = "the engine hands it over")]
fn ask(state: &State<'_, '_>, verb: &str, label: &str, text: &str, fields: Kwargs) -> Result<Value, minijinja::Error> {
    if !may_operate(state) {
        return Ok(Value::from_safe_string(String::new()));
    }
    let sure: String = fields.get("sure")?;
    let button = format!("<button class=\"btn primary\">{}</button>", HtmlEscape(&sure));
    let form = form(state, verb, &button, &fields)?;
    Ok(Value::from_safe_string(format!(
        "<details class=\"confirm\"><summary class=\"btn\">{}</summary><div class=\"ask\"><p>{}</p>{form}</div></details>",
        HtmlEscape(label),
        HtmlEscape(text)
    )))
}

/// A search by name. It is a form that leads to the same page, so it works without the script.
fn find(state: &State<'_, '_>, label: &str) -> Value {
    let (path, name) = (listed(state, "path"), listed(state, "name"));
    let (path, name, label) = (HtmlEscape(&path), HtmlEscape(&name), HtmlEscape(label));
    let all = if name.0.is_empty() { String::new() } else { format!("<a class=\"btn\" href=\"{path}\">All</a>") };
    Value::from_safe_string(format!(
        "<form class=\"find\" action=\"{path}\" role=\"search\"><label class=\"sr\" for=\"name\">{label}</label>\
         <input id=\"name\" name=\"name\" type=\"search\" value=\"{name}\" placeholder=\"{label}\" autocomplete=\"off\" spellcheck=\"false\">\
         <button class=\"btn\" type=\"submit\">Find</button>{all}</form>"
    ))
}

/// The links from one page of a list to others.
fn pages(state: &State<'_, '_>) -> Value {
    let (first, more) = (listed(state, "first"), listed(state, "more"));
    let is_later = state.lookup("list").and_then(|list| list.get_attr("is_later").ok()).is_some_and(|is| is.is_true());
    let mut html = String::new();
    if is_later {
        html += &format!("<a class=\"btn\" href=\"{}\">First</a>", HtmlEscape(&first));
    }
    if !more.is_empty() {
        html += &format!("<a class=\"btn\" rel=\"next\" href=\"{}\">More</a>", HtmlEscape(&more));
    }
    Value::from_safe_string(format!("<span class=\"acts\">{html}</span>"))
}

/// What the page's list says of itself; empty: nothing.
fn listed(state: &State<'_, '_>, what: &str) -> String {
    let value = state.lookup("list").and_then(|list| list.get_attr(what).ok());
    value.filter(|value| !value.is_none() && !value.is_undefined()).map(|value| value.to_string()).unwrap_or_default()
}

/// `1 topic`, `1,000 topics`.
fn many(n: Option<f64>, one: &str, more: Option<&str>) -> String {
    let n = n.unwrap_or(0.0) as i64;
    match (n, more) {
        (1, _) => format!("1 {one}"),
        (_, Some(more)) => format!("{} {more}", words::count(n)),
        (_, None) => format!("{} {}", words::count(n), plural(n, one)),
    }
}

fn may_operate(state: &State<'_, '_>) -> bool {
    state.lookup("may_operate").is_some_and(|may| may.is_true())
}

fn form(state: &State<'_, '_>, verb: &str, button: &str, fields: &Kwargs) -> Result<String, minijinja::Error> {
    let mut html = format!("<form method=\"post\" action=\"/act/{}\">", HtmlEscape(verb));
    let here = state.lookup("here").map(|here| here.to_string()).unwrap_or_default();
    let mut hidden = vec![("back".to_owned(), here)];
    for name in fields.args().filter(|name| !["tone", "sure"].contains(name)) {
        hidden.push((name.to_owned(), fields.get::<Value>(name)?.to_string()));
    }
    for (name, value) in hidden {
        let _ = write!(html, "<input type=\"hidden\" name=\"{}\" value=\"{}\">", HtmlEscape(&name), HtmlEscape(&value));
    }
    fields.assert_all_used()?;
    Ok(html + button + "</form>")
}

#[cfg(test)]
mod tests {
    use minijinja::context;

    use super::*;

    #[test]
    fn what_comes_from_data_is_text() {
        let evil = "<img src=x onerror=alert(1)>\"'";
        let page = drawable(&serde_json::json!({"channels": [
            {"channel": evil, "origin": null, "circuit": "open", "paused": false, "calls": 1, "last_error": evil,
             "last_error_at": "2026-01-01T00:00:00Z", "held_because": evil, "topics": [evil]}]}));
        let html =
            render("channels.html", context! { page, list => context! {}, may_operate => true, here => "/channels" });
        assert!(html.contains("Probe now") && !html.contains("cannot be drawn"), "{html}");
        assert!(!html.contains("<img"), "{html}");
        assert!(!html.contains("value=\"<"), "{html}");
    }

    #[test]
    fn who_may_only_read_gets_no_buttons() {
        let page = drawable(&serde_json::json!({"topics": [{"topic": "t"}], "channels": [
            {"channel": "c", "circuit": "open", "paused": true}]}));
        for name in ["topics.html", "channels.html"] {
            let html =
                render(name, context! { page => page.clone(), list => context! {}, may_operate => false, here => "/" });
            assert!(!html.contains("method=\"post\"") && !html.contains("cannot be drawn"), "{html}");
            assert_eq!(html.matches("<button").count(), 1, "the search alone: {html}");
        }
    }

    #[test]
    fn parts_are_numbered_and_joined_as_they_stand() {
        let parts = parts("a<!--part-->b");
        assert_eq!(joined(&parts).to_string(), "<div id=\"part-0\">a</div><div id=\"part-1\">b</div>");
    }
}
