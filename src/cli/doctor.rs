//! `outboxd doctor`: the view `health`, with what to do.

use serde_json::{Value, json};

use super::color::{Level, Paint};
use super::{Exit, Failure, database, fit, print, print_json, view};
use crate::config::Sources;

const EXAMPLES: &str = "\
Examples:
  outboxd doctor                  every check, and what to do about those that fail
  outboxd doctor --strict         for a deploy's gate: warnings fail too
  outboxd doctor --json | jq '.checks[] | select(.level != \"ok\")'

Exit codes: 0 nothing is critical, 1 something is critical (with --strict also
when something is a warning), 69 Postgres cannot be reached, 78 bad configuration.";

/// Says what is not well and what to do about it; changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Prints JSON.
    #[arg(long)]
    json: bool,

    /// Exits 1 on warnings too.
    #[arg(long)]
    strict: bool,
}

pub(super) async fn run(args: &Args, sources: &Sources) -> Result<Exit, Failure> {
    let session = database::connect(sources).await?;
    let checks = view::read(&session, "SELECT * FROM outboxd.health", &[]).await?;
    let worst = checks.iter().map(level).max().unwrap_or(Level::Ok);
    if args.json {
        print_json(&format!("{:#}\n", json!({ "ok": worst != Level::Critical, "checks": checks })))?;
    } else {
        print(&Paint::for_stdout().levels(&fit::hang(checks.iter().map(show), None)))?;
    }
    let limit = if args.strict { Level::Warn } else { Level::Critical };
    Ok(if worst >= limit { Exit::Runtime } else { Exit::Clean })
}

fn level(check: &Value) -> Level {
    Level::parse(check["level"].as_str().unwrap_or_default())
}

fn show(check: &Value) -> [String; 3] {
    let of = |field: &str| view::text(&check[field]);
    let mut text = of("value");
    if level(check) != Level::Ok {
        text += &format!("\n{}\n→ {}", of("meaning"), of("action"));
    }
    [of("level"), of("name"), text]
}
