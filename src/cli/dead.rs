//! `outboxd dead`: read dead letters and bring them back to work.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Map, Value, json};
use tokio_postgres::types::Type;

use super::view::{self, Column, Show};
use super::{Exit, Failure, database, print, print_json};
use crate::config::Sources;
use crate::notification::counted;
use crate::printable;
use crate::store::command::Session;

const EXAMPLES: &str = "\
Examples:
  outboxd dead list --topic orders --since 2h
  outboxd dead show 4711                                  with every attempt
  outboxd dead retry 4711 4712
  outboxd dead retry --topic orders --http-status 503     asks first: how many
  outboxd dead retry --error-like '%timeout%' --yes
  outboxd dead discard 4711                               nobody will retry it
  outboxd dead discard --topic orders --http-status 410   asks first: how many

Times are a span back from now (90m, 2h, 1day) or a timestamp. In SQL:
outboxd.dead_letters, outboxd.attempts, outboxd.retry(id), outboxd.retry_where(filter),
outboxd.discard(id), outboxd.discard_where(filter).";

/// Lists, shows, retries and discards notifications that were given up.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// The newest dead letters that match.
    List {
        #[command(flatten)]
        filter: Filter,
        /// How many at most.
        #[arg(long, default_value_t = 20)]
        limit: i64,
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
    /// One notification, with every attempt that was not a success.
    Show {
        /// Its id.
        id: i64,
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
    /// Back to work: the ids given, or all that match.
    Retry(Which),
    /// CANCELED instead of FAILED: the ids given, or all that match, which nobody will retry.
    Discard(Which),
}

/// To which dead letters it is done, and after which question.
#[derive(Debug, clap::Args)]
struct Which {
    /// Ids; none: all that match the filter.
    ids: Vec<i64>,
    #[command(flatten)]
    filter: Filter,
    /// Does not ask first.
    #[arg(long)]
    yes: bool,
    /// Only says how many.
    #[arg(long, conflicts_with_all = ["yes", "ids"])]
    dry_run: bool,
}

impl Which {
    fn ask(&self) -> Ask {
        match (self.dry_run, self.yes) {
            (true, _) => Ask::OnlyCount,
            (_, true) => Ask::Nothing,
            _ => Ask::First,
        }
    }
}

/// Which dead letters.
#[derive(Debug, clap::Args)]
struct Filter {
    /// Of this topic.
    #[arg(long)]
    topic: Option<String>,
    /// That failed since then.
    #[arg(long, value_name = "TIME", value_parser = point_in_time)]
    since: Option<String>,
    /// That failed before then.
    #[arg(long, value_name = "TIME", value_parser = point_in_time)]
    until: Option<String>,
    /// Whose error matches this LIKE pattern, such as '%timeout%'.
    #[arg(long, value_name = "PATTERN")]
    error_like: Option<String>,
    /// Last tried on this channel.
    #[arg(long)]
    channel: Option<String>,
    /// Last answered with this status.
    #[arg(long, value_name = "CODE")]
    http_status: Option<i16>,
    /// Of this recipient.
    #[arg(long)]
    recipient: Option<String>,
}

impl Filter {
    fn as_json(&self) -> Value {
        let fields = [
            ("topic", self.topic.as_ref().map(|text| json!(text))),
            ("since", self.since.as_ref().map(|text| json!(text))),
            ("until", self.until.as_ref().map(|text| json!(text))),
            ("error_like", self.error_like.as_ref().map(|text| json!(text))),
            ("channel", self.channel.as_ref().map(|text| json!(text))),
            ("http_status", self.http_status.map(|code| json!(code))),
            ("recipient", self.recipient.as_ref().map(|text| json!(text))),
        ];
        fields.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect::<Map<_, _>>().into()
    }
}

/// "2h" is two hours ago; anything else is left to Postgres.
fn point_in_time(text: &str) -> Result<String, String> {
    match humantime::parse_duration(text) {
        Ok(span) => Ok((chrono::Utc::now() - span).to_rfc3339()),
        Err(_) if text.chars().any(|c| c == '-' || c == ':') => Ok(text.to_owned()),
        Err(_) => Err("write it as a span back from now (90m, 2h, 1day) or as a timestamp (2026-01-31 12:00)".into()),
    }
}

pub(super) async fn run(args: &Args, sources: &Sources) -> Result<Exit, Failure> {
    let session = database::connect(sources).await?;
    match &args.command {
        Command::List { filter, limit, json } => list(&session, filter, *limit, *json).await,
        Command::Show { id, json } => show(&session, *id, *json).await,
        Command::Retry(which) => act(&session, RETRY, which).await,
        Command::Discard(which) => act(&session, DISCARD, which).await,
    }
}

async fn list(session: &Session, filter: &Filter, limit: i64, as_json: bool) -> Result<Exit, Failure> {
    let sql = include_str!("../../sql/queries/cli/list_dead_letters.sql");
    let rows = view::read(session, sql, &[(&filter.as_json(), Type::JSONB), (&limit, Type::INT8)]).await?;
    if as_json {
        print_json(&format!("{:#}\n", Value::from(rows)))?;
        return Ok(Exit::Clean);
    }
    let columns = [
        Column("id", "ID", Show::Number),
        Column("failed_at", "FAILED AT", Show::Time),
        Column("topic", "TOPIC", Show::Text),
        Column("recipient", "RECIPIENT", Show::Text),
        Column("channel", "CHANNEL", Show::Text),
        Column("attempts", "ATTEMPTS", Show::Number),
        Column("http_status", "HTTP", Show::Number),
        Column("error", "ERROR", Show::Text),
        Column("response", "RESPONSE", Show::Text),
    ];
    print(&view::table(&rows, &columns, "no dead letters match"))?;
    Ok(Exit::Clean)
}

async fn show(session: &Session, id: i64, as_json: bool) -> Result<Exit, Failure> {
    let rows = view::read(session, "SELECT * FROM outboxd.notifications WHERE id = $1", &[(&id, Type::INT8)]).await?;
    let row = rows.first().with_context(|| format!("there is no notification {id}; its retention may have passed"))?;
    let attempts = "SELECT * FROM outboxd.attempts WHERE notification_id = $1 ORDER BY id";
    let attempts = view::read(session, attempts, &[(&id, Type::INT8)]).await?;
    let waits = view::read(session, "SELECT * FROM outboxd.why($1)", &[(&id, Type::INT8)]).await?;
    let waits = waits.first().unwrap_or(&Value::Null);
    if as_json {
        print_json(&format!("{:#}\n", json!({ "notification": row, "waits": waits, "attempts": attempts })))?;
        return Ok(Exit::Clean);
    }
    let fields = [
        "id",
        "topic",
        "recipient",
        "status",
        "channel",
        "attempts",
        "http_status",
        "provider_id",
        "error",
        "next_attempt_at",
        "payload",
        "headers",
        "dedup_key",
        "ordering_key",
        "created_at",
        "send_at",
        "expires_at",
        "finished_at",
    ];
    let lines = fields.iter().filter(|field| !row[**field].is_null()).map(|field| {
        let show = if field.ends_with("_at") { Show::Time } else { Show::Text };
        let shown = if *field == "error" { view::whole(&row[*field]) } else { view::shown(&row[*field], show) };
        format!("{field:16} {shown}\n")
    });
    let waits = [("waits", &waits["explanation"]), ("what to do", &waits["action"])];
    let waits = waits
        .iter()
        .filter(|(_, told)| !told.is_null())
        .map(|(name, told)| format!("{name:16} {}\n", view::whole(told)));
    let columns = [
        Column("number", "NO", Show::Number),
        Column("started_at", "STARTED", Show::Time),
        Column("channel", "CHANNEL", Show::Text),
        Column("duration_ms", "MS", Show::Number),
        Column("outcome", "OUTCOME", Show::Text),
        Column("http_status", "HTTP", Show::Number),
        Column("error", "ERROR", Show::Text),
        Column("response", "RESPONSE", Show::Text),
    ];
    let table = view::table(&attempts, &columns, "no attempt but successes");
    print(&format!("{}\nATTEMPTS\n{table}", lines.chain(waits).collect::<String>()))?;
    Ok(Exit::Clean)
}

/// What is done to dead letters, and how it is told.
#[derive(Debug, Clone, Copy)]
struct Act {
    /// The SQL function for one; with `_where` the one for many.
    function: &'static str,
    /// How the question before many are changed begins.
    question: &'static str,
    /// What one is then.
    done: &'static str,
    /// What many are then.
    all_done: &'static str,
}

impl Act {
    /// `1 is QUEUED again`, `2 are QUEUED again`.
    fn all(self, n: i64) -> String {
        format!("{n} {}", if n == 1 { self.done } else { self.all_done })
    }
}

fn dead_letters(n: i64) -> String {
    counted(n, "dead letter")
}

fn matches(n: i64) -> &'static str {
    if n == 1 { "matches" } else { "match" }
}

