//! `outboxd run`: one instance, until it is told to stop.

use crate::config::{self, Role, Sources};
use crate::queue;
use crate::service::{self, signals, systemd};
use crate::store::{self, migrate};
use crate::worker::Drain;

use super::{Exit, Failure};

const EXAMPLES: &str = "\
Examples:
  outboxd run                               everything in one process
  outboxd run --role producer,relay         publish only; others work
  outboxd run --role worker                 call providers only

SIGTERM or Ctrl-C: stops taking, finishes calls under way (worker.drain, 25 s),
gives the rest back and exits 0; 75 if calls had to be cut off. A second
signal ends at once. SIGHUP changes nothing: a restart reads a changed
configuration.";

/// Runs an instance: publishes what your app commits and calls the providers.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// What this instance takes on; everything, unless told otherwise.
    #[arg(long, value_enum, value_delimiter = ',', env = "OUTBOXD_ROLE")]
    role: Vec<Role>,
}

pub(super) async fn run(args: &Args, sources: &Sources) -> Result<Exit, Failure> {
    let stop = signals::on_signals().map_err(anyhow::Error::from)?;
    let loaded = config::load(sources)?;
    let roles = if args.role.is_empty() { Role::ALL.into() } else { args.role.iter().copied().collect() };
    loaded.validate_roles(&roles)?;
    let config = loaded.config;
    for warning in config::warnings(&config) {
        tracing::warn!("{warning}");
    }
    match Box::pin(service::run(config, roles, stop, |_| systemd::notify("READY=1"))).await? {
        Drain::Clean => Ok(Exit::Clean),
        Drain::Deadline => Ok(Exit::DrainDeadline),
    }
}

impl From<service::Error> for Failure {
    fn from(error: service::Error) -> Self {
        let exit = match &error {
            service::Error::Store(
                store::Error::Unavailable(_) | store::Error::Contention(_) | store::Error::Locked(_),
            )
            | service::Error::Queue(queue::Error::Unavailable(_) | queue::Error::Full(_)) => Exit::Unavailable,
            service::Error::Migrate(migrate::Error::Database(_)) => Exit::Unavailable,
            service::Error::Http(error) if !error.is_configuration() => Exit::Unavailable,
            service::Error::Store(store::Error::Bug(_) | store::Error::Value(_)) => Exit::Runtime,
            service::Error::Store(store::Error::Refused(_))
            | service::Error::Queue(queue::Error::Unusable(_))
            | service::Error::Migrate(_)
            | service::Error::Channel(_)
            | service::Error::Telemetry(_)
            | service::Error::Http(_) => Exit::Config,
        };
        if let service::Error::Store(store::Error::Refused(_)) = &error {
            return Failure::new(exit, anyhow::anyhow!("{error}; `outboxd check` says what to do"));
        }
        Failure::new(exit, error)
    }
}
