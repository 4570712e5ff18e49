//! What no single value shows: whether the configuration makes sense as a whole.

use std::collections::BTreeSet;
use std::time::Duration;

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
    ordered(settings, "relay.republish_after", config.relay.republish_after, "relay.poll", config.relay.poll);
    let (republish, published) = (config.relay.republish_after, config.reconcile.published_after);
    ordered(settings, "reconcile.published_after", published, "relay.republish_after", republish);
}

fn worker(settings: &mut Settings, config: &Config) {
    let [heartbeat, ttl, lease] = ["worker.heartbeat", "worker.heartbeat_ttl", "worker.lease"].map(KeyPath::dotted);
    let worker = &config.worker;
    if !settings.is_wrong(&heartbeat) && !settings.is_wrong(&ttl) && worker.heartbeat_ttl <= worker.heartbeat * 2 {
        let what = format!(
            "is {}; it must be more than twice worker.heartbeat ({}), else one late beat makes an instance look dead",
            show(worker.heartbeat_ttl),
            show(worker.heartbeat)
        );
        settings.error(&ttl, what);
    }
    if settings.is_wrong(&lease) {
        return;
    }
    for (name, channel) in &config.channels {
        let timeout_is_wrong = settings.is_wrong(&KeyPath(vec!["channels".into(), name.clone(), "timeout".into()]));
        if !timeout_is_wrong && worker.lease <= channel.timeout {
            let what = format!(
                "is {}; it must exceed the timeout of channels.{name} ({}): raise it, or lower the channel's timeout",
                show(worker.lease),
                show(channel.timeout)
            );
            settings.error(&lease, what);
        }
    }
}

fn retention(settings: &mut Settings, config: &Config) {
    let [events, inbox] = ["retention.events", "retention.inbox"].map(KeyPath::dotted);
    let kept = &config.retention;
    if !settings.is_wrong(&events) && !settings.is_wrong(&inbox) && kept.inbox < kept.events {
        let what = format!(
            "is {}; it must be at least retention.events ({}), else an event that is appended again takes effect again",
            show(kept.inbox),
            show(kept.events)
        );
        settings.error(&inbox, what);
    }
}

/// Notes `longer` unless it is longer than `shorter`.
fn ordered(settings: &mut Settings, longer: &str, long: Duration, shorter: &str, short: Duration) {
    let path = KeyPath::dotted(longer);
    if !settings.is_wrong(&path) && !settings.is_wrong(&KeyPath::dotted(shorter)) && long <= short {
        settings.error(&path, format!("is {}; it must be longer than {shorter} ({})", show(long), show(short)));
    }
}

fn show(span: Duration) -> String {
    humantime::format_duration(span).to_string()
}
