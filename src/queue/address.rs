//! `redis_url`: where Redis is and how to get in.
//!
//! | form | meaning |
//! |---|---|
//! | `redis://[user:password@]host[:6379][/db]` | one server; a node of a cluster is recognised as one |
//! | `redis://a:6379,b:6379` | several nodes of a cluster (or of a primary and its replicas) to start from |
//! | `redis+sentinel://[user:password@]a:26379,b:26379/name[/db]` | the primary that Sentinel calls `name`; user and password are those of Redis |
//! | `rediss://…`, `rediss+sentinel://…` | the same over TLS |
//!
//! Query parameters: `ca=/path/ca.pem` trusts that CA instead of the system's store (which honours
//! `SSL_CERT_FILE`); `cert=` and `key=` present a client certificate; `sentinel_username=` and
//! `sentinel_password=` are for the Sentinels themselves.
//!
//! A Redis user of its own needs no more than this (for the prefix `outboxd`; the list is tried by
//! `tls_and_a_restricted_user_are_enough`):
//!
//! ```text
//! ACL SETUSER outboxd on >secret ~{outboxd}:* +ping +info +cluster|keyslot +cluster|slots
//!     +eval +multi +exec +hget +hgetall +hincrby +hmget +hset +hdel +hkeys +persist +time
//!     +pexpire +set +del +exists +sadd +srem +smembers +mget
//!     +lpush +lmove +blmove +lrange +lrem +lset +llen
//!     +xadd +xreadgroup +xack +xdel +xlen +xrange +xpending +xclaim +xinfo +xgroup
//! ```

use redis::{
    Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, TlsCertificates,
    io::tcp::TcpSettings,
};
use url::form_urlencoded;

use super::{Error, Result};

const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// Where to start looking for the server that takes our writes.
#[derive(Debug, Clone)]
pub(super) enum Address {
    /// Nodes to try in turn.
    Nodes(Vec<ConnectionInfo>),
    /// Sentinels to ask in turn.
    Sentinel { sentinels: Vec<ConnectionInfo>, name: String, login: Login },
}

/// How to log in to a Redis node, whichever it is.
#[derive(Debug, Clone)]
pub(super) struct Login {
    redis: RedisConnectionInfo,
    tls: Option<TlsCertificates>,
}

/// The parts of a URL that `Url` cannot hold together because of the comma.
struct Parts<'a> {
    scheme: &'a str,
    userinfo: Option<&'a str>,
    hosts: Vec<&'a str>,
    path: Vec<&'a str>,
    query: Vec<(String, String)>,
}

impl Address {
    /// Never repeats the URL in an error: it may hold a password.
    pub(super) fn parse(url: &str) -> Result<Address> {
        let mut parts = split(url)?;
        let tls = parts.tls()?;
        let sentinel_login = parts.sentinel_login(tls.clone());
        if let Some((unknown, _)) = parts.query.first() {
            return Err(unusable(format!("does not know the parameter {unknown:?}")));
        }
        let redis = parts.redis_settings()?;
        let login = Login { redis, tls };
        if parts.scheme.ends_with("+sentinel") {
            let name = parts.path.first().filter(|name| !name.is_empty());
            let name = name.ok_or_else(|| unusable("needs the primary's name: redis+sentinel://host:26379/name"))?;
            let sentinels = parts.hosts.iter().map(|host| sentinel_login.at(host, SENTINEL_PORT));
            return Ok(Address::Sentinel { sentinels: sentinels.collect::<Result<_>>()?, name: (*name).into(), login });
        }
        Ok(Address::Nodes(parts.hosts.iter().map(|host| login.at(host, PORT)).collect::<Result<_>>()?))
    }
}

impl Login {
    fn at(&self, host_and_port: &str, default_port: u16) -> Result<ConnectionInfo> {
        let url =
            url::Url::parse(&format!("redis://{host_and_port}")).map_err(|_| unusable("has a bad host or port"))?;
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or_else(|| unusable("has an empty host"))?;
        self.reach(host.trim_matches(['[', ']']), url.port().unwrap_or(default_port))
    }

    /// Another node of the same deployment.
    pub(super) fn reach(&self, host: &str, port: u16) -> Result<ConnectionInfo> {
        let addr = match self.tls {
            None => ConnectionAddr::Tcp(host.into(), port),
            Some(_) => ConnectionAddr::TcpTls { host: host.into(), port, insecure: false, tls_params: None },
        };
        let bad = |error: redis::RedisError| unusable(format!("cannot be used: {error}"));
        let info = addr.into_connection_info().map_err(bad)?;
        // Without TCP_NODELAY a pipeline waits for the acknowledgement of the one before it.
        let info =
            info.set_redis_settings(self.redis.clone()).set_tcp_settings(TcpSettings::default().set_nodelay(true));
        match &self.tls {
            None => Ok(info),
            Some(tls) => Ok(Client::build_with_tls(info, tls.clone()).map_err(bad)?.get_connection_info().clone()),
        }
    }

    /// The login that `info` was made with.
    pub(super) fn of(info: &ConnectionInfo, host: &str, port: u16) -> ConnectionInfo {
        let addr = match info.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host: host.into(), port, insecure: *insecure, tls_params: tls_params.clone() }
            }
            _ => ConnectionAddr::Tcp(host.into(), port),
        };
        info.clone().set_addr(addr)
    }
}

