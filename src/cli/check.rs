//! `outboxd check`: what would be used, and whether it works.

use std::collections::BTreeSet;

use crate::channel::descriptors::Descriptors;
use crate::channel::failover::Router;
use crate::config::{self, Config, Role, Sources};

use super::{Exit, Failure, print, print_json};
use report::{Finding, Report, State};

mod http;
mod postgres;
mod ready;
mod redis;
mod report;
mod schema;

const EXAMPLES: &str = "\
Examples:
  outboxd check                      what would be used, and whether it answers
  outboxd check --json | jq .checks  the same for programs
  outboxd check --strict             for a deploy's gate: warnings fail too
  outboxd check --ready              for a container's health check

What `outboxd run` would refuse is found, and what it would only stumble over
later: grants, roles, clocks, topics without a route.

Exit codes, as of `outboxd run`: 0 it can start, 69 something cannot be reached
now, 78 somebody has to change something (with --strict also what only warns).
An instance that listens on http_addr already is only a warning: check beside it
as you like.";

/// Shows the configuration in use and tests every connection; changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Prints JSON.
    #[arg(long)]
    json: bool,

    /// As for an instance that takes on only these; everything, unless told otherwise.
    #[arg(long, value_enum, value_delimiter = ',', env = "OUTBOXD_ROLE")]
    role: Vec<Role>,

    /// Warnings count as errors: exits 78.
    #[arg(long)]
    strict: bool,

    /// Only asks the running instance on http_addr whether it is ready.
    #[arg(long, conflicts_with_all = ["json", "strict"])]
    ready: bool,
}

pub(super) async fn run(args: &Args, sources: &Sources) -> Result<Exit, Failure> {
    if args.ready {
        return ready::run(config::load(sources)?.config.http_addr).await;
    }
    let roles = if args.role.is_empty() { Role::ALL.into() } else { args.role.iter().copied().collect() };
    let loaded = config::load(sources).and_then(|loaded| {
        loaded.validate_roles(&roles)?;
        Ok(loaded)
    });
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(errors) if args.json => {
            print_json(&report::errors_as_json(&errors))?;
            return Ok(Exit::Config);
        }
        Err(errors) => return Err(errors.into()),
    };
    let findings = findings(&loaded.config, &roles).await;
    let report = Report { loaded: &loaded, warnings: config::warnings(&loaded.config), findings };
    match args.json {
        true => print_json(&report.as_json())?,
        false => print(&report.as_text())?,
    }
    Ok(match report.exit() {
        Exit::Clean if args.strict && report.has_warnings() => Exit::Config,
        exit => exit,
    })
}

async fn findings(config: &Config, roles: &BTreeSet<Role>) -> Vec<Finding> {
    let (http, postgres, redis) =
        tokio::join!(http::check(config, roles), postgres::check(config), redis::check(config));
    channels(config).into_iter().chain(files(config)).chain(http).chain(postgres).chain(redis).collect()
}

/// Whether a process started here may have as many files open as it would use.
fn files(config: &Config) -> Option<Finding> {
    let warning = Descriptors::foreseen(config).warning(config)?;
    Some(Finding::new("descriptors", State::Warn, warning))
}

/// What only shows when a channel is put together: an address on its deny list, a password in its URL.
fn channels(config: &Config) -> Option<Finding> {
    let error = Router::new(&config.channels, &config.routes).err()?;
    Some(Finding::new("channels", State::Refused, error.to_string()))
}
