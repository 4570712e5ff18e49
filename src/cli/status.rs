//! `outboxd status`: the operators' views, in short.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};

use super::color::Paint;
use super::fit::{self, Window};
use super::terminal::{clear, redraw};
use super::view::{self, Column, Show};
use super::{Exit, Failure, database, print, print_json};
use crate::config::Sources;
use crate::store::command::Session;

const EXAMPLES: &str = "\
Examples:
  outboxd status                       what waits, works and is dead; how fast; who is at it
  outboxd status --watch               the same, redrawn each second until Ctrl-C; fits the window
  outboxd status --json | jq .queue_state     every row, however many

The same tables in SQL: outboxd.health, queue_state, outbox_lag, waiting, throughput,
latency, channel_health, workers, bulk_actions. See also `outboxd doctor`.";

/// Shows what waits, works and is dead, how fast it goes, and who is at it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Prints JSON.
    #[arg(long, conflicts_with = "watch")]
    json: bool,

    /// Redraws each second until Ctrl-C.
    #[arg(long, short)]
    watch: bool,
}

/// One part of the output.
struct Section {
    title: &'static str,
    name: &'static str,
    sql: &'static str,
    columns: &'static [Column],
    nothing: &'static str,
    /// Rows that are printed; how many more there are is said. JSON has all.
    shown: usize,
}

use Show::{Number, Span, Text, Time};

/// The most important first: a small window shows no more.
const SECTIONS: &[Section] = &[
    Section {
        title: "HEALTH",
        name: "health",
        sql: "SELECT name, level, value, action FROM outboxd.health WHERE level <> 'ok'",
        columns: &[],
        nothing: "all checks are ok",
        shown: 100,
    },
    Section {
        title: "QUEUE",
        name: "queue_state",
        // By topic while all of it is printed, else what has waited the longest.
        sql: "SELECT * FROM outboxd.queue_state \
              ORDER BY CASE WHEN count(*) OVER () > 40 THEN status NOT IN ('QUEUED','PROCESSING') END, \
                       CASE WHEN count(*) OVER () > 40 THEN oldest_age END DESC NULLS LAST, \
                       topic, array_position(ARRAY['PENDING','QUEUED','PROCESSING','FAILED'], status)",
        columns: &[
            Column("topic", "TOPIC", Text),
            Column("status", "STATUS", Text),
            Column("count", "COUNT", Number),
            Column("oldest_age", "OLDEST", Span),
        ],
        nothing: "nothing waits, works or is dead",
        shown: 40,
    },
    Section {
        title: "INSTANCES",
        name: "workers",
        sql: "SELECT * FROM outboxd.instances WHERE state <> 'stopped' ORDER BY state <> 'dead', worker DESC",
        columns: &[
            Column("worker", "NO", Number),
            Column("host", "HOST", Text),
            Column("pid", "PID", Number),
            Column("version", "VERSION", Text),
            Column("state", "STATE", Text),
            Column("in_flight", "IN FLIGHT", Number),
            Column("queue", "QUEUE", Text),
            Column("heartbeat_age", "HEARTBEAT", Span),
        ],
        nothing: "no instance runs",
        shown: 20,
    },
    Section {
        title: "CHANNELS, LAST 5 MIN",
        name: "channel_health",
        sql: "SELECT * FROM outboxd.channel_health \
              ORDER BY circuit = 'closed', origin IS NOT NULL AND circuit <> 'closed', waiting DESC NULLS LAST, \
                       coalesce(success_percent, 100) >= 90, channel, calls DESC, origin NULLS FIRST",
        columns: &[
            Column("channel", "CHANNEL", Text),
            Column("origin", "ORIGIN", Text),
            Column("circuit", "CIRCUIT", Text),
            Column("paused", "PAUSED", Text),
            Column("held_until", "HELD UNTIL", Time),
            Column("waiting", "WAITING", Number),
            Column("calls", "CALLS", Number),
            Column("success_percent", "OK %", Number),
            Column("p95_ms", "P95 MS", Number),
            Column("last_error", "LAST ERROR", Text),
        ],
        nothing: "no channel was called",
        shown: 20,
    },
    Section {
        title: "WHAT WAITS",
        name: "waiting",
        sql: "SELECT * FROM outboxd.waiting ORDER BY count DESC, reason, topic, channel",
        columns: &[
            Column("reason", "REASON", Text),
            Column("topic", "TOPIC", Text),
            Column("channel", "CHANNEL", Text),
            Column("count", "COUNT", Number),
            Column("oldest", "OLDEST", Span),
            Column("limited_by", "LIMIT", Text),
            Column("expected_end", "EXPECTED END", Time),
        ],
        nothing: "",
        shown: 10,
    },
    Section {
        title: "OUTBOX",
        name: "outbox_lag",
        sql: "SELECT * FROM outboxd.outbox_lag",
        columns: &[
            Column("ready_unpublished", "READY", Number),
            Column("oldest_age", "OLDEST", Span),
            Column("published_last_minute", "PUBLISHED/MIN", Number),
        ],
        nothing: "",
        shown: 1,
    },
    Section {
        title: "BULK ACTIONS",
        name: "bulk_actions",
        sql: "SELECT * FROM outboxd.bulk_actions WHERE ended_at IS NULL OR ended_at > now() - interval '5 min' ORDER BY id DESC LIMIT 5",
        columns: &[
            Column("id", "ID", Number),
            Column("action", "ACTION", Text),
            Column("filter", "FILTER", Text),
            Column("state", "STATE", Text),
            Column("done", "DONE", Number),
            Column("matched", "OF", Number),
            Column("percent", "%", Number),
            Column("error", "ERROR", Text),
        ],
        nothing: "",
        shown: 5,
    },
    Section {
        title: "THROUGHPUT BY THE MINUTE",
        name: "throughput",
        sql: "SELECT * FROM outboxd.throughput ORDER BY minute DESC LIMIT 5",
        columns: &[
            Column("minute", "MINUTE", Time),
            Column("queued", "QUEUED", Number),
            Column("sent", "SENT", Number),
            Column("failed", "FAILED", Number),
            Column("retried", "RETRIED", Number),
        ],
        nothing: "no instance ran within the hour",
        shown: 5,
    },
    Section {
        title: "LATENCY, LAST 5 MIN, IN MS",
        name: "latency",
        sql: "SELECT * FROM outboxd.latency ORDER BY sent DESC, topic",
        columns: &[
            Column("topic", "TOPIC", Text),
            Column("sent", "SENT", Number),
            Column("notify_to_sent_p50_ms", "NOTIFY P50", Number),
            Column("notify_to_sent_p95_ms", "P95", Number),
            Column("notify_to_sent_p99_ms", "P99", Number),
            Column("seen_to_sent_p50_ms", "SEEN P50", Number),
            Column("seen_to_sent_p95_ms", "P95", Number),
            Column("seen_to_sent_p99_ms", "P99", Number),
        ],
        nothing: "nothing was sent, up to the last report: instances report every 2 s",
        shown: 10,
    },
];

