//! What no single value shows: whether the configuration makes sense as a whole.
//!
//! **Guarantee.** Nothing is said of a value that is wrong in itself: one slip is one error. **Limit.** What only a
//! server can tell is `outboxd check`'s.

use std::collections::BTreeSet;
use std::time::Duration;

use http::header::HeaderName;
use humantime::format_duration;
use secrecy::ExposeSecret;

use super::error::did_you_mean;
use super::key::KeyPath;
use super::settings::Settings;
use super::{ChannelConfig, Config, DEFAULT_ROUTE, QueueKind, RouteConfig, Wakeup, conninfo, legal, template};

mod sample;
mod token;

/// How one setting must stand to another, in words and in numbers.
type Must = (&'static str, fn(u128, u128) -> bool);
const LONGER: Must = ("longer than", |own, other| own > other);
const SHORTER: Must = ("shorter than", |own, other| own < other);
const AT_LEAST: Must = ("at least", |own, other| own >= other);
const AT_MOST: Must = ("at most", |own, other| own <= other);
const MORE_THAN_TWICE: Must = ("more than twice", |own, other| own > other * 2);

/// Settings that must stand to others so, and why. A `*` is each channel or route, on both sides the same.
const RELATIONS: [(&str, Must, &str, &str); 9] = [
    ("relay.republish_after", LONGER, "relay.poll", ""),
    ("reconcile.published_after", LONGER, "relay.republish_after", ""),
    ("worker.heartbeat_ttl", MORE_THAN_TWICE, "worker.heartbeat", ", else one late beat makes an instance look dead"),
    ("retention.inbox", AT_LEAST, "retention.events", ", else an event that is appended again takes effect again"),
    ("channels.*.timeout", SHORTER, "worker.lease", ": lower it, or raise the lease"),
    ("channels.*.connect_timeout", AT_MOST, "channels.*.timeout", ""),
    ("channels.*.first_byte_timeout", AT_MOST, "channels.*.timeout", ""),
    ("routes.*.attempts_before_failover", AT_MOST, "routes.*.max_attempts", ""),
    ("routes.*.backoff.base", AT_MOST, "routes.*.backoff.max", ""),
];

/// Notes everything that does not fit together.
pub(super) fn config(settings: &mut Settings, config: &Config) {
    token::validate(settings, config);
    queue(settings, config);
    for (name, own) in &config.channels {
        channel(settings, name, own);
    }
    for (name, own) in &config.routes {
        route(settings, name, own, config);
    }
    for (path, must, other, why) in RELATIONS {
        let section = path.split('.').next().unwrap_or_default();
        let names = if path.contains('*') { settings.names(section) } else { vec![String::new()] };
        for name in names {
            let [path, other] = [path, other].map(|text| KeyPath::dotted(text).named(&name));
            relation(settings, &path, must, &other, why);
        }
    }
}

/// Says nothing where one of them is wrong in itself.
fn relation(settings: &mut Settings, path: &KeyPath, (must_be, holds): Must, other: &KeyPath, why: &str) {
    let [(own, shown), (bound, bound_shown)] = [path, other].map(|path| match settings.get::<Option<Duration>>(path) {
        Some(span) => (span.as_nanos(), format_duration(span).to_string()),
        None => (settings.get::<u32>(path).into(), settings.get::<u32>(path).to_string()),
    });
    if !holds(own, bound) && !settings.is_wrong(path) && !settings.is_wrong(other) {
        settings.error(path, format!("is {shown}; it must be {must_be} {other} ({bound_shown}){why}"));
    }
}

/// What is legal and yet may surprise; `check` prints it.
pub fn warnings(config: &Config) -> Vec<String> {
    let mut warnings = conninfo::warnings(config.database_url.expose_secret(), config.database.pooler);
    let used: BTreeSet<&String> = config.routes.values().flat_map(|route| &route.channels).collect();
    for name in config.channels.keys().filter(|name| !used.contains(name)) {
        warnings.push(format!("channels.{name} is in no route, so nothing uses it"));
    }
    if !config.routes.is_empty() && !config.routes.contains_key(DEFAULT_ROUTE) {
        warnings.push("there is no routes.default, so topics without a route of their own wait".into());
    }
    for (name, channel) in &config.channels {
        warnings.extend(body_warnings(name, channel));
    }
    warnings.extend(token::warnings(config));
    if config.queue.kind == QueueKind::Memory && config.redis_url.is_some() {
        warnings.push("queue.kind is memory, so redis_url is not used".into());
    }
    warnings
}

/// What may surprise whoever wrote the channel's body.
fn body_warnings(name: &str, channel: &ChannelConfig) -> Vec<String> {
    let body = channel.body.as_deref().filter(|_| is_json(channel)).unwrap_or_default();
    let warning = |code: String| {
        format!(
            "channels.{name}.body has {{{{ {code} }}}} between quotes, and a quote in the value would end them; write \
             {{{{ {code}|tojson }}}} without quotes around it"
        )
    };
    sample::breakable(body).into_iter().map(warning).collect()
}

fn queue(settings: &mut Settings, config: &Config) {
    let kind = KeyPath::dotted("queue.kind");
    let needs_redis = config.queue.kind != QueueKind::Memory;
    if needs_redis && config.redis_url.is_none() && !settings.is_wrong(&KeyPath::dotted("redis_url")) {
        settings.error(&kind, "needs Redis; set redis_url (REDIS_URL), or use kind = \"memory\"");
    }
    if config.database.pooler && config.relay.wakeup == Wakeup::Bell {
        let what = "is bell, which needs LISTEN, and a transaction-mode pooler has none; use \"poll\"";
        settings.error(&KeyPath::dotted("relay.wakeup"), what);
    }
}

fn channel(settings: &mut Settings, name: &str, channel: &ChannelConfig) {
    let at = KeyPath(vec!["channels".into(), name.into()]);
    if let Err(what) = legal::name(name) {
        settings.error(&at, what);
    }
    legal_template(settings, &at.child("url"), &channel.url, template::REQUEST);
    if let Some(source) = &channel.body {
        body(settings, &at.child("body"), source, channel);
    }
    for (key, source) in [("accepted_when", &channel.accepted_when), ("provider_id", &channel.provider_id)] {
        if let Some(source) = source {
            reads_the_answer(settings, &at.child(key), source);
        }
    }
    headers(settings, &at, channel);
    forwarded(settings, &at, channel);
}

/// A JSON body that the provider could not read, as far as it shows without a notification.
fn body(settings: &mut Settings, path: &KeyPath, source: &str, channel: &ChannelConfig) {
    legal_template(settings, path, source, template::REQUEST);
    if !is_json(channel) || settings.is_wrong(path) {
        return;
    }
    sample::errors(source).into_iter().for_each(|what| settings.error(path, what));
}

/// Without an expression it would say the same of every answer.
fn reads_the_answer(settings: &mut Settings, path: &KeyPath, source: &str) {
    legal_template(settings, path, source, template::ANSWER);
    if !source.contains("{{") && !source.contains("{%") {
        let example = if source.starts_with("response") { source.trim() } else { "response.ok" };
        let what = format!("has no {{{{ }}}}, so it says the same of every answer; write \"{{{{ {example} }}}}\"");
        settings.error(path, what);
    }
}

fn is_json(channel: &ChannelConfig) -> bool {
    channel.content_type.contains("json")
}

/// The template reads only what there is.
fn legal_template(settings: &mut Settings, path: &KeyPath, source: &str, known: &'static [&'static str]) {
    match template::check(source, known) {
        Ok(used) => constants(settings, path, &used.with.names),
        Err(reasons) => reasons.iter().for_each(|reason| settings.error(path, format!("is no template: {reason}"))),
    }
}

