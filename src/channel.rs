//! 5. Call the provider: one HTTP request per attempt, and a typed answer to "what may follow".
//!
//! A [`Channel`] is a provider as configured: templates for url, headers and body, secrets, limits, and one
//! client with its connections. [`Channel::send`] makes exactly one call and never retries; what follows a
//! failure is decided by [`crate::retry`], in which order channels are tried by [`failover`], whether the
//! call may be made now by [`availability`], from pauses, circuits and limits.
//!
//! **Guarantee.** A request without an answer is [`Failure::Transient`](crate::retry::Failure) only if the provider
//! cannot have received it whole; otherwise it is [`Failure::Ambiguous`](crate::retry::Failure). An answer counts as it
//! says (`channel/outcome.rs`). **Limit.** A provider that ignores `webhook-id` may
//! act twice on an ambiguous attempt that is repeated.
//!
//! May change: what a call carries, how it is limited. Must not: a channel knows no database, follows no redirect, and
//! never repeats a request by itself.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::SystemTime;

use ::http::HeaderMap;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use minijinja::Value;
use reqwest::dns::Resolve;
use serde_json::value::RawValue;
use url::Url;

mod address;
mod answer;
pub mod availability;
pub mod circuit;
pub mod circuits;
mod compile;
pub mod connections;
pub mod credentials;
pub mod descriptors;
mod envelope;
pub mod failover;
mod forward;
#[cfg(test)]
mod fuzz;
mod guard;
mod headers;
mod http;
pub mod limit;
pub mod lookups;
mod outcome;
mod retry_after;
pub mod share;
mod sign;
mod template;

pub use envelope::webhook_id;
pub use outcome::{Cause, Failed, Outcome, Shortage};

use crate::config::{ChannelConfig, Method};
use crate::notification::NotificationId;
use crate::telemetry::trace::Traceparent;
use compile::Address;
use connections::Connections;
use guard::Guard;
use headers::Headers;
use http::Http;
use lookups::System;
use sign::Signer;
use template::{Templates, Text};

/// Bytes of a rendered body at most.
const BODY_BYTES_MAX: usize = 4 << 20;
/// Bytes of a rendered URL at most.
const URL_BYTES_MAX: usize = 8 << 10;

/// The origin of channels whose host the operator wrote: there is only one, so it needs no name.
pub const CHANNEL_WIDE: &str = "";

/// What is sent: one attempt of one notification.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    /// The notification.
    pub id: NotificationId,
    /// Made by [`webhook_id`]; the same on every attempt.
    pub webhook_id: &'a str,
    /// Its topic.
    pub topic: &'a str,
    /// Who receives it.
    pub recipient: &'a str,
    /// Its payload, as Postgres prints it.
    pub payload: &'a RawValue,
    /// The row's headers, an object of strings; may hold a `traceparent`.
    pub headers: Option<&'a RawValue>,
    /// The call's place in its trace, if it is traced; else the row's own `traceparent` goes out.
    pub traceparent: Option<&'a Traceparent>,
    /// When it was written.
    pub created_at: DateTime<Utc>,
    /// 1 for the first attempt.
    pub attempt: u32,
}

/// A provider, ready to be called.
#[derive(Debug)]
pub struct Channel {
    name: Arc<str>,
    method: Method,
    templates: Templates,
    address: Address,
    headers: Headers,
    body: Option<Text>,
    signer: Signer,
    guard: Guard,
    http: Http,
    url_fields: Option<Vec<String>>,
}

/// One request, made and ready to go out.
#[derive(Debug)]
pub struct Request {
    url: Arc<Url>,
    origin: Arc<str>,
    headers: HeaderMap,
    body: Bytes,
}

impl Request {
    /// How long its body is.
    pub fn body_bytes(&self) -> usize {
        self.body.len()
    }
}

/// Where one attempt goes: known before the call, so that limits and the circuit of its origin can be asked first.
#[derive(Debug)]
pub struct Target {
    url: Arc<Url>,
    origin: Arc<str>,
    context: Option<Value>,
}

impl Target {
    /// `scheme://host:port` where the URL comes from data, else [`CHANNEL_WIDE`].
    pub fn origin(&self) -> &Arc<str> {
        &self.origin
    }
}

/// A channel that cannot work as configured.
#[derive(Debug, thiserror::Error)]
#[error("channel {channel}: {reason}")]
pub struct Error {
    channel: String,
    reason: String,
}

impl Channel {
    /// Compiles templates, secrets and client once.
    pub fn new(name: &str, config: &ChannelConfig) -> Result<Channel, Error> {
        Channel::sharing(name, config, &Arc::default())
    }

    /// As [`Channel::new`], with its connections counted with those of the others.
    pub fn sharing(name: &str, config: &ChannelConfig, connections: &Arc<Connections>) -> Result<Channel, Error> {
        let connect_timeout = config.connect_timeout.min(config.timeout);
        let resolver = Arc::new(System::new(&connections.lookups, connect_timeout));
        Channel::build(name, config, resolver, connections)
    }

    /// As [`Channel::new`], with names resolved by `resolver`. Its answers pass the guard as well.
    pub fn with_resolver(name: &str, config: &ChannelConfig, resolver: Arc<dyn Resolve>) -> Result<Channel, Error> {
        Channel::build(name, config, resolver, &Arc::default())
    }

