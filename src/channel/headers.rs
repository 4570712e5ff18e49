//! The headers of a request: ours, the row's, the operator's and the signature.

use std::time::{SystemTime, UNIX_EPOCH};

use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use minijinja::Value;
use secrecy::ExposeSecret as _;

use super::Outgoing;
use super::forward::{Forward, Trace};
use super::sign::Signer;
use super::template::{Templates, Text};
use crate::config::legal::is_own_header;
use crate::config::{ChannelConfig, template};
use crate::telemetry;

/// Bytes of a rendered header at most.
const HEADER_BYTES_MAX: usize = 8 << 10;

const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const ATTEMPT: HeaderName = HeaderName::from_static("outboxd-attempt");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The headers of a channel, as far as they are known before there is a notification.
#[derive(Debug)]
pub(super) struct Headers {
    /// Marked as sensitive: neither printed nor indexed by HPACK.
    fixed: Vec<(HeaderName, HeaderValue)>,
    templates: Vec<(HeaderName, String)>,
    forward: Forward,
    channel: String,
}

impl Headers {
    pub(super) fn new(templates: &mut Templates, channel: &str, config: &ChannelConfig) -> Result<Headers, String> {
        let content_type =
            HeaderValue::from_str(&config.content_type).map_err(|_| "content_type is not a header value".to_owned())?;
        let user_agent = HeaderValue::from_static(telemetry::USER_AGENT);
        let mut headers = Headers {
            fixed: vec![
                (CONTENT_TYPE, content_type),
                (USER_AGENT, user_agent),
                (ACCEPT, HeaderValue::from_static("*/*")),
            ],
            templates: Vec::new(),
            forward: Forward::new(channel, &config.forward_headers)?,
            channel: channel.to_owned(),
        };
        for (name, value) in &config.headers {
            let header = HeaderName::try_from(name.as_str()).map_err(|_| format!("headers: `{name}` is not a name"))?;
            if is_own_header(header.as_str()) {
                return Err(format!("headers: `{name}` is set by outboxd"));
            }
            let name_in_channel = format!("headers.{name}");
            match templates.add_knowing(&name_in_channel, value.expose_secret(), template::HEADER)? {
                Text::Fixed(text) => headers.fixed.push((header, header_value(&name_in_channel, &text)?)),
                Text::Template(template) => headers.templates.push((header, template)),
            }
        }
        Ok(headers)
    }

    /// Everything but the signature.
    pub(super) fn render(
        &self,
        templates: &Templates,
        context: &Value,
        outgoing: &Outgoing<'_>,
        now: SystemTime,
    ) -> Result<HeaderMap, String> {
        let mut map = HeaderMap::with_capacity(self.fixed.len() + self.templates.len() + 8);
        map.insert(WEBHOOK_ID, header_value("webhook_id", outgoing.webhook_id)?);
        let seconds = now.duration_since(UNIX_EPOCH).map_err(|_| "the clock is before 1970".to_owned())?.as_secs();
        map.insert(WEBHOOK_TIMESTAMP, HeaderValue::from(seconds));
        let mut key = String::with_capacity(outgoing.webhook_id.len() + 1 + self.channel.len());
        key.push_str(outgoing.webhook_id);
        key.push(':');
        key.push_str(&self.channel);
        map.insert(IDEMPOTENCY_KEY, header_value("webhook_id", &key)?);
        map.insert(ATTEMPT, HeaderValue::from(outgoing.attempt));
        if let Some(row) = outgoing.headers {
            // A trace that begins here has no state yet, whatever the row says.
            let continues = outgoing.traceparent.is_none_or(|traceparent| traceparent.is_continued);
            let trace = if continues { Trace::Continues } else { Trace::Begins };
            self.forward.add(row, trace, templates, |name| self.sets(name), &mut map)?;
        }
        if let Some(traceparent) = outgoing.traceparent {
            map.insert(TRACEPARENT, header_value("traceparent", &traceparent.text)?);
        }
        // After ours, so that an operator can replace them.
        for (name, value) in &self.fixed {
            map.insert(name.clone(), value.clone());
        }
        for (name, template) in &self.templates {
            let text = templates.render(template, context, HEADER_BYTES_MAX)?;
            map.insert(name.clone(), header_value(template, &text)?);
        }
        Ok(map)
    }

    fn sets(&self, name: &HeaderName) -> bool {
        let templates = self.templates.iter().map(|(name, _)| name);
        self.fixed.iter().map(|(name, _)| name).chain(templates).any(|own| own == name)
    }
}

/// Adds the signature over the id, the timestamp that `headers` hold, and the body.
pub(super) fn sign(headers: &mut HeaderMap, signer: &Signer, webhook_id: &str, body: &[u8]) -> Result<(), String> {
    let timestamp = headers.get(WEBHOOK_TIMESTAMP).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if let Some(signature) = signer.sign(webhook_id, timestamp, body) {
        headers.insert(WEBHOOK_SIGNATURE, header_value("signature", &signature)?);
    }
    Ok(())
}

/// Refuses line breaks and control characters: they would end the header and begin another.
fn header_value(name_in_channel: &str, text: &str) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::from_bytes(text.as_bytes())
        .map_err(|_| format!("template {name_in_channel}: a line break or control character in a header"))?;
    value.set_sensitive(name_in_channel.starts_with("headers."));
    Ok(value)
}
