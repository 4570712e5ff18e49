//! The instances under test: the `outboxd` that lies beside this program, each with links of its own to the servers.

use std::io::{Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use outboxd_throwaway::supervisor::Supervisor;

use super::database::{DAEMON, NAME};
use super::plan::{CALL_TIMEOUT, LEASE, Queue};
use super::providers::{CHANNELS, Providers};
use super::proxy::{Proxy, Weather};

/// Exit statuses that a supervisor meets here: clean, killed, a dependency unavailable, the drain's deadline exceeded.
const EXPECTED_STATUSES: [i32; 4] = [0, 137, 69, 75];
const CLOCK_SOURCE: &str = include_str!("../clock.c");

/// The `outboxd` binary, and what is preloaded into it.
#[derive(Debug)]
pub(super) struct Program {
    path: String,
    clock: Option<(String, Supervisor)>,
}

impl Program {
    /// Cargo puts the binaries of one workspace beside each other.
    pub(super) fn find() -> Result<Program> {
        let path = std::env::current_exe().context("cannot find this program")?.with_file_name("outboxd");
        ensure!(path.is_file(), "there is no {}: bench/soak/run builds it", path.display());
        Ok(Program { path: path.display().to_string(), clock: None })
    }

    /// From now on instances have a clock that can be moved.
    pub(super) fn compile_clock(&mut self) -> Result<()> {
        let supervisor = Supervisor::new("clock", None)?;
        let (source, library) = (supervisor.path("clock.c"), supervisor.path("clock.so"));
        std::fs::write(&source, CLOCK_SOURCE)?;
        let compiled = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o", &library, &source]).status();
        ensure!(compiled.context("cc is missing: scripts/setup installs it")?.success(), "the clock does not compile");
        self.clock = Some((library, supervisor));
        Ok(())
    }

    /// Creates the schema.
    pub(super) fn migrate(&self, port: u16) -> Result<()> {
        let database_url = format!("database_url=postgres://postgres@127.0.0.1:{port}/{NAME}");
        // Not the configuration that this machine may have.
        let args = ["migrate", "--config", "/dev/null", "--set", &database_url];
        Supervisor::new("migrate", None)?.run(&[&[self.path.as_str()], &args[..]].concat()).context("the schema")
    }
}

/// An instance's ways to the servers, one proxy for each place.
#[derive(Debug)]
pub(super) struct Links {
    postgres: Vec<Proxy>,
    redis: Vec<Proxy>,
}

impl Links {
    /// To these ports.
    pub(super) async fn open(postgres: &[u16], redis: &[u16]) -> Result<Links> {
        let mut links = Links { postgres: Vec::new(), redis: Vec::new() };
        for port in postgres {
            links.postgres.push(Proxy::start(*port).await?);
        }
        for port in redis {
            links.redis.push(Proxy::start(*port).await?);
        }
        Ok(links)
    }

    /// What happens to everything between the instance and Postgres.
    pub(super) fn set_postgres(&self, weather: Weather) {
        self.postgres.iter().for_each(|proxy| proxy.set(weather));
    }

    /// What happens to everything between the instance and Redis.
    pub(super) fn set_redis(&self, weather: Weather) {
        self.redis.iter().for_each(|proxy| proxy.set(weather));
    }

    fn urls(&self) -> (String, Option<String>) {
        let hosts = |proxies: &[Proxy]| {
            let hosts: Vec<String> = proxies.iter().map(|proxy| format!("127.0.0.1:{}", proxy.port())).collect();
            hosts.join(",")
        };
        let attrs = if self.postgres.len() > 1 { "?target_session_attrs=read-write" } else { "" };
        let database = format!("postgres://{DAEMON}@{}/{NAME}{attrs}", hosts(&self.postgres));
        (database, (!self.redis.is_empty()).then(|| format!("redis://{}", hosts(&self.redis))))
    }
}

/// An instance, running or not.
#[derive(Debug)]
pub(super) struct Instance {
    supervisor: Supervisor,
    command: Vec<String>,
    clock: PathBuf,
    /// Statuses it ended with that nobody expects.
    pub(super) crashes: Vec<i32>,
}

impl Instance {
    /// Prepares one; it is started by [`Instance::start`].
    pub(super) fn new(program: &Program, links: &Links, queue: Queue, providers: &Providers) -> Result<Instance> {
        let supervisor = Supervisor::new("instance", None)?;
        let (config, clock) = (supervisor.path("outboxd.toml"), supervisor.path("clock"));
        std::fs::write(&config, toml(links, queue, providers))?;
        std::fs::write(&clock, 0_i64.to_ne_bytes())?;
        let mut command = vec!["env".to_owned(), "OUTBOXD_LOG=info".to_owned()];
        if let Some((library, _)) = &program.clock {
            command.extend([format!("LD_PRELOAD={library}"), format!("CLOCK_FILE={clock}")]);
        }
        command.extend([program.path.clone(), "run".into(), "--config".into(), config]);
        Ok(Instance { supervisor, command, clock: clock.into(), crashes: Vec::new() })
    }

    /// Starts it; ready or not.
    pub(super) fn start(&mut self) -> Result<()> {
        let command: Vec<&str> = self.command.iter().map(String::as_str).collect();
        self.supervisor.start(&command, "KILL").map(|_| ())
    }

    /// Sends a signal, by its name without SIG.
    pub(super) fn signal(&mut self, name: &str) -> Result<()> {
        self.supervisor.signal(name)
    }

    /// Whether it has not ended.
    pub(super) fn is_running(&self) -> bool {
        self.supervisor.is_running()
    }

    /// Once it has ended: remembers a status that nobody expects.
    pub(super) fn note_end(&mut self) -> Result<i32> {
        let status = self.supervisor.reap()?;
        if !EXPECTED_STATUSES.contains(&status) {
            self.crashes.push(status);
        }
        Ok(status)
    }

    /// Its wall clock is off by so much from now on.
    pub(super) fn set_clock(&self, off_by_s: i64) -> Result<()> {
        // Not truncated: it is mapped.
        let mut file = std::fs::OpenOptions::new().write(true).open(&self.clock)?;
        file.rewind()?;
        file.write_all(&off_by_s.to_ne_bytes()).context("the clock cannot be set")
    }

    /// All that its processes have logged.
    pub(super) fn log_path(&self) -> PathBuf {
        Path::new(&self.supervisor.path("log")).to_owned()
    }
}

/// As an operator would write it, but with short times, so that a dead instance is noticed within seconds. The last net
/// (`reconcile`) keeps its ten minutes: what only it would find counts as lost.
fn toml(links: &Links, queue: Queue, providers: &Providers) -> String {
    let (database_url, redis_url) = links.urls();
    let redis_url = redis_url.map_or(String::new(), |url| format!("redis_url = \"{url}\"\n"));
    let channel = |channel: &&str| {
        format!(
            "[channels.{channel}]\nurl = \"{}\"\ntimeout = \"{}s\"\ncircuit = {{ failures = 30, open_for = \"2s\" }}\n",
            providers.url(channel),
            CALL_TIMEOUT.as_secs()
        )
    };
    let channels: String = CHANNELS.iter().map(channel).collect();
    format!(
        "database_url = \"{database_url}\"\nhttp_addr = \"127.0.0.1:0\"\n{redis_url}\
         [queue]\nkind = \"{}\"\nconsumer_ttl = \"3s\"\n\
         [worker]\nconcurrency = 32\nheartbeat = \"1s\"\nheartbeat_ttl = \"4s\"\nlease = \"{}s\"\ndrain = \"5s\"\n\
         {channels}[routes.default]\nchannels = {CHANNELS:?}\nmax_attempts = 50\nattempts_before_failover = 4\n\
         backoff = {{ base = \"250ms\", max = \"2s\", jitter = 0.2 }}\n",
        queue.name(),
        LEASE.as_secs()
    )
}
