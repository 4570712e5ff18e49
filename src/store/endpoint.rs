//! The addresses that a URL names, each as a connection of its own: the driver would wait for the first of them for
//! ever.

use std::net::IpAddr;

use rand::seq::SliceRandom as _;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, LoadBalanceHosts, TargetSessionAttrs};

/// One address.
#[derive(Debug)]
pub(super) struct Endpoint {
    /// Which host of the URL it belongs to.
    pub(super) host: usize,
    /// How to connect to it alone.
    pub(super) config: Config,
}

/// How many hosts the URL names.
pub(super) fn hosts(config: &Config) -> usize {
    config.get_hosts().len().max(config.get_hostaddrs().len())
}

/// Every address of every host, in order; those of a name are looked up. A name that is unknown is passed over if
/// another is known.
pub(super) async fn all(config: &Config) -> Result<Vec<Endpoint>, String> {
    let mut endpoints = Vec::new();
    let mut unknown = None;
    for host in 0..hosts(config) {
        let name = config.get_hosts().get(host);
        let ports = config.get_ports();
        let port = ports.get(host).or(ports.first()).copied().unwrap_or(5432);
        let addresses = match (config.get_hostaddrs().get(host), name) {
            (Some(address), _) => vec![Some(*address)],
            (None, Some(Host::Tcp(name))) => match tokio::net::lookup_host((name.as_str(), port)).await {
                Ok(found) => found.map(|address| Some(address.ip())).collect(),
                Err(error) => {
                    unknown = Some(format!("{name}: {error}"));
                    Vec::new()
                }
            },
            (None, _) => vec![None],
        };
        for address in addresses {
            endpoints.push(Endpoint { host, config: only(config, name, address, port) });
        }
    }
    if config.get_load_balance_hosts() == LoadBalanceHosts::Random {
        endpoints.shuffle(&mut rand::rng());
    }
    if endpoints.is_empty() { Err(unknown.unwrap_or_else(|| "no address".to_owned())) } else { Ok(endpoints) }
}

/// Brings the addresses of this host to the front.
pub(super) fn begin_with(endpoints: &mut [Endpoint], host: usize) {
    if endpoints.iter().all(|endpoint| endpoint.config.get_load_balance_hosts() == LoadBalanceHosts::Disable) {
        endpoints.sort_by_key(|endpoint| (endpoint.host != host, endpoint.host));
    }
}

/// The same connection to one address. Whether it takes writes we ask ourselves: the driver goes by the default of
/// transactions, which a database may set.
fn only(config: &Config, name: Option<&Host>, address: Option<IpAddr>, port: u16) -> Config {
    let mut one = Config::new();
    match name {
        Some(Host::Tcp(name)) => one.host(name),
        #[cfg(unix)]
        Some(Host::Unix(path)) => one.host_path(path),
        None => &mut one,
    };
    if let Some(address) = address {
        one.hostaddr(address);
    }
    one.port(port)
        .ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .channel_binding(config.get_channel_binding())
        .load_balance_hosts(config.get_load_balance_hosts())
        .keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle());
    if config.get_target_session_attrs() == TargetSessionAttrs::ReadOnly {
        one.target_session_attrs(TargetSessionAttrs::ReadOnly);
    }
    config.get_user().map(|user| one.user(user));
    config.get_password().map(|password| one.password(password));
    config.get_dbname().map(|dbname| one.dbname(dbname));
    config.get_options().map(|options| one.options(options));
    config.get_application_name().map(|name| one.application_name(name));
    config.get_connect_timeout().map(|timeout| one.connect_timeout(*timeout));
    config.get_tcp_user_timeout().map(|timeout| one.tcp_user_timeout(*timeout));
    config.get_keepalives_interval().map(|interval| one.keepalives_interval(interval));
    config.get_keepalives_retries().map(|retries| one.keepalives_retries(retries));
    one
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_address_has_a_connection_of_its_own_and_the_last_good_host_comes_first() {
        let url =
            "postgres://me:secret@127.0.0.1:1,127.0.0.2:2/db?target_session_attrs=read-write&options=-c%20jit%3Doff";
        let config: Config = url.parse().unwrap();
        let mut endpoints = all(&config).await.unwrap();
        let ports =
            |endpoints: &[Endpoint]| -> Vec<u16> { endpoints.iter().map(|e| e.config.get_ports()[0]).collect() };
        assert_eq!(ports(&endpoints), [1, 2]);
        begin_with(&mut endpoints, 1);
        assert_eq!(ports(&endpoints), [2, 1]);
        let one = &endpoints[0].config;
        assert_eq!((one.get_user(), one.get_dbname(), one.get_options()), (Some("me"), Some("db"), Some("-c jit=off")));
        assert_eq!(one.get_password(), Some(&b"secret"[..]));
        assert_eq!(one.get_target_session_attrs(), TargetSessionAttrs::Any);
    }

    #[tokio::test]
    async fn a_name_that_is_unknown_is_passed_over() {
        let config: Config = "postgres://nowhere.invalid,127.0.0.1/db".parse().unwrap();
        let hosts: Vec<usize> = all(&config).await.unwrap().iter().map(|endpoint| endpoint.host).collect();
        assert_eq!(hosts, [1]);
        let config: Config = "postgres://nowhere.invalid/db".parse().unwrap();
        assert!(all(&config).await.unwrap_err().starts_with("nowhere.invalid: "));
    }
}
