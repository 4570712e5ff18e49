//! The environment: every key as `OUTBOXD_…`, secrets also as `…_FILE`.
//!
//! The name is the key's path in capitals with `_` between its parts: `worker.lease` is `OUTBOXD_WORKER_LEASE`,
//! `channels.push.url` is `OUTBOXD_CHANNELS_PUSH_URL`. In names that the user chose, what is neither letter nor digit
//! becomes `_`; a channel or route that only the environment names is called by the lower-case form. Lists are
//! separated by commas. An empty variable counts as unset, as compose files produce them.
//!
//! **Guarantee.** A variable that begins with `OUTBOXD_` and means nothing is an error, so that a slip is not silent.
//! **Limit.** What Kubernetes sets for a Service of our name is passed over, and so is a slip that has the same form.

use super::KEYS;
use super::error::{Error, Origin};
use super::expand::{Env, read_secret};
use super::key::{ENV_PREFIX, Key, KeyPath, env_form};
use super::settings::{NAMED, Settings};
use super::suggest::did_you_mean;
use super::value::Given;

/// Variables that belong to the command line, not to a key.
const RESERVED: [&str; 3] = ["OUTBOXD_CONFIG", "OUTBOXD_LOG", "OUTBOXD_ROLE"];

/// Names that platforms and other tools use too; the `OUTBOXD_` form wins over them.
const SHARED: [(&str, &str); 2] = [("DATABASE_URL", "database_url"), ("REDIS_URL", "redis_url")];

/// Names that every program on a platform may be given; taken only where nobody told outboxd itself.
const FALLBACKS: [(&str, &str); 2] =
    [("OTEL_EXPORTER_OTLP_ENDPOINT", "telemetry.otlp_endpoint"), ("OTEL_SERVICE_NAME", "telemetry.service_name")];

const FILE_SUFFIX: &str = "_FILE";

/// Takes all values of `env`.
pub(super) fn read(settings: &mut Settings, env: &Env) {
    for (name, path) in SHARED {
        let path = KeyPath::dotted(path);
        if let Some(key) = KEYS.iter().find(|key| key.matches(&path.0)) {
            take(settings, env, name, key, &path);
        }
    }
    let mut unknown = Vec::new();
    for (name, value) in env {
        let Some(rest) = name.strip_prefix(ENV_PREFIX) else { continue };
        if value.is_empty() || RESERVED.contains(&name.as_str()) {
            continue;
        }
        let base = rest.strip_suffix(FILE_SUFFIX);
        let secret = base.and_then(|base| resolve(settings, base)).filter(|(key, _)| key.is_secret());
        match secret.or_else(|| resolve(settings, rest)) {
            Some((key, path)) if key.is_secret() => {
                let stem = name.strip_suffix(FILE_SUFFIX).unwrap_or(name);
                take(settings, env, stem, key, &path);
            }
            Some((key, path)) => give(settings, key, path, name, value.clone()),
            None if is_service_link(name) => {}
            None => unknown.push(name),
        }
    }
    for (name, path) in FALLBACKS {
        let path = KeyPath::dotted(path);
        let key = KEYS.iter().find(|key| key.matches(&path.0)).filter(|_| !settings.is_given(&path));
        if let (Some(key), Some(value)) = (key, env.get(name).filter(|value| !value.is_empty())) {
            give(settings, key, path, name, value.clone());
        }
    }
    // Last, so that suggestions know the channels and routes that other variables named.
    for name in unknown {
        let known = known_names(settings);
        let hint = did_you_mean(name, known.iter().map(String::as_str));
        let what = format!("is not a variable that outboxd knows{hint}");
        settings.errors.push(Error { origin: Some(Origin::Env(name.clone())), path: None, what });
    }
}

/// Takes a secret from the variable itself or from the file that its `_FILE` sibling names.
fn take(settings: &mut Settings, env: &Env, name: &str, key: &Key, path: &KeyPath) {
    let file_name = format!("{name}{FILE_SUFFIX}");
    let set = |name: &str| env.get(name).filter(|value| !value.is_empty());
    match (set(name), set(&file_name)) {
        (None, None) => {}
        (Some(value), None) => give(settings, key, path.clone(), name, value.clone()),
        (None, Some(file)) => match read_secret(file) {
            Ok(value) => give(settings, key, path.clone(), &file_name, value),
            Err(what) => wrong(settings, &file_name, path, what),
        },
        (Some(_), Some(_)) => {
            wrong(settings, name, path, format!("is given twice: unset either {name} or {file_name}"));
        }
    }
}

