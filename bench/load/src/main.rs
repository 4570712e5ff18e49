//! The load generator: how fast this machine and these servers deliver.
//!
//! One instance in this process, and a sink that answers at once. First a backlog is drained, then single transactions
//! are committed at a steady rate and each is timed from COMMIT returned to its arrival. `bench/run` compares with
//! peers.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use outboxd::cli::{Exit, Failure};
use outboxd::config::{QueueKind, Role, Sources};
use outboxd::store::migrate;
use outboxd::worker::Drain;
use outboxd::{service, telemetry};
use serde::Serialize;
use tokio::sync::oneshot;
use tokio_postgres::Client;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use sink::Sink;
use target::Target;

mod cpu;
mod load;
mod sink;
mod target;

/// As the daemon has it: it is part of what is measured.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What is logged unless $OUTBOXD_LOG or $RUST_LOG asks for something else: the report is the output.
const LOG_FILTER: &str = "warn";
/// Nothing arrives for so long: something is wrong.
const STALL: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Between the two parts, so that the second begins from rest.
const REST: Duration = Duration::from_secs(1);

const EXAMPLES: &str = "\
Examples:
  outboxd-bench --throwaway                 servers of its own, gone afterwards
  outboxd-bench --throwaway --queue memory  without Redis
  outboxd-bench                             on the configured servers, in a database of its own
  outboxd-bench --count 100000 --rate 1000 --seconds 60

The configuration is found as outboxd finds it: --config, $OUTBOXD_CONFIG, …
The app's database is never used: on the configured server a database
outboxd_bench_… is created and dropped, which needs CREATEDB. The sink runs in
this process; its CPU is not counted.";

/// Measures how fast notifications are delivered here.
#[derive(Debug, Parser)]
#[command(name = "outboxd-bench", after_help = EXAMPLES)]
struct Args {
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Sets a key of the configuration, over file and environment; may be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    set: Vec<(String, String)>,

    /// Starts a Postgres (and Redis) of its own instead of using the configured ones.
    #[arg(long)]
    throwaway: bool,

    /// Which queue; else as configured, and stream with --throwaway.
    #[arg(long, value_enum)]
    queue: Option<Queue>,

    /// Notifications of the backlog.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    count: u32,

    /// Transactions a second of the second part.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,

    /// How long the second part takes.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,

    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// As on the command line.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Queue {
    Memory,
    List,
    Stream,
}

/// What was measured.
#[derive(Debug, Serialize)]
struct Report {
    queue: &'static str,
    drain_count: u32,
    drain_per_second: f64,
    /// Of our own work; what notify() writes is the app's.
    wal_bytes_per_notification: f64,
    notify_wal_bytes: f64,
    cpu_micros_per_notification: Option<f64>,
    paced_per_second: u32,
    paced_count: usize,
    paced_p50_ms: f64,
    paced_p99_ms: f64,
    repeats: usize,
}

