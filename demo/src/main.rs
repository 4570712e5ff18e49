//! `scripts/demo`: the whole thing on this machine, with faults, and an honest count at the end.
//!
//! ```text
//!   sample app ──commit──► Postgres ◄──► 2 instances of outboxd ──HTTP──► push · sms · alimtalk (simulated)
//!                                          ▲      one is killed              push fails for a while
//!                                          └ Redis, if installed          a third shows the dashboard
//! ```
//!
//! Everything runs in throwaway directories on free loopback ports and is gone when the demo ends, however it ends.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Parser;
use outboxd_throwaway::free_port;
use outboxd_throwaway::instance::{Instance, migrate};
use outboxd_throwaway::postgres::{Postgres, connect};
use outboxd_throwaway::redis::Redis;
use tokio::signal::unix::{SignalKind, signal};
use tokio_postgres::Client;

use providers::Providers;
use shop::Sales;
use stage::{Stage, count};

mod epilogue;
mod instances;
mod providers;
mod shop;
mod stage;
mod verdict;

/// Parts of the app's time after which the faults happen.
const PUSH_FAILS_AT: f64 = 0.20;
const PUSH_RECOVERS_AT: f64 = 0.50;
const KILL_AT: f64 = 0.65;
/// After the kill, when the views show the dead instance's claims.
const VIEWS_AFTER: Duration = Duration::from_millis(300);
/// After the last commit, everything must have ended within this.
const END_TIMEOUT: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(100);

const EXAMPLES: &str = "\
Examples:
  scripts/demo                     play, then look around in psql until Ctrl-C
  scripts/demo --exit              play and leave
  scripts/demo --orders 20000      more of everything

Needs Postgres installed (apt-get install postgresql); with redis-server
installed too, messages travel through Redis. Your own servers are not touched.
Exits 1 if anything was lost, sent without having been committed, or sent twice
without an unknown outcome before.";

/// Shows outboxd at work on this machine, with an outage and a crash, and counts what arrived.
#[derive(Debug, Parser)]
#[command(name = "outboxd-demo", after_help = EXAMPLES)]
struct Args {
    /// Orders the sample app takes; one in ten is rolled back on purpose.
    #[arg(long, default_value_t = 3000, value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    orders: u32,

    /// How long it takes them.
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,

