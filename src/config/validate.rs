//! What no single value shows: whether the configuration makes sense as a whole.
//!
//! **Guarantee.** Nothing is said of a value that is wrong in itself: one slip is one error. **Limit.** What only a
//! server can tell is `outboxd check`'s.

use std::collections::BTreeSet;
use std::fmt::Display;

use humantime::format_duration;
use secrecy::ExposeSecret;

use super::conninfo;
use super::error::{Error, Errors};
use super::key::KeyPath;
use super::live;
use super::redis_url::Address;
use super::settings::Settings;
use super::{Config, DEFAULT_ROUTE, QueueKind, Role, Wakeup};
use crate::tls;

mod channel;
mod guessable;
mod quoting;
mod route;
mod telemetry;
mod token;

/// Notes everything that does not fit together.
pub(super) fn config(settings: &mut Settings, config: &Config) {
    connections(settings, config);
    token::validate(settings, config);
    queue(settings, config);
    relay(settings, config);
    worker(settings, config);
    live::validate(settings, &config.live);
    retention(settings, config);
    telemetry::validate(settings, &config.telemetry);
    for (name, channel) in &config.channels {
        channel::validate(settings, name, channel);
    }
    for (name, route) in &config.routes {
        route::validate(settings, name, route, config);
    }
}

/// Whether this instance can do what `--role` asks of it. Loading does not check it, because `migrate` and others
/// get by with a database alone.
pub fn validate_roles(roles: &BTreeSet<Role>, config: &Config) -> Result<(), Errors> {
    let mut errors = Vec::new();
    let mut note = |path: Option<KeyPath>, what: String| errors.push(Error { origin: None, path, what });
    let missing: Vec<&str> =
        Role::CARRIERS.iter().filter(|role| !roles.contains(role)).map(|role| role.name()).collect();
    if config.queue.kind == QueueKind::Memory && !missing.is_empty() {
        note(
            Some(KeyPath::dotted("queue.kind")),
            format!(
                "is memory, which carries nothing between processes, but --role leaves out {}; set redis_url, or run \
                 all roles in one process",
                missing.join(", ")
            ),
        );
    }
    if roles.contains(&Role::Worker) && config.routes.is_empty() {
        note(
            None,
            "no route leads anywhere: add a [channels.NAME] with its url, and [routes.default] with \
             channels = [\"NAME\"]"
                .into(),
        );
    }
    if errors.is_empty() { Ok(()) } else { Err(Errors(errors)) }
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
        warnings.extend(channel::warnings(name, channel));
    }
    warnings.extend(token::warnings(config));
    if config.queue.kind == QueueKind::Memory && config.redis_url.is_some() {
        warnings.push("queue.kind is memory, so redis_url is not used".into());
    }
    warnings
}

fn connections(settings: &mut Settings, config: &Config) {
    let path = KeyPath::dotted("database_url");
    if settings.is_given(&path)
        && !settings.is_wrong(&path)
        && let Err(error) = conninfo::parse(config.database_url.expose_secret())
            .and_then(|info| tls::postgres::client_config(info.verify, info.root.as_ref()))
    {
        settings.error(&path, error);
    }
    let path = KeyPath::dotted("redis_url");
    if !settings.is_wrong(&path)
        && let Some(url) = &config.redis_url
        && let Err(error) = Address::parse(url.expose_secret())
    {
        settings.error(&path, error.to_string());
    }
}

fn queue(settings: &mut Settings, config: &Config) {
    let kind = KeyPath::dotted("queue.kind");
    let needs_redis = config.queue.kind != QueueKind::Memory;
    if needs_redis && config.redis_url.is_none() && !settings.is_wrong(&KeyPath::dotted("redis_url")) {
        settings.error(&kind, "needs Redis; set redis_url (REDIS_URL), or use kind = \"memory\"");
    }
    let legal = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    if config.queue.prefix.is_empty() || !config.queue.prefix.chars().all(legal) {
        // The prefix is the hash tag of every key, so a brace would break the tag.
        settings.error(&KeyPath::dotted("queue.prefix"), "takes letters, digits and - _ . : only, at least one");
    }
}

fn relay(settings: &mut Settings, config: &Config) {
    if config.database.pooler && config.relay.wakeup == Wakeup::Bell {
        let what = "is bell, which needs LISTEN, and a transaction-mode pooler has none; use \"poll\"";
        settings.error(&KeyPath::dotted("relay.wakeup"), what);
    }
    let (relay, published_after) = (&config.relay, config.reconcile.published_after);
    for (longer, long, shorter, short) in [
        ("relay.republish_after", relay.republish_after, "relay.poll", relay.poll),
        ("reconcile.published_after", published_after, "relay.republish_after", relay.republish_after),
    ] {
        let paths = [&KeyPath::dotted(longer), &KeyPath::dotted(shorter)];
        relation(settings, long > short, paths, [long, short].map(format_duration), "longer than", "");
    }
}

fn worker(settings: &mut Settings, config: &Config) {
    let [heartbeat, ttl, lease] = ["worker.heartbeat", "worker.heartbeat_ttl", "worker.lease"].map(KeyPath::dotted);
    let worker = &config.worker;
    let spans = [worker.heartbeat_ttl, worker.heartbeat].map(format_duration);
    let why = ", else one late beat makes an instance look dead";
    let holds = worker.heartbeat_ttl > worker.heartbeat * 2;
    relation(settings, holds, [&ttl, &heartbeat], spans, "more than twice", why);
    for (name, channel) in &config.channels {
        let timeout = KeyPath(vec!["channels".into(), name.clone(), "timeout".into()]);
        let spans = [channel.timeout, worker.lease].map(format_duration);
        let why = ": lower it, or raise the lease";
        relation(settings, channel.timeout < worker.lease, [&timeout, &lease], spans, "shorter than", why);
    }
}

fn retention(settings: &mut Settings, config: &Config) {
    let [events, inbox] = ["retention.events", "retention.inbox"].map(KeyPath::dotted);
    let kept = &config.retention;
    let spans = [kept.inbox, kept.events].map(format_duration);
    let why = ", else an event that is appended again takes effect again";
    relation(settings, kept.inbox >= kept.events, [&inbox, &events], spans, "at least", why);
}

/// Notes the first of two keys unless it stands to the second as it must. Says nothing where one of them is wrong in
/// itself.
fn relation(
    settings: &mut Settings,
    holds: bool,
    [path, other]: [&KeyPath; 2],
    [value, bound]: [impl Display; 2],
    must_be: &str,
    why: &str,
) {
    if !holds && !settings.is_wrong(path) && !settings.is_wrong(other) {
        settings.error(path, format!("is {value}; it must be {must_be} {other} ({bound}){why}"));
    }
}
