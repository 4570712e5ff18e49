//! The soak: everything on this machine, under load and under faults for as long as wanted, then the verdict.
//!
//! ```text
//!   app writers ──commit──► Postgres ◄─proxies─► N instances of outboxd ──HTTP──► providers, which keep the ledger
//!                            standby               │
//!                                                  └─proxies─► Redis, replica
//! ```
//!
//! [`plan`] draws the faults from the seed; [`faults`] does them; [`verdict`], a pure function, joins the providers'
//! ledger, the app's log and the rows. Everything runs in throwaway directories on free loopback ports and is gone when
//! the soak ends, however it ends; what is kept after a violation lies in one directory, which it names.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use outboxd_throwaway::{evidence, verdict};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use plan::{Fault, Kind, Queue};
use progress::{Progress, say};
use report::Report;
use world::World;

mod carrier;
mod consumer;
mod database;
mod faults;
mod instances;
mod keep;
mod plan;
mod plot;
mod progress;
mod providers;
mod recovery;
mod report;
mod rows;
mod world;
mod writers;

const TICK: Duration = Duration::from_millis(500);
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(15);

const EXAMPLES: &str = "\
Examples:
  bench/soak/run --minutes 10 --queue stream --seed 7
  bench/soak/run --minutes 60 --faults-per-minute 10 --json soak.json --plot soak.svg
  bench/soak/run --seconds 60 --kinds instance-kill,redis-flush --out kept
  bench/soak/run --minutes 10 --seed 7 --plan        only shows the schedule

Exits 1 if anything was lost, sent without having been committed, sent twice
without a witness, out of order or too late; 2 if it could not be done.";

/// Runs outboxd under faults, and holds the providers' ledger against the app's commits.
#[derive(Debug, Parser)]
#[command(name = "outboxd-soak", after_help = EXAMPLES)]
struct Args {
    /// How long the app writes and things break, in minutes.
    #[arg(long, default_value_t = 5.0, conflicts_with = "seconds")]
    minutes: f64,

    /// The same in seconds.
    #[arg(long)]
    seconds: Option<u64>,

    /// Which queue carries.
    #[arg(long, value_enum, default_value_t = Queue::Stream)]
    queue: Queue,

    /// The same seed gives the same schedule.
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Instances of outboxd.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=9))]
    instances: u8,

    /// Faults a minute, about.
    #[arg(long, default_value_t = 6.0)]
    faults_per_minute: f64,

    /// Only these kinds of faults.
    #[arg(long, value_enum, value_delimiter = ',')]
    kinds: Vec<Kind>,

    /// Transactions of the app a second.
    #[arg(long, default_value_t = 100.0)]
    rate: f64,

    /// After the last fault, all must have ended within so many seconds.
    #[arg(long, default_value_t = 120)]
    ended_within: u64,

    /// Writes the report to this file.
    #[arg(long)]
    json: Option<PathBuf>,

    /// Draws deliveries a second with the faults marked to this file.
    #[arg(long)]
    plot: Option<PathBuf>,

    /// Keeps ledger, logs and rows here, also of a good run.
    #[arg(long)]
    out: Option<PathBuf>,

    /// Shows the schedule and ends.
    #[arg(long)]
    plan: bool,
}

impl Args {
    fn span(&self) -> Duration {
        self.seconds.map_or_else(|| Duration::from_secs_f64(self.minutes * 60.0), Duration::from_secs)
    }

    fn schedule(&self) -> Vec<Fault> {
        let possible = Kind::all(self.queue);
        let wanted = |kind: &Kind| self.kinds.is_empty() || self.kinds.contains(kind);
        plan::draw(&plan::Options {
            seed: self.seed,
            span: self.span(),
            faults_per_minute: self.faults_per_minute,
            instances: usize::from(self.instances),
            kinds: possible.into_iter().filter(wanted).collect(),
        })
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("outboxd-soak: no runtime: {error}");
            return ExitCode::from(2);
        }
    };
    // Whichever ends first, dropping the other ends the servers and removes their directories.
    let done = runtime.block_on(async {
        tokio::select! {
            done = Box::pin(run(&args)) => done,
            ended = interrupted() => ended.and(Err(anyhow::anyhow!("interrupted; nothing is left running"))),
        }
    });
    // A command of ours that hangs must not keep us: its supervisor ends it with us.
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("outboxd-soak: {error:#}");
            ExitCode::from(2)
        }
    }
}

