//! Instances of outboxd: the real binary, as a process that can be killed, stopped, drained and started again.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio_postgres::Client;

use super::prometheus::Scrape;
use super::supervisor::Supervisor;
use super::{clock, http, until};

const READY_TIMEOUT: Duration = Duration::from_secs(60);
const LOG_TIMEOUT: Duration = Duration::from_secs(30);
const END_TIMEOUT: Duration = Duration::from_secs(60);

/// The `outboxd` binary, which cargo puts beside the programs of its workspace and above their tests. Another build of it,
/// for figures: `OUTBOXD_BIN=target/release/outboxd`.
pub fn program() -> Result<String> {
    let own = std::env::current_exe().context("cannot find this program")?;
    let named = std::env::var_os("OUTBOXD_BIN").map(PathBuf::from);
    let beside = own.ancestors().skip(1).take(2).map(|dir| dir.join("outboxd"));
    let found = named.into_iter().chain(beside).find(|path| path.is_file());
    found.map(|path| path.display().to_string()).with_context(|| format!("outboxd was not built beside {own:?}"))
}

/// Creates the schema.
pub fn migrate(database_url: &str) -> Result<()> {
    let (program, database_url) = (program()?, format!("database_url={database_url}"));
    // Not the configuration that this machine may have.
    let command = [program.as_str(), "migrate", "--config", "/dev/null", "--set", &database_url];
    Supervisor::new("migrate", None)?.run(&command).context("the schema")
}

/// Waits until so many are alive that have calls to make; an error holds the last words of those given.
pub async fn until_alive(client: &Client, wanted: usize, instances: &[&Instance]) -> Result<()> {
    let alive = "SELECT count(*) FROM outboxd.workers WHERE state = 'alive' AND 'worker' = ANY (roles)";
    let wanted = i64::try_from(wanted)?;
    let are_alive = || async { Ok(client.query_one(alive, &[]).await?.get::<_, i64>(0) >= wanted) };
    until("the instances start", READY_TIMEOUT, are_alive)
        .await
        .with_context(|| instances.iter().map(|instance| instance.supervisor.log_tail()).collect::<Vec<_>>().join("\n"))
}

/// Adds what `more` says to `config`.
fn merge(config: &mut toml::Table, more: toml::Table) {
    for (key, value) in more {
        match (config.get_mut(&key).and_then(toml::Value::as_table_mut), value) {
            (Some(table), toml::Value::Table(more)) => merge(table, more),
            (_, value) => {
                config.insert(key, value);
            }
        }
    }
}

/// How an instance is started: its configuration file and its environment, which has nothing of ours.
#[derive(Debug, Clone)]
pub struct Setup {
    config: toml::Table,
    env: Vec<(String, String)>,
    files_max: Option<u32>,
}

impl Setup {
    /// An instance on this database with the in-process queue, and all else as it is shipped.
    pub fn as_shipped(database_url: &str) -> Setup {
        let setup = Setup { config: toml::Table::new(), env: Vec::new(), files_max: None };
        setup.set("http_addr", "127.0.0.1:0").env("OUTBOXD_LOG", "info").database_url(database_url)
    }

    /// The same, quick to notice and quick to retry.
    pub fn new(database_url: &str) -> Setup {
        Setup::as_shipped(database_url)
            .set("worker.lease", "8s")
            .set("worker.heartbeat", "500ms")
            .set("worker.heartbeat_ttl", "3s")
            .set("relay.republish_after", "1s")
            .set("queue.consumer_ttl", "1s")
    }

    /// Messages travel through this Redis under a prefix of their own.
    pub fn redis(self, url: &str, kind: &str, prefix: &str) -> Setup {
        self.redis_url(url).set("queue.kind", kind).set("queue.prefix", prefix)
    }

    /// Everything goes to one channel, `webhook`, at this URL, retried three times within a second.
    pub fn webhook(self, url: &str) -> Setup {
        self.set("channels.webhook.url", url)
            .set("channels.webhook.timeout", "5s")
            .set("channels.webhook.circuit.failures", 1000)
            .set("routes.default.channels", vec!["webhook"])
            .set("routes.default.max_attempts", 4)
            .set("routes.default.backoff.base", "100ms")
            .set("routes.default.backoff.max", "1s")
            .set("routes.default.backoff.jitter", 0.0)
    }

    /// The URL comes from the row, and may be on loopback as everything here is.
    pub fn url_from_the_row(self) -> Setup {
        self.set("channels.webhook.url", "{{ recipient }}").set("channels.webhook.allow_private", true)
    }

    /// One key of the configuration file, by its path: `worker.concurrency`.
    pub fn set(mut self, path: &str, value: impl Into<toml::Value>) -> Setup {
        let (tables, key) = path.rsplit_once('.').map_or((None, path), |(tables, key)| (Some(tables), key));
        let table = tables.into_iter().flat_map(|tables| tables.split('.')).fold(&mut self.config, |table, name| {
            let inner = table.entry(name).or_insert_with(|| toml::Table::new().into());
            inner.as_table_mut().unwrap_or_else(|| panic!("{name} of {path} is a table"))
        });
        table.insert(key.to_owned(), value.into());
        self
    }

    /// The configuration file without this section.
    pub fn without(mut self, section: &str) -> Setup {
        self.config.remove(section).unwrap_or_else(|| panic!("there is no {section}"));
        self
    }

    /// More of the configuration file.
    pub fn toml(mut self, more: &str) -> Setup {
        merge(&mut self.config, more.parse().expect("TOML"));
        self
    }

