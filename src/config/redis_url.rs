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
//! `sentinel_password=` are for the Sentinels themselves, whose user needs `+ping +role +sentinel|masters`.
//!
//! The parameters and the list of hosts are ours, because the redis crate reads one host and ignores a parameter that
//! it does not know (`errors_are_named_without_repeating_the_password`). Each host's user, password, port and
//! database are read by the crate. `protocol=` is refused like any other parameter: the queue gains nothing from RESP3.
//!
//! A Redis user of its own needs no more than this (for the prefix `outboxd`; the list is tried by
//! `tls_and_a_restricted_user_are_enough`):
//!
//! ```text
//! ACL SETUSER outboxd on >secret ~{outboxd}:* +ping +info +cluster|keyslot +cluster|slots
//!     +eval +multi +exec +hget +hgetall +hincrby +hmget +hset +hdel +hkeys +persist +time
//!     +pexpire +set +del +exists +sadd +srem +smembers +mget
//!     +lpush +lmove +blmove +lrange +lrem +lset +llen
//!     +xadd +xread +xreadgroup +xack +xdel +xlen +xrange +xrevrange +xpending +xclaim +xinfo +xgroup
//! ```
//!
//! **Guarantee.** No error repeats the URL. **Limit.** Certificates are read once, with the URL.

use redis::io::tcp::TcpSettings;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, RedisResult,
    TlsCertificates, TlsMode,
};
use secrecy::{ExposeSecret, SecretString};
use url::form_urlencoded;

use super::conninfo::PERCENT;

/// Where to start searching for the server that takes our writes.
#[derive(Debug, Clone)]
pub(crate) enum Address {
    /// Nodes to try in turn.
    Nodes(Vec<ConnectionInfo>),
    /// Sentinels to ask.
    Sentinel(Box<Sentinels>),
}

/// Sentinels, and the login of the Redis that they watch.
#[derive(Debug, Clone)]
pub(crate) struct Sentinels {
    /// What they call the primary.
    pub(crate) name: String,
    hosts: Vec<ConnectionAddr>,
    username: Option<String>,
    password: Option<SecretString>,
    redis: RedisConnectionInfo,
    tls: Option<TlsCertificates>,
}

/// What is wrong with a `redis_url`. Never repeats it: it may hold a password.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BadUrl(String);

type Result<T> = std::result::Result<T, BadUrl>;

