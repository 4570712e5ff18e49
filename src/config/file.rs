//! The configuration file: a reader of its TOML that notes every error and goes on.
//!
//! **Guarantee.** Each error bears its line, and none hides another. **Limit.** After an error of syntax nothing is
//! called missing: it may stand in what could not be read.

use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::KEYS;
use super::error::{Error, Origin};
use super::expand::{Env, expand};
use super::key::{Key, KeyPath};
use super::settings::Settings;
use super::suggest::{did_you_mean, nearest};
use super::value::Given;

/// What a path means to the key table.
enum Meaning {
    Key(&'static Key),
    Section,
    Unknown,
}

/// Takes all values of `text`, the contents of `file`; false when it is no proper TOML, so that what seems to be
/// missing may be hidden by that.
pub(super) fn read(settings: &mut Settings, file: &Path, text: &str, env: &Env) -> bool {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut reader = Reader { settings, file, text, env };
    reader.table(&KeyPath(Vec::new()), table.get_ref());
    let broken: Vec<Error> = (errors.iter())
        .map(|error| {
            let origin = reader.origin(error.span().map_or(0, |span| span.start));
            Error { origin: Some(origin), path: None, what: error.message().to_owned() }
        })
        .collect();
    // The parser puts something in the place of what it cannot read; that is not the user's error.
    settings.errors.retain(|error| broken.iter().all(|broken| broken.origin != error.origin));
    let proper = broken.is_empty();
    settings.errors.extend(broken);
    proper
}

struct Reader<'a> {
    settings: &'a mut Settings,
    file: &'a Path,
    text: &'a str,
    env: &'a Env,
}

impl Reader<'_> {
    fn table(&mut self, at: &KeyPath, table: &DeTable<'_>) {
        for (name, value) in table {
            let path = at.child(name.get_ref());
            let origin = self.origin(name.span().start);
            match (meaning(&path), value.get_ref()) {
                (Meaning::Section, DeValue::Table(inner)) => match cut_by_dots(&path, inner).as_slice() {
                    [] => {
                        self.settings.mention(&path);
                        self.table(&path, inner);
                    }
                    whole => self.cut(origin, path, whole),
                },
                (Meaning::Section, _) => self.wrong(origin, path.clone(), section_wanted(&path)),
                (Meaning::Key(_), DeValue::Table(_)) => self.wrong(origin, path, "is a value, not a table".into()),
                (Meaning::Key(key), value) => self.value(key, path, value, origin),
                (Meaning::Unknown, _) => {
                    let hint = hint(at, name.get_ref());
                    self.wrong(origin, path, format!("is not a key that outboxd knows{hint}"));
                }
            }
        }
    }

    /// Nothing is called missing in it: it stands there under another name.
    fn cut(&mut self, origin: Origin, path: KeyPath, whole: &[KeyPath]) {
        let whole: Vec<String> = whole.iter().map(|name| format!("[{name}]")).collect();
        let what = format!("is cut at its dots; a name that holds a dot is quoted: {}", whole.join(", "));
        self.settings.errors.push(Error { origin: Some(origin), path: Some(path), what });
    }

    fn value(&mut self, key: &Key, path: KeyPath, value: &DeValue<'_>, origin: Origin) {
        let written = written(value);
        match given(value, self.env) {
            Ok(given) => self.settings.give(key, path, &given, &written, origin),
            Err(what) => self.wrong(origin, path, what),
        }
    }

    fn wrong(&mut self, origin: Origin, path: KeyPath, what: String) {
        self.settings.mention(&path);
        self.settings.errors.push(Error { origin: Some(origin), path: Some(path), what });
    }

    fn origin(&self, byte: usize) -> Origin {
        let before = &self.text.as_bytes()[..byte.min(self.text.len())];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        Origin::File { path: self.file.to_owned(), line }
    }
}

fn meaning(path: &KeyPath) -> Meaning {
    if let Some(key) = KEYS.iter().find(|key| key.matches(&path.0)) {
        Meaning::Key(key)
    } else if KEYS.iter().any(|key| key.starts_with(&path.0)) {
        Meaning::Section
    } else {
        Meaning::Unknown
    }
}

/// The names that were meant, where `[routes.order.paid]` stands for `[routes."order.paid"]`: a table of nothing but tables
/// that mean nothing.
fn cut_by_dots(path: &KeyPath, table: &DeTable<'_>) -> Vec<KeyPath> {
    let [section, name] = path.0.as_slice() else { return Vec::new() };
    let mut found = Vec::new();
    for (child, value) in table {
        let (DeValue::Table(inner), Meaning::Unknown) = (value.get_ref(), meaning(&path.child(child.get_ref()))) else {
            return Vec::new();
        };
        let name = format!("{name}.{}", child.get_ref());
        let deeper = cut_by_dots(&KeyPath(vec![section.clone(), name.clone()]), inner);
        if deeper.is_empty() {
            found.push(KeyPath(vec![section.clone(), name]));
        }
        found.extend(deeper);
    }
    found
}

fn section_wanted(path: &KeyPath) -> String {
    let children = children(path);
    match children.as_slice() {
        ["*"] => format!("is a table of tables; write [{path}.NAME]"),
        names => format!("is a table; write [{path}] with {}", names.join(", ")),
    }
}

/// The names that may stand below `at`.
pub(super) fn children(at: &KeyPath) -> Vec<&'static str> {
    let mut names: Vec<&str> = Vec::new();
    for name in KEYS.iter().filter(|key| key.starts_with(&at.0)).filter_map(|key| key.segments().nth(at.0.len())) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// What the user may have meant: a name of this table, or the same name in another.
pub(super) fn hint(at: &KeyPath, name: &str) -> String {
    if let Some(near) = nearest(name, children(at)) {
        return format!("; did you mean {:?}?", at.child(near).to_string());
    }
    let elsewhere = KEYS.iter().find(|key| key.segments().last() == Some(name));
    match elsewhere {
        Some(key) => format!("; did you mean {:?}?", key.path.replace('*', "NAME")),
        None => did_you_mean(name, KEYS.iter().filter_map(|key| key.segments().last()).filter(|name| *name != "*")),
    }
}

/// The value as the loader takes it, with `${VAR}` filled in.
fn given(value: &DeValue<'_>, env: &Env) -> Result<Given, String> {
    Ok(match value {
        DeValue::String(text) => match expand(text, env)? {
            Some(filled) => Given::Untyped(filled),
            None => Given::String(text.to_string()),
        },
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Given::Number(number.to_string()),
            Err(_) => Given::Number(number.as_str().to_owned()),
        },
        DeValue::Float(number) => Given::Number(number.as_str().to_owned()),
        DeValue::Boolean(flag) => Given::Flag(*flag),
        DeValue::Array(items) => {
            Given::List(items.iter().map(|item| list_item(item.get_ref(), env)).collect::<Result<_, _>>()?)
        }
        DeValue::Datetime(_) => Given::Other("a date"),
        DeValue::Table(_) => Given::Other("a table"),
    })
}

/// Within a list a filled-in string stays one item, whatever commas it holds.
fn list_item(value: &DeValue<'_>, env: &Env) -> Result<Given, String> {
    given(value, env).map(|item| match item {
        Given::Untyped(text) => Given::String(text),
        other => other,
    })
}

/// The value as the user wrote it, nothing filled in.
fn written(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => number.as_str().to_owned(),
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Array(items) => items.iter().map(|item| written(item.get_ref())).collect::<Vec<_>>().join(", "),
        DeValue::Datetime(date) => date.to_string(),
        DeValue::Table(_) => String::new(),
    }
}
