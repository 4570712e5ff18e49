//! A primary, its replica, and a Sentinel that promotes the replica when the primary is gone.

use std::time::Duration;

use outboxd_throwaway::supervisor::Supervisor;

use super::super::process::{self, free_port};
use super::super::wait;
use super::{RedisServer, SecureRedis};

/// The name that Sentinel knows the primary by.
pub const NAME: &str = "main";

/// How long a Sentinel may take to listen on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// One Sentinel is enough to decide.
#[derive(Debug)]
pub struct RedisPair {
    pub primary: RedisServer,
    pub replica: RedisServer,
    sentinel_port: u16,
    _sentinel: Supervisor,
}

impl RedisPair {
    /// Starts all three and waits until the replica is in step and Sentinel knows it.
    pub async fn start() -> RedisPair {
        let primary = RedisServer::start(&["--repl-diskless-sync-delay", "0"]);
        // A user of its own for the replica, so that a test can lock out just the replica.
        primary.run::<()>("ACL SETUSER replica on >hush ~* +psync +replconf +ping").await;
        let port = primary.port().to_string();
        let follow = ["--masteruser", "replica", "--masterauth", "hush", "--replicaof", "127.0.0.1", &port];
        let replica = RedisServer::start(&follow);
        wait::until("the replica is in step", async || in_step(&replica).await).await;
        let (sentinel, sentinel_port) = start_sentinel(&primary);
        let pair = RedisPair { primary, replica, sentinel_port, _sentinel: sentinel };
        wait::until("the sentinel knows the replica", async || {
            pair.ask_sentinel(&["SENTINEL", "replicas", NAME]).await.contains(&pair.replica.port().to_string())
        })
        .await;
        pair
    }

    /// How clients find whichever is primary.
    pub fn url(&self) -> String {
        format!("redis+sentinel://127.0.0.1:{}/{NAME}", self.sentinel_port)
    }

    /// From now on nothing reaches the replica.
    pub async fn stop_replication(&self) {
        self.primary.run::<()>("ACL SETUSER replica off").await;
        let _killed: i64 = self.primary.run("CLIENT KILL TYPE replica").await;
        wait::until("the replica is cut off", async || !in_step(&self.replica).await).await;
    }

    async fn ask_sentinel(&self, words: &[&str]) -> String {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}", self.sentinel_port)).expect("a good url");
        let Ok(mut connection) = client.get_multiplexed_async_connection().await else { return String::new() };
        let reply = redis::cmd(words[0]).arg(&words[1..]).query_async::<redis::Value>(&mut connection).await;
        reply.map(|value| format!("{value:?}")).unwrap_or_default()
    }
}

async fn in_step(replica: &RedisServer) -> bool {
    replica.run::<String>("INFO replication").await.contains("master_link_status:up")
}

/// A Sentinel that is reached over TLS with a password of its own and watches a [`SecureRedis`].
#[derive(Debug)]
pub struct SecureSentinel {
    pub port: u16,
    _supervisor: Supervisor,
}

impl SecureSentinel {
    /// Starts it; clients trust it by the CA of `secure`.
    pub fn start(secure: &SecureRedis, password: &str) -> SecureSentinel {
        let port = free_port();
        let config = format!(
            "port 0\ntls-port {port}\n{}\ntls-replication yes\nrequirepass {password}\n",
            secure.tls_settings().map(|[name, value]| format!("{name} {value}")).join("\n")
        );
        SecureSentinel { port, _supervisor: start(&config, port, secure.tls_port) }
    }
}

fn start_sentinel(primary: &RedisServer) -> (Supervisor, u16) {
    let port = free_port();
    (start(&format!("port {port}\n"), port, primary.port()), port)
}

/// Starts a Sentinel that watches the server at `watched` and waits until it listens at `port`.
fn start(config: &str, port: u16, watched: u16) -> Supervisor {
    let mut supervisor = process::supervisor("sentinel");
    let file = supervisor.path("sentinel.conf");
    let config = format!(
        "{config}bind 127.0.0.1\ndir {}\nsentinel monitor {NAME} 127.0.0.1 {watched} 1\n\
         sentinel down-after-milliseconds {NAME} 1000\nsentinel failover-timeout {NAME} 5000\n",
        supervisor.dir().display(),
    );
    std::fs::write(&file, config).expect("a writable directory");
    supervisor.start(&["redis-sentinel", &file], "TERM").expect("redis-sentinel starts");
    let started = std::time::Instant::now();
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(started.elapsed() < PATIENCE, "redis-sentinel does not listen:\n{}", supervisor.log_tail());
        std::thread::sleep(Duration::from_millis(10));
    }
    supervisor
}
