//! `outboxd migrate`: the schema, brought up to this binary.

use anyhow::anyhow;

use crate::config::Sources;
use crate::service;
use crate::store::migrate::{self, Install, Migration, Report};
use crate::store::{connect, pooler};

use super::{Exit, Failure, database, print};

const EXAMPLES: &str = "\
Examples:
  outboxd migrate                   apply what is missing, install functions, views and grants
  outboxd migrate --status          which migrations the database has; changes nothing
  outboxd migrate --dry-run         the SQL that would run, all of it; changes nothing
  outboxd migrate --without-roles   creates no roles, and is content without them

Any number of instances may run this at once. It needs a direct connection to
Postgres 14 or newer (no transaction-mode pooler) and a role that may create
the schema. Where it may not create roles it says which are missing and exits
with 78: a DBA runs what `outboxd roles` prints once, then migrate again.";

/// Creates or updates the schema `outboxd`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Only says which migrations the database has.
    #[arg(long, conflicts_with = "dry_run")]
    status: bool,

    /// Only prints the SQL that would run.
    #[arg(long)]
    dry_run: bool,

    /// Creates no roles, and does not mind if they are missing.
    #[arg(long, conflicts_with = "status")]
    without_roles: bool,

    /// Prints JSON; with --status.
    #[arg(long, requires = "status")]
    json: bool,
}

pub(super) async fn run(args: &Args, sources: &Sources) -> Result<Exit, Failure> {
    let database = database::load(sources)?;
    let session = database::open(&database).await?;
    let install = if args.without_roles { Install::WithoutRoles } else { Install::Always };
    if args.status || args.dry_run {
        let migrations = migrate::status(&session).await?;
        print(&match (args.dry_run, args.json) {
            (true, _) => migrate::script(&migrations, install),
            (false, true) => format!("{}\n", serde_json::json!({ "migrations": migrations })),
            (false, false) => status_text(&migrations),
        })?;
        return Ok(Exit::Clean);
    }
    let limit = database.settings.connect_timeout;
    // By what is there, not by what the configuration says: it may be written for instances behind a pooler.
    let is_shared = pooler::are_sessions_shared(&database.url, limit).await.map_err(service::Error::Store)?;
    if is_shared {
        let what = "a transaction-mode pooler is in between: migrations need a direct connection";
        return Err(Failure::new(Exit::Config, anyhow!(what)));
    }
    let (mut client, connection) = connect::connect(&database.url, limit).await?;
    // Ends with the client.
    tokio::spawn(connection);
    let report = migrate::run(&mut client, install).await?;
    for name in &report.applied {
        print(&format!("applied {name}\n"))?;
    }
    print(&format!("the schema is at migration {}; functions, views and grants are installed\n", migrate::newest()))?;
    if install == Install::WithoutRoles { Ok(Exit::Clean) } else { complete(&report) }
}

/// Without its roles the schema is there, and nobody but its owner can use it.
fn complete(report: &Report) -> Result<Exit, Failure> {
    let incomplete = |what: String| Err(Failure::new(Exit::Config, anyhow!(what)));
    if !report.roles_missing.is_empty() {
        return incomplete(format!(
            "roles are missing that this login may not create: {}. Let a DBA run what `outboxd roles` prints, then \
             `outboxd migrate` again; or do without them: outboxd migrate --without-roles",
            report.roles_missing.join(", ")
        ));
    }
    if !report.grants_missing.is_empty() {
        return incomplete(format!(
            "schedules cannot read audiences yet: let a DBA run {}; then `outboxd migrate` again. Without schedules: \
             outboxd migrate --without-roles",
            report.grants_missing.join("; ")
        ));
    }
    Ok(Exit::Clean)
}

fn status_text(migrations: &[Migration]) -> String {
    let line = |migration: &Migration| {
        let when = migration.applied_on.as_deref().map_or("pending".to_owned(), |on| format!("applied {on}"));
        format!("V{:04}  {:<40} {when}\n", migration.version, migration.name)
    };
    migrations.iter().map(line).collect()
}

impl From<migrate::Error> for Failure {
    fn from(error: migrate::Error) -> Self {
        let exit = match &error {
            migrate::Error::Database(_) | migrate::Error::Migration(_) => Exit::Runtime,
            migrate::Error::ServerTooOld { .. }
            | migrate::Error::NotUtf8 { .. }
            | migrate::Error::NeedsDirectConnection { .. }
            | migrate::Error::BeforeFirstRelease { .. }
            | migrate::Error::SchemaNewer { .. }
            | migrate::Error::MissingRights { .. }
            | migrate::Error::Diverged(_) => Exit::Config,
        };
        Failure::new(exit, error)
    }
}
