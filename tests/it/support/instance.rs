//! Instances of outboxd: the real binary, as a process that can be killed, stopped and drained.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use outboxd_throwaway::log_tail;
use tokio::process::{Child, Command};

use super::prometheus::Scrape;
use super::{http, preload, process};

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

/// How an instance is started: its configuration file and what the environment adds.
#[derive(Debug, Clone)]
pub struct Setup {
    config: toml::Table,
    database_url: String,
    redis_url: Option<String>,
    roles: Option<String>,
    failpoints: Option<String>,
    files_max: Option<u32>,
    env: Vec<(String, String)>,
}

impl Setup {
    /// An instance on this database with the in-process queue, quick to notice and quick to retry.
    pub fn new(database_url: &str) -> Setup {
        let setup = Setup {
            config: toml::Table::new(),
            database_url: database_url.to_owned(),
            redis_url: None,
            roles: None,
            failpoints: None,
            files_max: None,
            env: Vec::new(),
        };
        setup
            .set("http_addr", "127.0.0.1:0")
            .set("worker.lease", "8s")
            .set("worker.heartbeat", "500ms")
            .set("worker.heartbeat_ttl", "3s")
            .set("relay.republish_after", "1s")
            .set("queue.consumer_ttl", "1s")
    }

    /// Messages travel through this Redis under a prefix of their own.
    pub fn redis(mut self, url: &str, kind: &str, prefix: &str) -> Setup {
        self.redis_url = Some(url.to_owned());
        self.set("queue.kind", kind).set("queue.prefix", prefix)
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

    /// Reaches the database by another way.
    pub fn database_url(mut self, url: &str) -> Setup {
        self.database_url = url.to_owned();
        self
    }

    /// Reaches Redis by another way.
    pub fn redis_url(mut self, url: &str) -> Setup {
        self.redis_url = Some(url.to_owned());
        self
    }

    /// Takes on only these roles.
    pub fn roles(mut self, roles: &str) -> Setup {
        self.roles = Some(roles.to_owned());
        self
    }

    /// Arms failpoints by name, e.g. `after_claim=abort`.
    pub fn failpoints(mut self, failpoints: &str) -> Setup {
        self.failpoints = Some(failpoints.to_owned());
        self
    }

    /// May have no more than so many files open, and cannot raise that.
    pub fn files_max(mut self, files: u32) -> Setup {
        self.files_max = Some(files);
        self
    }

    /// One more variable of the environment.
    pub fn env(mut self, name: &str, value: &str) -> Setup {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Its wall clock is ahead of everybody else's by so many seconds, or behind.
    pub fn clock_off_by(self, seconds: i64) -> Setup {
        self.env("LD_PRELOAD", preload::clock()).env("CLOCK_OFF_BY_S", &seconds.to_string())
    }

    /// Starts it; ready or not.
    pub fn spawn(&self) -> Instance {
        let dir = process::scratch_dir("instance");
        let config = dir.join("outboxd.toml");
        std::fs::write(&config, self.config.to_string()).expect("the configuration is written");
        let log = dir.join("log");
        let file = std::fs::File::create(&log).expect("a log file");
        // Another build of it, for figures: OUTBOXD_BIN=target/release/outboxd.
        let program = std::env::var_os("OUTBOXD_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_outboxd").into());
        let mut command = match self.files_max {
            Some(files) => {
                let mut shell = Command::new("/bin/sh");
                shell.args(["-c", &format!("ulimit -n {files} && exec \"$0\" run")]).arg(program);
                shell
            }
            None => {
                let mut command = Command::new(program);
                command.arg("run");
                command
            }
        };
        command
            .env_clear()
            .env("OUTBOXD_CONFIG", &config)
            .env("DATABASE_URL", &self.database_url)
            .env("OUTBOXD_LOG", "info")
            .envs(self.env.iter().cloned())
            .stderr(file)
            .stdin(std::process::Stdio::null())
            .kill_on_drop(true);
        for (name, value) in
            [("REDIS_URL", &self.redis_url), ("OUTBOXD_ROLE", &self.roles), ("FAILPOINTS", &self.failpoints)]
        {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        Instance { child: command.spawn().expect("outboxd starts"), dir, log }
    }

    /// Starts it and waits until it works.
    pub async fn start(&self) -> Instance {
        let mut instance = self.spawn();
        instance.wait_for_log("\"started\"").await;
        instance
    }
}

/// A running instance; killed when dropped.
#[derive(Debug)]
pub struct Instance {
    child: Child,
    dir: PathBuf,
    log: PathBuf,
}

impl Instance {
    /// Its process.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id().expect("it runs")).unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).expect("it is ours to signal");
    }

    /// SIGKILL, and gone.
    pub async fn kill(mut self) {
        self.child.kill().await.expect("it dies");
    }

    /// SIGTERM; its exit code.
    pub async fn drain(mut self) -> i32 {
        self.signal(Signal::SIGTERM);
        self.exit_code().await
    }

    /// Waits until it ends by itself. A signal counts as 128 + its number.
    pub async fn exit_code(&mut self) -> i32 {
        let limit = Duration::from_secs(60);
        let status = tokio::time::timeout(limit, self.child.wait()).await.expect("it ends in time").expect("a status");
        status.code().unwrap_or_else(|| 128 + std::os::unix::process::ExitStatusExt::signal(&status).unwrap_or(0))
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it is ours to ask").is_some()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
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

    pub async fn wait_for_log(&mut self, text: &str) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !self.log().contains(text) {
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("outboxd ended with {status}:\n{}", log_tail(&self.log));
            }
            assert!(Instant::now() < deadline, "no {text:?} in time:\n{}", log_tail(&self.log));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("an instance's last words:\n{}", log_tail(&self.log));
        }
        // The process itself is killed by kill_on_drop.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
