//! What `check` found, for people and for programs.

use comfy_table::{ContentArrangement, Table, presets};
use serde_json::{Value, json};

use crate::config::{Loaded, Mistakes};

/// Longer values are cut for people; `--json` has them whole.
const VALUE_CHARS_MAX: usize = 100;

/// How one part fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Ok,
    Warn,
    Failed,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Warn => "warn",
            State::Failed => "failed",
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
        Self { name, state, text: text.into() }
    }
}

/// All of it.
#[derive(Debug)]
pub(super) struct Report<'a> {
    pub(super) loaded: &'a Loaded,
    pub(super) remarks: Vec<String>,
    pub(super) findings: Vec<Finding>,
}

impl Report<'_> {
    pub(super) fn is_good(&self) -> bool {
        self.findings.iter().all(|finding| finding.state != State::Failed)
    }

    pub(super) fn as_text(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
        table.set_header(["KEY", "VALUE", "FROM"]);
        for shown in &self.loaded.shown {
            table.add_row([&shown.key, &one_line(&shown.value), &shown.origin.to_string()]);
        }
        let file = match &self.loaded.file {
            Some(file) => format!("configuration file: {}", file.display()),
            None => "no configuration file: defaults and the environment".to_owned(),
        };
        let mut lines = vec![file, String::new(), table.trim_fmt(), String::new()];
        lines.extend(self.remarks.iter().map(|remark| format!("{:8}{remark}", "note")));
        lines.extend(self.findings.iter().map(|f| format!("{:8}{:10}{}", f.state.name(), f.name, f.text)));
        lines.join("\n") + "\n"
    }

    pub(super) fn as_json(&self) -> String {
        let settings: Vec<Value> = (self.loaded.shown.iter())
            .map(|shown| json!({ "key": shown.key, "value": shown.value, "from": shown.origin.to_string() }))
            .collect();
        let checks: Vec<Value> = (self.findings.iter())
            .map(|finding| json!({ "name": finding.name, "state": finding.state.name(), "text": finding.text }))
            .collect();
        let file = self.loaded.file.as_ref().map(|file| file.display().to_string());
        let ok = self.is_good();
        pretty(&json!({ "ok": ok, "file": file, "settings": settings, "notes": self.remarks, "checks": checks }))
    }
}

/// A configuration that does not load, for programs.
pub(super) fn mistakes_as_json(Mistakes(mistakes): &Mistakes) -> String {
    let mistakes: Vec<Value> = (mistakes.iter())
        .map(|mistake| {
            let from = mistake.origin.as_ref().map(ToString::to_string);
            let key = mistake.path.as_ref().map(ToString::to_string);
            json!({ "from": from, "key": key, "what": mistake.what })
        })
        .collect();
    pretty(&json!({ "ok": false, "mistakes": mistakes }))
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

/// A template of several lines would tear the table apart.
fn one_line(text: &str) -> String {
    let mut words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if words.chars().count() > VALUE_CHARS_MAX {
        words = words.chars().take(VALUE_CHARS_MAX - 1).chain(['…']).collect();
    }
    words
}
