//! Brings the schema `outboxd` up to this binary: migrations first, then the functions, views and grants.
//!
//! Migrations are numbered, forward-only and never edited once shipped. Functions and views live one per file
//! in `sql/` and are installed anew, in one transaction, whenever their text changed. Any number of instances
//! may do this at once: the work is done under an advisory lock held by the very connection that does it, so a
//! migrator that dies lets go of it.

use std::time::Duration;

use refinery::Target;
use sha2::{Digest, Sha256};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, SimpleQueryMessage, SimpleQueryRow};
use tracing::warn;

use super::command;
use super::session::{Purpose, Settings};
use crate::telemetry;

mod error;
mod lock;

pub use error::Error;
use error::db_error;

mod embedded {
    refinery::embed_migrations!("migrations");
}

/// The schema everything lives in.
pub const SCHEMA: &str = "outboxd";
const HISTORY: &str = "outboxd.refinery_schema_history";
/// The servers that are supported and tested; older ones are refused.
pub const SERVER_VERSIONS: std::ops::RangeInclusive<i32> = 14..=18;

macro_rules! sql_files {
    ($dir:literal: $($name:literal),+ $(,)?) => {
        &[$((concat!($dir, "/", $name, ".sql"), include_str!(concat!("../../sql/", $dir, "/", $name, ".sql")))),+]
    };
}

/// Public and internal functions, each after those it calls.
pub const FUNCTIONS: &[(&str, &str)] = sql_files!("functions":
    "_ring", "_ring_at_insert", "_refuse_id", "_is_held_by_us", "_reject_headers", "_reject", "_items", "_reject_items", "_admit", "_requeue",
    "_cancel", "_discard", "_reject_filter", "_pick_dead", "_pick_waiting", "_bulk_start", "_bulk_where", "_bulk_step", "_count_active", "_count_waiting",
    "_take_snapshot", "_sees_all", "_planned_for", "_masked", "_masked_origin", "_origin_place", "_cause",
    "_owns_lease", "_begin_retention_step", "_end_retention_step", "_delete_older_by_id", "_delete_older_by_time",
    "_plural", "notify", "notify_many", "_post_many", "_post", "status", "why", "_status_for", "publish", "replay_events", "_receipts_of",
    "receive", "respond", "share_consumer", "unshare_consumer",
    "cancel", "cancel_where", "discard", "discard_where", "retry", "retry_dead", "retry_where", "stop_bulk", "resend",
    "pause", "resume", "pause_channel", "resume_channel", "_hasten", "_circuit_changed", "close_circuit", "probe_channel",
    "_read_audience", "_reject_cron", "_reject_audience", "_reject_schedule", "_cancel_runs", "create_schedule", "alter_schedule", "pause_schedule",
    "resume_schedule", "drop_schedule",
    "_system_identifier", "_database", "_origin_work", "_recognise", "_step_origin", "adopt",
);

/// The operators' views, and internal ones (`_…`), each after those it reads.
pub const VIEWS: &[(&str, &str)] = sql_files!("views":
    "_alive", "notifications", "attempts", "dead_letters", "instances", "workers", "_due", "_counts", "queue_state", "_topic_counts", "_topics", "_carrier", "_routed", "_route", "_live", "_wait", "stuck", "_waits", "waiting", "outbox_lag",
    "throughput", "_spans", "latency", "channel_health", "bulk_actions", "events_waiting", "event_consumers",
    "schedules", "schedule_runs", "_vacuum_pins", "health",
);

/// The roles, for whoever may create them.
pub const ROLES: &str = include_str!("../../sql/roles.sql");
const GRANTS: &str = include_str!("../../sql/grants.sql");

/// One migration and whether the database has it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Migration {
    /// Its number.
    pub version: i64,
    /// Its name, as in the file's.
    pub name: String,
    /// When it was applied; `None`: it is still to come.
    pub applied_on: Option<String>,
    /// Its text, for `--dry-run`.
    #[serde(skip)]
    pub sql: String,
}

/// The newest migration this binary knows.
pub fn newest() -> i64 {
    embedded::migrations::runner().get_migrations().iter().map(|m| m.version()).max().unwrap_or(0)
}

