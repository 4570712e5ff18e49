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

use std::collections::BTreeMap;

use redis::io::tcp::TcpSettings;
use redis::{
    Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, TlsCertificates,
};
use secrecy::SecretString;
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
    pub(crate) hosts: Vec<ConnectionAddr>,
    pub(crate) username: Option<String>,
    pub(crate) password: Option<SecretString>,
    pub(crate) redis: RedisConnectionInfo,
    pub(crate) tls: Option<TlsCertificates>,
}

type Result<T> = std::result::Result<T, String>;
/// The query of the URL.
type Parameters = BTreeMap<String, String>;

impl Address {
    /// Reads `redis_url` and the certificates it names. The error never repeats it: it may hold a password.
    pub(crate) fn parse(url: &str) -> Result<Address> {
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        let (scheme, has_sentinels) = match scheme {
            "redis" | "rediss" => (scheme, false),
            "redis+sentinel" => ("redis", true),
            "rediss+sentinel" => ("rediss", true),
            _ => {
                let forms = "redis://host:6379, rediss:// for TLS, redis+sentinel://host:26379/name";
                return Err(format!("is no Redis URL; write {forms}"));
            }
        };
        // A / or ? before the @ is the password's.
        if rest.contains('#') || rest.find('@').is_some_and(|at| rest[..at].contains(['/', '?'])) {
            return Err(format!("has a #, or a / or ? in its user or password; {PERCENT}"));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut parameters: Parameters = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let tls = certificates(&mut parameters, scheme)?;
        let (username, password) = (parameters.remove("sentinel_username"), parameters.remove("sentinel_password"));
        if let Some(unknown) = parameters.keys().next() {
            let known = "ca, cert, key, sentinel_username, sentinel_password";
            return Err(format!("does not know the parameter {unknown:?}; it knows {known}"));
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (userinfo, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
        if !has_sentinels {
            let node = |host| node(&format!("{scheme}://{userinfo}{host}/{path}"), tls.as_ref());
            return Ok(Address::Nodes(hosts.split(',').map(node).collect::<Result<_>>()?));
        }
        let (name, db) = path.split_once('/').unwrap_or((path, ""));
        if name.is_empty() {
            return Err("needs the primary's name: redis+sentinel://host:26379/name".into());
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

/// One node, as the crate reads its URL.
fn node(url: &str, tls: Option<&TlsCertificates>) -> Result<ConnectionInfo> {
    let bad = |error| format!("has a bad host, port, user, password or database number: {error}");
    let info = url.into_connection_info().map_err(bad)?.set_tcp_settings(tcp_settings());
    let Some(tls) = tls else { return Ok(info) };
    let bad = |error| format!("names a certificate or key that cannot be used: {error}");
    Ok(Client::build_with_tls(info, tls.clone()).map_err(bad)?.get_connection_info().clone())
}

/// Without TCP_NODELAY a pipeline waits for the acknowledgement of the one before it.
pub(crate) fn tcp_settings() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}

/// The crate's default port is that of Redis. An IPv6 address has colons of its own, inside brackets.
fn with_sentinel_port(host: &str) -> String {
    let has_port = host.rsplit(']').next().is_some_and(|end| end.contains(':'));
    if has_port { host.into() } else { format!("{host}:26379") }
}

fn certificates(parameters: &mut Parameters, scheme: &str) -> Result<Option<TlsCertificates>> {
    let given = ["ca", "cert", "key"].map(|name| parameters.remove(name));
    if scheme != "rediss" {
        let any = given.iter().any(Option::is_some);
        return if any { Err("has certificates but no TLS: use rediss://".into()) } else { Ok(None) };
    }
    let [ca, cert, key] = given;
    if cert.is_some() != key.is_some() {
        return Err("needs cert= and key= together".into());
    }
    let read = |path: Option<String>| path.map(|path| file(&path)).transpose();
    let client_tls = read(cert)?.zip(read(key)?);
    let client_tls = client_tls.map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
    Ok(Some(TlsCertificates { client_tls, root_cert: read(ca)? }))
}

fn file(path: &str) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| format!("names {path}, which cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

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
            let error = Address::parse(url).expect_err("an error");
            assert!(error.contains(told) && !error.contains("hush"), "{url}: {error}");
        }
    }
}
