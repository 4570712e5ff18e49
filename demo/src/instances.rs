//! The daemon under demonstration: the `outboxd` that lies beside this program, two of it in processes of their own.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use outboxd_throwaway::free_port;
use outboxd_throwaway::postgres::{Postgres, connect};
use outboxd_throwaway::redis::Redis;
use outboxd_throwaway::supervisor::Supervisor;
use tokio_postgres::Client;

use super::providers::{CHANNELS, Providers};
use super::shop;

/// Where they write down that they are alive, and for how long that counts.
pub(super) const HEARTBEAT: &str = "1s";
pub(super) const HEARTBEAT_TTL: &str = "4s";
pub(super) const LEASE: &str = "5s";
/// What the two do; the dashboard is shown by one that cannot be killed in the middle.
const WORK_ROLES: &str = "producer,relay,worker,scheduler";
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// The `outboxd` binary.
#[derive(Debug)]
pub(super) struct Program(String);

impl Program {
    /// Cargo puts the binaries of one workspace beside each other.
    pub(super) fn find() -> Result<Program> {
        let path = std::env::current_exe().context("cannot find this program")?.with_file_name("outboxd");
        ensure!(path.is_file(), "there is no {}: scripts/demo builds it", path.display());
        Ok(Program(path.display().to_string()))
    }

    /// Creates the schema.
    pub(super) fn migrate(&self, postgres: &Postgres) -> Result<()> {
        let database_url = format!("database_url={}", postgres.url(shop::DATABASE));
        // Not the configuration that this machine may have.
        let args = ["migrate", "--config", "/dev/null", "--set", &database_url];
        Supervisor::new("migrate", None)?.run(&[&[self.0.as_str()], &args[..]].concat()).context("the schema")
    }

    /// On a port that was free a moment ago, unless told which.
    fn launch(&self, config: &str, port: u16, roles: &str) -> Result<Instance> {
        let mut supervisor = Supervisor::new("instance", None)?;
        let file = supervisor.path("outboxd.toml");
        std::fs::write(&file, format!("http_addr = \"127.0.0.1:{port}\"\n{config}"))?;
        // Its rows are thrown away with the database, so it need not drain.
        let pid = supervisor.start(&[&self.0, "run", "--config", &file, "--role", roles], "KILL")?;
        Ok(Instance { supervisor, pid })
    }
}

/// A running instance.
#[derive(Debug)]
pub(super) struct Instance {
    supervisor: Supervisor,
    pid: u32,
}

impl Instance {
    /// Its process id, as in the view `workers`.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// SIGKILL.
    pub(super) fn kill(&mut self) -> Result<()> {
        self.supervisor.kill()
    }
}

/// Starts two that work and one that only shows the dashboard, on this port, and waits until the two have a heartbeat.
pub(super) async fn start(
    program: &Program,
    postgres: &Postgres,
    redis: Option<&Redis>,
    providers: &Providers,
    dashboard_port: u16,
) -> Result<([Instance; 2], Instance)> {
    let config = config(postgres, redis, providers);
    let instances =
        [program.launch(&config, free_port()?, WORK_ROLES)?, program.launch(&config, free_port()?, WORK_ROLES)?];
    let dashboard = program.launch(&config, dashboard_port, "api")?;
    let client = connect(&postgres.url(shop::DATABASE)).await?;
    let began = Instant::now();
    let alive = "SELECT count(*) FROM outboxd.workers WHERE state = 'alive' AND 'worker' = ANY (roles)";
    while client.query_one(alive, &[]).await?.get::<_, i64>(0) < 2 {
        if began.elapsed() > READY_TIMEOUT {
            let logs: Vec<String> = instances.iter().map(|instance| instance.supervisor.log_tail()).collect();
            bail!("the instances do not start:\n{}", logs.join("\n"));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok((instances, dashboard))
}

/// The one with the most calls under way: to kill it leaves the most outcomes unknown.
pub(super) async fn busiest<'a>(instances: &'a mut [Instance; 2], client: &Client) -> Result<&'a mut Instance> {
    let most = "SELECT w.pid FROM outboxd.notifications n JOIN outboxd.workers w USING (worker)
         WHERE n.status = 'PROCESSING' GROUP BY 1 ORDER BY count(*) DESC LIMIT 1";
    let deadline = Instant::now() + BUSY_TIMEOUT;
    let pid = loop {
        let row = client.query_opt(most, &[]).await?;
        if row.is_some() || Instant::now() > deadline {
            break row.map(|row| row.get::<_, i32>(0));
        }
    };
    let busy = instances.iter().position(|instance| i32::try_from(instance.pid).ok() == pid);
    Ok(&mut instances[busy.unwrap_or(0)])
}

/// As an operator would write it, but with short times, so that a dead instance is noticed within seconds.
fn config(postgres: &Postgres, redis: Option<&Redis>, providers: &Providers) -> String {
    let redis_url = redis.map_or(String::new(), |redis| format!("redis_url = \"{}\"\n", redis.url()));
    let channels: String = CHANNELS
        .iter()
        .map(|channel| {
            let url = providers.url(channel);
            format!(
                "[channels.{channel}]\nurl = \"{url}\"\ntimeout = \"2s\"\n\
                 circuit = {{ failures = 20, open_for = \"1s\" }}\n"
            )
        })
        .collect();
    format!(
        "database_url = \"{}\"\n{redis_url}\
         [queue]\nconsumer_ttl = \"3s\"\n\
         [worker]\nheartbeat = \"{HEARTBEAT}\"\nheartbeat_ttl = \"{HEARTBEAT_TTL}\"\nlease = \"{LEASE}\"\n\
         {channels}\
         [routes.default]\nchannels = {CHANNELS:?}\nattempts_before_failover = 2\n\
         backoff = {{ base = \"250ms\", max = \"2s\", jitter = 0.2 }}\n",
        postgres.url(shop::DATABASE)
    )
}
