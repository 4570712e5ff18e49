//! The configuration file: a reader of its TOML that notes every error and goes on.
//!
//! **Guarantee.** Each error bears its line, and none hides another. **Limit.** After an error of syntax nothing is
//! called missing: it may stand in what could not be read.

use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::KEYS;
use super::env::{Env, expand};
use super::error::{Error, Origin, did_you_mean, nearest};
use super::key::{Key, KeyPath};
use super::settings::Settings;
use super::value::{FLAG, Given, NUMBER, OPEN, STRING};

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
            let wrong = match (Key::find(&path), children(&path.0).as_slice(), value.get_ref()) {
                (Some(_), _, DeValue::Table(_)) => "is a value, not a table".into(),
                (Some(key), _, value) => match given(value, &|text| expand(text, self.env)) {
                    Ok(filled) => {
                        let written = given(value, &|_| Ok(None)).map(|written| written.to_string());
                        self.settings.give(key, path, &filled, &written.unwrap_or_default(), origin);
                        continue;
                    }
                    Err(what) => what,
                },
                (None, [], _) => unknown(&path),
                (None, _, DeValue::Table(inner)) => {
                    let whole: Vec<String> = cut_by_dots(&path, inner).iter().map(|name| format!("[{name}]")).collect();
                    if whole.is_empty() {
                        self.settings.mention(&path);
                        self.table(&path, inner);
                        continue;
                    }
                    format!("is cut at its dots; a name that holds a dot is quoted: {}", whole.join(", "))
                }
                (None, ["*"], _) => format!("is a table of tables; write [{path}.NAME]"),
                (None, names, _) => format!("is a table; write [{path}] with {}", names.join(", ")),
            };
            self.settings.wrong(origin, path, wrong);
        }
    }

    fn origin(&self, byte: usize) -> Origin {
        let before = &self.text.as_bytes()[..byte.min(self.text.len())];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        Origin::File { path: self.file.to_owned(), line }
    }
}

/// The names that were meant, where `[routes.order.paid]` stands for `[routes."order.paid"]`: a table of nothing but
/// tables that mean nothing.
fn cut_by_dots(path: &KeyPath, table: &DeTable<'_>) -> Vec<KeyPath> {
    let [section, name] = path.0.as_slice() else { return Vec::new() };
    let mut found = Vec::new();
    for (child, value) in table {
        let at = path.child(child.get_ref());
        let is_known = Key::find(&at).is_some() || !children(&at.0).is_empty();
        let (DeValue::Table(inner), false) = (value.get_ref(), is_known) else { return Vec::new() };
        let name = format!("{name}.{}", child.get_ref());
        let deeper = cut_by_dots(&KeyPath(vec![section.clone(), name.clone()]), inner);
        if deeper.is_empty() {
            found.push(KeyPath(vec![section.clone(), name]));
        }
        found.extend(deeper);
    }
    found
}

/// The names that may stand below `at`.
fn children(at: &[String]) -> Vec<&'static str> {
    let mut names: Vec<&str> =
        KEYS.iter().filter(|key| key.starts_with(at)).filter_map(|key| key.segments().nth(at.len())).collect();
    names.dedup();
    names
}

/// What is wrong with a path that means nothing, and what may be meant: a name of this table, or the same name in
/// another.
pub(super) fn unknown(path: &KeyPath) -> String {
    let (name, at) = path.0.split_last().map_or(("", &[][..]), |(name, at)| (name.as_str(), at));
    let elsewhere = KEYS.iter().find(|key| key.segments().last() == Some(name));
    let hint = match (nearest(name, children(at)), elsewhere) {
        (Some(near), _) => format!("; did you mean {:?}?", KeyPath(at.to_vec()).child(near).to_string()),
        (None, Some(key)) => format!("; did you mean {:?}?", key.path.replace('*', "NAME")),
        (None, None) => did_you_mean(name, KEYS.iter().filter_map(|key| key.segments().last()).filter(|n| *n != "*")),
    };
    format!("is not a key that outboxd knows{hint}")
}

/// The value as the loader takes it: its strings by `fill`, where that has something to fill in. Within a list a
/// filled-in string stays one item, whatever commas it holds.
fn given(value: &DeValue<'_>, fill: &dyn Fn(&str) -> Result<Option<String>, String>) -> Result<Given, String> {
    Ok(match value {
        DeValue::String(text) => match fill(text)? {
            Some(filled) => Given::One(OPEN, filled),
            None => Given::One(STRING, text.to_string()),
        },
        DeValue::Integer(number) => {
            let decimal = i64::from_str_radix(number.as_str(), number.radix()).map(|number| number.to_string());
            Given::One(NUMBER, decimal.unwrap_or_else(|_| number.as_str().to_owned()))
        }
        DeValue::Float(number) => Given::One(NUMBER, number.as_str().to_owned()),
        DeValue::Boolean(flag) => Given::One(FLAG, flag.to_string()),
        DeValue::Datetime(date) => Given::One("a date", date.to_string()),
        DeValue::Table(_) => Given::One("a table", String::new()),
        DeValue::Array(items) => {
            let item = |item: &Spanned<DeValue<'_>>| match given(item.get_ref(), fill)? {
                Given::One(OPEN, text) => Ok(Given::One(STRING, text)),
                other => Ok(other),
            };
            Given::List(items.iter().map(item).collect::<Result<_, String>>()?)
        }
    })
}