    /// Leaves after the verdict instead of waiting for Ctrl-C.
    #[arg(long)]
    exit: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(&Args::parse()).await {
        Ok(exit) => exit,
        Err(error) => {
            eprintln!("outboxd-demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: &Args) -> Result<ExitCode> {
    let mut stage = Stage::new();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let play = async {
        let (theatre, good) = play(args, &mut stage).await?;
        if !args.exit {
            epilogue::wait(&theatre, &stage).await?;
        }
        Ok::<bool, anyhow::Error>(good)
    };
    // Whichever ends first, dropping the other ends the servers and removes their directories.
    let good = tokio::select! {
        good = Box::pin(play) => good?,
        _ = interrupt.recv() => return interrupted(),
        _ = terminate.recv() => return interrupted(),
    };
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn interrupted() -> Result<ExitCode> {
    stage::print("\nended; nothing is left running")?;
    Ok(ExitCode::SUCCESS)
}

/// What must live as long as the demo.
#[derive(Debug)]
struct Theatre {
    instances: [Instance; 2],
    /// Shows the pages, and nothing else.
    _dashboard: Instance,
    dashboard_url: String,
    providers: Providers,
    // After the instances, which use it.
    _redis: Option<Redis>,
    postgres: Postgres,
}

async fn play(args: &Args, stage: &mut Stage) -> Result<(Theatre, bool)> {
    let mut theatre = build(stage).await?;
    let orders = args.orders as usize;
    let client = connect(&theatre.postgres.url(shop::DATABASE)).await?;
    let sales = Arc::new(Sales::default());
    let span = Duration::from_secs(u64::from(args.seconds));
    stage.heading(&format!("{} orders in {} s", count(orders), args.seconds))?;
    stage.begin(shop::committed_of(orders));
    let selling = shop::take_orders(&theatre.postgres, orders, span, &sales);
    let acting = act(&mut theatre.instances, &theatre.providers, &client, &sales, span, stage);
    let (snapshot, sold) = tokio::join!(acting, selling);
    sold?;
    let snapshot = snapshot?;
    until_all_ended(&theatre.providers, &client, &sales, stage).await?;
    stage.end();

    let calls = theatre.providers.calls();
    verdict::file_ledger(&client, &calls).await?;
    epilogue::show_views(stage, &client, &snapshot).await?;
    let verdict = verdict::reach(&client, calls, &sales).await?;
    let dead: i64 = client.query_one("SELECT count(*) FROM outboxd.dead_letters", &[]).await?.get(0);
    stage.heading("The verdict: the providers' ledgers against the app's commits")?;
    verdict.show(stage, sales.rolled_back(), dead)?;
    Ok((theatre, verdict.is_good()))
}

async fn build(stage: &Stage) -> Result<Theatre> {
    let port = free_port()?;
    let dashboard_url = format!("http://127.0.0.1:{port}/");
    stage.say("outboxd demo: servers of its own, on loopback only, gone when it ends\n")?;
    stage.say(&format!("  {}    the dashboard: watch there, in some seconds\n", stage.strong(&dashboard_url)))?;
    stage.say("  starting a throwaway Postgres …")?;
    let postgres = Postgres::start("max_connections = 100\n").await?;
    let redis = Redis::start()?;
    stage.say(match redis {
        Some(_) => "  starting a throwaway Redis: messages travel through a stream that both instances share",
        None => "  no redis-server here: each instance has an in-process queue of its own, Postgres alone is enough",
    })?;
    postgres.create_database(shop::DATABASE).await?;
    migrate(&postgres.url(shop::DATABASE))?;
    shop::create(&postgres).await?;
    let client = connect(&postgres.url(shop::DATABASE)).await?;
    let providers = Providers::start()?;
    stage.say("  starting three simulated providers: push → sms → alimtalk, in this order of failover")?;
    let (instances, dashboard) = instances::start(&postgres, &client, redis.as_ref(), &providers, port).await?;
    let [first, second] = &instances;
    stage.say(&format!(
        "  starting two instances, pid {} and {} (heartbeat {}, dead after {}, lease {}: short, for the demo)",
        first.pid(),
        second.pid(),
        instances::HEARTBEAT,
        instances::HEARTBEAT_TTL,
        instances::LEASE,
    ))?;
    Ok(Theatre { instances, _dashboard: dashboard, dashboard_url, providers, _redis: redis, postgres })
}

/// The faults, at their times. Returns what the views showed just after the kill.
async fn act(
    instances: &mut [Instance; 2],
    providers: &Providers,
    client: &Client,
    sales: &Sales,
    span: Duration,
    stage: &mut Stage,
) -> Result<epilogue::Snapshot> {
    let began = Instant::now();
    watch_until(began + span.mul_f64(PUSH_FAILS_AT), providers, client, sales, stage).await?;
    providers.set_push_fails(true);
    stage.event("push fails: 503 to everything; retried, then the circuit opens and sms takes over")?;
    watch_until(began + span.mul_f64(PUSH_RECOVERS_AT), providers, client, sales, stage).await?;
    providers.set_push_fails(false);
    stage.event("push works again; the next probe closes the circuit")?;
    watch_until(began + span.mul_f64(KILL_AT), providers, client, sales, stage).await?;
    let victim = instances::busiest(instances, client).await?;
    victim.supervisor.kill()?;
    stage.event(&format!(
        "SIGKILL to instance {}: its calls under way have no known outcome; the other takes over after {}",
        victim.pid(),
        instances::HEARTBEAT_TTL
    ))?;
    watch_until(Instant::now() + VIEWS_AFTER, providers, client, sales, stage).await?;
    let snapshot = epilogue::Snapshot::take(client).await?;
    watch_until(began + span, providers, client, sales, stage).await?;
    Ok(snapshot)
}

async fn watch_until(
    until: Instant,
    providers: &Providers,
    client: &Client,
    sales: &Sales,
    stage: &mut Stage,
) -> Result<()> {
    while Instant::now() < until {
        let waiting = open(client).await?;
        stage.progress(sales.committed(), providers.delivered(), waiting)?;
        tokio::time::sleep(TICK.min(until.saturating_duration_since(Instant::now()))).await;
    }
    Ok(())
}

/// Waits until every notification has ended. One that does not is counted as lost by the verdict.
async fn until_all_ended(providers: &Providers, client: &Client, sales: &Sales, stage: &mut Stage) -> Result<()> {
    stage.event("the app is done; waiting until every notification has ended")?;
    let deadline = Instant::now() + END_TIMEOUT;
    loop {
        let waiting = open(client).await?;
        stage.progress(sales.committed(), providers.delivered(), waiting)?;
        if waiting == 0 {
            return stage.event("all have ended");
        }
        if Instant::now() > deadline {
            return stage.event(&format!("{} have not ended after {} s", count(waiting), END_TIMEOUT.as_secs()));
        }
        tokio::time::sleep(TICK).await;
    }
}

/// Notifications that have not ended.
async fn open(client: &Client) -> Result<i64> {
    let sql = "SELECT coalesce(sum(count), 0)::bigint FROM outboxd.queue_state WHERE status <> 'FAILED'";
    Ok(client.query_one(sql, &[]).await?.get(0))
}
