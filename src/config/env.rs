//! The environment: every key as `OUTBOXD_…`, secrets also as `…_FILE`; and `${VAR}` in the strings of the file.
//!
//! The name is the key's path in capitals with `_` between its parts: `worker.lease` is `OUTBOXD_WORKER_LEASE`,
//! `channels.push.url` is `OUTBOXD_CHANNELS_PUSH_URL`. In names that the user chose, what is neither letter nor digit
//! becomes `_`; a channel or route that only the environment names is called by the lower-case form. Lists are
//! separated by commas. An empty variable counts as unset, as compose files produce them.
//!
//! **Guarantee.** A variable that begins with `OUTBOXD_` and means nothing is an error, so that a slip is not silent.
//! What is filled in is not read again: a secret may hold `${`. **Limit.** What Kubernetes sets for a Service of our
//! name is passed over, and so is a slip that has the same form. There are no defaults and no nesting as in a shell.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::KEYS;
use super::error::{Error, Origin, did_you_mean};
use super::key::{ENV_PREFIX, Key, KeyPath, env_form};
use super::settings::{NAMED, Settings};
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
        take(settings, env, name, &KeyPath::dotted(path));
    }
    let mut unknown = Vec::new();
    for (name, value) in env {
        let Some(rest) = name.strip_prefix(ENV_PREFIX) else { continue };
        if value.is_empty() || RESERVED.contains(&name.as_str()) {
            continue;
        }
        let file_of = rest.strip_suffix(FILE_SUFFIX).and_then(|base| resolve(settings, base));
        match file_of.filter(|(key, _)| key.is_secret()).or_else(|| resolve(settings, rest)) {
            Some((key, path)) => {
                let stem = name.strip_suffix(FILE_SUFFIX).filter(|_| key.is_secret()).unwrap_or(name);
                take(settings, env, stem, &path);
            }
            None if is_service_link(name) => {}
            None => unknown.push(name),
        }
    }
    for (name, path) in FALLBACKS {
        let path = KeyPath::dotted(path);
        if !settings.is_given(&path) {
            take(settings, env, name, &path);
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

/// Takes a value from the variable itself; a secret also from the file that its `_FILE` sibling names.
fn take(settings: &mut Settings, env: &Env, name: &str, path: &KeyPath) {
    let Some(key) = Key::find(path) else { return };
    let file_name = format!("{name}{FILE_SUFFIX}");
    let set = |name: &str| env.get(name).filter(|value| !value.is_empty());
    let (name, value) = match (set(name), set(&file_name).filter(|_| key.is_secret())) {
        (None, None) => return,
        (Some(value), None) => (name, Ok(value.clone())),
        (None, Some(file)) => (&*file_name, read_secret(file)),
        (Some(_), Some(_)) => (name, Err(format!("is given twice: unset either {name} or {file_name}"))),
    };
    let origin = Origin::Env(name.to_owned());
    match value {
        Ok(value) => settings.give(key, path.clone(), &Given::open(&value), &value, origin),
        Err(what) => {
            // Both names of a pair come here; once is enough.
            settings.errors.retain(|error| error.origin.as_ref() != Some(&origin));
            settings.wrong(origin, path.clone(), what);
        }
    }
}

/// The key and path that a variable's name, without its prefix, stands for.
fn resolve(settings: &Settings, name: &str) -> Option<(&'static Key, KeyPath)> {
    if let Some(key) = KEYS.iter().find(|key| !key.path.contains('*') && env_form(key.path) == name) {
        return Some((key, KeyPath::dotted(key.path)));
    }
    let (section, rest) =
        NAMED.iter().find_map(|own| Some((*own, name.strip_prefix(&env_form(own))?.strip_prefix('_')?)))?;
    let known = settings.names(section);
    let spelling = |part: &str| known.iter().find(|name| env_form(name) == part).cloned();
    // PUSH_CONNECT_TIMEOUT is connect_timeout of push, or timeout of push_connect: a name that is known decides,
    // else the longer key.
    let readings = KEYS.iter().filter_map(|key| reading(key, section, rest));
    let (key, name, leaf) =
        readings.min_by_key(|(key, name, _)| (spelling(name).is_none(), Reverse(key.path.len())))?;
    let mut path = KeyPath::dotted(key.path).named(&spelling(name).unwrap_or_else(|| name.to_lowercase()));
    let Some(leaf) = leaf else { return Some((key, path)) };
    path.0.pop();
    let given = settings.children(&path).into_iter().find(|name| env_form(name) == leaf);
    Some((key, path.child(&given.unwrap_or_else(|| leaf.to_lowercase().replace('_', "-")))))
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

/// The names of all variables that would mean something beside what was given.
fn known_names(settings: &Settings) -> Vec<String> {
    let mut known = Vec::new();
    for (key, path) in settings.keys() {
        let parts: Vec<String> = path.0.iter().map(|part| env_form(part)).collect();
        let name = format!("{ENV_PREFIX}{}", parts.join("_"));
        known.extend(key.is_secret().then(|| format!("{name}{FILE_SUFFIX}")));
        known.push(name);
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

/// The environment a configuration is read in; never the process's own behind the caller's back.
pub type Env = BTreeMap<String, String>;

/// Fills in `${VAR}`: the variable, else the contents of the file that `VAR_FILE` names. `$${` stands for `${`.
/// None when there was nothing to fill in.
pub(super) fn expand(text: &str, env: &Env) -> Result<Option<String>, String> {
    if !text.contains("${") {
        return Ok(None);
    }
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        if let Some(before) = rest[..at].strip_suffix('$') {
            filled.push_str(before);
            filled.push_str("${");
            rest = &rest[at + 2..];
            continue;
        }
        filled.push_str(&rest[..at]);
        let end = rest[at..].find('}').ok_or("has a ${ without its }; write $${ for a plain ${")?;
        filled.push_str(&variable(&rest[at + 2..at + end], env)?);
        rest = &rest[at + end + 1..];
    }
    filled.push_str(rest);
    Ok(Some(filled))
}

fn variable(name: &str, env: &Env) -> Result<String, String> {
    let valid = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !valid {
        return Err(format!("names ${{{name}}}, which is no environment variable; write $${{ for a plain ${{"));
    }
    if let Some(value) = env.get(name) {
        return Ok(value.clone());
    }
    match env.get(&format!("{name}_FILE")) {
        Some(path) => read_secret(path),
        None => Err(format!("needs the environment variable {name} (or {name}_FILE), which is not set")),
    }
}

/// The contents of a secret's file, without the newline that editors and `echo` add.
pub(super) fn read_secret(path: &str) -> Result<String, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("could not be read from {path}: {error}"))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::{Env, expand};

    #[test]
    fn variables_are_filled_in_and_a_doubled_dollar_escapes() {
        let env = Env::from([("A".into(), "1".into()), ("B_2".into(), "${A}".into())]);
        for (text, filled) in [
            ("plain $5", Ok(None)),
            ("${A}", Ok(Some("1"))),
            ("x${A}y${B_2}z", Ok(Some("x1y${A}z"))),
            ("$${A}", Ok(Some("${A}"))),
            ("$$${A}", Ok(Some("$${A}"))),
            ("${A", Err("has a ${ without its }; write $${ for a plain ${")),
            ("${NO}", Err("needs the environment variable NO (or NO_FILE), which is not set")),
        ] {
            let wanted = filled.map(|some| some.map(str::to_owned)).map_err(str::to_owned);
            assert_eq!(expand(text, &env), wanted, "{text}");
        }
    }
}
