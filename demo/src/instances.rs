//! The daemon under demonstration: two of it in processes of their own, and a third that shows the dashboard.

use std::time::{Duration, Instant};

use anyhow::Result;
use outboxd_throwaway::instance::{Instance, Setup, until_alive};
use outboxd_throwaway::postgres::Postgres;
use outboxd_throwaway::redis::Redis;
use tokio_postgres::Client;

use super::providers::{CHANNELS, Providers};
use super::shop;

/// Where they write down that they are alive, and for how long that counts.
pub(super) const HEARTBEAT: &str = "1s";
pub(super) const HEARTBEAT_TTL: &str = "4s";
pub(super) const LEASE: &str = "5s";
/// What the two do; the dashboard is shown by one that cannot be killed in the middle.
const WORK_ROLES: &str = "producer,relay,worker,scheduler";
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);

/// Starts two that work and one that only shows the dashboard, on this port, and waits until the two have a heartbeat.
pub(super) async fn start(
    postgres: &Postgres,
    client: &Client,
    redis: Option<&Redis>,
    providers: &Providers,
    dashboard_port: u16,
) -> Result<([Instance; 2], Instance)> {
    let setup = setup(postgres, redis, providers);
    let launch = |setup: &Setup| {
        let mut instance = setup.prepare()?;
        instance.launch().map(|()| instance)
    };
    let working = setup.clone().roles(WORK_ROLES);
    let instances = [launch(&working)?, launch(&working)?];
    let dashboard = launch(&setup.roles("api").set("http_addr", format!("127.0.0.1:{dashboard_port}")))?;
    until_alive(client, instances.len(), &instances.each_ref()).await?;
    Ok((instances, dashboard))
}

/// The one with the most calls under way: to kill it leaves the most outcomes unknown.
pub(super) async fn busiest<'a>(instances: &'a mut [Instance; 2], client: &Client) -> Result<&'a mut Instance> {
    let most = "SELECT w.pid FROM outboxd.notifications n JOIN outboxd.workers w USING (worker)
         WHERE n.status = 'PROCESSING' GROUP BY 1 ORDER BY count(*) DESC LIMIT 1";
    let deadline = Instant::now() + BUSY_TIMEOUT;
    let pid = loop {
        let row = client.query_opt(most, &[]).await?;
        if row.is_some() || Instant::now() > deadline {
            break row.map(|row| row.get::<_, i32>(0));
        }
    };
    let busy = instances.iter().position(|instance| Some(instance.pid()) == pid);
    Ok(&mut instances[busy.unwrap_or(0)])
}

/// As an operator would write it, but with short times, so that a dead instance is noticed within seconds.
fn setup(postgres: &Postgres, redis: Option<&Redis>, providers: &Providers) -> Setup {
    let mut setup = Setup::as_shipped(&postgres.url(shop::DATABASE));
    if let Some(redis) = redis {
        setup = setup.redis_url(&redis.url());
    }
    for channel in CHANNELS {
        setup = setup.set(&format!("channels.{channel}.url"), providers.url(channel)).toml(&format!(
            "[channels.{channel}]\ntimeout = \"2s\"\ncircuit = {{ failures = 20, open_for = \"1s\" }}\n"
        ));
    }
    setup.toml(&format!(
        "[queue]\nconsumer_ttl = \"3s\"\n\
         [worker]\nheartbeat = \"{HEARTBEAT}\"\nheartbeat_ttl = \"{HEARTBEAT_TTL}\"\nlease = \"{LEASE}\"\n\
         [routes.default]\nchannels = {CHANNELS:?}\nattempts_before_failover = 2\n\
         backoff = {{ base = \"250ms\", max = \"2s\", jitter = 0.2 }}\n"
    ))
}
