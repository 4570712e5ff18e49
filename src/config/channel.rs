//! `[channels.NAME]`: one provider, as the operator describes it.
//!
//! **Guarantee.** What may hold a token does not print. **Limit.** Whether the provider takes what it is sent, only a
//! call tells.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use ipnet::IpNet;
use secrecy::SecretString;
use serde::Deserialize;

/// `[channels.NAME]`: one provider, called over HTTP.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChannelConfig {
    /// The request's method.
    pub method: Method,
    /// A template; where it names data, the SSRF guard stands at connect.
    #[serde(default)]
    pub url: String,
    /// Connect, first byte and body together.
    pub timeout: Duration,
    /// Connecting alone, TLS included.
    pub connect_timeout: Duration,
    /// From the request sent to the response's head.
    pub first_byte_timeout: Duration,
    /// Templates, by header name.
    #[serde(default)]
    pub headers: BTreeMap<String, SecretString>,
    /// Constants of the channel, for its templates.
    #[serde(default)]
    pub with: BTreeMap<String, SecretString>,
    /// Which of a row's headers are sent on: names, or beginnings of names as in `x-*`.
    pub forward_headers: Vec<String>,
    /// A template; absent: the standard envelope.
    pub body: Option<String>,
    /// The body's content type.
    pub content_type: String,
    /// A template over the answer of a 2xx: whether the provider accepted it; absent: it did.
    pub accepted_when: Option<String>,
    /// A template over the answer of a 2xx: the provider's own id of the message.
    pub provider_id: Option<String>,
    /// Standard Webhooks secrets, the first signs first; several during rotation.
    #[serde(rename = "secret", default)]
    pub secrets: Vec<SecretString>,
    /// Calls started at most, per instance.
    pub rate_limit: Option<RateLimit>,
    /// Calls under way at most, per instance.
    pub max_in_flight: Option<usize>,
    /// Calls under way at most to one origin, where the URL comes from data.
    pub max_in_flight_per_origin: usize,
    /// Permits private, loopback and link-local addresses for URLs that come from data.
    pub allow_private: bool,
    /// Networks a data URL may reach although the guard would refuse.
    pub allow: Vec<IpNet>,
    /// Networks no URL of this channel may reach.
    pub deny: Vec<IpNet>,
    /// The forward proxy that all requests of this channel go through, `http://` or `https://`; may hold a password.
    ///
    /// A proxy resolves names itself and connects where it sees fit. So the guard checks only the addresses that a URL
    /// spells out; what a name leads to, and whether that is private or on the `deny` list, is the proxy's to refuse.
    ///
    /// Without this key the environment's proxies (`HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`) serve the
    /// channels whose host the operator wrote and that have no `deny` list. The others connect directly: a variable of
    /// the whole machine must not replace the guard.
    pub proxy: Option<SecretString>,
    /// Response bytes read at most.
    pub response_bytes_max: usize,
    /// Longest Retry-After that is honoured.
    pub retry_after_max: Duration,
    /// When the circuit opens and for how long.
    pub circuit: CircuitConfig,
}

/// Leaves out the templates, into which `${VAR}` may have put a token.
impl fmt::Debug for ChannelConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<&String> = self.headers.keys().collect();
        f.debug_struct("ChannelConfig")
            .field("method", &self.method)
            .field("headers", &headers)
            .field("timeout", &self.timeout)
            .field("rate_limit", &self.rate_limit)
            .field("max_in_flight", &self.max_in_flight)
            .field("circuit", &self.circuit)
            .finish_non_exhaustive()
    }
}

/// The request's method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    /// The default.
    Post,
    /// For providers that want it.
    Put,
}

impl Method {
    /// As it stands in a request.
    pub fn name(self) -> &'static str {
        match self {
            Method::Post => "POST",
            Method::Put => "PUT",
        }
    }
}

/// So many calls per span of time.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct RateLimit {
    /// Calls …
    pub count: u32,
    /// … per this.
    pub per: Duration,
}

/// `[channels.NAME.circuit]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CircuitConfig {
    /// Failures in a row that open it.
    pub failures: u32,
    /// 401/403 in a row that open it.
    pub unauthorized: u32,
    /// How long it stays open before a single probe.
    pub open_for: Duration,
    /// The longest that it stays open, unless the provider asks for more: each probe that fails doubles the time. Never
    /// less than `open_for`.
    pub open_max: Duration,
}