fn give(settings: &mut Settings, key: &Key, path: KeyPath, name: &str, value: String) {
    let written = value.clone();
    settings.give(key, path, &Given::Untyped(value), &written, Origin::Env(name.to_owned()));
}

fn wrong(settings: &mut Settings, name: &str, path: &KeyPath, what: String) {
    let error = Error { origin: Some(Origin::Env(name.to_owned())), path: Some(path.clone()), what };
    // Both names of a pair come here; once is enough.
    if !settings.errors.contains(&error) {
        settings.errors.push(error);
    }
}

/// The key and path that a variable's name, without its prefix, stands for.
fn resolve(settings: &Settings, name: &str) -> Option<(&'static Key, KeyPath)> {
    let plain = KEYS.iter().filter(|key| !key.path.contains('*')).find(|key| env_form(key.path) == name);
    if let Some(key) = plain {
        return Some((key, KeyPath::dotted(key.path)));
    }
    let (section, rest) =
        NAMED.iter().find_map(|own| Some((*own, name.strip_prefix(&env_form(own))?.strip_prefix('_')?)))?;
    let known = settings.names(section);
    let spelling = |part: &str| known.iter().find(|name| env_form(name) == part).cloned();
    // PUSH_CONNECT_TIMEOUT is connect_timeout of push, or timeout of push_connect: a name that is known decides,
    // else the longer key.
    let mut readings: Vec<(&'static Key, &str, Option<&str>)> =
        KEYS.iter().filter_map(|key| reading(key, section, rest)).collect();
    readings.sort_by_key(|(key, name, _)| (spelling(name).is_none(), std::cmp::Reverse(key.path.len())));
    let (key, name, leaf) = readings.into_iter().next()?;
    let at = KeyPath(vec![section.to_owned(), spelling(name).unwrap_or_else(|| name.to_lowercase())]);
    let inner: Vec<&str> = key.segments().skip(2).collect();
    let path = match leaf {
        Some(leaf) => {
            let table = at.child(inner[0]);
            let given = settings.children(&table).into_iter().find(|name| env_form(name) == leaf);
            table.child(&given.unwrap_or_else(|| leaf.to_lowercase().replace('_', "-")))
        }
        None => at.join(&inner.join(".")),
    };
    Some((key, path))
}

/// Reads `PUSH_URL` as this key of the section, if it can be: the name, and the header where the key has one.
fn reading<'a>(key: &'static Key, section: &str, rest: &'a str) -> Option<(&'static Key, &'a str, Option<&'a str>)> {
    let inner = key.path.strip_prefix(section)?.strip_prefix(".*.")?;
    let (name, leaf) = match inner.strip_suffix(".*") {
        Some(table) => {
            let (name, leaf) = rest.split_once(&format!("_{}_", env_form(table)))?;
            (name, Some(leaf))
        }
        None => (rest.strip_suffix(&env_form(inner))?.strip_suffix('_')?, None),
    };
    let filled = !name.is_empty() && leaf != Some("");
    filled.then_some((key, name, leaf))
}

fn known_names(settings: &Settings) -> Vec<String> {
    let mut known = Vec::new();
    for key in KEYS {
        let mut names = vec![key.env_name()];
        if let Some(section) = NAMED.iter().find(|section| key.path.starts_with(&format!("{section}.*"))) {
            names = settings
                .names(section)
                .iter()
                .map(|name| key.env_name().replacen("<NAME>", &env_form(name), 1))
                .collect();
        }
        if key.is_secret() {
            names.extend(names.clone().into_iter().map(|name| name + FILE_SUFFIX));
        }
        known.extend(names);
    }
    known
}

/// Kubernetes sets such variables for a Service that is called `outboxd…`, whether one wants them or not.
fn is_service_link(name: &str) -> bool {
    let numbered = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    name.ends_with("_SERVICE_HOST")
        || name.ends_with("_PORT")
        || name.contains("_SERVICE_PORT_")
        || name.split("_PORT_").skip(1).any(numbered)
}