#[tokio::main]
async fn main() -> ExitCode {
    // As a task of its own: what `block_on` polls itself runs on a thread apart from all it talks to.
    match tokio::spawn(run(Args::parse())).await {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(failure)) => {
            eprintln!("outboxd-bench: {failure}");
            failure.exit.into()
        }
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

async fn run(args: Args) -> Result<(), Failure> {
    telemetry::init(None, LOG_FILTER).map_err(|error| Failure::new(Exit::Usage, error))?;
    let sources = Sources { file: args.config.clone(), overrides: args.set.clone(), ..Sources::of_process() };
    let sink = Sink::start()?;
    let kind = args.queue.map(QueueKind::from);
    let target = match args.throwaway {
        true => Target::throwaway(&sources, &sink, kind.unwrap_or(QueueKind::Stream)).await?,
        false => Target::configured(&sources, &sink, kind).await?,
    };
    // Ctrl-C must not leave the database behind.
    let report = tokio::select! {
        report = Box::pin(measure(&args, &target, &sink)) => report,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    target.leave().await?;
    let report = report?;
    let text = if args.json { serde_json::to_string(&report).context("JSON")? + "\n" } else { text(&report) };
    std::io::stdout().write_all(text.as_bytes()).context("cannot write the report")?;
    Ok(())
}

async fn measure(args: &Args, target: &Target, sink: &Sink) -> Result<Report> {
    let mut client = target.connect().await?;
    migrate::run(&mut client, migrate::Install::Always).await.context("the schema")?;
    let before = wal(&client).await?;
    load::preload(&client, args.count).await?;
    client.batch_execute("ANALYZE outboxd.notification_log, outboxd.outbox").await?;
    let loaded = wal(&client).await?;

    let instance = Instance::start(target).await?;
    let (began, cpu_before) = (instance.ready_at, cpu::used());
    let ended = until_done(&client, sink, args.count as usize).await?;
    let cpu_used = cpu_before.zip(cpu::used()).map(|(before, after)| after.saturating_sub(before));
    let drained = wal(&client).await?;
    let drain = sink.take();

    tokio::time::sleep(REST).await;
    let commits = load::pace(target, args.rate, Duration::from_secs(u64::from(args.seconds))).await?;
    until_done(&client, sink, commits.len()).await?;
    let paced = sink.take();
    instance.stop().await?;

    let per_notification = |bytes: i64| bytes as f64 / f64::from(args.count);
    let mut waits: Vec<Duration> =
        commits.iter().filter_map(|(id, at)| Some(paced.first.get(id)?.saturating_duration_since(*at))).collect();
    waits.sort_unstable();
    Ok(Report {
        queue: match target.config.queue.kind {
            QueueKind::Memory => "memory",
            QueueKind::List => "list",
            QueueKind::Stream => "stream",
        },
        drain_count: args.count,
        drain_per_second: f64::from(args.count) / (ended - began).as_secs_f64(),
        wal_bytes_per_notification: per_notification(drained - loaded),
        notify_wal_bytes: per_notification(loaded - before),
        cpu_micros_per_notification: cpu_used.map(|used| used.as_secs_f64() * 1e6 / f64::from(args.count)),
        paced_per_second: args.rate,
        paced_count: commits.len(),
        paced_p50_ms: percentile(&waits, 0.5),
        paced_p99_ms: percentile(&waits, 0.99),
        repeats: drain.requests - drain.first.len() + paced.requests - paced.first.len(),
    })
}

/// The instance under measurement, in this process.
struct Instance {
    ready_at: Instant,
    stop: CancellationToken,
    running: AbortOnDropHandle<Result<Drain, service::Error>>,
}

impl Instance {
    async fn start(target: &Target) -> Result<Instance> {
        let stop = CancellationToken::new();
        let (ready, is_ready) = oneshot::channel();
        let roles = BTreeSet::from(Role::CARRIERS);
        let service = service::run(target.config.clone(), roles, stop.clone(), |_| {
            // Nobody waits any more if we were interrupted.
            let _ = ready.send(Instant::now());
        });
        let mut running = AbortOnDropHandle::new(tokio::spawn(Box::pin(service)));
        tokio::select! {
            ready_at = is_ready => Ok(Instance { ready_at: ready_at?, stop, running }),
            ended = &mut running => bail!("the instance does not start: {:?}", ended?.err()),
        }
    }

    async fn stop(self) -> Result<()> {
        self.stop.cancel();
        self.running.await??;
        Ok(())
    }
}

/// Waits until so many have arrived and every one of them is recorded; returns when that was.
async fn until_done(client: &Client, sink: &Sink, count: usize) -> Result<Instant> {
    let (mut arrived, mut progress_at) = (0, Instant::now());
    while arrived < count {
        tokio::time::sleep(POLL_INTERVAL).await;
        let now = sink.arrived();
        if now > arrived {
            (arrived, progress_at) = (now, Instant::now());
        }
        if progress_at.elapsed() > STALL {
            bail!("{arrived} of {count} arrived, and then nothing for {} s", STALL.as_secs());
        }
    }
    let open = "SELECT EXISTS (SELECT FROM outboxd.outbox)";
    while client.query_one(open, &[]).await?.get(0) {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(Instant::now())
}

/// Where the server's log stands, in bytes.
async fn wal(client: &Client) -> Result<i64> {
    Ok(client.query_one("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint", &[]).await?.get(0))
}

fn percentile(sorted: &[Duration], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let at = (last as f64 * share).round() as usize;
    sorted.get(at).map_or(f64::NAN, |wait| (wait.as_secs_f64() * 1e5).round() / 100.0)
}

fn text(report: &Report) -> String {
    let cpu = report.cpu_micros_per_notification.map_or("unknown".to_owned(), |micros| format!("{micros:.0} µs"));
    format!(
        "queue                   {}\n\
         drain                   {:.0}/s ({} notifications)\n\
         commit → arrival        p50 {:.2} ms · p99 {:.2} ms (at {}/s, {} notifications)\n\
         WAL a notification      {:.0} bytes ours, {:.0} bytes notify()\n\
         CPU a notification      {cpu} in this process\n\
         delivered twice         {}\n",
        report.queue,
        report.drain_per_second,
        report.drain_count,
        report.paced_p50_ms,
        report.paced_p99_ms,
        report.paced_per_second,
        report.paced_count,
        report.wal_bytes_per_notification,
        report.notify_wal_bytes,
        report.repeats,
    )
}

impl From<Queue> for QueueKind {
    fn from(queue: Queue) -> Self {
        match queue {
            Queue::Memory => QueueKind::Memory,
            Queue::List => QueueKind::List,
            Queue::Stream => QueueKind::Stream,
        }
    }
}

fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write it as KEY=VALUE, such as worker.concurrency=128")?;
    Ok((key.trim().to_owned(), value.to_owned()))
}
