//! Instances of outboxd: the real binary, as a process that can be killed, stopped and drained.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

use super::prometheus::Scrape;
use super::{clock, http, process};

/// How an instance is started: its configuration file and what the environment adds.
#[derive(Debug, Clone)]
pub struct Setup {
    toml: String,
    database_url: String,
    redis_url: Option<String>,
    roles: Option<String>,
    failpoints: Option<String>,
    env: Vec<(String, String)>,
}

impl Setup {
    /// An instance on this database with the in-process queue, quick to notice and quick to retry.
    pub fn new(database_url: &str) -> Setup {
        let toml = "[worker]\nlease = \"8s\"\nheartbeat = \"500ms\"\nheartbeat_ttl = \"3s\"\n\
            [relay]\nrepublish_after = \"1s\"\n[queue]\nconsumer_ttl = \"1s\"\n"
            .to_owned();
        Setup {
            toml,
            database_url: database_url.to_owned(),
            redis_url: None,
            roles: None,
            failpoints: None,
            env: Vec::new(),
        }
    }

    /// Messages travel through this Redis under a prefix of their own.
    pub fn redis(mut self, url: &str, kind: &str, prefix: &str) -> Setup {
        self.redis_url = Some(url.to_owned());
        self.toml = self.toml.replace("[queue]\n", &format!("[queue]\nkind = \"{kind}\"\nprefix = \"{prefix}\"\n"));
        self
    }

    /// Everything goes to one channel, `webhook`, at this URL, retried every 100 ms.
    pub fn webhook(self, url: &str) -> Setup {
        self.toml(&format!(
            "[channels.webhook]\nurl = \"{url}\"\ntimeout = \"5s\"\ncircuit = {{ failures = 1000 }}\n\
             [routes.default]\nchannels = [\"webhook\"]\nbackoff = {{ base = \"100ms\", max = \"1s\", jitter = 0.0 }}\n"
        ))
    }

    /// More of the configuration file.
    pub fn toml(mut self, more: &str) -> Setup {
        self.toml.push_str(more);
        self
    }

    /// Replaces part of the configuration file.
    pub fn replace(mut self, from: &str, to: &str) -> Setup {
        assert!(self.toml.contains(from), "{from} is in the configuration");
        self.toml = self.toml.replace(from, to);
        self
    }

    /// Reaches the database by another way.
    pub fn database_url(mut self, url: &str) -> Setup {
        self.database_url = url.to_owned();
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

    /// One more variable of the environment.
    pub fn env(mut self, name: &str, value: &str) -> Setup {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Its wall clock is ahead of everybody else's by so many seconds, or behind.
    pub fn clock_off_by(self, seconds: i64) -> Setup {
        self.env("LD_PRELOAD", clock::library()).env("CLOCK_OFF_BY_S", &seconds.to_string())
    }

    /// Starts it; ready or not.
    pub fn spawn(&self) -> Instance {
        let dir = process::scratch_dir("instance");
        let config = dir.join("outboxd.toml");
        std::fs::write(&config, format!("http_addr = \"127.0.0.1:0\"\n{}", self.toml))
            .expect("the configuration is written");
        let log = dir.join("log");
        let file = std::fs::File::create(&log).expect("a log file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_outboxd"));
        command
            .arg("run")
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
    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id().expect("it runs")).unwrap())
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("it is ours to signal");
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
        let scrape = Scrape::parse(&http::get(self.http_addr().await, "/metrics", &[]).await.body);
        scrape.value(name, labels).unwrap_or(0.0)
    }

    pub async fn wait_for_log(&mut self, text: &str) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !self.log().contains(text) {
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("outboxd ended with {status}:\n{}", process::log_tail(&self.log));
            }
            assert!(Instant::now() < deadline, "no {text:?} in time:\n{}", process::log_tail(&self.log));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("an instance's last words:\n{}", process::log_tail(&self.log));
        }
        // The process itself is killed by kill_on_drop.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
