//! What was given, key by key, before it becomes a [`Config`]: what nobody gave is filled in, and each value goes to
//! the field that bears its key's name.
//!
//! **Guarantee.** A later source replaces an earlier one and its error. What is shown is what was written, not what
//! `${VAR}` held. Where a value was wrong its fallback stands in, so that the rest can still be checked. **Limit.**
//! What a value means beside others is unknown here: see `validate`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use humantime::format_duration;
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};

use super::conninfo::{self, MASK};
use super::error::{Error, Origin};
use super::key::{Fallback, Key, KeyPath, Kind};
use super::value::{self, Given};
use super::{Config, KEYS, Scope};

/// The parts of the configuration whose entries the user names.
pub(super) const NAMED: [&str; 3] = ["tokens", "channels", "routes"];

/// All that was given, from every source, and all that was wrong with it.
#[derive(Default)]
pub(super) struct Settings {
    entries: BTreeMap<KeyPath, Entry>,
    /// Tokens, channels and routes that were at least mentioned: `[channels.push]` alone names one without any key.
    named: BTreeSet<(String, String)>,
    pub(super) errors: Vec<Error>,
}

/// One value.
struct Entry {
    /// Absent while it is wrong.
    value: Option<Json>,
    shown: String,
    origin: Origin,
}

/// One value that would be used, fit to print.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// The key's path.
    pub key: String,
    /// The value; secrets masked.
    pub value: String,
    /// Where it came from.
    pub origin: Origin,
}

impl Settings {
    /// Takes a value for a known key; a later source replaces an earlier one. `written` is the text as the user
    /// wrote it, before `${VAR}` was filled in, so that printing it reveals nothing new.
    pub(super) fn give(&mut self, key: &Key, path: KeyPath, given: &Given, written: &str, origin: Origin) {
        self.mention(&path);
        // A value that a later source replaces is not used, so its error does not count.
        self.errors.retain(|error| error.path.as_ref() != Some(&path));
        let parsed = value::parse(key.kind, given);
        let wrong = parsed.as_ref().map_or_else(|what| vec![what.clone()], |value| refused(key, value));
        let value = parsed.ok().filter(|_| wrong.is_empty());
        wrong.into_iter().for_each(|what| self.wrong(origin.clone(), path.clone(), what));
        let shown = match key.kind {
            Kind::Secret | Kind::Secrets => MASK.to_owned(),
            Kind::SecretUrl => conninfo::mask(written),
            // A provider's URL may hold credentials; a template such as {{ recipient }} holds none.
            _ if path.0.last().is_some_and(|part| part == "url") && written.contains("://") => conninfo::mask(written),
            _ => written.to_owned(),
        };
        self.entries.insert(path, Entry { value, shown, origin });
    }

    /// Notes what is wrong with what was written.
    pub(super) fn wrong(&mut self, origin: Origin, path: KeyPath, what: String) {
        self.mention(&path);
        self.errors.push(Error { origin: Some(origin), path: Some(path), what });
    }

    /// Remembers the token, channel or route that a path speaks of.
    pub(super) fn mention(&mut self, path: &KeyPath) {
        if let [section, name, ..] = path.0.as_slice()
            && NAMED.contains(&section.as_str())
        {
            self.named.insert((section.clone(), name.clone()));
        }
    }

    pub(super) fn names(&self, section: &str) -> Vec<String> {
        self.named.iter().filter(|(own, _)| own == section).map(|(_, name)| name.clone()).collect()
    }

    /// The parts below `path` that were given, such as the names of headers.
    pub(super) fn children(&self, path: &KeyPath) -> BTreeSet<String> {
        let depth = path.0.len();
        let below = self.entries.keys().filter(|key| key.0.len() > depth && key.0.starts_with(&path.0));
        below.map(|key| key.0[depth].clone()).collect()
    }

    pub(super) fn is_given(&self, path: &KeyPath) -> bool {
        self.entries.get(path).is_some_and(|entry| entry.origin != Origin::Default)
    }

    /// Whether an error is known of the value, or of a table around it.
    pub(super) fn is_wrong(&self, path: &KeyPath) -> bool {
        self.errors.iter().filter_map(|error| error.path.as_ref()).any(|wrong| path.0.starts_with(&wrong.0))
    }

    /// Every key in use, with the user's names filled in, in the order of the table.
    pub(super) fn keys(&self) -> Vec<(&'static Key, KeyPath)> {
        let plain = KEYS.iter().filter(|key| !key.path.contains('*'));
        let mut all: Vec<_> = plain.map(|key| (key, KeyPath::dotted(key.path))).collect();
        let named = NAMED.iter().flat_map(|own| self.named.iter().filter(move |(section, _)| section == own));
        for (section, name) in named {
            for key in KEYS.iter().filter(|key| key.segments().next() == Some(section)) {
                let mut path = KeyPath::dotted(key.path).named(name);
                if path.0.pop_if(|last| last == "*").is_some() {
                    all.extend(self.children(&path).iter().map(|name| (key, path.child(name))));
                } else {
                    all.push((key, path));
                }
            }
        }
        all
    }

