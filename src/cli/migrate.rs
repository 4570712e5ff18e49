//! `outboxd migrate`: the schema, brought up to this binary.

use crate::config::{self, Sources};
use crate::migrate::{self, Install, Migration};
use crate::store::connect;

use super::{Exit, Failure, print};

const EXAMPLES: &str = "\
Examples:
  outboxd migrate              apply what is missing, install functions, views and grants
  outboxd migrate --status     which migrations the database has; changes nothing
  outboxd migrate --dry-run    the SQL that would run; changes nothing

Any number of instances may run this at once. It needs a direct connection to
Postgres 14 or newer (no transaction-mode pooler) and a role that may create
the schema; where it may not create roles, a DBA runs sql/roles.sql once.";

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

    /// Prints JSON; with --status.
    #[arg(long, requires = "status")]
    json: bool,
}

pub(super) async fn run(args: &Args, sources: &Sources) -> Result<Exit, Failure> {
    let config = config::load(sources)?.config;
    let (mut client, connection) = connect::connect(&config.database_url, config.database.connect_timeout).await?;
    let driver = tokio::spawn(connection);
    if args.status || args.dry_run {
        let migrations = migrate::status(&client).await?;
        print(&match (args.dry_run, args.json) {
            (true, _) => pending_sql(&migrations),
            (false, true) => format!("{}\n", serde_json::json!({ "migrations": migrations })),
            (false, false) => status_text(&migrations),
        })?;
    } else {
        let report = migrate::run(&mut client, Install::Always).await?;
        for name in &report.applied {
            print(&format!("applied {name}\n"))?;
        }
        print(&format!(
            "the schema is at migration {}; functions, views and grants are installed\n",
            migrate::newest()
        ))?;
    }
    drop(client);
    driver.abort();
    Ok(Exit::Clean)
}

fn status_text(migrations: &[Migration]) -> String {
    let line = |migration: &Migration| {
        let when = migration.applied_on.as_deref().map_or("pending".to_owned(), |on| format!("applied {on}"));
        format!("V{:04}  {:<40} {when}\n", migration.version, migration.name)
    };
    migrations.iter().map(line).collect()
}

fn pending_sql(migrations: &[Migration]) -> String {
    let mut sql = String::new();
    for migration in migrations.iter().filter(|migration| migration.applied_on.is_none()) {
        sql.push_str(&format!("-- V{:04} {}\n{}\n", migration.version, migration.name, migration.sql.trim_end()));
    }
    if sql.is_empty() {
        sql.push_str("-- no migration is pending\n");
    }
    sql.push_str("-- then functions, views, roles and grants are installed in one transaction (sql/)\n");
    sql
}

impl From<migrate::Error> for Failure {
    fn from(error: migrate::Error) -> Self {
        let exit = match &error {
            migrate::Error::Database(_) | migrate::Error::Migration(_) => Exit::Runtime,
            migrate::Error::ServerTooOld { .. }
            | migrate::Error::BeforeFirstRelease { .. }
            | migrate::Error::SchemaNewer { .. }
            | migrate::Error::MissingRights { .. }
            | migrate::Error::Diverged(_) => Exit::Config,
        };
        Failure::new(exit, error)
    }
}
