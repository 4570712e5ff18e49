//! Finding the one server that takes our writes, and refusing one that must not carry a queue.
//!
//! All our keys share a hash slot, so even a cluster has exactly one such server. Looking it up for every
//! new connection makes one server, a cluster and Sentinel the same thing to the rest of the queue, and lets
//! a consumer block on a plain connection of its own.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo};

use super::address::{Address, Login};
use super::failure::Failure;

/// Connecting, TLS and login included; also the limit of each question asked while connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// BLMOVE and the stream commands we rely on are all there from this version on.
const OLDEST: (u32, u32) = (6, 2);

/// Where the queue lives.
#[derive(Debug)]
pub(super) struct Server {
    address: Address,
    /// A key of ours: its slot decides which node of a cluster is meant.
    key: String,
    /// Which of the hosts to try next; stays where it worked.
    door: AtomicUsize,
    /// Nodes of the cluster seen last, to ask when none of the configured ones answers.
    known: Mutex<Vec<ConnectionInfo>>,
}

/// A connection to the server that takes our writes.
pub(super) struct Primary {
    pub connection: MultiplexedConnection,
    /// The server process: another one may have lost what the last one had accepted.
    pub run: String,
}

impl Server {
    pub(super) fn new(address: Address, key: &str) -> Server {
        Server { address, key: key.into(), door: AtomicUsize::new(0), known: Mutex::default() }
    }

    pub(super) async fn connect(&self) -> Result<Primary, Failure> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let doors: Vec<&ConnectionInfo> = match &self.address {
            Address::Nodes(nodes) => nodes.iter().chain(&known).collect(),
            Address::Sentinel { sentinels, .. } => sentinels.iter().collect(),
        };
        let mut failure = Failure::NoPrimary("no host is configured".into());
        for _ in 0..doors.len() {
            // Moved on before trying: if this one is silent until the caller gives up, the next call tries another.
            let door = self.door.fetch_add(1, Ordering::Relaxed);
            let attempt = match &self.address {
                Address::Nodes(_) => self.connect_from(doors[door % doors.len()]).await,
                Address::Sentinel { name, login, .. } => ask_sentinel(doors[door % doors.len()], name, login).await,
            };
            match attempt {
                Ok(primary) => {
                    self.door.store(door, Ordering::Relaxed);
                    return Ok(primary);
                }
                Err(error) => failure = failure.worse(error),
            }
        }
        Err(failure)
    }

    /// Connects to `node`, or to where `node` says our slot is.
    async fn connect_from(&self, node: &ConnectionInfo) -> Result<Primary, Failure> {
        let (mut connection, facts) = dial(node).await?;
        if !facts.is_cluster() {
            return facts.accept(connection);
        }
        let slot: i64 = redis::cmd("CLUSTER").arg("KEYSLOT").arg(&self.key).query_async(&mut connection).await?;
        let slots: Vec<redis::Value> = redis::cmd("CLUSTER").arg("SLOTS").query_async(&mut connection).await?;
        let nodes: Vec<SlotRange> = slots.into_iter().filter_map(|range| SlotRange::read(range, node)).collect();
        let owner = nodes.iter().find(|range| range.contains(slot)).map(|range| range.primary.clone());
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) =
            nodes.into_iter().flat_map(|range| range.replicas.into_iter().chain([range.primary])).collect();
        let owner = owner.ok_or_else(|| Failure::NoPrimary(format!("no node of the cluster serves slot {slot}")))?;
        if owner.addr() == node.addr() {
            return facts.accept(connection);
        }
        let (connection, facts) = dial(&owner).await?;
        facts.accept(connection)
    }
}

/// One line of CLUSTER SLOTS.
struct SlotRange {
    first: i64,
    last: i64,
    primary: ConnectionInfo,
    replicas: Vec<ConnectionInfo>,
}

impl SlotRange {
    fn contains(&self, slot: i64) -> bool {
        (self.first..=self.last).contains(&slot)
    }