/// Each constant that a template reads is one of its channel's.
fn constants(settings: &mut Settings, path: &KeyPath, read: &BTreeSet<String>) {
    let with = KeyPath(path.0[..2].to_vec()).child("with");
    let known = settings.children(&with);
    for name in read.iter().filter(|name| !known.contains(*name)) {
        let hint = did_you_mean(name, known.iter().map(String::as_str));
        let hint = if hint.is_empty() { format!("; set {}", with.child(name)) } else { hint };
        settings.error(path, format!("reads with.{name}, which the channel has not{hint}"));
    }
}

fn headers(settings: &mut Settings, at: &KeyPath, channel: &ChannelConfig) {
    let mut seen = BTreeSet::new();
    for (name, value) in &channel.headers {
        let path = at.child("headers").child(name);
        let lower = name.to_ascii_lowercase();
        if HeaderName::from_bytes(name.as_bytes()).is_err() {
            settings.error(&path, "is no header name");
        } else if lower == "content-type" {
            settings.error(&path, format!("is a key of its own: set {}", at.child("content_type")));
        } else if legal::is_own_header(&lower) {
            settings.error(&path, "is set by outboxd itself; leave it out");
        } else if !seen.insert(lower) {
            settings.error(&path, "is given twice, in different spellings");
        }
        legal_template(settings, &path, value.expose_secret(), template::HEADER);
    }
}

fn forwarded(settings: &mut Settings, at: &KeyPath, channel: &ChannelConfig) {
    let path = at.child("forward_headers");
    for entry in &channel.forward_headers {
        if let Some(own) = channel.headers.keys().find(|own| own.eq_ignore_ascii_case(entry)) {
            let what = format!("names {entry:?}, which {} sets", at.child("headers").child(own));
            settings.error(&path, what);
        }
    }
}

fn route(settings: &mut Settings, name: &str, route: &RouteConfig, config: &Config) {
    let at = KeyPath(vec!["routes".into(), name.into()]);
    if let Err(what) = legal::route_name(name) {
        settings.error(&at, what);
    }
    channels(settings, &at.child("channels"), route, config);
}

/// Every channel that a route names exists, and is named once.
fn channels(settings: &mut Settings, path: &KeyPath, route: &RouteConfig, config: &Config) {
    if settings.is_wrong(path) {
        return;
    }
    if route.channels.is_empty() {
        settings.error(path, "is empty; list at least one channel");
    }
    for (index, channel) in route.channels.iter().enumerate() {
        if !config.channels.contains_key(channel) {
            let hint = did_you_mean(channel, config.channels.keys().map(String::as_str));
            settings.error(path, format!("names {channel:?}, but there is no [channels.{channel}]{hint}"));
        }
        if route.channels[..index].contains(channel) {
            settings.error(path, format!("names {channel:?} twice"));
        }
    }
}
