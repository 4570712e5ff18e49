//! The command line: what is asked for, and how it ends.
//!
//! One file per command. Each loads the configuration it needs, does one thing, and ends with an [`Exit`] code that
//! tells a script what to do: 0 done, 1 failed, 2 wrong usage, 69 a server is away, 75 the drain took too long, 78 bad
//! configuration. Output is for people, or JSON where `--json` asks for it; logs go to stderr.
//!
//! **Guarantee.** A command that reads or acts does it through the public views and functions, with the rights of
//! whoever calls it. **Limit.** It shows what the database knows; what one instance knows is at its HTTP address. May
//! change: words and layout. Must not: exit codes and the fields of `--json`.

use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};

use crate::config::{Errors, Sources};
use crate::printable;
use crate::store::connect;
use crate::telemetry;

mod adopt;
mod check;
mod color;
mod completions;
mod database;
mod dead;
mod doctor;
mod find;
mod fit;
mod migrate;
mod roles;
mod run;
mod schedule;
mod send;
mod status;
mod terminal;
mod view;

use terminal::{print, print_json};

const EXAMPLES: &str = "\
Examples:
  DATABASE_URL=postgres://app@localhost/app outboxd migrate
  outboxd run
  DATABASE_URL=postgres://app@localhost/app outboxd check
  outboxd --config /etc/outboxd/outboxd.toml check --json
  outboxd check --set worker.concurrency=128

Configuration file: --config, else $OUTBOXD_CONFIG, else ./outboxd.toml,
else /etc/outboxd/outboxd.toml. Every key is also an environment variable
(worker.lease is OUTBOXD_WORKER_LEASE) and can be given with --set. Flags win
over the environment, and the environment wins over the file.

Exit codes: 0 clean, 1 runtime error, 2 usage, 69 a dependency is unavailable,
75 the drain took too long, 78 bad configuration.";

/// Your app commits; outboxd delivers.
///
/// A transactional-outbox relay for Postgres: the app writes a notification in its own transaction, outboxd sees the
/// commit, calls the provider and records the outcome.
#[derive(Debug, Parser)]
#[command(name = "outboxd", version, after_help = EXAMPLES)]
pub struct Cli {
    /// The configuration file.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Sets a key of the configuration, over file and environment; may be repeated.
    #[arg(long, global = true, value_name = "KEY=VALUE", value_parser = key_value)]
    set: Vec<(String, String)>,

    /// What to log, such as `info` or `warn,outboxd=debug`; else $OUTBOXD_LOG, else $RUST_LOG.
    #[arg(long, global = true, value_name = "FILTER")]
    log: Option<String>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Args),
    Migrate(migrate::Args),
    Roles(roles::Args),
    Check(check::Args),
    Send(send::Args),
    Schedule(schedule::Args),
    Status(status::Args),
    Dead(dead::Args),
    Find(find::Args),
    Doctor(doctor::Args),
    Adopt(adopt::Args),
    Completions(completions::Args),
}

/// How the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// All was done.
    Clean = 0,
    /// Something went wrong on the way.
    Runtime = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// Postgres, Redis or an instance cannot be used now.
    Unavailable = 69,
    /// Calls were still under way when the drain's time was over.
    DrainDeadline = 75,
    /// The configuration is wrong.
    Config = 78,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// Why a command could not be carried out, and the exit code that says so.
#[derive(Debug)]
pub struct Failure {
    /// How the program ends.
    pub exit: Exit,
    error: anyhow::Error,
}

impl Failure {
    /// A failure that ends the program in this way.
    pub fn new(exit: Exit, error: impl Into<anyhow::Error>) -> Self {
        Self { exit, error: error.into() }
    }
}

/// The error and its causes, fit for a terminal: what a server says may quote a row.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable::text(&format!("{:#}", self.error)))
    }
}

impl From<Errors> for Failure {
    fn from(errors: Errors) -> Self {
        Self::new(Exit::Config, errors)
    }
}

impl From<connect::Error> for Failure {
    fn from(error: connect::Error) -> Self {
        let exit = if error.is_passing() { Exit::Unavailable } else { Exit::Config };
        Self::new(exit, anyhow::Error::new(error).context("Postgres"))
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::new(Exit::Runtime, error)
    }
}

/// Does what the command line asks.
pub fn start(cli: Cli) -> Result<Exit, Failure> {
    let filter = cli.log.as_deref();
    telemetry::init(filter, telemetry::SERVICE_FILTER).map_err(|error| Failure::new(Exit::Usage, error))?;
    end_on_panic();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    // Which the runtime reads.
    if std::env::var_os("TOKIO_WORKER_THREADS").is_none() {
        runtime.worker_threads(threads());
    }
    let runtime = runtime.enable_all().build().context("no runtime")?;
    // As a task of its own: what `block_on` polls itself runs on a thread apart from all it talks to.
    let ended = runtime.block_on(runtime.spawn(dispatch(cli)));
    // Not by waiting for name servers that nobody waits for any more.
    runtime.shutdown_background();
    match ended {
        Ok(ended) => ended,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// Half of the cores: the other half is Postgres's, Redis's and the app's. Threads that hand work to each other cost
/// more than they bring: on two cores one delivers as much as two, with a quarter less CPU.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 2).max(1))
}

/// A panic in any task ends the process: its supervisor starts it again, and what was under way is left to its leases.
/// Unwinding would end the one task, and its instance would go on beating and renewing leases and send nothing. A hook
/// and not `panic = "abort"`: it holds in every profile, tests included, says why in the log, and has an exit code.
fn end_on_panic() {
    std::panic::set_hook(Box::new(|info| {
        let backtrace = std::backtrace::Backtrace::capture();
        tracing::error!(panic = %info, %backtrace, "a task panicked; the process ends");
        std::process::exit(Exit::Runtime as i32);
    }));
}

async fn dispatch(cli: Cli) -> Result<Exit, Failure> {
    let mut sources = Sources::of_process();
    sources.file = cli.config;
    sources.overrides = cli.set;
    match cli.command {
        Command::Run(args) => run::run(&args, &sources).await,
        Command::Migrate(args) => migrate::run(&args, &sources).await,
        Command::Roles(args) => roles::run(&args),
        Command::Check(args) => check::run(&args, &sources).await,
        Command::Send(args) => send::run(&args, &sources).await,
        Command::Schedule(args) => schedule::run(&args, &sources).await,
        Command::Status(args) => status::run(&args, &sources).await,
        Command::Dead(args) => dead::run(&args, &sources).await,
        Command::Find(args) => find::run(&args, &sources).await,
        Command::Doctor(args) => doctor::run(&args, &sources).await,
        Command::Adopt(args) => adopt::run(&args, &sources).await,
        Command::Completions(args) => completions::run(&args),
    }
}

fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write it as KEY=VALUE, such as worker.concurrency=128")?;
    Ok((key.trim().to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        super::Cli::command().debug_assert();
    }
}
