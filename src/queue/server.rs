//! Finding the one server that takes our writes, and refusing one that must not carry a queue.
//!
//! All our keys share a hash slot, so even a cluster has exactly one such server. Looking it up for every new
//! connection makes one server, a cluster and Sentinel the same to the rest of the queue, and lets a consumer block on
//! a plain connection of its own.
//!
//! Sentinel is the redis crate's. Its cluster connection and its `ConnectionManager` are not used: they reconnect by
//! themselves, and pushes reach a restarted or promoted server before its generation is opened (see `loss`), so that
//! `a_failover_that_loses_acknowledged_writes_is_told_as_a_lost_tail` would not hold. Several plain hosts
//! (`of_several_plain_hosts_the_one_that_takes_writes_is_used_also_after_a_failover`) and a cluster that is recognised
//! by asking are not in the crate.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ErrorKind, InfoDict, RedisError, RedisResult,
    TlsMode, Value, from_redis_value,
};
use secrecy::{ExposeSecret, SecretString};

use super::failure::Failure;
use super::owner::Owner;
use super::{Error, ServerFacts};
use crate::config::redis_url::{Address, Sentinels, tcp_settings};

/// BLMOVE and the stream commands we rely on are all there from this version on.
const OLDEST: (u32, u32) = (6, 2);

/// Where the queue lives.
#[derive(Debug)]
pub(super) struct Server {
    address: Address,
    /// A key of ours: its slot decides which node of a cluster is meant.
    key: String,
    /// Which of the hosts to try next; stays where it worked.
    next: AtomicUsize,
    /// Nodes of the cluster seen last, to ask when none of the configured ones answers.
    known: Mutex<Vec<ConnectionInfo>>,
    /// For whom the keys are, and the key that says so.
    owner: Option<(Arc<Owner>, String)>,
}

/// A connection to the server that takes our writes.
pub(super) struct Primary {
    pub connection: MultiplexedConnection,
    pub info: InfoDict,
    node: String,
}

impl Server {
    /// Connects to nothing yet.
    pub(super) fn new(url: &SecretString, key: &str) -> Result<Server, Error> {
        let address = Address::parse(url.expose_secret()).map_err(|bad| Error::Unusable(format!("redis_url {bad}")))?;
        // redis-rs takes the process's provider and panics when several are linked and none is installed.
        // An Err means that someone installed one before us, which serves as well.
        let _installed_before = rustls::crypto::ring::default_provider().install_default();
        Ok(Server { address, key: key.into(), next: AtomicUsize::new(0), known: Mutex::default(), owner: None })
    }

    /// Its keys are for this owner; a `key` of theirs says so.
    pub(super) fn owned(self, owner: Option<&Arc<Owner>>, key: &str) -> Server {
        Server { owner: owner.map(|owner| (Arc::clone(owner), key.to_owned())), ..self }
    }

    /// Refuses keys that are another's.
    pub(super) async fn claim(&self, primary: &mut Primary) -> Result<(), Failure> {
        match &self.owner {
            Some((owner, key)) => owner.claim(&mut primary.connection, key).await,
            None => Ok(()),
        }
    }

    pub(super) async fn connect(&self) -> Result<Primary, Failure> {
        let nodes = match &self.address {
            // Boxed: the crate's future is too deep to be part of ours.
            Address::Sentinel(sentinels) => return dial(&Box::pin(ask(sentinels)).await?).await?.accepted(),
            Address::Nodes(nodes) => nodes,
        };
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let nodes: Vec<&ConnectionInfo> = nodes.iter().chain(&known).collect();
        let mut failure = Failure::NoPrimary("no host is configured".into());
        for _ in 0..nodes.len() {
            // Moved on before trying: if this one is silent until the caller gives up, the next call tries another.
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            match self.connect_from(nodes[next % nodes.len()]).await {
                Ok(primary) => {
                    self.next.store(next, Ordering::Relaxed);
                    return Ok(primary);
                }
                Err(error) => failure = failure.worse(error),
            }
        }
        Err(failure)
    }