const RETRY: Act = Act { function: "retry", question: "Retry", done: "is QUEUED again", all_done: "are QUEUED again" };
const DISCARD: Act = Act {
    function: "discard",
    question: "Discard",
    done: "is CANCELED: discarded",
    all_done: "are CANCELED: discarded",
};

async fn act(session: &Session, act: Act, which: &Which) -> Result<Exit, Failure> {
    if which.ids.is_empty() {
        return act_on_all(session, act, &which.filter.as_json(), which.ask()).await;
    }
    for id in &which.ids {
        let sql = format!("SELECT outboxd.{}($1)", act.function);
        let row = view::one(session, &sql, &[(id, Type::INT8)]).await?;
        // Why it is not, the function's notice has said.
        if row.get(0) {
            print(&format!("{id} {}\n", act.done))?;
        }
    }
    Ok(Exit::Clean)
}

/// What is asked before many are changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ask {
    OnlyCount,
    First,
    Nothing,
}

async fn act_on_all(session: &Session, act: Act, filter: &Value, ask: Ask) -> Result<Exit, Failure> {
    if ask != Ask::Nothing {
        let sql = format!("SELECT matched FROM outboxd.{}_where($1)", act.function);
        let matched: i64 = view::one(session, &sql, &[(filter, Type::JSONB)]).await?.get(0);
        if ask == Ask::OnlyCount || matched == 0 {
            print(&format!("{} {}\n", dead_letters(matched), matches(matched)))?;
            return Ok(Exit::Clean);
        }
        if !confirmed(act, matched)? {
            return Ok(Exit::Clean);
        }
    }
    let sql = format!("SELECT matched, done, bulk_id FROM outboxd.{}_where($1, dry_run => false)", act.function);
    let row = view::one(session, &sql, &[(filter, Type::JSONB)]).await?;
    match row.get::<_, Option<i64>>(2) {
        None => print(&format!("{}\n", act.all(row.get(1))))?,
        Some(bulk) => follow(session, act, bulk).await?,
    }
    Ok(Exit::Clean)
}