/// Every migration of this binary, in order, with what the database has of them.
pub async fn status(session: &command::Session) -> Result<Vec<Migration>, Error> {
    let applied = applied(&Asked::Command(session)).await?;
    let mut migrations: Vec<Migration> = embedded::migrations::runner()
        .get_migrations()
        .iter()
        .map(|m| {
            let version = m.version();
            let applied_on = applied.iter().find(|(v, _)| *v == version).map(|(_, on)| on.clone());
            let sql = m.sql().unwrap_or_default().to_string();
            Migration { version, name: m.name().to_string(), applied_on, sql }
        })
        .collect();
    migrations.sort_by_key(|m| m.version);
    Ok(migrations)
}

/// The newest migration the database has; 0: none, or no schema.
pub async fn schema_version(session: &command::Session) -> Result<i64, Error> {
    newest_of(&Asked::Command(session)).await
}

/// Fails unless the server is new enough and the database can hold what apps write.
pub async fn check_server(session: &command::Session) -> Result<(), Error> {
    is_fit(&Asked::Command(session)).await
}

/// Whose session is asked: a command's, which brings its settings each time, or one that has them.
enum Asked<'a> {
    Command(&'a command::Session),
    Pinned(&'a Client),
}

impl Asked<'_> {
    // Simple queries: an instance behind a transaction-mode pooler asks too, and may prepare nothing.
    async fn rows(&self, sql: &str) -> Result<Vec<SimpleQueryRow>, Error> {
        let client = match self {
            Asked::Command(session) => return Ok(session.simple_rows(sql).await?),
            Asked::Pinned(client) => client,
        };
        let row = |message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        };
        Ok(client.simple_query(sql).await?.into_iter().filter_map(row).collect())
    }
}

async fn newest_of(asked: &Asked<'_>) -> Result<i64, Error> {
    Ok(applied(asked).await?.iter().map(|(version, _)| *version).max().unwrap_or(0))
}

/// Before 0.1.0 the schema had another history, which nothing leads on from.
async fn refuse_other_history(asked: &Asked<'_>) -> Result<(), Error> {
    let rows = asked.rows(&format!("SELECT name FROM {HISTORY} WHERE version = 1")).await?;
    let Some(found) = rows.first().and_then(|row| row.get(0)) else { return Ok(()) };
    let runner = embedded::migrations::runner();
    if runner.get_migrations().iter().any(|m| m.version() == 1 && m.name() == found) {
        return Ok(());
    }
    Err(Error::BeforeFirstRelease { found: found.to_owned() })
}

async fn applied(asked: &Asked<'_>) -> Result<Vec<(i64, String)>, Error> {
    if asked.rows(&format!("SELECT 1 WHERE to_regclass('{HISTORY}') IS NOT NULL")).await?.is_empty() {
        return Ok(Vec::new());
    }
    refuse_other_history(asked).await?;
    let rows = asked.rows(&format!("SELECT version, applied_on FROM {HISTORY} ORDER BY version")).await?;
    let text = |row: &SimpleQueryRow, column| row.get(column).unwrap_or_default().to_owned();
    Ok(rows.iter().filter_map(|row| Some((text(row, 0).parse().ok()?, text(row, 1)))).collect())
}

/// Why the daemon's login may not even read: it has not been given its role.
pub async fn explain_unreadable(session: &command::Session, error: Error) -> Error {
    let denied = match db_error(&error) {
        Some(db) if *db.code() == SqlState::INSUFFICIENT_PRIVILEGE => db.message().to_owned(),
        _ => return error,
    };
    let user = match session.simple_rows("SELECT quote_ident(current_user)").await {
        Ok(rows) => rows.first().and_then(|row| row.get(0)).unwrap_or("this login").to_owned(),
        Err(error) => return error.into(),
    };
    Error::MissingRights {
        hint: format!("outboxd wants a login of its own. If {user} is that: GRANT outboxd_service TO {user}"),
        user,
        message: denied,
    }
}

async fn is_fit(asked: &Asked<'_>) -> Result<(), Error> {
    let facts = "SELECT current_setting('server_version_num'), current_setting('server_version'), \
                        current_setting('server_encoding'), current_database()";
    let rows = asked.rows(facts).await?;
    let fact = |column: usize| rows.first().and_then(|row| row.get(column)).unwrap_or_default().to_owned();
    server_is_new_enough(fact(0).parse().unwrap_or(0), fact(1))?;
    match fact(2) {
        encoding if encoding == "UTF8" => Ok(()),
        encoding => Err(Error::NotUtf8 { database: fact(3), encoding }),
    }
}