impl Parts<'_> {
    fn take(&mut self, name: &str) -> Option<String> {
        let at = self.query.iter().position(|(key, _)| key == name)?;
        Some(self.query.remove(at).1)
    }

    fn tls(&mut self) -> Result<Option<TlsCertificates>> {
        let files = (self.take("ca"), self.take("cert"), self.take("key"));
        if !self.scheme.starts_with("rediss") {
            return match files {
                (None, None, None) => Ok(None),
                _ => Err(unusable("has certificates but no TLS: use rediss://")),
            };
        }
        let (ca, cert, key) = files;
        let client_tls = match (cert, key) {
            (Some(cert), Some(key)) => Some(ClientTlsConfig { client_cert: read(&cert)?, client_key: read(&key)? }),
            (None, None) => None,
            _ => return Err(unusable("needs cert= and key= together")),
        };
        let root_cert = ca.map(|path| read(&path)).transpose()?;
        Ok(Some(TlsCertificates { client_tls, root_cert }))
    }

    fn sentinel_login(&mut self, tls: Option<TlsCertificates>) -> Login {
        let mut redis = RedisConnectionInfo::default();
        if let Some(username) = self.take("sentinel_username") {
            redis = redis.set_username(username);
        }
        if let Some(password) = self.take("sentinel_password") {
            redis = redis.set_password(password);
        }
        Login { redis, tls }
    }

    fn redis_settings(&self) -> Result<RedisConnectionInfo> {
        let db_at = usize::from(self.scheme.ends_with("+sentinel"));
        let db = self.path.get(db_at).copied().filter(|db| !db.is_empty()).unwrap_or("0");
        let userinfo = self.userinfo.map_or(String::new(), |userinfo| format!("{userinfo}@"));
        // Percent-decoding and the db number are redis-rs's to parse.
        let info = format!("redis://{userinfo}localhost/{db}")
            .into_connection_info()
            .map_err(|_| unusable("has a bad user, password or database number"))?;
        Ok(info.redis_settings().clone())
    }
}

fn split(url: &str) -> Result<Parts<'_>> {
    let (scheme, rest) = url.split_once("://").ok_or_else(|| unusable("is not a URL"))?;
    if !["redis", "rediss", "redis+sentinel", "rediss+sentinel"].contains(&scheme) {
        return Err(unusable("must start with redis://, rediss://, redis+sentinel:// or rediss+sentinel://"));
    }
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (userinfo, hosts) = match authority.rsplit_once('@') {
        Some((userinfo, hosts)) => (Some(userinfo), hosts),
        None => (None, authority),
    };
    Ok(Parts {
        scheme,
        userinfo,
        hosts: hosts.split(',').collect(),
        path: path.split('/').collect(),
        query: form_urlencoded::parse(query.as_bytes()).into_owned().collect(),
    })
}

fn read(path: &str) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| unusable(format!("names {path}, which cannot be read: {error}")))
}

fn unusable(what: impl std::fmt::Display) -> Error {
    Error::Unusable(format!("redis_url {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(url: &str) -> Vec<String> {
        match Address::parse(url).expect("a good url") {
            Address::Nodes(nodes) => nodes.iter().map(|node| node.addr().to_string()).collect(),
            Address::Sentinel { .. } => panic!("not sentinel"),
        }
    }

    #[test]
    fn one_or_several_hosts_are_read_with_the_default_port() {
        assert_eq!(nodes("redis://localhost"), ["localhost:6379"]);
        assert_eq!(nodes("redis://a:1,b,[::1]:3/2"), ["a:1", "b:6379", "::1:3"]);
    }

    #[test]
    fn user_password_and_database_are_decoded() {
        let Address::Nodes(nodes) = Address::parse("redis://me:p%40ss@a,b/3").expect("a good url") else {
            panic!("nodes")
        };
        let settings = nodes[1].redis_settings();
        assert_eq!((settings.username(), settings.password(), settings.db()), (Some("me"), Some("p@ss"), 3));
    }

    #[test]
    fn a_sentinel_url_names_the_primary_and_keeps_both_logins_apart() {
        let url = "redis+sentinel://me:secret@a,b:7/main/1?sentinel_password=other";
        let Address::Sentinel { sentinels, name, login } = Address::parse(url).expect("a good url") else {
            panic!("sentinel")
        };
        assert_eq!(name, "main");
        assert_eq!(sentinels.iter().map(|s| s.addr().to_string()).collect::<Vec<_>>(), ["a:26379", "b:7"]);
        assert_eq!(sentinels[0].redis_settings().password(), Some("other"));
        assert_eq!((login.redis.password(), login.redis.db()), (Some("secret"), 1));
    }

    #[test]
    fn mistakes_are_named_without_repeating_the_password() {
        for url in [
            "localhost:6379",
            "http://:hush@a",
            "redis://:hush@",
            "redis://:hush@a:port",
            "redis://:hush@a/x",
            "redis://:hush@a?tls=yes",
            "redis://:hush@a?ca=/x",
            "rediss://:hush@a?ca=/does/not/exist",
            "rediss://:hush@a?cert=/x",
            "redis+sentinel://:hush@a",
        ] {
            let error = Address::parse(url).expect_err("a mistake").to_string();
            assert!(error.contains("redis_url") && !error.contains("hush"), "{url}: {error}");
        }
    }
}