pub(super) async fn run(args: &Args, sources: &Sources) -> Result<Exit, Failure> {
    let mut session = database::connect(sources).await?;
    if args.json {
        let all = read(&session).await?;
        let object: Map<String, Value> =
            all.into_iter().map(|(section, rows)| (section.name.to_owned(), rows.into())).collect();
        print_json(&format!("{:#}\n", Value::Object(object)))?;
        return Ok(Exit::Clean);
    }
    let paint = Paint::for_stdout();
    if !args.watch {
        print(&frame(&read(&session).await?, paint, None, usize::MAX))?;
        return Ok(Exit::Clean);
    }
    clear()?;
    loop {
        let text = match read(&session).await {
            Ok(all) => match Window::of_stdout() {
                Some(window) => watched(&all, paint, window),
                None => frame(&all, paint, None, usize::MAX),
            },
            Err(failure) if failure.exit == Exit::Unavailable => {
                // The server went away; it is asked again each second.
                if let Ok(again) = database::connect(sources).await {
                    session = again;
                }
                format!("{failure}\n")
            }
            Err(failure) => return Err(failure),
        };
        redraw(&text)?;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

async fn read(session: &Session) -> Result<Vec<(&'static Section, Vec<Value>)>, Failure> {
    let mut all = Vec::new();
    for section in SECTIONS {
        all.push((section, view::read(session, section.sql, &[]).await?));
    }
    Ok(all)
}

/// All sections, of each table so many rows at most; in a window each row is one line.
fn frame(all: &[(&Section, Vec<Value>)], paint: Paint, window: Option<Window>, rows_max: usize) -> String {
    let mut text = String::new();
    for (section, rows) in all.iter().filter(|(section, rows)| !rows.is_empty() || !section.nothing.is_empty()) {
        text += &format!("{}\n", paint.with("1", section.title));
        let (shown, rest) = rows.split_at(rows.len().min(section.shown).min(rows_max));
        if section.name == "health" && !rows.is_empty() {
            let of = |row: &Value| ["level", "name", "value"].map(|field| view::text(&row[field]));
            text += &paint.levels(&fit::hang(rows.iter().map(of), window));
        } else {
            text += &view::table_in(window, shown, section.columns, section.nothing);
            if !rest.is_empty() {
                text += &fit::hang([[format!("  {}", more(section, rows, rest.len()))]], window);
            }
        }
        if window.is_none() {
            text.push('\n');
        }
    }
    text
}

/// As many rows of each table as the window has room for; what is below it, it does without.
fn watched(all: &[(&Section, Vec<Value>)], paint: Paint, window: Window) -> String {
    let mut shortest = String::new();
    for rows_max in [40, 20, 10, 5, 3, 2, 1] {
        shortest = frame(all, paint, Some(window), rows_max);
        if shortest.lines().count() <= window.height {
            return shortest;
        }
    }
    let lines: Vec<&str> = shortest.lines().collect();
    let (shown, rest) = lines.split_at(window.height - 1);
    let less = format!("… a higher window shows {} more lines", rest.len());
    format!("{}\n{}", shown.join("\n"), fit::hang([[less]], Some(window)))
}

/// What is not printed, and what all of it comes to.
fn more(section: &Section, rows: &[Value], rest: usize) -> String {
    let mut totals = BTreeMap::<&str, i64>::new();
    for row in rows.iter().filter(|_| section.name == "queue_state") {
        *totals.entry(row["status"].as_str().unwrap_or_default()).or_default() += row["count"].as_i64().unwrap_or(0);
    }
    let totals: Vec<String> = totals.iter().map(|(status, count)| format!("{count} {status}")).collect();
    let in_all = if totals.is_empty() { String::new() } else { format!("; in all {}", totals.join(", ")) };
    let view = if section.name == "workers" { "instances" } else { section.name };
    format!("and {rest} more{in_all}: SELECT * FROM outboxd.{view}")
}