    /// One more variable of the environment, or another value of it.
    pub fn env(mut self, name: &str, value: &str) -> Setup {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Reaches the database by another way.
    pub fn database_url(self, url: &str) -> Setup {
        self.env("DATABASE_URL", url)
    }

    /// Reaches Redis by another way.
    pub fn redis_url(self, url: &str) -> Setup {
        self.env("REDIS_URL", url)
    }

    /// Takes on only these roles.
    pub fn roles(self, roles: &str) -> Setup {
        self.env("OUTBOXD_ROLE", roles)
    }

    /// Arms failpoints by name, e.g. `after_claim=abort`.
    pub fn failpoints(self, failpoints: &str) -> Setup {
        self.env("FAILPOINTS", failpoints)
    }

    /// Its wall clock is ahead of everybody else's by so many seconds, or behind.
    pub fn clock_off_by(self, seconds: i64) -> Setup {
        self.env("LD_PRELOAD", clock::library()).env("CLOCK_OFF_BY_S", &seconds.to_string())
    }

    /// May have no more than so many files open, and cannot raise that.
    pub fn files_max(mut self, files: u32) -> Setup {
        self.files_max = Some(files);
        self
    }

    /// One that is not started yet: [`Instance::launch`] does that, also again.
    pub fn prepare(&self) -> Result<Instance> {
        let supervisor = Supervisor::new("instance", None)?;
        let config = supervisor.path("outboxd.toml");
        std::fs::write(&config, self.config.to_string()).context("the configuration")?;
        let env = self.env.iter().map(|(name, value)| format!("{name}={value}"));
        let mut command: Vec<String> = ["/usr/bin/env".to_owned(), "-i".to_owned()].into_iter().chain(env).collect();
        if let Some(files) = self.files_max {
            command.extend(["/bin/sh".into(), "-c".into(), format!("ulimit -n {files} && exec \"$0\" \"$@\"")]);
        }
        command.extend([program()?, "run".into(), "--config".into(), config]);
        Ok(Instance { supervisor, command })
    }

    /// Starts it; ready or not.
    pub fn spawn(&self) -> Instance {
        let mut instance = self.prepare().expect("a directory for an instance");
        instance.launch().expect("outboxd starts");
        instance
    }

    /// Starts it and waits until it works.
    pub async fn start(&self) -> Instance {
        let mut instance = self.spawn();
        instance.wait_for_log("\"started\"").await;
        instance
    }
}

/// An instance, running or not; killed when dropped.
#[derive(Debug)]
pub struct Instance {
    /// Its process and its directory.
    pub supervisor: Supervisor,
    command: Vec<String>,
}

impl Instance {
    /// Starts it, ready or not; it must not run.
    pub fn launch(&mut self) -> Result<()> {
        let command: Vec<&str> = self.command.iter().map(String::as_str).collect();
        // Its rows are thrown away with the database, so it need not drain.
        self.supervisor.start(&command, "KILL").map(|_| ())
    }

    /// Its process.
    pub fn pid(&self) -> i32 {
        self.supervisor.pid().and_then(|pid| i32::try_from(pid).ok()).expect("it was started")
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).expect("it is ours to signal");
    }

    /// SIGKILL, and gone.
    pub async fn kill(mut self) {
        self.signal(Signal::SIGKILL);
        self.exit_code().await;
    }

    /// SIGTERM; its exit code.
    pub async fn drain(mut self) -> i32 {
        self.signal(Signal::SIGTERM);
        self.exit_code().await
    }

    /// Waits until it ends by itself. A signal counts as 128 + its number.
    pub async fn exit_code(&mut self) -> i32 {
        let ended = until("it ends", END_TIMEOUT, || async { Ok(!self.supervisor.is_running()) }).await;
        ended.and_then(|()| self.supervisor.reap()).expect("it ends in time")
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        !self.supervisor.is_running()
    }

    /// All that its processes have logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.supervisor.dir().join("log")).unwrap_or_default()
    }

    pub async fn wait_for_log(&mut self, text: &str) {
        let is_logged = || async {
            match self.log().contains(text) {
                false if self.has_ended() => bail!("outboxd ended"),
                is_logged => Ok(is_logged),
            }
        };
        let logged = until(&format!("{text:?} in the log"), LOG_TIMEOUT, is_logged).await;
        logged.unwrap_or_else(|error| panic!("{error:#}:\n{}", self.supervisor.log_tail()));
    }

    /// Where its HTTP endpoints listen; waits until they do.
    pub async fn http_addr(&mut self) -> SocketAddr {
        self.wait_for_log("\"listening\"").await;
        let log = self.log();
        let line = log.lines().find(|line| line.contains("\"listening\"")).expect("it says so");
        let entry: serde_json::Value = serde_json::from_str(line).expect("JSON lines");
        entry["addr"].as_str().expect("the address").parse().expect("an address")
    }

    /// One of its metrics as it is now; 0 if there is none of that name and those labels.
    pub async fn metric(&mut self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.metric_with(name, labels, &[]).await
    }

    /// The same, asked for with these header lines.
    pub async fn metric_with(&mut self, name: &str, labels: &[(&str, &str)], headers: &[&str]) -> f64 {
        let scrape = Scrape::parse(&http::get(self.http_addr().await, "/metrics", headers).await.body);
        scrape.value(name, labels).unwrap_or(0.0)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("an instance's last words:\n{}", self.supervisor.log_tail());
        }
    }
}
