//! The SSRF guard: which addresses a channel may connect to.
//!
//! A URL that comes from data may name our own network. Names are checked where they are resolved for the
//! connection, so the address that was checked is the address that is connected to and a second answer of
//! the DNS changes nothing. Literals never reach the resolver and are checked in the URL, after the parser
//! has turned their odd forms (decimal, octal, hex, short) into one. There are no redirects.
//!
//! Limit: behind a proxy it is the proxy that resolves and connects. Literals are still checked here; names are not,
//! so the proxy must refuse what is private. Only the channel's own `proxy` can do that to a guarded channel, never the
//! environment.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ipnet::IpNet;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use super::address::{self, Range};
use crate::config::ChannelConfig;

/// Where the host of a channel's URL comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// The operator wrote it: only the deny list applies.
    Configuration,
    /// A notification brought it.
    Data,
}

/// What a channel may reach.
#[derive(Debug, Clone)]
pub(super) struct Guard {
    source: Source,
    allow_private: bool,
    allow: Vec<IpNet>,
    deny: Vec<IpNet>,
}

/// Why the guard said no, and which key permits it. Names the kind of address, not the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused(&'static str, &'static str);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the guard refused the url: {}{}", self.0, self.1)
    }
}

impl std::error::Error for Refused {}

impl Guard {
    pub(super) fn new(config: &ChannelConfig, source: Source) -> Guard {
        Guard { source, allow_private: config.allow_private, allow: config.allow.clone(), deny: config.deny.clone() }
    }

    /// Whether it has a say in where a name may lead.
    pub(super) fn checks_names(&self) -> bool {
        self.source == Source::Data || !self.deny.is_empty()
    }

    /// What can be said of a URL before its name is resolved.
    pub(super) fn check_url(&self, url: &Url) -> Result<(), Refused> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Refused("neither http nor https", ""));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Refused("it holds a user name or password", ""));
        }
        match url.host() {
            Some(Host::Ipv4(ip)) => self.check(ip.into()),
            Some(Host::Ipv6(ip)) => self.check(ip.into()),
            Some(Host::Domain(_)) => Ok(()),
            None => Err(Refused("no host", "")),
        }
    }

    /// Whether this address may be connected to.
    pub(super) fn check(&self, ip: IpAddr) -> Result<(), Refused> {
        let carried = address::carried_ipv4(ip).map(IpAddr::V4);
        let listed = |list: &[IpNet], ip: IpAddr| list.iter().any(|net| net.contains(&ip));
        if listed(&self.deny, ip) || carried.is_some_and(|ip| listed(&self.deny, ip)) {
            return Err(Refused("the address is on the deny list", ""));
        }
        if self.source == Source::Configuration || listed(&self.allow, ip.to_canonical()) {
            return Ok(());
        }
        match address::range(ip) {
            Range::Public => Ok(()),
            Range::Private(_) if self.allow_private => Ok(()),
            Range::Private(kind) => {
                Err(Refused(kind, "; the channel's allow = [\"its network\"] or allow_private = true permits it"))
            }
            Range::Special(kind) => Err(Refused(kind, "; the channel's allow = [\"its network\"] permits it")),
        }
    }
}

/// A resolver whose answers passed the guard.
pub(super) struct Guarded {
    guard: Guard,
    inner: Arc<dyn Resolve>,
    /// The operator's proxy, which is no destination and may be anywhere.
    proxy_name: Option<String>,
}

impl Guarded {
    pub(super) fn new(guard: Guard, inner: Arc<dyn Resolve>, proxy_name: Option<&str>) -> Guarded {
        Guarded { guard, inner, proxy_name: proxy_name.map(str::to_owned) }
    }
}

impl Resolve for Guarded {
    fn resolve(&self, name: Name) -> Resolving {
        let is_proxy = self.proxy_name.as_deref() == Some(name.as_str());
        let found = self.inner.resolve(name);
        if is_proxy {
            return found;
        }
        let guard = self.guard.clone();
        Box::pin(async move {
            let mut refused = None;
            let mut addresses: Vec<SocketAddr> = found.await?.collect();
            addresses.retain(|address| match guard.check(address.ip()) {
                Ok(()) => true,
                Err(reason) => {
                    refused = Some(reason);
                    false
                }
            });
            match refused {
                Some(reason) if addresses.is_empty() => Err(reason.into()),
                _ => Ok(Box::new(addresses.into_iter()) as Addrs),
            }
        })
    }
}