    fn build(
        name: &str,
        config: &ChannelConfig,
        resolver: Arc<dyn Resolve>,
        connections: &Arc<Connections>,
    ) -> Result<Channel, Error> {
        let compiled = compile::channel(name, config, resolver, Arc::clone(connections));
        compiled.map_err(|reason| Error { channel: name.to_owned(), reason })
    }

    /// The name it is configured under.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Whether the host of its URL comes from data, so that each notification has an origin of its own.
    pub fn calls_many_origins(&self) -> bool {
        matches!(self.address, Address::Data { .. })
    }

    /// The payload's fields that must be known to tell where a notification goes; `None`: all of it.
    pub fn url_fields(&self) -> Option<&[String]> {
        self.url_fields.as_deref()
    }

    /// Makes one attempt.
    pub async fn send(&self, outgoing: &Outgoing<'_>) -> Outcome {
        match self.target(outgoing) {
            Ok(target) => self.send_to(target, outgoing).await,
            Err(failed) => Outcome::Failed(failed),
        }
    }

    /// Renders the URL and has the guard check it. Calls nobody.
    pub fn target(&self, outgoing: &Outgoing<'_>) -> Result<Target, Failed> {
        let refused = |reason: String| Failed::refused(Cause::Template, reason);
        let context = self.templates.context(outgoing).map_err(refused)?;
        let (name, written) = match &self.address {
            Address::Fixed { url, origin } => {
                return Ok(Target { url: Arc::clone(url), origin: Arc::clone(origin), context });
            }
            Address::Path { template, written } => (template, Some(written)),
            Address::Data { template } => (template, None),
        };
        let empty = Value::UNDEFINED;
        let text = self.templates.render(name, context.as_ref().unwrap_or(&empty), URL_BYTES_MAX).map_err(refused)?;
        let url = Url::parse(text.trim()).map_err(|error| refused(format!("template url: not a url: {error}")))?;
        self.guard.check_url(&url).map_err(|reason| Failed::refused(Cause::Guard, reason.to_string()))?;
        let origin = match written {
            Some(written) if !written.holds(&url) => {
                return Err(refused("template url: the data led out of what the operator wrote".to_owned()));
            }
            Some(_) => Arc::from(CHANNEL_WIDE),
            None => Arc::from(origin(&url)),
        };
        Ok(Target { url: Arc::new(url), origin, context })
    }

    /// Makes one attempt at a target of this channel.
    pub async fn send_to(&self, target: Target, outgoing: &Outgoing<'_>) -> Outcome {
        match self.request(target, outgoing) {
            Ok(request) => self.call(request).await,
            Err(failed) => Outcome::Failed(failed),
        }
    }

    /// Makes the request for a target of this channel: from here on the payload is not needed any more.
    pub fn request(&self, target: Target, outgoing: &Outgoing<'_>) -> Result<Request, Failed> {
        let (headers, body) =
            self.parts(&target, outgoing).map_err(|reason| Failed::refused(Cause::Template, reason))?;
        Ok(Request { url: target.url, origin: target.origin, headers, body })
    }

    /// Sends a request that was made by this channel.
    pub async fn call(&self, request: Request) -> Outcome {
        let Request { url, origin, headers, body } = request;
        self.http.call(&origin, &url, headers, body).await
    }

    fn parts(&self, target: &Target, outgoing: &Outgoing<'_>) -> Result<(HeaderMap, Bytes), String> {
        let empty = Value::UNDEFINED;
        let context = target.context.as_ref().unwrap_or(&empty);
        let body = match &self.body {
            None => envelope::standard_body(outgoing).map_err(|error| format!("body: {error}"))?,
            Some(Text::Fixed(text)) => text.clone().into_bytes(),
            Some(Text::Template(name)) => self.templates.render(name, context, BODY_BYTES_MAX)?.into_bytes(),
        };
        let now = SystemTime::now();
        let signed = self.templates.with_request(context, self.method.name(), &path(&target.url), &body);
        let context = signed.as_ref().unwrap_or(context);
        let mut headers = self.headers.render(&self.templates, context, outgoing, now)?;
        headers::sign(&mut headers, &self.signer, outgoing.webhook_id, &body)?;
        Ok((headers, Bytes::from(body)))
    }
}

/// The path as it is written in a request, with the query.
fn path(url: &Url) -> Cow<'_, str> {
    match url.query() {
        Some(query) => Cow::Owned(format!("{}?{query}", url.path())),
        None => Cow::Borrowed(url.path()),
    }
}

/// `scheme://host:port`, the port always written.
fn origin(url: &Url) -> String {
    let port = url.port_or_known_default().unwrap_or_default();
    format!("{}://{}:{port}", url.scheme(), url.host_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_always_names_its_port() {
        for (url, expected) in [
            ("https://A.example/x", "https://a.example:443"),
            ("http://a.example", "http://a.example:80"),
            ("http://[::1]:8080/", "http://[::1]:8080"),
        ] {
            assert_eq!(origin(&Url::parse(url).unwrap()), expected);
        }
    }
}