/// What a migration did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The migrations applied now.
    pub applied: Vec<String>,
    /// Whether functions, views and grants were installed anew.
    pub installed: bool,
    /// Roles that are missing: their grants were passed over.
    pub roles_missing: Vec<String>,
    /// What a DBA has to run besides, because this login may not.
    pub grants_missing: Vec<String>,
}

/// When functions, views and grants are installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Install {
    /// Always: `outboxd migrate`, which also picks up roles that a DBA has created since.
    Always,
    /// Always, and no role is created.
    WithoutRoles,
    /// Only if their text changed and no newer binary installed its own: the start of an instance.
    IfChanged,
}

/// Brings the schema up to date. Needs a direct connection, not a transaction-mode pooler's.
pub async fn run(client: &mut Client, install: Install) -> Result<Report, Error> {
    let settings = Settings::new(Purpose::Migration, Duration::ZERO);
    // First of all: names in our SQL mean what they say, whatever the login's search_path puts in front of them.
    client.batch_execute(&settings.for_session()).await?;
    is_fit(&Asked::Pinned(client)).await?;
    lock::take(client).await?;
    let result = run_locked(client, install).await;
    let report = explain(client, result).await;
    // If unlocking fails the connection is broken, and the server lets go of the lock with it.
    let unlocked = client.batch_execute(&format!("{}; {}", lock::give_back(), settings.reset())).await;
    let report = report?;
    unlocked?;
    Ok(report)
}

fn server_is_new_enough(version_num: i32, found: String) -> Result<(), Error> {
    if version_num / 10_000 < *SERVER_VERSIONS.start() { Err(Error::ServerTooOld { found }) } else { Ok(()) }
}

async fn run_locked(client: &mut Client, install: Install) -> Result<Report, Error> {
    let schema = newest_of(&Asked::Pinned(client)).await?;
    if schema > newest() {
        return Err(Error::SchemaNewer { schema, binary: newest() });
    }
    let row = client.query_one("SELECT to_regnamespace($1) IS NOT NULL", &[&SCHEMA]).await?;
    if !row.get::<_, bool>(0) {
        client.batch_execute("CREATE SCHEMA outboxd").await?;
    }
    let mut applied = Vec::new();
    if schema < newest() {
        let mut runner = embedded::migrations::runner().set_target(Target::Latest);
        runner.set_migration_table_name(HISTORY);
        let report = runner.run_async(client).await.map_err(refinery_error)?;
        applied.extend(report.applied_migrations().iter().map(|m| format!("V{:04} {}", m.version(), m.name())));
    }
    let installed = install_sql(client, install).await?;
    let (roles_missing, grants_missing) = (roles_missing(client).await?, grants_missing(client).await?);
    if install == Install::IfChanged && installed && !roles_missing.is_empty() {
        warn!(roles = ?roles_missing, "roles are missing: let a DBA run what `outboxd roles` prints, then migrate again");
    }
    Ok(Report { applied, installed, roles_missing, grants_missing })
}

fn refinery_error(error: refinery::Error) -> Error {
    match error.kind() {
        refinery::error::Kind::DivergentVersion(..) | refinery::error::Kind::MissingVersion(..) => {
            Error::Diverged(error.to_string())
        }
        _ => Error::Migration(error),
    }
}

/// Roles, functions, views and grants in one transaction: others see all of the old or all of the new.
async fn install_sql(client: &mut Client, install: Install) -> Result<bool, Error> {
    let transaction = client.transaction().await?;
    let wanted = fingerprint();
    let current: String = transaction.query_one("SELECT sql_installed FROM outboxd.setting", &[]).await?.get(0);
    if install == Install::IfChanged && (current == wanted || version(&current) > version(&wanted)) {
        return Ok(false);
    }
    for (_, sql) in parts(install) {
        transaction.batch_execute(sql).await?;
    }
    transaction.execute("UPDATE outboxd.setting SET sql_installed = $1", &[&wanted]).await?;
    transaction.commit().await?;
    Ok(true)
}

/// What is installed, in its order.
fn parts(install: Install) -> impl Iterator<Item = (&'static str, &'static str)> {
    let roles = (install != Install::WithoutRoles).then_some(("roles.sql", ROLES));
    roles.into_iter().chain(FUNCTIONS.iter().chain(VIEWS).copied()).chain([("grants.sql", GRANTS)])
}

