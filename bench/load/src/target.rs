//! Where to measure: servers of our own, or a database of our own on the configured server.
//!
//! Never the app's database: an instance with a measuring sink for a provider would take the app's notifications too.

use anyhow::{Context, Result};
use outboxd::cli::{Exit, Failure};
use outboxd::config::{self, Config, QueueKind, Sources};
use outboxd::store::connect;
use outboxd_throwaway::postgres::Postgres;
use outboxd_throwaway::redis::Redis;
use secrecy::{ExposeSecret, SecretString};
use tokio_postgres::Client;

use super::sink::Sink;

/// A database to measure in, and what must live as long.
#[derive(Debug)]
pub(super) struct Target {
    /// What the instance is told.
    pub(super) config: Config,
    /// The database to drop in the end, and how to reach its server.
    borrowed: Option<(String, SecretString)>,
    _servers: Option<(Postgres, Option<Redis>)>,
}

impl Target {
    /// Starts servers of its own, with the servers' default settings.
    pub(super) async fn throwaway(sources: &Sources, sink: &Sink, kind: QueueKind) -> Result<Target, Failure> {
        let postgres = Postgres::start("").await?;
        let redis = if kind == QueueKind::Memory { None } else { Redis::start()? };
        if kind != QueueKind::Memory && redis.is_none() {
            let error = anyhow::anyhow!("redis-server is not installed; install it, or measure with --queue memory");
            return Err(Failure::new(Exit::Unavailable, error));
        }
        postgres.create_database("bench").await?;
        // Neither the user's file nor environment: only what was given as flags.
        let mut sources =
            Sources { file: Some("/dev/null".into()), overrides: sources.overrides.clone(), ..Sources::default() };
        let mut set = |key: &str, value: String| sources.overrides.push((key.to_owned(), value));
        set("database_url", postgres.url("bench"));
        if let Some(redis) = &redis {
            set("redis_url", redis.url());
        }
        set("queue.kind", name(kind).to_owned());
        let config = configure(sources, sink)?;
        Ok(Target { config, borrowed: None, _servers: Some((postgres, redis)) })
    }

    /// Creates a database on the configured server.
    pub(super) async fn configured(sources: &Sources, sink: &Sink, kind: Option<QueueKind>) -> Result<Target, Failure> {
        let mut sources = sources.clone();
        let database = format!("outboxd_bench_{:08x}", rand::random::<u32>());
        // Other instances on this Redis must not meet ours.
        sources.overrides.push(("queue.prefix".into(), database.clone()));
        if let Some(kind) = kind {
            sources.overrides.push(("queue.kind".into(), name(kind).into()));
        }
        let mut config = configure(sources, sink)?;
        let server = config.database_url.clone();
        let (client, connection) = connect::connect(&server, config.database.connect_timeout).await?;
        let driver = tokio::spawn(connection);
        let created = client.batch_execute(&format!("CREATE DATABASE {database}")).await;
        driver.abort();
        created.context(
            "a database to measure in cannot be created; the login needs CREATEDB, or measure with --throwaway",
        )?;
        config.database_url = SecretString::from(with_database(server.expose_secret(), &database)?);
        Ok(Target { config, borrowed: Some((database, server)), _servers: None })
    }

    /// A session in it.
    pub(super) async fn connect(&self) -> Result<Client> {
        connect_to(&self.config.database_url, &self.config).await
    }

    /// Drops what was created on servers that are not ours.
    pub(super) async fn leave(self) -> Result<()> {
        let Some((database, server)) = &self.borrowed else { return Ok(()) };
        let client = connect_to(server, &self.config).await?;
        // The measuring sessions may not have ended yet.
        client.batch_execute(&format!("DROP DATABASE {database} WITH (FORCE)")).await?;
        if self.config.queue.kind != QueueKind::Memory {
            forget_keys(&self.config)
                .await
                .with_context(|| format!("Redis keeps keys that begin with {{{database}}}"))?;
        }
        Ok(())
    }
}

async fn connect_to(url: &SecretString, config: &Config) -> Result<Client> {
    let (client, connection) = connect::connect(url, config.database.connect_timeout).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// Everything as configured, but one channel, which is the sink.
fn configure(mut sources: Sources, sink: &Sink) -> Result<Config, Failure> {
    for (key, value) in [
        ("channels.bench.url", sink.url()),
        ("routes.default.channels", "bench".to_owned()),
        ("routes.default.max_attempts", "1".to_owned()),
        ("routes.default.attempts_before_failover", "1".to_owned()),
    ] {
        sources.overrides.push((key.to_owned(), value));
    }
    let mut config = config::load(&sources)?.config;
    config.channels.retain(|name, _| name == "bench");
    config.routes.retain(|name, _| name == "default");
    Ok(config)
}

fn name(kind: QueueKind) -> &'static str {
    match kind {
        QueueKind::Memory => "memory",
        QueueKind::List => "list",
        QueueKind::Stream => "stream",
    }
}

/// The same server, another database.
fn with_database(url: &str, database: &str) -> Result<String> {
    if !url.contains("://") {
        // In libpq's form the last one counts.
        return Ok(format!("{url} dbname={database}"));
    }
    let mut parsed = url::Url::parse(url).context("the database URL")?;
    parsed.set_path(database);
    Ok(parsed.to_string())
}

/// A plain server only; a cluster or Sentinel keeps a few small keys.
async fn forget_keys(config: &Config) -> Result<()> {
    let url = config.redis_url.as_ref().context("no redis_url")?;
    let mut connection = redis::Client::open(url.expose_secret())?.get_multiplexed_async_connection().await?;
    let pattern = format!("{{{}}}:*", config.queue.prefix);
    let mut cursor = 0_u64;
    loop {
        let (next, keys): (u64, Vec<String>) = redis::cmd("SCAN")
            .arg(cursor)
            .arg("MATCH")
            .arg(&pattern)
            .arg("COUNT")
            .arg(1000)
            .query_async(&mut connection)
            .await?;
        if !keys.is_empty() {
            redis::cmd("DEL").arg(keys).query_async::<u64>(&mut connection).await?;
        }
        if next == 0 {
            break;
        }
        cursor = next;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn another_database_keeps_the_rest_of_the_url() {
        let other = |url: &str| super::with_database(url, "b").unwrap();
        assert_eq!(other("postgres://u:p@h:1/a?sslmode=require"), "postgres://u:p@h:1/b?sslmode=require");
        assert_eq!(other("host=h user=u"), "host=h user=u dbname=b");
    }
}
