//! What was given, key by key, before it becomes a [`super::Config`].
//!
//! **Guarantee.** A later source replaces an earlier one and its error. What is shown is what was written, not what
//! `${VAR}` held. **Limit.** What a value means beside others is unknown here: see `build` and `validate`.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use super::KEYS;
use super::error::{Error, Origin};
use super::key::{Fallback, Key, KeyPath, Kind};
use super::mask;
use super::value::{self, Given};

/// The parts of the configuration whose entries the user names.
pub(super) const NAMED: [&str; 3] = ["tokens", "channels", "routes"];

/// All that was given, from every source, and all that was wrong with it.
#[derive(Default)]
pub(super) struct Settings {
    entries: BTreeMap<KeyPath, Entry>,
    /// What was worked out from other keys, written as in the environment.
    derived: BTreeMap<KeyPath, String>,
    /// Tokens, channels and routes that were at least mentioned: `[channels.push]` alone names one without any key.
    named: BTreeSet<(String, String)>,
    pub(super) errors: Vec<Error>,
}

/// One value that was given.
struct Entry {
    /// Absent when it was wrong.
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
        let value = match value::parse(key.kind, given) {
            Ok(value) => Some(value),
            Err(what) => {
                self.errors.push(Error { origin: Some(origin.clone()), path: Some(path.clone()), what });
                None
            }
        };
        let shown = match key.kind {
            Kind::Secret | Kind::Secrets => mask::MASK.to_owned(),
            Kind::SecretUrl => mask::url(written),
            // A provider's URL may hold credentials; a template such as {{ recipient }} holds none.
            _ if path.0.last().is_some_and(|part| part == "url") && written.contains("://") => mask::url(written),
            _ => written.to_owned(),
        };
        self.entries.insert(path, Entry { value, shown, origin });
    }

    /// Remembers the channel or route that a path speaks of.
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
    pub(super) fn children(&self, path: &KeyPath) -> Vec<String> {
        let depth = path.0.len();
        let below = |key: &&KeyPath| key.0.len() > depth && key.0.starts_with(&path.0);
        let names: BTreeSet<String> = self.entries.keys().filter(below).map(|key| key.0[depth].clone()).collect();
        names.into_iter().collect()
    }

    pub(super) fn is_given(&self, path: &KeyPath) -> bool {
        self.entries.contains_key(path)
    }

    /// Whether an error is known of the value, or of a table around it.
    pub(super) fn is_wrong(&self, path: &KeyPath) -> bool {
        self.errors.iter().filter_map(|error| error.path.as_ref()).any(|wrong| path.0.starts_with(&wrong.0))
    }

    /// Every key in use, with the user's names filled in, in the order of the table.
    pub(super) fn keys(&self) -> Vec<(&'static Key, KeyPath)> {
        let plain = KEYS.iter().filter(|key| !key.path.contains('*'));
        let mut all: Vec<_> = plain.map(|key| (key, KeyPath::dotted(key.path))).collect();
        for section in NAMED {
            for name in self.names(section) {
                let at = KeyPath(vec![section.to_owned(), name]);
                for key in KEYS.iter().filter(|key| key.starts_with(&at.0)) {
                    let rest: Vec<&str> = key.segments().skip(2).collect();
                    match rest.as_slice() {
                        [table, "*"] => {
                            let table = at.child(table);
                            all.extend(self.children(&table).iter().map(|name| (key, table.child(name))));
                        }
                        parts => all.push((key, at.join(&parts.join(".")))),
                    }
                }
            }
        }
        all
    }

    /// Says what a key means that nobody gave.
    pub(super) fn derive(&mut self, path: KeyPath, value: &impl ToString) {
        self.derived.insert(path, value.to_string());
    }

    /// The value to use: what was given, else what was worked out, else the default.
    pub(super) fn value(&self, path: &KeyPath) -> Option<Json> {
        if let Some(value) = self.entries.get(path).and_then(|entry| entry.value.as_ref()) {
            return Some(value.clone());
        }
        let key = KEYS.iter().find(|key| key.matches(&path.0))?;
        let text = match (self.derived.get(path), key.fallback) {
            (Some(text), _) => text,
            (None, Fallback::Value(text)) => text,
            (None, Fallback::Required(_) | Fallback::Derived(_) | Fallback::Absent(_)) => return None,
        };
        value::parse(key.kind, &Given::Untyped(text.to_owned())).ok()
    }

    /// The value to use as a field would hold it; a neutral one where there is none.
    pub(super) fn get<T: DeserializeOwned + Default>(&self, path: &KeyPath) -> T {
        self.value(path).and_then(|value| serde_json::from_value(value).ok()).unwrap_or_default()
    }

    /// Notes that `path` is wrong, with the place where it was written.
    pub(super) fn error(&mut self, path: &KeyPath, what: impl Into<String>) {
        let origin = self.entries.get(path).map(|entry| entry.origin.clone());
        self.errors.push(Error { origin, path: Some(path.clone()), what: what.into() });
    }

    /// Every value that would be used, in the order of the key table.
    pub(super) fn shown(&self) -> Vec<Shown> {
        self.keys().into_iter().map(|(key, path)| self.show(key, &path)).collect()
    }

    fn show(&self, key: &Key, path: &KeyPath) -> Shown {
        let (value, origin) = match (self.entries.get(path), key.fallback) {
            (Some(entry), _) => (entry.shown.clone(), entry.origin.clone()),
            (None, Fallback::Value(text) | Fallback::Derived(text) | Fallback::Absent(text)) => {
                (self.derived.get(path).map_or(text, String::as_str).to_owned(), Origin::Default)
            }
            (None, Fallback::Required(_)) => ("missing".to_owned(), Origin::Default),
        };
        Shown { key: path.to_string(), value, origin }
    }
}

#[cfg(test)]
mod tests {
    use super::{Fallback, Given, KEYS, value};

    #[test]
    fn every_default_of_the_table_is_within_its_own_bounds() {
        for key in KEYS {
            if let Fallback::Value(text) = key.fallback {
                let parsed = value::parse(key.kind, &Given::Untyped(text.to_owned()));
                assert!(parsed.is_ok(), "{}: {parsed:?}", key.path);
            }
        }
    }
}