fn confirmed(act: Act, matched: i64) -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::new(
            Exit::Usage,
            anyhow::anyhow!(
                "{} {}; add --yes to {} {}",
                dead_letters(matched),
                matches(matched),
                act.function,
                if matched == 1 { "it" } else { "them" }
            ),
        ));
    }
    print(&format!("{} {}? [y/N] ", act.question, dead_letters(matched)))?;
    std::io::Write::flush(&mut std::io::stdout()).context("cannot write the question")?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).context("cannot read the answer")?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Shows a bar until the instances have worked it off. Ctrl-C only stops watching.
async fn follow(session: &Session, act: Act, bulk: i64) -> Result<(), Failure> {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {per_sec} {eta} left  {msg}");
    let bar = ProgressBar::new(0).with_style(style.context("the progress bar's template")?);
    loop {
        let sql = "SELECT state, matched, done, error FROM outboxd.bulk_actions WHERE id = $1";
        let row = view::one(session, sql, &[(&bulk, Type::INT8)]).await?;
        let (state, matched, done): (&str, i64, i64) = (row.get(0), row.get(1), row.get(2));
        bar.set_length(u64::try_from(matched).unwrap_or(0));
        bar.set_position(u64::try_from(done).unwrap_or(0));
        bar.set_message(printable::line(&row.get::<_, Option<String>>(3).unwrap_or_default()).into_owned());
        if state == "finished" || state == "stopped" {
            bar.finish_and_clear();
            return print(&format!("{state}: {done} of {}\n", act.all(matched)));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
