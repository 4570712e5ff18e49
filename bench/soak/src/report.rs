//! What came out, for people and for programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::plan::{Fault, Kind};
use super::recovery::{Longest, Recovery};
use super::verdict::{Rule, Verdict};
use super::world::Happened;

/// Violations shown at most; the rest is in the files.
const SHOWN: usize = 30;

/// Everything there is to tell.
#[derive(Debug)]
pub(super) struct Report<'a> {
    pub(super) command: &'a str,
    pub(super) verdict: &'a Verdict,
    pub(super) happened: &'a [Happened],
    pub(super) recoveries: &'a [Recovery],
    pub(super) longest: &'a BTreeMap<Kind, Longest>,
    pub(super) span: Duration,
}

impl Report<'_> {
    /// The verdict in a few lines, and the recoveries in a table.
    pub(super) fn text(&self) -> String {
        let verdict = self.verdict;
        let mut text = String::from("\nThe verdict: the providers' ledger against the app's commits\n");
        let mut line = |name: &str, number: usize, note: &str| {
            let _ = writeln!(text, "{}", format!("  {name:<34}{number:>8}   {note}").trim_end());
        };
        line("committed", verdict.committed, "");
        line("delivered", verdict.delivered, "");
        line("dead letters", verdict.failed, "the providers refused for good");
        line("canceled", verdict.canceled, "by the operator");
        line("absorbed by a dedup key", verdict.absorbed, "");
        line("rolled back, or killed before COMMIT", verdict.rolled_back, "");
        line("COMMIT cut off", verdict.unknown, "the database says which of them are in");
        line("gone with a lost tail", verdict.gone_with_the_tail, "committed on a primary whose standby lacks them");
        line("events", verdict.events, &format!("{} seen by the consumer", verdict.events_seen));
        line("events gone with Redis", verdict.events_gone_with_redis, "appended, then lost by Redis");
        let witnessed = verdict.repeats.saturating_sub(verdict.repeats_by_the_tail + verdict.count(Rule::Repeat));
        line("repeats with a witness", witnessed, "a row in outboxd.attempts");
        line("repeats by a lost tail", verdict.repeats_by_the_tail, "their record went with it");
        text.push('\n');
        let rules = [
            ("repeats without a witness", Rule::Repeat),
            ("order violations", Rule::Order),
            ("event violations", Rule::Event),
            ("late recoveries", Rule::Late),
            ("illegal states", Rule::State),
            ("phantoms", Rule::Phantom),
            ("lost", Rule::Lost),
        ];
        text.push_str(&self.recovery_table());
        text.push('\n');
        for (name, rule) in rules {
            let _ = writeln!(text, "  {name:<34}{:>8}", verdict.count(rule));
        }
        for violation in verdict.violations.iter().take(SHOWN) {
            let (number, id) = (violation.number.unwrap_or(0), violation.id.unwrap_or(0));
            let _ = writeln!(text, "  {:?} n {number} id {id}: {}", violation.rule, violation.known);
        }
        for happened in self.happened.iter().filter(|happened| happened.error.is_some()) {
            let error = happened.error.as_deref().unwrap_or_default();
            let _ = writeln!(text, "  not done: {} {}", describe(&happened.fault), error.replace('\n', " "));
        }
        text
    }

    /// Seconds from the moment at which nothing was broken; in brackets with those that another fault overlapped.
    fn recovery_table(&self) -> String {
        let mut text = format!(
            "  {:<20}{:>6}{:>20}{:>20}{:>20}\n",
            "longest recovery, s", "faults", "a new one arrives", "backlog moves", "backlog has arrived"
        );
        for (kind, longest) in self.longest {
            let cell = |pick: fn(&Recovery) -> Option<u64>| {
                let seconds = |ms: Option<u64>| ms.map_or("–".to_owned(), |ms| format!("{:.1}", ms as f64 / 1e3));
                format!("{} ({})", seconds(pick(&longest.alone)), seconds(pick(&longest.all)))
            };
            let missing = if longest.missing > 0 { format!("  {} never", longest.missing) } else { String::new() };
            let (probe, moving) = (cell(|recovery| recovery.probe_ms), cell(|recovery| recovery.moving_ms));
            let cleared = cell(|recovery| recovery.cleared_ms);
            let _ = writeln!(text, "  {kind:<20}{:>6}{probe:>20}{moving:>20}{cleared:>20}{missing}", longest.faults);
        }
        text
    }

    /// The same and each fault by itself.
    pub(super) fn json(&self) -> Value {
        let faults = self.happened.iter().zip(self.recoveries).map(|(happened, recovery)| {
            json!({
                "kind": happened.fault.kind.to_string(), "target": happened.fault.target,
                "planned_s": happened.fault.at.as_secs_f64(), "began_s": happened.began as f64 / 1e6,
                "healed_s": happened.healed.map(|at| at as f64 / 1e6), "recovery": recovery, "error": happened.error,
            })
        });
        let longest: BTreeMap<String, &Longest> =
            self.longest.iter().map(|(kind, longest)| (kind.to_string(), longest)).collect();
        json!({
            "command": self.command, "seconds": self.span.as_secs(), "is_good": self.verdict.is_good(),
            "verdict": self.verdict, "longest_recovery": longest, "faults": faults.collect::<Vec<_>>(),
        })
    }
}

/// One fault of the schedule, for people.
pub(super) fn describe(fault: &Fault) -> String {
    let kind = fault.kind.to_string();
    let on_one =
        kind.starts_with("instance") || matches!(kind.rsplit('-').next(), Some("cut" | "open" | "silent" | "swallow"));
    let target = if on_one { format!(" {}", fault.target) } else { String::new() };
    format!("{:>6.1} s  {kind}{target} for {:.1} s", fault.at.as_secs_f64(), fault.lasts.as_secs_f64())
}
