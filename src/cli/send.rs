//! `outboxd send`: one notification from the command line, as an app would write it.

use std::time::{Duration, Instant};

use anyhow::anyhow;
use chrono::{DateTime, Utc};
use serde_json::{Map, Value, json};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::{Exit, Failure, database, print, print_json};
use crate::config::Sources;
use crate::notification::Status;
use crate::printable;
use crate::store::command::Session;
use crate::store::connect;

/// Between questions why it waits.
const EXPLAIN_EVERY: Duration = Duration::from_secs(2);

const EXAMPLES: &str = r#"Examples:
  outboxd send order.paid device-1 '{"text": "hello"}'
  outboxd send order.paid device-1 '{"text": "hello"}' --wait
  outboxd send quiz device-1 '{}' --send-at 2030-01-01T09:00:00+09:00 --dedup-key quiz-17
  outboxd send order.paid device-1 '{}' --header traceparent=00-…

Exit codes with --wait: 0 when it was SENT, 1 when it ended otherwise."#;

/// Writes one notification, as an app would with outboxd.notify(), and prints its id.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// What it is about; decides the route.
    topic: String,

    /// Who receives it: what the channels' templates call {{ recipient }}.
    recipient: String,

    /// The payload, as JSON.
    payload: String,

    /// Not before this time, such as 2030-01-01T09:00:00+09:00.
    #[arg(long, value_name = "TIME", value_parser = time)]
    send_at: Option<DateTime<Utc>>,

    /// Past this time it is not sent but FAILED.
    #[arg(long, value_name = "TIME", value_parser = time)]
    expires_at: Option<DateTime<Utc>>,

    /// The same topic and key again enqueues nothing and prints the first one's id.
    #[arg(long, value_name = "KEY")]
    dedup_key: Option<String>,

    /// Notifications of one key are delivered one after the other.
    #[arg(long, value_name = "KEY")]
    ordering_key: Option<String>,

    /// A header of the row, such as traceparent; may be repeated.
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = header)]
    headers: Vec<(String, String)>,

    /// Follows it until it has ended.
    #[arg(long)]
    wait: bool,

    /// Prints JSON, one object a line.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(args: &Args, sources: &Sources) -> Result<Exit, Failure> {
    let payload: Value = serde_json::from_str(&args.payload).map_err(|error| bad_json(&args.payload, &error))?;
    let session = database::connect(sources).await?;
    let id = notify(&session, args, &payload).await?;
    print_json(&if args.json { format!("{}\n", json!({ "id": id })) } else { format!("{id}\n") })?;
    if args.wait { follow(&session, id, args.json).await } else { Ok(Exit::Clean) }
}

async fn notify(session: &Session, args: &Args, payload: &Value) -> Result<i64, Failure> {
    let headers: Map<String, Value> =
        args.headers.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect();
    let headers = (!headers.is_empty()).then_some(Value::Object(headers));
    let sql = "SELECT outboxd.notify($1, $2, $3::jsonb, $4, $5, $6, $7, $8)";
    let rows = session
        .query(
            sql,
            &[
                (&args.topic, Type::TEXT),
                (&args.recipient, Type::TEXT),
                (payload, Type::JSONB),
                (&args.send_at, Type::TIMESTAMPTZ),
                (&args.dedup_key, Type::TEXT),
                (&args.ordering_key, Type::TEXT),
                (&args.expires_at, Type::TIMESTAMPTZ),
                (&headers, Type::JSONB),
            ],
        )
        .await
        .map_err(|error| refused(&error))?;
    let row = rows.first().ok_or_else(|| anyhow!("notify() answered with no row"))?;
    Ok(row.get(0))
}

/// What a login sees of a notification that may read the view.
const SEE_ALL: &str =
    "SELECT status, channel, attempts, error, next_attempt_at FROM outboxd.notifications WHERE id = $1";
/// What an app's login sees, which may not.
const SEE_STATUS: &str = "SELECT status, NULL::text AS channel, NULL::int AS attempts, NULL::text AS error,
                                 NULL::timestamptz AS next_attempt_at
                            FROM outboxd.status($1) AS status WHERE status IS NOT NULL";

