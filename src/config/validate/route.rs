//! One route: its channels and its retries.
//!
//! **Guarantee.** Every channel that a route names exists, and is named once. **Limit.** Which topics an app writes is
//! not known here: one without a route waits, and `outboxd doctor` tells.

use humantime::format_duration;

use super::relation;
use crate::config::key::KeyPath;
use crate::config::settings::Settings;
use crate::config::suggest::did_you_mean;
use crate::config::{Config, RouteConfig, TOPIC_BYTES_MAX};

/// Notes what is wrong with the route.
pub(super) fn validate(settings: &mut Settings, name: &str, route: &RouteConfig, config: &Config) {
    let at = KeyPath(vec!["routes".into(), name.into()]);
    if let Err(what) = legal_topic(name) {
        settings.error(&at, what);
    }
    channels(settings, &at.child("channels"), route, config);
    let counts = [route.attempts_before_failover, route.max_attempts];
    let [before, max] = [at.child("attempts_before_failover"), at.child("max_attempts")];
    relation(settings, counts[0] <= counts[1], [&before, &max], counts, "at most", "");
    let spans = [route.backoff.base, route.backoff.max];
    let [base, max] = [at.join("backoff.base"), at.join("backoff.max")];
    relation(settings, spans[0] <= spans[1], [&base, &max], spans.map(format_duration), "at most", "");
}

/// What `notify()` takes as a topic, except what looks like a pattern.
fn legal_topic(name: &str) -> Result<(), String> {
    if name.contains('*') {
        return Err("has a *, and routes know no patterns: write one route per topic; [routes.default] serves all \
                    topics without one"
            .into());
    }
    if name.is_empty() || name.len() > TOPIC_BYTES_MAX || name.contains('\0') {
        return Err(format!("is named after no topic: they have 1 to {TOPIC_BYTES_MAX} bytes"));
    }
    Ok(())
}

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