    /// Fills in what nobody gave: the defaults, then what is worked out from other keys.
    pub(super) fn fill(&mut self) {
        for (key, path) in self.keys() {
            match key.fallback {
                Fallback::Value(text) => self.fall_back(path, text),
                Fallback::Absent(shown) => self.stand_in(path, neutral(key), shown),
                Fallback::Required(_) => self.stand_in(path, neutral(key), "missing"),
                Fallback::Derived(_) => {}
            }
        }
        let has_redis = self.get::<Option<String>>(&KeyPath::dotted("redis_url")).is_some();
        self.fall_back(KeyPath::dotted("queue.kind"), if has_redis { "stream" } else { "memory" });
        let has_pooler: bool = self.get(&KeyPath::dotted("database.pooler"));
        self.fall_back(KeyPath::dotted("relay.wakeup"), if has_pooler { "poll" } else { "bell" });
        let concurrency: usize = self.get(&KeyPath::dotted("worker.concurrency"));
        for (section, name) in self.named.clone() {
            let at = KeyPath(vec![section, name]);
            match at.0[0].as_str() {
                "tokens" => {
                    let may_operate = self.get::<Option<Scope>>(&at.child("scope")) == Some(Scope::Operate);
                    self.fall_back(at.child("payloads"), &may_operate.to_string());
                }
                "channels" => {
                    let timeout: Duration = self.get(&at.child("timeout"));
                    let connecting = timeout.min(Duration::from_secs(2));
                    self.fall_back(at.child("connect_timeout"), &format_duration(connecting).to_string());
                    self.fall_back(at.child("first_byte_timeout"), &format_duration(timeout).to_string());
                    self.fall_back(at.child("max_in_flight_per_origin"), &concurrency.div_ceil(2).to_string());
                }
                _ => {
                    let max_attempts: u32 = self.get(&at.child("max_attempts"));
                    self.fall_back(at.child("attempts_before_failover"), &max_attempts.min(3).to_string());
                }
            }
        }
    }

    fn fall_back(&mut self, path: KeyPath, text: &str) {
        let key = Key::find(&path).expect("a path of the table");
        let value = value::parse(key.kind, &Given::open(text)).expect("a fallback within its bounds");
        self.stand_in(path, value, text);
    }

    /// For a value that was not given, or was wrong.
    fn stand_in(&mut self, path: KeyPath, value: Json, shown: &str) {
        let absent = || Entry { value: None, shown: shown.to_owned(), origin: Origin::Default };
        self.entries.entry(path).or_insert_with(absent).value.get_or_insert(value);
    }

    /// The value as a field would hold it; a neutral one where there is none.
    pub(super) fn get<T: DeserializeOwned + Default>(&self, path: &KeyPath) -> T {
        let value = self.entries.get(path).and_then(|entry| entry.value.clone());
        value.and_then(|value| serde_json::from_value(value).ok()).unwrap_or_default()
    }

    /// The whole configuration. With errors it is thrown away in the end.
    pub(super) fn config(&self) -> Config {
        let mut tree = Json::Null;
        for (path, entry) in &self.entries {
            if let Some(value) = entry.value.as_ref().filter(|value| !value.is_null()) {
                *path.0.iter().fold(&mut tree, |table, part| &mut table[part.as_str()]) = value.clone();
            }
        }
        serde_json::from_value(tree).expect("each key has a field of its kind")
    }

    /// Notes the required keys that nobody gave.
    pub(super) fn note_missing(&mut self) {
        for (key, path) in self.keys() {
            if let Fallback::Required(advice) = key.fallback
                && !self.is_given(&path)
                && !self.is_wrong(&path)
            {
                self.error(&path, format!("is missing; {advice}"));
            }
        }
    }

    /// Notes that `path` is wrong, with the place where it was written.
    pub(super) fn error(&mut self, path: &KeyPath, what: impl Into<String>) {
        let origin = self.entries.get(path).map(|entry| entry.origin.clone()).filter(|from| *from != Origin::Default);
        self.errors.push(Error { origin, path: Some(path.clone()), what: what.into() });
    }

    /// Every value that would be used, in the order of the table.
    pub(super) fn shown(&self) -> Vec<Shown> {
        let entry = |path: KeyPath| {
            let Entry { shown, origin, .. } = self.entries.get(&path)?;
            Some(Shown { key: path.to_string(), value: shown.clone(), origin: origin.clone() })
        };
        self.keys().into_iter().filter_map(|(_, path)| entry(path)).collect()
    }
}

/// What the key's checks say of each text.
fn refused(key: &Key, value: &Json) -> Vec<String> {
    let items = value.as_array().into_iter().flatten().chain([value]);
    items.filter_map(Json::as_str).flat_map(|text| key.checks.iter().filter_map(|check| check(text).err())).collect()
}

/// Stands in for what is not there.
fn neutral(key: &Key) -> Json {
    match (key.fallback, key.kind) {
        (_, Kind::Secrets) | (Fallback::Required(_), Kind::Texts) => json!([]),
        (Fallback::Required(_), Kind::Choice(words)) => json!(words[0]),
        (Fallback::Required(_), _) => json!(""),
        _ => Json::Null,
    }
}