/// Tells every change until the notification has ended.
async fn follow(session: &Session, id: i64, as_json: bool) -> Result<Exit, Failure> {
    let asked = "SELECT has_table_privilege('outboxd.notifications', 'SELECT')";
    let sees_all = session.query(asked, &[]).await.map_err(|error| refused(&error))?.iter().any(|row| row.get(0));
    let sql = if sees_all { SEE_ALL } else { SEE_STATUS };
    let mut told = String::new();
    let (mut explain_at, mut waits) = (Instant::now() + EXPLAIN_EVERY, None::<String>);
    loop {
        let row = session.query(sql, &[(&id, Type::INT8)]).await.map_err(|error| refused(&error))?.pop();
        let row = row.ok_or_else(|| anyhow!("notification {id} is gone: its retention is over"))?;
        if sees_all && Instant::now() >= explain_at {
            let sql = include_str!("../../sql/queries/cli/explain_wait.sql");
            let rows = session.query(sql, &[(&id, Type::INT8)]).await.map_err(|error| refused(&error))?;
            waits = rows.first().and_then(|row| row.get(0));
            explain_at = Instant::now() + EXPLAIN_EVERY;
        }
        let line = if as_json { json_line(id, &row) } else { text_line(&row, waits.as_deref()) };
        if line != told {
            if as_json {
                print_json(&line)?
            } else {
                print(&line)?
            }
            told = line;
        }
        let status = Status::parse(row.get("status")).ok_or_else(|| anyhow!("an unknown status"))?;
        if status.is_terminal() {
            return Ok(if status == Status::Sent { Exit::Clean } else { Exit::Runtime });
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn text_line(row: &Row, waits: Option<&str>) -> String {
    let status: &str = row.get("status");
    let Some(attempts) = row.get::<_, Option<i32>>("attempts") else { return format!("{status}\n") };
    let channel = row.get::<_, Option<&str>>("channel").map_or(String::new(), |name| format!(" by {name}"));
    let error = row.get::<_, Option<&str>>("error").map_or(String::new(), |error| format!(": {error}"));
    let next = row.get::<_, Option<DateTime<Utc>>>("next_attempt_at").filter(|_| attempts > 0 || status == "PENDING");
    let next = next.map_or(String::new(), |at| format!(", next attempt at {}", at.format("%F %T UTC")));
    let waits = waits.map_or(String::new(), |reason| format!(", waits: {reason}"));
    let line = format!("{status:<10} attempts {attempts}{channel}{next}{waits}{error}");
    format!("{}\n", printable::line(&line))
}

fn json_line(id: i64, row: &Row) -> String {
    let next: Option<DateTime<Utc>> = row.get("next_attempt_at");
    let line = json!({
        "id": id,
        "status": row.get::<_, &str>("status"),
        "channel": row.get::<_, Option<&str>>("channel"),
        "attempts": row.get::<_, Option<i32>>("attempts"),
        "error": row.get::<_, Option<&str>>("error"),
        "next_attempt_at": next,
    });
    format!("{line}\n")
}

/// The server's own words; those of our functions say what to change.
fn refused(error: &tokio_postgres::Error) -> Failure {
    let Some(refusal) = error.as_db_error() else { return connect::classify(error).into() };
    let hint = match (refusal.hint(), refusal.code().code()) {
        (Some(hint), _) => format!("; {hint}"),
        (None, "3F000" | "42883" | "42P01") => "; is the schema there? run: outboxd migrate".to_owned(),
        (None, _) => String::new(),
    };
    Failure::new(Exit::Runtime, anyhow!("{}{hint}", refusal.message()))
}

fn bad_json(text: &str, error: &serde_json::Error) -> Failure {
    let quotes = if text.trim_start().starts_with(['{', '[', '"']) { "" } else { "; a string needs quotes of its own" };
    Failure::new(Exit::Usage, anyhow!("the payload is no JSON: {error}{quotes}"))
}

fn time(text: &str) -> Result<DateTime<Utc>, String> {
    let parsed = DateTime::parse_from_rfc3339(text);
    parsed.map(|at| at.to_utc()).map_err(|error| format!("{error}; write it as 2030-01-01T09:00:00+09:00"))
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write it as NAME=VALUE")?;
    Ok((name.trim().to_owned(), value.to_owned()))
}
