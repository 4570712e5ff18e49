//! The Redis that carries: a primary without persistence and, if the schedule has a failover, a replica.

use std::time::Duration;

use anyhow::{Context, Result};
use outboxd_throwaway::redis::Redis;
use outboxd_throwaway::until;
use redis::aio::MultiplexedConnection;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const IN_STEP_TIMEOUT: Duration = Duration::from_secs(10);

/// The servers, in places that keep their ports.
#[derive(Debug)]
pub(super) struct Carriers {
    servers: Vec<Redis>,
    primary: usize,
}

impl Carriers {
    /// Starts a primary, and a replica if asked for.
    pub(super) async fn start(with_replica: bool) -> Result<Carriers> {
        let start = || Redis::start()?.context("redis-server is not installed: scripts/setup does it");
        let mut carriers = Carriers { servers: vec![start()?], primary: 0 };
        if with_replica {
            carriers.servers.push(start()?);
            carriers.follow(1).await?;
        }
        Ok(carriers)
    }

    /// The ports of all, in the order of their places.
    pub(super) fn ports(&self) -> Vec<u16> {
        self.servers.iter().map(Redis::port).collect()
    }

    /// The port of the one that takes writes.
    pub(super) fn primary_port(&self) -> u16 {
        self.servers[self.primary].port()
    }

    /// Ends the primary at once.
    pub(super) fn kill(&mut self) -> Result<()> {
        self.servers[self.primary].kill()
    }

    /// It is back, and has forgotten everything.
    pub(super) fn restart(&mut self) -> Result<()> {
        self.servers[self.primary].set_args(&[]);
        self.servers[self.primary].restart()
    }

    /// FLUSHALL.
    pub(super) async fn flush(&self) -> Result<()> {
        let mut connection = connect(self.primary_port()).await?;
        redis::cmd("FLUSHALL").query_async::<()>(&mut connection).await.context("FLUSHALL")
    }

    /// After the primary was killed: the replica takes over.
    pub(super) async fn promote(&mut self) -> Result<()> {
        let replica = 1 - self.primary;
        let mut connection = connect(self.servers[replica].port()).await?;
        redis::cmd("REPLICAOF").arg("NO").arg("ONE").query_async::<()>(&mut connection).await.context("REPLICAOF")?;
        self.primary = replica;
        Ok(())
    }

    /// What was the primary is back as the replica, and has what the new one has.
    pub(super) async fn rebuild_replica(&mut self) -> Result<()> {
        let (old, port) = (1 - self.primary, self.primary_port().to_string());
        self.servers[old].set_args(&["--replicaof", "127.0.0.1", &port]);
        self.servers[old].restart()?;
        self.in_step(old).await
    }

    async fn follow(&mut self, replica: usize) -> Result<()> {
        let (mut connection, port) = (connect(self.servers[replica].port()).await?, self.primary_port());
        redis::cmd("REPLICAOF").arg("127.0.0.1").arg(port).query_async::<()>(&mut connection).await?;
        self.in_step(replica).await
    }

    async fn in_step(&self, replica: usize) -> Result<()> {
        let connection = connect(self.servers[replica].port()).await?;
        let is_in_step = || async {
            let info: String = redis::cmd("INFO").arg("replication").query_async(&mut connection.clone()).await?;
            Ok(info.contains("master_link_status:up"))
        };
        until("the Redis replica follows", IN_STEP_TIMEOUT, is_in_step).await
    }
}

/// A connection to the server on this port.
pub(super) async fn connect(port: u16) -> Result<MultiplexedConnection> {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}"))?;
    let config = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_TIMEOUT))
        .set_response_timeout(Some(CONNECT_TIMEOUT));
    client.get_multiplexed_async_connection_with_config(&config).await.context("Redis does not answer")
}
