//! Real Redis servers: one shared by all tests (each with a prefix of its own), and private ones to break.

mod cluster;
mod secure;
mod sentinel;

pub use cluster::RedisCluster;
pub use secure::{SecureRedis, documented_user_rules};
pub use sentinel::{RedisPair, SecureSentinel};

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::process::{self, Leash, free_port, leash};

/// How long a server may take to answer its first PING on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// A private server. Ends, and its directory with it, when dropped.
#[derive(Debug)]
pub struct RedisServer {
    leash: Leash,
    port: u16,
    args: Vec<String>,
    url: String,
}

/// The server that tests share; they keep apart by [`unique_prefix`].
pub fn shared() -> &'static RedisServer {
    static SHARED: OnceLock<RedisServer> = OnceLock::new();
    SHARED.get_or_init(|| RedisServer::start(&["--save", ""]))
}

/// The server that is installed, or the one that `OUTBOXD_TEST_REDIS_SERVER` names: another version, or Valkey.
fn program() -> String {
    std::env::var("OUTBOXD_TEST_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned())
}

/// A key prefix that no other test uses.
pub fn unique_prefix() -> String {
    static LAST: AtomicU32 = AtomicU32::new(0);
    format!("t{}", LAST.fetch_add(1, Ordering::Relaxed))
}

impl RedisServer {
    /// A private server without persistence: what it holds is gone when it is restarted.
    pub fn forgetful() -> RedisServer {
        RedisServer::start(&["--save", ""])
    }

    /// A private server that writes every command to disk before it replies.
    pub fn durable() -> RedisServer {
        RedisServer::start(&["--save", "", "--appendonly", "yes", "--appendfsync", "always"])
    }

    /// A private server with further arguments of `redis-server`.
    pub fn start(args: &[&str]) -> RedisServer {
        let port = free_port();
        let mut all = vec!["--port".to_string(), port.to_string()];
        all.extend(args.iter().map(ToString::to_string));
        RedisServer::start_at(port, all, format!("redis://127.0.0.1:{port}"), leash("redis"))
    }

    /// `args` must name the port; `url` is how clients and the first PING get in.
    pub(super) fn start_at(port: u16, args: Vec<String>, url: String, leash: Leash) -> RedisServer {
        let mut server = RedisServer { leash, port, args, url };
        server.restart();
        server
    }

    /// Starts it again, on the same port and with whatever it left on disk, and waits until it answers.
    pub fn restart(&mut self) {
        self.launch();
        let started = Instant::now();
        while !self.answers() {
            let (tail, pid) = (self.leash.log_tail(), self.leash.pid());
            assert!(started.elapsed() < START_TIMEOUT, "redis-server (pid {pid:?}) does not answer:\n{tail}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Starts it again without waiting for it to answer.
    pub fn launch(&mut self) {
        let (program, dir) = (program(), self.leash.path(""));
        let mut command = vec![program.as_str()];
        command.extend(self.args.iter().map(String::as_str));
        command.extend(["--bind", "127.0.0.1", "--dir", &dir]);
        self.leash.start(&command, "TERM").expect("redis-server starts");
    }

    fn answers(&self) -> bool {
        let client = redis::Client::open(self.plain_url()).expect("a good url");
        let Ok(mut connection) = client.get_connection_with_timeout(Duration::from_millis(500)) else { return false };
        match redis::cmd("PING").query::<String>(&mut connection) {
            Ok(_) => true,
            // It answers; that this user may not PING is the test's business.
            Err(error) => error.code() == Some("NOPERM"),
        }
    }

    /// Ends it at once, as a crash or a power cut would.
    pub fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
        while self.leash.is_running() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// SIGSTOP, SIGCONT, …
    pub fn signal(&self, signal: Signal) {
        process::signal(&self.leash, signal);
    }

    /// How clients reach it.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// On loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A connection to look and meddle by hand.
    pub async fn connection(&self) -> redis::aio::MultiplexedConnection {
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(20)));
        let client = redis::Client::open(self.plain_url()).expect("a good url");
        loop {
            match client.get_multiplexed_async_connection_with_config(&config).await {
                Ok(connection) => return connection,
                // A Sentinel cuts off the clients of a server that it promotes.
                Err(error) if error.is_connection_dropped() => {}
                Err(error) => panic!("it accepts connections: {error}"),
            }
        }
    }

    /// Runs one command by hand, its words separated by single spaces (two make an empty word).
    pub async fn run<T: redis::FromRedisValue>(&self, command: &str) -> T {
        let mut words = command.split(' ');
        let mut cmd = redis::cmd(words.next().expect("a command"));
        words.for_each(|word| {
            cmd.arg(word);
        });
        match cmd.query_async(&mut self.connection().await).await {
            // Cut off by a Sentinel: as in `connection`, once more.
            Err(error) if error.is_connection_dropped() => cmd.query_async(&mut self.connection().await).await,
            answer => answer,
        }
        .unwrap_or_else(|error| panic!("{command}: {error}"))
    }

    /// Waits until `replica` has everything this server has written so far. (WAIT would only vouch for the
    /// connection it is sent on.)
    pub async fn replicated_to(&self, replica: &RedisServer) {
        let written = self.info("replication", "master_repl_offset").await;
        wait("the replica has it all", async || replica.info("replication", "slave_repl_offset").await >= written)
            .await;
    }

    /// Waits until this many clients block.
    pub async fn has_blocked_clients(&self, count: u64) {
        wait("clients block", async || self.info("clients", "blocked_clients").await >= Some(count)).await;
    }

    async fn info(&self, section: &str, name: &str) -> Option<u64> {
        let info: String = self.run(&format!("INFO {section}")).await;
        info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().parse().ok())
    }

    /// TLS servers also listen without, for the tests' own looks.
    fn plain_url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

/// Asks until it is so.
async fn wait(what: &str, ask: impl AsyncFn() -> bool) {
    let started = Instant::now();
    while !ask().await {
        assert!(started.elapsed() < START_TIMEOUT, "not within {START_TIMEOUT:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
