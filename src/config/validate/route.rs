//! One route: its channels and its retries.

use super::show;
use crate::config::key::KeyPath;
use crate::config::settings::Settings;
use crate::config::suggest::did_you_mean;
use crate::config::{Config, RouteConfig};

/// Notes what is wrong with the route.
pub(super) fn validate(settings: &mut Settings, name: &str, route: &RouteConfig, config: &Config) {
    let at = KeyPath(vec!["routes".into(), name.into()]);
    if let Err(what) = legal_topic(name) {
        settings.error(&at, what);
    }
    channels(settings, &at.child("channels"), route, config);
    attempts(settings, &at, route);
    let [base, max] = ["backoff.base", "backoff.max"].map(|key| at.join(key));
    if !settings.is_wrong(&base) && !settings.is_wrong(&max) && route.backoff.base > route.backoff.max {
        let what = format!("is {}; it must be at most {max} ({})", show(route.backoff.base), show(route.backoff.max));
        settings.error(&base, what);
    }
}

/// What `notify()` takes as a topic, except what looks like a pattern.
fn legal_topic(name: &str) -> Result<(), String> {
    if name.contains('*') {
        return Err("has a *, and routes know no patterns: write one route per topic; [routes.default] serves all \
                    topics without one"
            .into());
    }
    if name.is_empty() || name.len() > 200 || name.contains('\0') {
        return Err("is named after no topic: they have 1 to 200 bytes".into());
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

fn attempts(settings: &mut Settings, at: &KeyPath, route: &RouteConfig) {
    let [before, max] = [at.child("attempts_before_failover"), at.child("max_attempts")];
    let wrong = settings.is_wrong(&before) || settings.is_wrong(&max);
    if !wrong && route.attempts_before_failover > route.max_attempts {
        let what = format!("is {}; it must be at most {max} ({})", route.attempts_before_failover, route.max_attempts);
        settings.error(&before, what);
    }
}
