//! `outboxd roles`: the SQL that makes the roles, for whoever may run it.

use super::{Exit, Failure, print};
use crate::store::migrate;

const EXAMPLES: &str = "\
Examples:
  outboxd roles                          look at it
  outboxd roles | psql postgres://dba@db/app
  outboxd roles --owner app_owner | psql postgres://dba@db/app

Then, as the owner of the schema: outboxd migrate. It may come before or after;
with --owner once is enough.";

/// Prints the SQL that creates the roles, for a DBA to run; needs no connection.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The login that runs `outboxd migrate`: it gets what it needs for schedules.
    #[arg(long, value_name = "LOGIN")]
    owner: Option<String>,
}

pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let grant = args.owner.as_ref().map(|owner| {
        // As quote_ident() does, without asking which names need it.
        format!("GRANT outboxd_audience TO \"{}\";\n", owner.replace('"', "\"\""))
    });
    print(&(migrate::ROLES.to_owned() + &grant.unwrap_or_default()))?;
    Ok(Exit::Clean)
}
