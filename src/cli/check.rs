//! `outboxd check`: what would be used, and whether it works.

use crate::config::{self, Config, Role, Sources};

use super::{Exit, Failure, print};
use report::{Finding, Report};

mod postgres;
mod ready;
mod redis;
mod report;

const EXAMPLES: &str = "\
Examples:
  outboxd check                      what would be used, and whether it answers
  outboxd check --json | jq .checks  the same for programs
  outboxd check --ready              for a container's health check

Exit codes: 0 all is well, 69 something cannot be reached or used,
78 the configuration is wrong.";

/// Shows the configuration in use and tests every connection; changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Prints JSON.
    #[arg(long)]
    json: bool,

    /// Only asks the running instance on http_addr whether it is ready.
    #[arg(long, conflicts_with = "json")]
    ready: bool,
}

pub(super) async fn run(args: &Args, sources: &Sources) -> Result<Exit, Failure> {
    if args.ready {
        return ready::run(config::load(sources)?.config.http_addr).await;
    }
    let loaded = config::load(sources).and_then(|loaded| {
        config::validate_roles(&Role::ALL.into_iter().collect(), &loaded.config)?;
        Ok(loaded)
    });
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(mistakes) if args.json => {
            print(&report::mistakes_as_json(&mistakes))?;
            return Ok(Exit::Config);
        }
        Err(mistakes) => return Err(mistakes.into()),
    };
    let findings = findings(&loaded.config).await;
    let report = Report { loaded: &loaded, remarks: config::remarks(&loaded.config), findings };
    print(&if args.json { report.as_json() } else { report.as_text() })?;
    Ok(if report.is_good() { Exit::Clean } else { Exit::Unavailable })
}

async fn findings(config: &Config) -> Vec<Finding> {
    let (postgres, redis) = tokio::join!(postgres::check(config), redis::check(config));
    postgres.into_iter().chain(redis).collect()
}
