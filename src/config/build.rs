//! From settings to the [`Config`] that the program is told: what nobody gave is worked out, what must be given and is
//! not is noted, and each value goes to the field that bears its key's name.
//!
//! **Guarantee.** A key without a field, a field without a key, or one of another type is found by every test that
//! loads a configuration. **Limit.** Where a value was wrong, its fallback stands in: the result is thrown away in the
//! end, but the other parts can still be checked.

use std::time::Duration;

use humantime::format_duration;
use serde_json::Value as Json;

use super::key::{Fallback, KeyPath};
use super::settings::Settings;
use super::{Config, Scope};

/// Works out from other keys what nobody gave.
pub(super) fn derive(settings: &mut Settings) {
    let top = KeyPath(Vec::new());
    let has_redis = settings.value(&top.child("redis_url")).is_some();
    settings.derive(top.join("queue.kind"), &if has_redis { "stream" } else { "memory" });
    let has_pooler: bool = settings.get(&top.join("database.pooler"));
    settings.derive(top.join("relay.wakeup"), &if has_pooler { "poll" } else { "bell" });
    for name in settings.names("tokens") {
        let at = top.child("tokens").child(&name);
        let scope: Scope = settings.get(&at.child("scope"));
        settings.derive(at.child("payloads"), &(scope == Scope::Operate));
    }
    let concurrency: usize = settings.get(&top.join("worker.concurrency"));
    for name in settings.names("channels") {
        let at = top.child("channels").child(&name);
        let timeout: Duration = settings.get(&at.child("timeout"));
        settings.derive(at.child("connect_timeout"), &format_duration(timeout.min(Duration::from_secs(2))));
        settings.derive(at.child("first_byte_timeout"), &format_duration(timeout));
        settings.derive(at.child("max_in_flight_per_origin"), &per_origin(concurrency));
    }
    for name in settings.names("routes") {
        let at = top.child("routes").child(&name);
        let max_attempts: u32 = settings.get(&at.child("max_attempts"));
        settings.derive(at.child("attempts_before_failover"), &max_attempts.min(3));
    }
}

/// Calls to one origin at most: the others have as many.
fn per_origin(concurrency: usize) -> usize {
    concurrency.div_ceil(2)
}

impl Config {
    /// No more calls than this, if more were configured; nor to one origin more than half of them.
    pub fn lower_concurrency(&mut self, calls_max: usize) {
        if calls_max < self.worker.concurrency {
            self.worker.concurrency = calls_max;
            for channel in self.channels.values_mut() {
                channel.max_in_flight_per_origin = channel.max_in_flight_per_origin.min(per_origin(calls_max));
            }
        }
    }
}

/// Notes the required keys that nobody gave.
pub(super) fn note_missing(settings: &mut Settings) {
    for (key, path) in settings.keys() {
        if let Fallback::Required(advice) = key.fallback
            && !settings.is_given(&path)
            && !settings.is_wrong(&path)
        {
            settings.error(&path, format!("is missing; {advice}"));
        }
    }
}

/// Builds the whole configuration.
pub(super) fn config(settings: &Settings) -> Config {
    let mut tree = Json::Null;
    for (_, path) in settings.keys() {
        if let Some(value) = settings.value(&path) {
            *path.0.iter().fold(&mut tree, |table, part| &mut table[part.as_str()]) = value;
        }
    }
    serde_json::from_value(tree).expect("each key has a field of its kind")
}