/// The SQL that [`run`] would run, as one script.
pub fn script(migrations: &[Migration], install: Install) -> String {
    let mut sql = "SET search_path = pg_catalog, pg_temp;\nCREATE SCHEMA IF NOT EXISTS outboxd;\n".to_owned();
    let pending: Vec<&Migration> = migrations.iter().filter(|migration| migration.applied_on.is_none()).collect();
    for migration in &pending {
        sql.push_str(&format!("\n-- V{:04} {}\n{}\n", migration.version, migration.name, migration.sql.trim_end()));
    }
    if pending.is_empty() {
        sql.push_str("\n-- no migration is pending\n");
    }
    sql.push_str("\n-- each time, in one transaction\nBEGIN;\n");
    for (name, text) in parts(install) {
        sql.push_str(&format!("\n-- sql/{name}\n{}\n", text.trim_end()));
    }
    sql + "\nCOMMIT;\n"
}

async fn roles_missing(client: &Client) -> Result<Vec<String>, Error> {
    let missing =
        "SELECT r FROM unnest(ARRAY['outboxd_app', 'outboxd_operator', 'outboxd_reader', 'outboxd_service', 'outboxd_audience']) r
                    WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = r) ORDER BY r";
    Ok(client.query(missing, &[]).await?.iter().map(|row| row.get(0)).collect())
}

/// Schedules read audiences by a function that must belong to its own role: see grants.sql.
async fn grants_missing(client: &Client) -> Result<Vec<String>, Error> {
    let missing = "SELECT format('GRANT outboxd_audience TO %I', pg_get_userbyid(n.nspowner))
                     FROM pg_namespace n JOIN pg_roles r ON r.rolname = 'outboxd_audience'
                    WHERE n.nspname = $1 AND NOT EXISTS (SELECT FROM pg_proc p WHERE p.pronamespace = n.oid
                                                            AND p.proname = '_read_audience' AND p.proowner = r.oid)";
    Ok(client.query(missing, &[&SCHEMA]).await?.iter().map(|row| row.get(0)).collect())
}

/// "0.1.0 6f0c…": this binary's version and what its SQL looks like.
fn fingerprint() -> String {
    let mut hasher = Sha256::new();
    let roles_and_grants = [("roles", ROLES), ("grants", GRANTS)];
    for (name, sql) in FUNCTIONS.iter().chain(VIEWS).chain(&roles_and_grants) {
        hasher.update(name);
        hasher.update(sql);
    }
    let hash: String = hasher.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("{} {hash}", telemetry::VERSION)
}

/// The version in a fingerprint; a text without one is older than any.
fn version(fingerprint: &str) -> Vec<u64> {
    let version = fingerprint.split([' ', '-', '+']).next().unwrap_or_default();
    version.split('.').map_while(|part| part.parse().ok()).collect()
}

/// Turns "permission denied" into what to do about it.
async fn explain(client: &Client, result: Result<Report, Error>) -> Result<Report, Error> {
    let Err(error) = result else { return result };
    let denied = match db_error(&error) {
        Some(db) if *db.code() == SqlState::INSUFFICIENT_PRIVILEGE => db.message().to_string(),
        _ => return Err(error),
    };
    let facts = "SELECT current_user::text, current_database()::text,
                        (SELECT pg_get_userbyid(nspowner)::text FROM pg_namespace WHERE nspname = $1)";
    let row = client.query_one(facts, &[&SCHEMA]).await?;
    let (user, database, owner): (String, String, Option<String>) = (row.get(0), row.get(1), row.get(2));
    let hint = match owner {
        Some(owner) => format!("The schema belongs to {owner}: run `outboxd migrate` as that login"),
        None => format!(
            "Let a role that may create schemas run `outboxd migrate` once, or: GRANT CREATE ON DATABASE {database} TO {user}"
        ),
    };
    Err(Error::MissingRights { user, message: denied, hint })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn postgres_14_is_the_oldest_server() {
        assert!(server_is_new_enough(140_000, "14.0".into()).is_ok());
        let error = server_is_new_enough(130_023, "13.23 (Debian)".into()).expect_err("13 is too old");
        assert_eq!(
            error.to_string(),
            "Postgres 13.23 (Debian) is too old: outboxd needs 14 or newer (14 to 18 are supported)"
        );
    }

    #[test]
    fn versions_compare_as_numbers() {
        assert!(version("0.10.0 aa") > version("0.9.3 bb"));
        assert_eq!(version("1.2.3-rc.1 aa"), version("1.2.3 bb"));
        assert!(version("") < version("0.1.0 aa"));
    }
}
