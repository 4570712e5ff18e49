//! Real Redis servers: one shared by all tests (each with a prefix of its own), and private ones to break.

mod cluster;
mod secure;
mod sentinel;

pub use cluster::RedisCluster;
pub use secure::{SecureRedis, documented_user_rules};
pub use sentinel::{RedisPair, SecureSentinel};

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;
use outboxd_throwaway::redis::Redis;

use super::{process, wait};

/// A private server. Ends, and its directory with it, when dropped.
#[derive(Debug)]
pub struct RedisServer {
    redis: Redis,
    url: String,
}

/// The server that tests share; they keep apart by [`unique_prefix`].
pub fn shared() -> &'static RedisServer {
    static SHARED: OnceLock<RedisServer> = OnceLock::new();
    SHARED.get_or_init(RedisServer::forgetful)
}

/// A key prefix that no other test uses.
pub fn unique_prefix() -> String {
    static LAST: AtomicU32 = AtomicU32::new(0);
    format!("t{}", LAST.fetch_add(1, Ordering::Relaxed))
}

impl RedisServer {
    /// A private server without persistence: what it holds is gone when it is restarted.
    pub fn forgetful() -> RedisServer {
        RedisServer::start(&[])
    }

    /// A private server that writes every command to disk before it replies.
    pub fn durable() -> RedisServer {
        RedisServer::start(&["--appendonly", "yes", "--appendfsync", "always"])
    }

    /// A private server with further arguments of `redis-server`.
    pub fn start(args: &[&str]) -> RedisServer {
        let redis = not_started();
        let url = redis.url();
        RedisServer::start_at(redis, args, url)
    }

    /// `url` is how clients get in.
    fn start_at(mut redis: Redis, args: &[&str], url: String) -> RedisServer {
        redis.set_args(args);
        redis.restart().expect("Redis starts");
        RedisServer { redis, url }
    }

    /// Starts it again, on the same port and with whatever it left on disk, and waits until it answers.
    pub fn restart(&mut self) {
        self.redis.restart().expect("Redis starts");
    }

    /// Starts it again without waiting for it to answer.
    pub fn launch(&mut self) {
        self.redis.launch().expect("Redis starts");
    }

    /// Ends it at once, as a crash or a power cut would.
    pub fn kill(&mut self) {
        self.redis.kill().expect("it runs");
    }

    /// SIGSTOP, SIGCONT, …
    pub fn signal(&self, signal: Signal) {
        process::signal(self.redis.pid().expect("it was started"), signal).expect("it runs");
    }

    /// How clients reach it.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// On loopback.
    pub fn port(&self) -> u16 {
        self.redis.port()
    }

    /// A connection to look and meddle by hand. TLS servers also listen without, for this.
    pub async fn connection(&self) -> redis::aio::MultiplexedConnection {
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(20)));
        let client = redis::Client::open(self.redis.url()).expect("a good url");
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
        wait::until("the replica has it all", async || {
            replica.info("replication", "slave_repl_offset").await >= written
        })
        .await;
    }

    /// Waits until this many clients block.
    pub async fn has_blocked_clients(&self, count: u64) {
        wait::until("clients block", async || self.info("clients", "blocked_clients").await >= Some(count)).await;
    }

    /// How often it has answered with an error of this kind.
    pub async fn errors(&self, kind: &str) -> u64 {
        self.info("errorstats", &format!("errorstat_{kind}:count")).await.unwrap_or(0)
    }

    async fn info(&self, section: &str, name: &str) -> Option<u64> {
        let info: String = self.run(&format!("INFO {section}")).await;
        info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix([':', '='])?.trim().parse().ok())
    }
}

/// A server with a directory and a port, but no arguments yet.
fn not_started() -> Redis {
    Redis::new().expect("a directory for Redis").expect("redis-server is installed")
}