    /// Connects to `node`, or to where `node` says our slot is.
    async fn connect_from(&self, node: &ConnectionInfo) -> Result<Primary, Failure> {
        let mut found = dial(node).await?;
        if text(&found.info, "cluster_enabled") != "1" {
            return found.accepted();
        }
        let slot: i64 = redis::cmd("CLUSTER").arg("KEYSLOT").arg(&self.key).query_async(&mut found.connection).await?;
        let ranges: Vec<Value> = redis::cmd("CLUSTER").arg("SLOTS").query_async(&mut found.connection).await?;
        let ranges: Vec<SlotRange> = ranges.into_iter().filter_map(|range| slot_range(range, node)).collect();
        let owner = ranges.iter().find(|(first, last, _)| (*first..=*last).contains(&slot));
        let owner = owner.and_then(|(_, _, nodes)| nodes.first()).cloned();
        let known = ranges.into_iter().flat_map(|(_, _, nodes)| nodes).collect();
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = known;
        let owner = owner.ok_or_else(|| Failure::NoPrimary(format!("no node of the cluster serves slot {slot}")))?;
        if owner.addr() == node.addr() {
            return found.accepted();
        }
        dial(&owner).await?.accepted()
    }
}

/// A line of CLUSTER SLOTS: first slot, last slot, the nodes that serve them with the primary first.
type SlotRange = (i64, i64, Vec<ConnectionInfo>);

/// `asked` lends its login, and its host where the cluster does not tell one.
fn slot_range(range: Value, asked: &ConnectionInfo) -> Option<SlotRange> {
    let mut parts = range.into_sequence().ok()?.into_iter();
    let first = from_redis_value(parts.next()?).ok()?;
    let last = from_redis_value(parts.next()?).ok()?;
    let node = |node: Value| {
        let mut fields = node.into_sequence().ok()?.into_iter();
        let host: Option<String> = from_redis_value(fields.next()?).ok()?;
        let port = from_redis_value(fields.next()?).ok()?;
        let asked_host = match asked.addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host.as_str(),
            _ => "",
        };
        let host = host.as_deref().filter(|host| !matches!(*host, "" | "?")).unwrap_or(asked_host);
        Some(sibling(asked, host, port))
    };
    Some((first, last, parts.filter_map(node).collect()))
}

/// Another node of the same deployment, reached as `info` is.
fn sibling(info: &ConnectionInfo, host: &str, port: u16) -> ConnectionInfo {
    let mut addr = info.addr().clone();
    match &mut addr {
        ConnectionAddr::TcpTls { host: old_host, port: old_port, .. } => {
            *old_host = host.into();
            *old_port = port;
        }
        _ => addr = ConnectionAddr::Tcp(host.into(), port),
    }
    info.clone().set_addr(addr)
}

/// The crate's client, which asks all of them and checks that the one they name takes writes.
fn client(sentinels: &Sentinels) -> RedisResult<SentinelClient> {
    let Sentinels { name, hosts, username, password, redis, tls } = sentinels;
    let mut builder = SentinelClientBuilder::new(hosts.clone(), name, SentinelServerType::Master)?
        .set_client_to_redis_db(redis.db())
        .set_client_to_redis_tcp_settings(tcp_settings());
    if let Some(username) = redis.username() {
        builder = builder.set_client_to_redis_username(username);
    }
    if let Some(password) = redis.password() {
        builder = builder.set_client_to_redis_password(password);
    }
    if let Some(username) = username {
        builder = builder.set_client_to_sentinel_username(username);
    }
    if let Some(password) = password {
        builder = builder.set_client_to_sentinel_password(password.expose_secret());
    }
    if let Some(tls) = tls {
        builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure).set_client_to_redis_certificates(tls.clone());
    }
    builder.build()
}

/// The primary, as the Sentinels know it.
async fn ask(sentinels: &Sentinels) -> Result<ConnectionInfo, Failure> {
    match client(sentinels)?.async_get_client().await {
        Ok(client) => Ok(client.get_connection_info().clone()),
        Err(error) if matches!(error.kind(), ErrorKind::Io | ErrorKind::MasterNameNotFoundBySentinel) => {
            let name = &sentinels.name;
            Err(Failure::NoPrimary(format!("no Sentinel tells of a primary {name:?} that is up: {error}")))
        }
        Err(error) => Err(error.into()),
    }
}

async fn dial(node: &ConnectionInfo) -> Result<Primary, Failure> {
    // For connecting, with TLS and login, and for each question asked meanwhile.
    let limit = Some(Duration::from_secs(2));
    let config = AsyncConnectionConfig::new().set_connection_timeout(limit).set_response_timeout(limit);
    let connected = Client::open(node.clone())?.get_multiplexed_async_connection_with_config(&config).await;
    let mut connection = connected.map_err(|error| unreached(error, node))?;
    let info = redis::cmd("INFO").query_async(&mut connection).await?;
    Ok(Primary { connection, info, node: node.addr().to_string() })
}

