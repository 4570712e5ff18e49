//! `outboxd find`: what was sent to a recipient.

use serde_json::Value;
use tokio_postgres::types::Type;

use super::view::{self, Column, Show};
use super::{Exit, Failure, database, print, print_json};
use crate::config::Sources;

const EXAMPLES: &str = "\
Examples:
  outboxd find device-4711
  outboxd find +82101234567 --topic quiz --limit 5
  outboxd find device-4711 --json

The newest come first. `outboxd dead show ID` shows one with its attempts. In SQL:
SELECT * FROM outboxd.notifications WHERE recipient = 'device-4711' ORDER BY id DESC LIMIT 20";

/// Shows what was sent to a recipient, and what is on its way.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The recipient, as the app gave it.
    recipient: String,
    /// Of this topic only.
    #[arg(long)]
    topic: Option<String>,
    /// How many at most.
    #[arg(long, default_value_t = 20)]
    limit: i64,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(args: &Args, sources: &Sources) -> Result<Exit, Failure> {
    let session = database::connect(sources).await?;
    let params: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] =
        [(&args.recipient, Type::TEXT), (&args.topic, Type::TEXT), (&args.limit, Type::INT8)];
    let rows = view::read(&session, include_str!("../../sql/queries/cli/find_by_recipient.sql"), &params).await?;
    if args.json {
        print_json(&format!("{:#}\n", Value::from(rows)))?;
        return Ok(Exit::Clean);
    }
    let columns = [
        Column("id", "ID", Show::Number),
        Column("created_at", "CREATED", Show::Time),
        Column("topic", "TOPIC", Show::Text),
        Column("status", "STATUS", Show::Text),
        Column("channel", "CHANNEL", Show::Text),
        Column("attempts", "ATTEMPTS", Show::Number),
        Column("http_status", "HTTP", Show::Number),
        Column("error", "ERROR", Show::Text),
    ];
    let table = view::table(&rows, &columns, "nothing was written to this recipient, or its retention has passed");
    print(&rows.iter().map(said).fold(table, |all, said| all + &said))?;
    Ok(Exit::Clean)
}

/// What is too long for the table: why it waits, what to do, and an error that was cut there.
fn said(row: &Value) -> String {
    let is_cut = view::shown(&row["error"], Show::Text) != view::whole(&row["error"]);
    let lines =
        [("error", &row["error"], is_cut), ("waits", &row["explanation"], true), ("what to do", &row["action"], true)];
    let lines = lines.iter().filter(|(_, told, is_shown)| *is_shown && !told.is_null());
    let lines: String = lines.map(|(name, told, _)| format!("  {name:10} {}\n", view::whole(told))).collect();
    if lines.is_empty() { lines } else { format!("\n{}\n{lines}", view::whole(&row["id"])) }
}
