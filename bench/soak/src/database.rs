//! The app's Postgres: a primary and, if the schedule has a failover, a standby that follows it through a proxy.

use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use outboxd_throwaway::postgres::{Postgres, connect};
use outboxd_throwaway::proxy::{Fault, Proxy};
use outboxd_throwaway::until;
use tokio_postgres::Client;

/// The app's database.
pub(super) const NAME: &str = "shop";
/// Logins: what the instances run as, the app, the operator.
pub(super) const DAEMON: &str = "daemon";
pub(super) const APP: &str = "app";
pub(super) const OPERATOR: &str = "operator";
/// Processes are killed here, never the machine: what was written to the kernel is there.
const SETTINGS: &str = "max_connections = 200\nfsync = off\nshared_buffers = 64MB\nwal_keep_size = 256MB\n\
    log_line_prefix = '%m [%p] '\nlog_min_messages = info\n";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const CAUGHT_UP_TIMEOUT: Duration = Duration::from_secs(10);

const SCHEMA: &str = "\
    CREATE ROLE daemon LOGIN IN ROLE outboxd_service;
    CREATE ROLE app LOGIN IN ROLE outboxd_app;
    CREATE ROLE operator LOGIN IN ROLE outboxd_operator;
    CREATE SCHEMA app AUTHORIZATION app;
    SET ROLE app;
    -- What the app itself keeps of a transaction: the proof that it committed.
    CREATE TABLE app.orders (n bigint PRIMARY KEY);
    CREATE VIEW app.audience AS
        SELECT 'member-' || m AS recipient, jsonb_build_object('member', m) AS payload FROM generate_series(1, 20) m;
    GRANT USAGE ON SCHEMA app TO outboxd_audience;
    GRANT SELECT ON app.audience TO outboxd_audience;
    RESET ROLE;
    SELECT outboxd.create_schedule('minutely', '* * * * *', 'UTC', 'campaign', 'app.audience',
                                   lead => '20 s', spread => '10 s');";

/// The servers, in places that keep their ports.
#[derive(Debug)]
pub(super) struct Databases {
    servers: Vec<Postgres>,
    primary: usize,
    /// Between the standby and its primary.
    replication: Option<Proxy>,
}

impl Databases {
    /// Starts the primary; the standby comes with [`Databases::add_standby`], when there is something to copy.
    pub(super) async fn start() -> Result<Databases> {
        let server = Postgres::start(SETTINGS).await?;
        server.create_database(NAME).await?;
        Ok(Databases { servers: vec![server], primary: 0, replication: None })
    }

    /// Creates what the app has.
    pub(super) async fn create_app(&self) -> Result<()> {
        let admin = connect(&self.servers[self.primary].url(NAME)).await?;
        admin.batch_execute(SCHEMA).await.context("the app's schema")
    }

    /// Starts a standby.
    pub(super) async fn add_standby(&mut self) -> Result<()> {
        self.servers.push(Postgres::new(SETTINGS)?);
        self.follow(1).await
    }

    /// The ports of all, in the order of their places.
    pub(super) fn ports(&self) -> Vec<u16> {
        self.servers.iter().map(Postgres::port).collect()
    }

    /// The port of the one that takes writes.
    pub(super) fn primary_port(&self) -> u16 {
        self.servers[self.primary].port()
    }

    /// The server that takes writes.
    pub(super) fn primary(&mut self) -> &mut Postgres {
        &mut self.servers[self.primary]
    }

    /// Their logs, for debugging.
    pub(super) fn logs(&self) -> Vec<String> {
        self.servers.iter().map(Postgres::log).collect()
    }

    /// From now on the standby gets nothing; what is committed from here on is the tail it will lack. It has all of
    /// what was before the call.
    pub(super) async fn cut_replication(&self) -> Result<()> {
        let admin = connect(&self.servers[self.primary].url(NAME)).await?;
        let reached: String = admin.query_one("SELECT pg_current_wal_lsn()::text", &[]).await?.get(0);
        let caught_up = format!(
            "SELECT count(*) > 0 FROM pg_stat_replication WHERE state = 'streaming' AND flush_lsn >= '{reached}'"
        );
        let has_caught_up = || async { Ok(admin.query_one(&caught_up, &[]).await?.get(0)) };
        until("the standby catches up", CAUGHT_UP_TIMEOUT, has_caught_up).await?;
        if let Some(replication) = &self.replication {
            replication.set(Fault::BlackHole);
        }
        Ok(())
    }

    /// The standby becomes the primary.
    pub(super) async fn promote(&mut self) -> Result<()> {
        let standby = 1 - self.primary;
        self.servers[standby].promote(NAME).await.context("the standby cannot be promoted")?;
        self.primary = standby;
        Ok(())
    }

    /// What was the primary is ended and becomes the standby of the new one.
    pub(super) async fn rebuild_standby(&mut self) -> Result<()> {
        let old = 1 - self.primary;
        self.servers[old].signal_all(Signal::SIGKILL);
        self.servers[old].wait_until_ended().await?;
        self.follow(old).await
    }

    async fn follow(&mut self, standby: usize) -> Result<()> {
        let primary = self.servers[self.primary].port();
        let proxy = Proxy::start(primary).await;
        let server = &mut self.servers[standby];
        // Everything else goes on while the data is copied.
        tokio::task::block_in_place(|| server.copy_from(primary, proxy.port()))?;
        server.restart().await?;
        self.replication = Some(proxy);
        Ok(())
    }
}

/// A session that ends, like a killed app, when it is dropped.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) client: Client,
    _driven: tokio_util::task::AbortOnDropHandle<()>,
}

/// A session of this login with the server on this port.
pub(super) async fn open(login: &str, port: u16) -> Result<Session> {
    let url = format!("postgres://{login}@127.0.0.1:{port}/{NAME}");
    let connecting = tokio_postgres::connect(&url, tokio_postgres::NoTls);
    let (client, connection) = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await.context("no answer")??;
    let driven = tokio::spawn(async move {
        // The client is told of its end.
        let _ = connection.await;
    });
    Ok(Session { client, _driven: tokio_util::task::AbortOnDropHandle::new(driven) })
}
