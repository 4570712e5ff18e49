//! reqwest, set up to do nothing by itself: no redirects, no repeats, no cookies, no decompression.
//!
//! hyper-util below it moves a request to another connection only if a reused one had ended before anything of the
//! request was written. There is no switch for that in reqwest, and none is needed: such a request was not sent.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use reqwest::dns::Resolve;
use reqwest::{Client, ClientBuilder, Proxy, redirect, retry};
use rustls::ClientConfig;
use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use crate::channel::connections::{Connections, Lease, Refused};

/// Through whom the requests of a channel go.
#[derive(Clone)]
pub(in crate::channel) enum Egress {
    /// All of them through this proxy.
    Proxy(Url),
    /// As `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY` say.
    Environment,
    /// Through nobody.
    Direct,
}

impl Egress {
    /// A proxy as configured. The error does not repeat the URL, which may hold a password.
    pub(in crate::channel) fn proxy(url: &SecretString) -> Result<Egress, String> {
        let url = Url::parse(url.expose_secret()).map_err(|error| format!("proxy: {error}"))?;
        // reqwest would ignore what it cannot read, and connect without the proxy.
        if !matches!(url.scheme(), "http" | "https") || Uri::try_from(url.as_str()).is_err() {
            return Err("proxy: not an http or https URL".to_owned());
        }
        Ok(Egress::Proxy(url))
    }

    /// The name of the proxy that all requests go through.
    pub(in crate::channel) fn proxy_name(&self) -> Option<&str> {
        match self {
            Egress::Proxy(url) => url.domain(),
            Egress::Environment | Egress::Direct => None,
        }
    }
}

/// Makes the clients of one channel, one for each origin.
#[derive(Debug)]
pub(super) struct Clients {
    recipe: Recipe,
    connections: Arc<Connections>,
    number: usize,
}

/// What a client is made of.
struct Recipe(Box<dyn Fn() -> reqwest::Result<Client> + Send + Sync>);

impl fmt::Debug for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recipe")
    }
}

impl Clients {
    /// An error now is one of the configuration.
    pub(super) fn new(
        tls: ClientConfig,
        resolver: Arc<dyn Resolve>,
        egress: Egress,
        connect_timeout: Duration,
        connections: Arc<Connections>,
    ) -> Result<Clients, Box<dyn StdError + Send + Sync>> {
        let make = move || builder(tls.clone(), Arc::clone(&resolver), egress.clone(), connect_timeout)?.build();
        make()?;
        Ok(Clients { recipe: Recipe(Box::new(make)), number: connections.number_channel(), connections })
    }

    /// The client of an origin, for one call.
    pub(super) fn lease(&self, origin: &Arc<str>) -> Result<Lease, Refused> {
        self.connections.lease(self.number, origin, &self.recipe.0)
    }
}

/// A client to be built. `connect_timeout` covers the name, the connection, the proxy and the TLS handshake.
pub(super) fn builder(
    tls: ClientConfig,
    resolver: Arc<dyn Resolve>,
    egress: Egress,
    connect_timeout: Duration,
) -> reqwest::Result<ClientBuilder> {
    let builder = Client::builder()
        .tls_backend_preconfigured(tls)
        .dns_resolver(resolver)
        .connect_timeout(connect_timeout)
        .redirect(redirect::Policy::none())
        .referer(false)
        .retry(retry::never())
        // Closed before most servers would: what races the peer's close least fails least.
        .pool_idle_timeout(Duration::from_secs(30))
        // More than calls are under way to one origin unless somebody raised the limits.
        .pool_max_idle_per_host(1024)
        .tcp_keepalive(Duration::from_secs(15))
        .tcp_keepalive_interval(Duration::from_secs(15))
        .http2_keep_alive_interval(Duration::from_secs(10))
        .http2_keep_alive_timeout(Duration::from_secs(10));
    Ok(match egress {
        Egress::Proxy(url) => builder.proxy(Proxy::all(url)?),
        Egress::Environment => builder,
        Egress::Direct => builder.no_proxy(),
    })
}

#[cfg(test)]
mod tests;