async fn interrupted() -> Result<()> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

/// Whether every promise was kept.
async fn run(args: &Args) -> Result<bool> {
    let schedule = args.schedule();
    if args.plan {
        schedule.iter().for_each(|fault| say(&report::describe(fault)));
        return Ok(true);
    }
    say(&format!(
        "outboxd soak: {} s, {} instances, queue {}, {} faults, seed {}",
        args.span().as_secs(),
        args.instances,
        args.queue.name(),
        schedule.len(),
        args.seed
    ));
    let world = World::build(args.queue, usize::from(args.instances), args.seed, &schedule).await?;
    let world = Arc::new(world);
    world.start_instances().await?;
    let supervised = Arc::clone(&world);
    let supervising = AbortOnDropHandle::new(tokio::spawn(async move { supervised.supervise().await }));
    let consumed = Arc::clone(&world);
    let consuming = (args.queue != Queue::Memory)
        .then(|| AbortOnDropHandle::new(tokio::spawn(async move { consumer::run(&consumed).await })));
    let mut progress = Progress::new();
    play(args, &world, &schedule, &mut progress).await?;
    let left =
        rows::until_ended(&world, Duration::from_secs(args.ended_within), |_| progress.show(&world, schedule.len()))
            .await?;
    progress.end();
    say(&format!("{:.0} s: {left} have not ended", world.elapsed().as_secs_f64()));
    if supervising.is_finished() {
        supervising.await?.context("the instances cannot be kept running")?;
    }
    drop(consuming);
    conclude(args, &world).await
}

/// The app writes and things break, until the end of the span and of the last fault.
async fn play(args: &Args, world: &Arc<World>, schedule: &[Fault], progress: &mut Progress) -> Result<()> {
    let stop = CancellationToken::new();
    let mut writing = JoinSet::new();
    for writer in 0..writers::WRITERS {
        let (world, stop, seed) = (Arc::clone(world), stop.clone(), args.seed);
        let per_second = args.rate / writers::WRITERS as f64;
        writing.spawn(async move { writers::run(&world, writer, per_second, seed, &stop).await });
    }
    let breaking = async {
        tokio::time::sleep(args.span().saturating_sub(world.elapsed())).await;
        stop.cancel();
        Ok::<(), anyhow::Error>(())
    };
    let showing = async {
        loop {
            progress.show(world, schedule.len());
            tokio::time::sleep(TICK).await;
        }
    };
    tokio::select! {
        done = async { tokio::try_join!(breaking, faults::run(world, schedule)) } => { done?; }
        () = showing => {}
    }
    while let Some(done) = writing.join_next().await {
        done?;
    }
    Ok(())
}

/// The verdict, and what is kept.
async fn conclude(args: &Args, world: &World) -> Result<bool> {
    let admin = world.admin().await?;
    let evidence = rows::collect(world, &admin.client).await?;
    let mut verdict = verdict::judge(&evidence);
    verdict.violations.extend(rows::find_illegal_states(world, &admin.client).await?);
    let happened = world.log().happened.clone();
    verdict.violations.extend(recovery::late::find(&happened, &evidence));
    let recoveries = recovery::measure(&happened, &evidence);
    let longest = recovery::longest(&happened, &recoveries);
    let command: Vec<String> = std::env::args().skip(1).collect();
    let report = Report {
        command: &command.join(" "),
        verdict: &verdict,
        happened: &happened,
        recoveries: &recoveries,
        longest: &longest,
        span: args.span(),
    };
    say(&report.text());
    if let Some(file) = &args.json {
        std::fs::write(file, format!("{:#}\n", report.json())).context("cannot write the report")?;
    }
    if let Some(file) = &args.plot {
        let title = format!("Deliveries a second: queue {}, seed {}", args.queue.name(), args.seed);
        std::fs::write(file, plot::draw(&title, &evidence, &happened, args.span())).context("cannot draw")?;
    }
    if !verdict.is_good() || args.out.is_some() {
        let dir = keep::directory(args.out.as_deref())?;
        keep::write(&dir, world, &admin.client, &evidence, &verdict).await?;
        say(&format!("  kept in {}", dir.display()));
    }
    Ok(verdict.is_good())
}