/// Names the node, which the crate's error does not.
fn unreached(error: RedisError, node: &ConnectionInfo) -> Failure {
    match error.kind() {
        ErrorKind::Io => Failure::NoPrimary(format!("Redis at {} is not reached: {error}", node.addr())),
        _ => error.into(),
    }
}

impl Primary {
    fn accepted(self) -> Result<Primary, Failure> {
        check(&self.info, &self.node)?;
        Ok(self)
    }

    /// The server process: another one may have lost what the last one had accepted.
    pub(super) fn run(&self) -> String {
        text(&self.info, "run_id")
    }
}

/// What INFO says. Unlike CONFIG GET it is open on managed Redis and to most ACL users.
pub(super) fn facts(info: &InfoDict) -> ServerFacts {
    ServerFacts {
        version: text(info, "redis_version"),
        mode: text(info, "redis_mode"),
        policy: text(info, "maxmemory_policy"),
        memory_bytes: info.get("used_memory").unwrap_or(0),
        memory_max_bytes: info.get("maxmemory").unwrap_or(0),
    }
}

fn text(info: &InfoDict, name: &str) -> String {
    info.get(name).unwrap_or_default()
}

fn check(info: &InfoDict, node: &str) -> Result<(), Failure> {
    let ServerFacts { version, policy, .. } = facts(info);
    let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
    if (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) < OLDEST {
        let (major, minor) = OLDEST;
        return Err(Failure::Unusable(format!(
            "Redis at {node} is version {version:?}; upgrade it to {major}.{minor} or newer"
        )));
    }
    if policy != "noeviction" {
        return Err(Failure::Unusable(format!(
            "Redis at {node} may throw queued messages away: its maxmemory-policy is {policy}; set it to noeviction \
             (CONFIG SET maxmemory-policy noeviction, and the same in redis.conf), or give outboxd a Redis of its own"
        )));
    }
    if text(info, "loading") == "1" {
        return Err(Failure::NoPrimary(format!("Redis at {node} is loading its data")));
    }
    if text(info, "role") != "master" {
        return Err(Failure::NoPrimary(format!("Redis at {node} is a replica")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(info: &str) -> Result<(), Failure> {
        super::check(&InfoDict::new(info), "here:1")
    }

    const GOOD: &str = "redis_version:7.0.15\r\nrole:master\r\nmaxmemory_policy:noeviction\r\nloading:0\r\n";

    #[test]
    fn a_primary_of_a_supported_version_that_never_evicts_is_accepted() {
        assert!(check(GOOD).is_ok());
        assert!(check(&GOOD.replace("7.0.15", "6.2.0")).is_ok());
    }

    #[test]
    fn another_node_is_reached_with_the_same_login_and_encryption() {
        for (url, is_tls) in [("redis://:p@a:1/0", false), ("rediss://:p@a:1/0", true)] {
            let Ok(Address::Nodes(nodes)) = Address::parse(url) else { panic!("nodes") };
            let other = sibling(&nodes[0], "b", 2);
            assert_eq!((other.addr().to_string(), other.redis_settings().password()), ("b:2".into(), Some("p")));
            assert_eq!(matches!(other.addr(), ConnectionAddr::TcpTls { insecure: false, .. }), is_tls);
        }
    }

    #[test]
    fn what_can_never_work_is_refused_with_the_fix() {
        for (info, fix) in [
            (GOOD.replace("7.0.15", "6.0.16"), "upgrade it to 6.2"),
            (GOOD.replace("noeviction", "allkeys-lru"), "CONFIG SET maxmemory-policy noeviction"),
            (GOOD.replace("noeviction", "volatile-ttl"), "CONFIG SET maxmemory-policy noeviction"),
        ] {
            let Err(Failure::Unusable(why)) = check(&info) else { panic!("refused") };
            assert!(why.contains(fix), "{why}");
        }
    }

    #[test]
    fn what_heals_by_itself_is_waited_for() {
        for info in [GOOD.replace("loading:0", "loading:1"), GOOD.replace("master", "slave")] {
            assert!(matches!(check(&info), Err(Failure::NoPrimary(_))));
        }
    }
}