impl Address {
    /// Reads `redis_url` and the certificates it names.
    pub(crate) fn parse(url: &str) -> Result<Address> {
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        let (scheme, has_sentinels) = match scheme {
            "redis" | "rediss" => (scheme, false),
            "redis+sentinel" => ("redis", true),
            "rediss+sentinel" => ("rediss", true),
            _ => {
                let forms = "redis://host:6379, rediss:// for TLS, redis+sentinel://host:26379/name";
                return Err(BadUrl(format!("is no Redis URL; write {forms}")));
            }
        };
        // A / or ? before the @ is the password's.
        if rest.contains('#') || rest.find('@').is_some_and(|at| rest[..at].contains(['/', '?'])) {
            return Err(BadUrl(format!("has a #, or a / or ? in its user or password; {PERCENT}")));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut parameters = Parameters::read(query);
        let tls = parameters.tls(scheme)?;
        let (username, password) = (parameters.take("sentinel_username"), parameters.take("sentinel_password"));
        parameters.none_left()?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (userinfo, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
        if !has_sentinels {
            let node = |host| node(&format!("{scheme}://{userinfo}{host}/{path}"), tls.as_ref());
            return Ok(Address::Nodes(hosts.split(',').map(node).collect::<Result<_>>()?));
        }
        let (name, db) = path.split_once('/').unwrap_or((path, ""));
        if name.is_empty() {
            return Err(BadUrl("needs the primary's name: redis+sentinel://host:26379/name".into()));
        }
        let host = |host| Ok(node(&format!("{scheme}://{}", with_sentinel_port(host)), tls.as_ref())?.addr().clone());
        let redis = node(&format!("{scheme}://{userinfo}localhost/{db}"), None)?;
        Ok(Address::Sentinel(Box::new(Sentinels {
            name: name.into(),
            hosts: hosts.split(',').map(host).collect::<Result<_>>()?,
            username,
            password: password.map(SecretString::from),
            redis: redis.redis_settings().clone(),
            tls,
        })))
    }
}

impl Sentinels {
    /// The crate's client, which asks all of them and checks that the one they name takes writes.
    pub(crate) fn client(&self) -> RedisResult<SentinelClient> {
        let builder = SentinelClientBuilder::new(self.hosts.clone(), &self.name, SentinelServerType::Master)?;
        let mut builder =
            builder.set_client_to_redis_db(self.redis.db()).set_client_to_redis_tcp_settings(tcp_settings());
        if let Some(username) = self.redis.username() {
            builder = builder.set_client_to_redis_username(username);
        }
        if let Some(password) = self.redis.password() {
            builder = builder.set_client_to_redis_password(password);
        }
        if let Some(username) = &self.username {
            builder = builder.set_client_to_sentinel_username(username);
        }
        if let Some(password) = &self.password {
            builder = builder.set_client_to_sentinel_password(password.expose_secret());
        }
        if let Some(tls) = &self.tls {
            builder =
                builder.set_client_to_redis_tls_mode(TlsMode::Secure).set_client_to_redis_certificates(tls.clone());
        }
        builder.build()
    }
}

/// One node, as the crate reads its URL.
fn node(url: &str, tls: Option<&TlsCertificates>) -> Result<ConnectionInfo> {
    let bad = |error| BadUrl(format!("has a bad host, port, user, password or database number: {error}"));
    let info = url.into_connection_info().map_err(bad)?.set_tcp_settings(tcp_settings());
    let Some(tls) = tls else { return Ok(info) };
    let bad = |error| BadUrl(format!("names a certificate or key that cannot be used: {error}"));
    Ok(Client::build_with_tls(info, tls.clone()).map_err(bad)?.get_connection_info().clone())
}

/// Another node of the same deployment, reached as `info` is.
pub(crate) fn sibling(info: &ConnectionInfo, host: &str, port: u16) -> ConnectionInfo {
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

/// Without TCP_NODELAY a pipeline waits for the acknowledgement of the one before it.
fn tcp_settings() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}

/// The crate's default port is that of Redis. An IPv6 address has colons of its own, inside brackets.
fn with_sentinel_port(host: &str) -> String {
    let has_port = host.rsplit(']').next().is_some_and(|end| end.contains(':'));
    if has_port { host.into() } else { format!("{host}:26379") }
}

/// The query of the URL.
struct Parameters(Vec<(String, String)>);

impl Parameters {
    fn read(query: &str) -> Parameters {
        Parameters(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(key, _)| key == name)?;
        Some(self.0.remove(at).1)
    }

    fn tls(&mut self, scheme: &str) -> Result<Option<TlsCertificates>> {
        let (ca, cert, key) = (self.take("ca"), self.take("cert"), self.take("key"));
        if scheme != "rediss" {
            return match (ca, cert, key) {
                (None, None, None) => Ok(None),
                _ => Err(BadUrl("has certificates but no TLS: use rediss://".into())),
            };
        }
        let client_tls = match (cert, key) {
            (Some(cert), Some(key)) => Some(ClientTlsConfig { client_cert: file(&cert)?, client_key: file(&key)? }),
            (None, None) => None,
            _ => return Err(BadUrl("needs cert= and key= together".into())),
        };
        Ok(Some(TlsCertificates { client_tls, root_cert: ca.map(|path| file(&path)).transpose()? }))
    }

    fn none_left(&self) -> Result<()> {
        let known = "ca, cert, key, sentinel_username, sentinel_password";
        match self.0.first() {
            None => Ok(()),
            Some((unknown, _)) => Err(BadUrl(format!("does not know the parameter {unknown:?}; it knows {known}"))),
        }
    }
}

fn file(path: &str) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| BadUrl(format!("names {path}, which cannot be read: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(url: &str) -> Vec<ConnectionInfo> {
        match Address::parse(url).expect("a good url") {
            Address::Nodes(nodes) => nodes,
            Address::Sentinel(_) => panic!("not sentinel"),
        }
    }

    #[test]
    fn one_or_several_hosts_are_read_with_the_default_port() {
        let hosts = |url| nodes(url).iter().map(|node| node.addr().to_string()).collect::<Vec<_>>();
        assert_eq!(hosts("redis://localhost"), ["localhost:6379"]);
        assert_eq!(hosts("redis://a:1,b,[::1]:3/2"), ["a:1", "b:6379", "::1:3"]);
    }

    #[test]
    fn user_password_and_database_are_decoded_and_do_not_print() {
        let nodes = nodes("redis://me:p%40ss@a,b/3");
        let settings = nodes[1].redis_settings();
        assert_eq!((settings.username(), settings.password(), settings.db()), (Some("me"), Some("p@ss"), 3));
        assert!(!format!("{nodes:?}").contains("p@ss"));
    }

    #[test]
    fn another_node_is_reached_with_the_same_login_and_encryption() {
        for (url, is_tls) in [("redis://:p@a:1/0", false), ("rediss://:p@a:1/0", true)] {
            let other = sibling(&nodes(url)[0], "b", 2);
            assert_eq!((other.addr().to_string(), other.redis_settings().password()), ("b:2".into(), Some("p")));
            assert_eq!(matches!(other.addr(), ConnectionAddr::TcpTls { insecure: false, .. }), is_tls);
        }
    }

    #[test]
    fn a_sentinel_url_names_the_primary_and_keeps_both_logins_apart() {
        let url = "redis+sentinel://me:secret@a,b:7,[::1]/main/1?sentinel_password=other";
        let address = Address::parse(url).expect("a good url");
        let printed = format!("{address:?}");
        assert!(!printed.contains("secret") && !printed.contains("other"), "{printed}");
        let Address::Sentinel(sentinels) = address else { panic!("sentinel") };
        assert_eq!(sentinels.name, "main");
        let hosts: Vec<String> = sentinels.hosts.iter().map(ToString::to_string).collect();
        assert_eq!(hosts, ["a:26379", "b:7", "::1:26379"]);
        assert_eq!(sentinels.password.as_ref().map(ExposeSecret::expose_secret), Some("other"));
        assert_eq!((sentinels.redis.password(), sentinels.redis.db()), (Some("secret"), 1));
    }

    #[test]
    fn errors_are_named_without_repeating_the_password() {
        for (url, told) in [
            ("localhost:6379", "is no Redis URL"),
            ("http://:hush@a", "is no Redis URL"),
            ("redis://:hush@", "bad host"),
            ("redis://:hush@a,", "bad host"),
            ("redis://:hush@a:port", "bad host, port"),
            ("redis://:hush@a/x", "database number"),
            ("redis://:hush@a?tls=yes", "the parameter \"tls\""),
            ("redis://:hush@a?protocol=resp3", "the parameter \"protocol\"; it knows ca,"),
            ("redis://:hush@a?ca=/x", "use rediss://"),
            ("rediss://:hush@a#insecure", "has a #"),
            ("redis://:hu/sh@a", "/ as %2F"),
            ("redis://:hu?sh@a", "? as %3F"),
            ("rediss://:hush@a?ca=/does/not/exist", "cannot be read"),
            ("rediss://:hush@a?cert=/x", "together"),
            ("redis+sentinel://:hush@a", "the primary's name"),
            ("redis+sentinel://:hush@a:port/main", "bad host, port"),
            ("redis+sentinel://:hush@a/main/x", "database number"),
        ] {
            let error = Address::parse(url).expect_err("an error").to_string();
            assert!(error.contains(told) && !error.contains("hush"), "{url}: {error}");
        }
    }
}