    /// `asked` lends its login, and its host where the cluster does not tell one.
    fn read(range: redis::Value, asked: &ConnectionInfo) -> Option<SlotRange> {
        let mut parts = Vec::<redis::Value>::from_iter(range.into_sequence().ok()?).into_iter();
        let first = redis::from_redis_value(parts.next()?).ok()?;
        let last = redis::from_redis_value(parts.next()?).ok()?;
        let mut nodes = parts.filter_map(|node| {
            let mut fields = node.into_sequence().ok()?.into_iter();
            let host: Option<String> = redis::from_redis_value(fields.next()?).ok()?;
            let port = redis::from_redis_value(fields.next()?).ok()?;
            let host = host.filter(|host| !host.is_empty() && host != "?").or_else(|| host_of(asked))?;
            Some(Login::of(asked, &host, port))
        });
        Some(SlotRange { first, last, primary: nodes.next()?, replicas: nodes.collect() })
    }
}

fn host_of(info: &ConnectionInfo) -> Option<String> {
    match info.addr() {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => Some(host.clone()),
        _ => None,
    }
}

async fn ask_sentinel(sentinel: &ConnectionInfo, name: &str, login: &Login) -> Result<Primary, Failure> {
    let mut connection = open(sentinel).await?;
    let address: Option<(String, u16)> =
        redis::cmd("SENTINEL").arg("get-master-addr-by-name").arg(name).query_async(&mut connection).await?;
    let Some((host, port)) = address else {
        return Err(Failure::Unusable(format!(
            "Sentinel at {} does not know a primary named {name:?}",
            sentinel.addr()
        )));
    };
    let node = login.reach(&host, port).map_err(|error| Failure::Unusable(error.to_string()))?;
    let (connection, facts) = dial(&node).await?;
    facts.accept(connection)
}

async fn open(node: &ConnectionInfo) -> Result<MultiplexedConnection, Failure> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_TIMEOUT))
        .set_response_timeout(Some(CONNECT_TIMEOUT));
    Ok(Client::open(node.clone())?.get_multiplexed_async_connection_with_config(&config).await?)
}

async fn dial(node: &ConnectionInfo) -> Result<(MultiplexedConnection, Facts), Failure> {
    let mut connection = open(node).await?;
    let info: String = redis::cmd("INFO").query_async(&mut connection).await?;
    Ok((connection, Facts::read(&info, node.addr().to_string())))
}

/// What INFO says. Unlike CONFIG GET it is open on managed Redis and to most ACL users.
#[derive(Debug)]
struct Facts {
    node: String,
    info: HashMap<String, String>,
}

impl Facts {
    fn read(info: &str, node: String) -> Facts {
        let pairs = info.lines().filter_map(|line| line.trim_end().split_once(':'));
        Facts { node, info: pairs.map(|(name, value)| (name.into(), value.into())).collect() }
    }

    fn get(&self, name: &str) -> &str {
        self.info.get(name).map_or("", String::as_str)
    }

    fn is_cluster(&self) -> bool {
        self.get("cluster_enabled") == "1"
    }

    fn accept(&self, connection: MultiplexedConnection) -> Result<Primary, Failure> {
        self.check()?;
        Ok(Primary { connection, run: self.get("run_id").into() })
    }

    fn check(&self) -> Result<(), Failure> {
        let node = &self.node;
        let version = self.get("redis_version");
        let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
        if (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) < OLDEST {
            let (major, minor) = OLDEST;
            return Err(Failure::Unusable(format!(
                "Redis at {node} is version {version:?}; upgrade it to {major}.{minor} or newer"
            )));
        }
        let policy = self.get("maxmemory_policy");
        if policy != "noeviction" {
            return Err(Failure::Unusable(format!(
                "Redis at {node} has maxmemory-policy {policy:?} and may throw queued messages away; set it to noeviction \
                 (CONFIG SET maxmemory-policy noeviction, and the same in redis.conf), or use a Redis of its own for outboxd"
            )));
        }
        if self.get("loading") == "1" {
            return Err(Failure::NoPrimary(format!("Redis at {node} is loading its data")));
        }
        if self.get("role") != "master" {
            return Err(Failure::NoPrimary(format!("Redis at {node} is a replica")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(info: &str) -> Result<(), Failure> {
        Facts::read(info, "here:1".into()).check()
    }

    const GOOD: &str = "redis_version:7.0.15\r\nrole:master\r\nmaxmemory_policy:noeviction\r\nloading:0\r\n";

    #[test]
    fn a_primary_of_a_supported_version_that_never_evicts_is_accepted() {
        assert!(check(GOOD).is_ok());
        assert!(check(&GOOD.replace("7.0.15", "6.2.0")).is_ok());
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
