//! What `check` found, for people and for programs.

use comfy_table::{ColumnConstraint, Width};
use serde_json::{Value, json};

use crate::cli::Exit;
use crate::cli::fit::{self, Window};
use crate::config::{DEFAULT_FILES, Errors, Loaded};
use crate::printable;

/// The table of settings, in a pipe too; longer values are cut for people, and `--json` has them whole.
const WIDTH: u16 = 100;
/// What a value has at least, however long its key and origin.
const VALUE_WIDTH_MIN: u16 = 26;

/// How one part fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Ok,
    Warn,
    /// It may become good by itself, as a server that is away may come back.
    Away,
    /// `outboxd run` would refuse it until somebody changes something.
    Refused,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Warn => "warn",
            State::Away | State::Refused => "failed",
        }
    }
}

/// One thing that was tested.
#[derive(Debug)]
pub(super) struct Finding {
    pub(super) name: &'static str,
    pub(super) state: State,
    pub(super) text: String,
}

impl Finding {
    pub(super) fn new(name: &'static str, state: State, text: impl Into<String>) -> Self {
        Self { name, state, text: printable::line(&text.into()).into_owned() }
    }
}

/// All of it.
#[derive(Debug)]
pub(super) struct Report<'a> {
    pub(super) loaded: &'a Loaded,
    pub(super) warnings: Vec<String>,
    pub(super) findings: Vec<Finding>,
}

impl Report<'_> {
    /// As `outboxd run` would end.
    pub(super) fn exit(&self) -> Exit {
        let has = |state: State| self.findings.iter().any(|finding| finding.state == state);
        match (has(State::Refused), has(State::Away)) {
            (true, _) => Exit::Config,
            (false, true) => Exit::Unavailable,
            (false, false) => Exit::Clean,
        }
    }

    /// Whether somebody should look, although `outboxd run` would start.
    pub(super) fn has_warnings(&self) -> bool {
        self.findings.iter().any(|finding| finding.state == State::Warn)
    }

    /// On a terminal findings are broken into lines that fit it.
    pub(super) fn as_text(&self) -> String {
        let rows = self.loaded.shown.iter();
        let rows = rows.map(|shown| [shown.key.clone(), one_line(&shown.value), shown.origin.to_string()]);
        let header = ["KEY", "VALUE", "FROM"].map(str::to_owned);
        let mut table = fit::table(std::iter::once(header).chain(rows), Some(Window::wide(WIDTH)));
        let value = ColumnConstraint::LowerBoundary(Width::Fixed(VALUE_WIDTH_MIN));
        table.set_constraints([ColumnConstraint::ContentWidth, value, ColumnConstraint::ContentWidth]);
        let file = match &self.loaded.file {
            Some(file) => format!("configuration file: {}", file.display()),
            None => format!(
                "no configuration file ({}, or what --config names): defaults and the environment",
                DEFAULT_FILES.join(", ")
            ),
        };
        let mut text = format!("{file}\n\n{}\n\n", table.trim_fmt());
        text += &fit::hang(self.warnings.iter().map(|warning| [format!("{:7}", "note"), warning.clone()]), None);
        let found = |finding: &Finding| {
            [format!("{:7}", finding.state.name()), format!("{:9}", finding.name), finding.text.clone()]
        };
        text += &fit::hang(self.findings.iter().map(found), None);
        if self.exit() == Exit::Clean {
            let clean = "nothing stands in the way of `outboxd run`; providers were not called";
            text += &format!("\n{}", fit::hang([[clean.to_owned()]], None));
        }
        text
    }

    pub(super) fn as_json(&self) -> String {
        let settings: Vec<Value> = (self.loaded.shown.iter())
            .map(|shown| json!({ "key": shown.key, "value": shown.value, "from": shown.origin.to_string() }))
            .collect();
        let checks: Vec<Value> = (self.findings.iter())
            .map(|finding| json!({ "name": finding.name, "state": finding.state.name(), "text": finding.text }))
            .collect();
        let file = self.loaded.file.as_ref().map(|file| file.display().to_string());
        let ok = self.exit() == Exit::Clean;
        pretty(&json!({ "ok": ok, "file": file, "settings": settings, "notes": self.warnings, "checks": checks }))
    }
}

/// A configuration that does not load, for programs.
pub(super) fn errors_as_json(Errors(errors): &Errors) -> String {
    let errors: Vec<Value> = (errors.iter())
        .map(|error| {
            let from = error.origin.as_ref().map(ToString::to_string);
            let key = error.path.as_ref().map(ToString::to_string);
            json!({ "from": from, "key": key, "what": error.what })
        })
        .collect();
    pretty(&json!({ "ok": false, "errors": errors }))
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

/// A template of several lines would tear the table apart.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
