//! The instances under test, each with links of its own to the servers.

use std::io::{Seek as _, Write as _};

use anyhow::{Context, Result};
use outboxd_throwaway::instance::{self, Setup};
use outboxd_throwaway::{clock, proxy};
use proxy::Proxy;

use super::database::{DAEMON, NAME};
use super::plan::{CALL_TIMEOUT, LEASE, Queue};
use super::providers::{CHANNELS, Providers};

/// Exit statuses that a supervisor meets here: clean, killed, a dependency unavailable, the drain's deadline exceeded.
const EXPECTED_STATUSES: [i32; 4] = [0, 137, 69, 75];
/// What an instance's clock is off by, in its directory.
const CLOCK_FILE: &str = "clock";

/// An instance's ways to the servers, one proxy for each place.
#[derive(Debug, Default)]
pub(super) struct Links {
    pub(super) postgres: Vec<Proxy>,
    pub(super) redis: Vec<Proxy>,
}

impl Links {
    /// To these ports.
    pub(super) async fn open(postgres: &[u16], redis: &[u16]) -> Links {
        let mut links = Links::default();
        for port in postgres {
            links.postgres.push(Proxy::start(*port).await);
        }
        for port in redis {
            links.redis.push(Proxy::start(*port).await);
        }
        links
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
    pub(super) process: instance::Instance,
    /// Statuses it ended with that nobody expects.
    pub(super) crashes: Vec<i32>,
}

impl Instance {
    /// Prepares one, with a clock that can be moved if so wanted.
    pub(super) fn new(links: &Links, queue: Queue, providers: &Providers, has_clock: bool) -> Result<Instance> {
        let mut setup = setup(links, queue, providers);
        if has_clock {
            setup = setup.env("LD_PRELOAD", clock::library()).env("CLOCK_FILE", CLOCK_FILE);
        }
        let process = setup.prepare()?;
        std::fs::write(process.supervisor.path(CLOCK_FILE), 0_i64.to_ne_bytes())?;
        Ok(Instance { process, crashes: Vec::new() })
    }

    /// Once it has ended: remembers a status that nobody expects.
    pub(super) fn note_end(&mut self) -> Result<i32> {
        let status = self.process.supervisor.reap()?;
        if !EXPECTED_STATUSES.contains(&status) {
            self.crashes.push(status);
        }
        Ok(status)
    }

    /// Its wall clock is off by so much from now on.
    pub(super) fn set_clock(&self, off_by_s: i64) -> Result<()> {
        // Not truncated: it is mapped.
        let mut file = std::fs::OpenOptions::new().write(true).open(self.process.supervisor.path(CLOCK_FILE))?;
        file.rewind()?;
        file.write_all(&off_by_s.to_ne_bytes()).context("the clock cannot be set")
    }
}

/// As an operator would write it, but with short times, so that a dead instance is noticed within seconds. The last net
/// (`reconcile`) keeps its ten minutes: what only it would find counts as lost.
fn setup(links: &Links, queue: Queue, providers: &Providers) -> Setup {
    let (database_url, redis_url) = links.urls();
    let mut setup = Setup::as_shipped(&database_url);
    if let Some(url) = redis_url {
        setup = setup.redis_url(&url);
    }
    for channel in CHANNELS {
        setup = setup
            .set(&format!("channels.{channel}.url"), providers.url(channel))
            .set(&format!("channels.{channel}.timeout"), format!("{}s", CALL_TIMEOUT.as_secs()))
            .toml(&format!("channels.{channel}.circuit = {{ failures = 30, open_for = \"2s\" }}"));
    }
    setup.set("queue.kind", queue.name()).set("worker.lease", format!("{}s", LEASE.as_secs())).toml(&format!(
        "queue.consumer_ttl = \"3s\"\n\
         [worker]\nconcurrency = 32\nheartbeat = \"1s\"\nheartbeat_ttl = \"4s\"\ndrain = \"5s\"\n\
         [routes.default]\nchannels = {CHANNELS:?}\nmax_attempts = 50\nattempts_before_failover = 4\n\
         backoff = {{ base = \"250ms\", max = \"2s\", jitter = 0.2 }}\n"
    ))
}
