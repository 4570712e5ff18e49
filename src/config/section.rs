//! Typed access to the keys of one table.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;
use secrecy::SecretString;

use super::key::KeyPath;
use super::settings::Settings;
use super::value::Value;

/// One `T` for each channel or route.
pub(super) fn named<T>(settings: &Settings, section: &str, build: impl Fn(&Section<'_>) -> T) -> BTreeMap<String, T> {
    let one = |name: String| {
        let at = KeyPath(vec![section.to_owned(), name.clone()]);
        (name, build(&Section { settings, at }))
    };
    settings.names(section).into_iter().map(one).collect()
}

/// The table of this name; the empty name is the top.
pub(super) fn section<'a>(settings: &'a Settings, name: &str) -> Section<'a> {
    Section { settings, at: KeyPath(name.split('.').filter(|part| !part.is_empty()).map(str::to_owned).collect()) }
}

/// The keys below one table.
pub(super) struct Section<'a> {
    settings: &'a Settings,
    at: KeyPath,
}

impl Section<'_> {
    pub(super) fn value(&self, key: &str) -> Option<Value> {
        self.settings.value(&self.at.join(key))
    }

    pub(super) fn text(&self, key: &str) -> Option<String> {
        match self.value(key) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    pub(super) fn texts(&self, key: &str) -> Vec<String> {
        match self.value(key) {
            Some(Value::Texts(texts)) => texts,
            _ => Vec::new(),
        }
    }

    pub(super) fn secret(&self, key: &str) -> Option<SecretString> {
        match self.value(key) {
            Some(Value::Secret(secret)) => Some(secret),
            _ => None,
        }
    }

    pub(super) fn secrets(&self, key: &str) -> Vec<SecretString> {
        match self.value(key) {
            Some(Value::Secrets(secrets)) => secrets,
            _ => Vec::new(),
        }
    }

    pub(super) fn secrets_below(&self, table: &str) -> BTreeMap<String, SecretString> {
        let at = self.at.child(table);
        let one = |name: String| match self.settings.value(&at.child(&name)) {
            Some(Value::Secret(secret)) => Some((name, secret)),
            _ => None,
        };
        self.settings.children(&at).into_iter().filter_map(one).collect()
    }

    /// The table's bounds keep every number within its field's type.
    pub(super) fn number<T: TryFrom<u64> + Default>(&self, key: &str) -> T {
        match self.value(key) {
            Some(Value::Integer(number)) => T::try_from(number).unwrap_or_default(),
            _ => T::default(),
        }
    }

    pub(super) fn ratio(&self, key: &str) -> f64 {
        match self.value(key) {
            Some(Value::Ratio(share)) => share,
            _ => 0.0,
        }
    }

    pub(super) fn duration(&self, key: &str) -> Duration {
        match self.value(key) {
            Some(Value::Duration(span)) => span,
            _ => Duration::ZERO,
        }
    }

    /// `None`: never.
    pub(super) fn duration_or_never(&self, key: &str) -> Option<Duration> {
        match self.value(key) {
            Some(Value::Duration(span)) => Some(span),
            _ => None,
        }
    }

    pub(super) fn flag(&self, key: &str) -> bool {
        matches!(self.value(key), Some(Value::Flag(true)))
    }

    pub(super) fn addr(&self, key: &str) -> SocketAddr {
        match self.value(key) {
            Some(Value::Addr(addr)) => addr,
            _ => SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        }
    }

    pub(super) fn networks(&self, key: &str) -> Vec<IpNet> {
        match self.value(key) {
            Some(Value::Networks(networks)) => networks,
            _ => Vec::new(),
        }
    }
}
