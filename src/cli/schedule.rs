//! `outboxd schedule`: campaigns that repeat, by the functions that SQL has for them.

use std::time::Duration;

use clap::Subcommand;
use tokio_postgres::types::Type;

use crate::config::Sources;
use crate::notification::counted;
use crate::store::command::Session;

use super::view::{self, Column, Show};
use super::{Exit, Failure, database, print, print_json};

const EXAMPLES: &str = "\
Examples:
  outboxd schedule create daily-quiz '0 9 * * *' Asia/Seoul quiz app.quiz_audience
  outboxd schedule create digest '0 8 * * MON' Europe/Berlin digest app.digest --spread 30m --expires-after 3h
  outboxd schedule list --json
  outboxd schedule pause daily-quiz
  outboxd schedule resume daily-quiz
  outboxd schedule drop daily-quiz

The audience is a view, table or function with the columns recipient (text) and
payload (jsonb); outboxd_audience must be allowed to read it:
  GRANT USAGE ON SCHEMA app TO outboxd_audience;
  GRANT SELECT ON app.quiz_audience TO outboxd_audience;";

/// Lists, creates, pauses and drops campaigns that repeat.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// The schedules, when they run next and how the last run went.
    List {
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
    /// Creates a schedule.
    Create(Box<Create>),
    /// Keeps a schedule from running; cancels what was prepared for slots still to come.
    Pause {
        /// Its name.
        name: String,
    },
    /// Lets a paused schedule run again, from its next slot on.
    Resume {
        /// Its name.
        name: String,
    },
    /// Ends a schedule and cancels what was prepared and not yet released.
    Drop {
        /// Its name.
        name: String,
    },
}

#[derive(Debug, clap::Args)]
struct Create {
    /// Its name.
    name: String,
    /// Minute, hour, day of month, month, day of week: '0 9 * * *'.
    cron: String,
    /// Where that is read: Asia/Seoul.
    timezone: String,
    /// The topic of its notifications.
    topic: String,
    /// Who gets what: app.quiz_audience.
    audience: String,
    /// How long before the slot the audience is read.
    #[arg(long, value_parser = humantime::parse_duration, default_value = "10m")]
    lead: Duration,
    /// Spreads the notifications over so long, from the slot.
    #[arg(long, value_parser = humantime::parse_duration, default_value = "0s")]
    spread: Duration,
    /// For so long a slot missed by downtime still runs.
    #[arg(long, value_parser = humantime::parse_duration, default_value = "1h")]
    catch_up: Duration,
    /// What it sends expires so long after it was to be sent; without it, never.
    #[arg(long, value_parser = humantime::parse_duration)]
    expires_after: Option<Duration>,
}

const COLUMNS: &[Column] = &[
    Column("name", "NAME", Show::Text),
    Column("cron", "CRON", Show::Text),
    Column("timezone", "TIMEZONE", Show::Text),
    Column("topic", "TOPIC", Show::Text),
    Column("audience", "AUDIENCE", Show::Text),
    Column("state", "STATE", Show::Text),
    Column("next_slot", "NEXT SLOT", Show::Time),
    Column("ran_at", "LAST RUN", Show::Time),
    Column("ran", "", Show::Text),
    Column("error", "ERROR", Show::Text),
];

pub(super) async fn run(args: &Args, sources: &Sources) -> Result<Exit, Failure> {
    let session = database::connect(sources).await?;
    let outcome = match &args.action {
        Action::List { json } => list(&session, *json).await,
        Action::Create(schedule) => create(&session, schedule).await,
        Action::Pause { name } => pause(&session, name).await,
        Action::Resume { name } => resume(&session, name).await,
        Action::Drop { name } => drop_schedule(&session, name).await,
    };
    let said = outcome.map_err(|error| Failure::new(Exit::Runtime, explain(&error)))?;
    if matches!(args.action, Action::List { json: true }) {
        print_json(&said)?
    } else {
        print(&said)?
    }
    Ok(Exit::Clean)
}

async fn list(session: &Session, json: bool) -> Result<String, tokio_postgres::Error> {
    if json {
        let all = "SELECT coalesce(jsonb_agg(to_jsonb(s) ORDER BY s.name), '[]') FROM outboxd.schedules s";
        let schedules: serde_json::Value =
            session.query(all, &[]).await?.first().map_or(serde_json::Value::Null, |row| row.get(0));
        return Ok(format!("{}\n", serde_json::json!({ "schedules": schedules })));
    }
    // The latest run on record may be one that is prepared for a slot still to come.
    let lines = "SELECT to_jsonb(s) || jsonb_build_object('ran_at', r.slot, 'ran', r.state)
                   FROM outboxd.schedules s
                   LEFT JOIN LATERAL (SELECT r.slot, r.state FROM outboxd.schedule_runs r
                                       WHERE r.schedule = s.name AND r.slot <= now()
                                       ORDER BY r.slot DESC, r.run DESC LIMIT 1) r ON true
                  ORDER BY s.name";
    let rows: Vec<serde_json::Value> = session.query(lines, &[]).await?.iter().map(|row| row.get(0)).collect();
    Ok(view::table(&rows, COLUMNS, "there is no schedule"))
}

async fn create(session: &Session, new: &Create) -> Result<String, tokio_postgres::Error> {
    let sql = "SELECT outboxd.create_schedule($1, $2, $3, $4, $5, lead => $6::bigint * interval '1 ms',
                                              spread => $7::bigint * interval '1 ms', catch_up => $8::bigint * interval '1 ms',
                                              expires_after => $9::bigint * interval '1 ms')";
    let millis = |span: Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
    let expires_after = new.expires_after.map(millis);
    let spans = [millis(new.lead), millis(new.spread), millis(new.catch_up)];
    session
        .query(
            sql,
            &[
                (&new.name, Type::TEXT),
                (&new.cron, Type::TEXT),
                (&new.timezone, Type::TEXT),
                (&new.topic, Type::TEXT),
                (&new.audience, Type::TEXT),
                (&spans[0], Type::INT8),
                (&spans[1], Type::INT8),
                (&spans[2], Type::INT8),
                (&expires_after, Type::INT8),
            ],
        )
        .await?;
    Ok(format!("created {}; a running instance works out its next slot: outboxd schedule list\n", new.name))
}

async fn pause(session: &Session, name: &str) -> Result<String, tokio_postgres::Error> {
    let rows = session.query("SELECT outboxd.pause_schedule($1)", &[(&name, Type::TEXT)]).await?;
    let canceled: i64 = rows.first().map_or(0, |row| row.get(0));
    Ok(format!("{name} is paused; {} canceled\n", counted(canceled, "prepared notification")))
}

async fn resume(session: &Session, name: &str) -> Result<String, tokio_postgres::Error> {
    session.query("SELECT outboxd.resume_schedule($1)", &[(&name, Type::TEXT)]).await?;
    Ok(format!("{name} runs again from its next slot on: outboxd schedule list\n"))
}

async fn drop_schedule(session: &Session, name: &str) -> Result<String, tokio_postgres::Error> {
    let rows = session.query("SELECT outboxd.drop_schedule($1)", &[(&name, Type::TEXT)]).await?;
    let canceled: i64 = rows.first().map_or(0, |row| row.get(0));
    Ok(format!("dropped {name}; {} canceled\n", counted(canceled, "prepared notification")))
}

/// What the function said, with its hint.
pub(super) fn explain(error: &tokio_postgres::Error) -> anyhow::Error {
    match error.as_db_error() {
        Some(db) => {
            let hint = db.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
            anyhow::anyhow!("{}{hint}", db.message())
        }
        None => anyhow::anyhow!("{error}"),
    }
}
