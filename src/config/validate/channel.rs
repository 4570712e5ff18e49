//! One provider: its URL, templates, headers, secrets and times.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::header::{HeaderName, HeaderValue};
use secrecy::ExposeSecret;

use super::show;
use crate::config::ChannelConfig;
use crate::config::key::KeyPath;
use crate::config::settings::Settings;

/// Headers that every request carries already, or that belong to the connection.
const OWN_HEADERS: [&str; 9] = [
    "connection",
    "content-length",
    "content-type",
    "host",
    "idempotency-key",
    "transfer-encoding",
    "webhook-id",
    "webhook-signature",
    "webhook-timestamp",
];

/// What the Standard Webhooks specification asks of a key.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// Notes what is wrong with the channel.
pub(super) fn validate(settings: &mut Settings, name: &str, channel: &ChannelConfig) {
    let at = KeyPath(vec!["channels".into(), name.into()]);
    if let Err(what) = legal_name(name) {
        settings.mistake(&at, what);
    }
    let url = at.child("url");
    if settings.is_given(&url)
        && let Err(what) = legal_url(&channel.url)
    {
        settings.mistake(&url, what);
    }
    if let Some(Err(what)) = channel.body.as_deref().map(legal_template) {
        settings.mistake(&at.child("body"), what);
    }
    if HeaderValue::from_str(&channel.content_type).is_err() {
        settings.mistake(&at.child("content_type"), "is no content type");
    }
    if let Some(Err(what)) = channel.proxy.as_ref().map(|proxy| legal_proxy(proxy.expose_secret())) {
        settings.mistake(&at.child("proxy"), what);
    }
    times(settings, &at, channel);
    headers(settings, &at, channel);
    for secret in &channel.secrets {
        if let Err(what) = legal_secret(secret.expose_secret()) {
            settings.mistake(&at.child("secret"), what);
        }
    }
}

/// Names appear in views, metrics and logs.
pub(super) fn legal_name(name: &str) -> Result<(), String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || "-_.:/".contains(c);
    if name.is_empty() || name.len() > 100 || !name.chars().all(legal) {
        return Err("has a name that will not do: letters, digits and - _ . : / only, 1 to 100 of them".into());
    }
    Ok(())
}

fn legal_url(url: &str) -> Result<(), String> {
    legal_template(url)?;
    if url.trim_start().starts_with("{{") {
        return Ok(());
    }
    if !url.starts_with("http://") && !url.starts_with("https://") {
        return Err("must begin with http:// or https://, or with {{ where it comes from data".into());
    }
    let host = url.split("://").nth(1).unwrap_or_default();
    if host.starts_with("{{") || url.contains("{{") || url.contains("{%") {
        return Ok(());
    }
    // The parser's error does not repeat the URL, which may hold a token.
    url::Url::parse(url).map(|_| ()).map_err(|error| format!("is no URL: {error}"))
}

/// Repeats nothing of what was written, which may hold a password.
fn legal_proxy(text: &str) -> Result<(), String> {
    let url = url::Url::parse(text).map_err(|error| format!("is no URL: {error}; write http://egress:4750"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("must begin with http:// or https://".into());
    }
    if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
        return Err("takes host and port only, and a user name and password if the proxy asks for them".into());
    }
    http::Uri::try_from(url.as_str()).map(|_| ()).map_err(|error| format!("is no URL: {error}"))
}

fn legal_template(source: &str) -> Result<(), String> {
    let env = minijinja::Environment::new();
    let check = env.template_from_str(source).map(|_| ());
    check.map_err(|error| {
        let detail = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
        format!("is no template (line {} of it): {detail}", error.line().unwrap_or(1))
    })
}

fn times(settings: &mut Settings, at: &KeyPath, channel: &ChannelConfig) {
    let timeout = at.child("timeout");
    for (name, span) in
        [("connect_timeout", channel.connect_timeout), ("first_byte_timeout", channel.first_byte_timeout)]
    {
        let path = at.child(name);
        if !settings.is_wrong(&timeout) && !settings.is_wrong(&path) && span > channel.timeout {
            let what = format!("is {}; it must be at most {timeout} ({})", show(span), show(channel.timeout));
            settings.mistake(&path, what);
        }
    }
}

fn headers(settings: &mut Settings, at: &KeyPath, channel: &ChannelConfig) {
    let mut seen = BTreeSet::new();
    for (name, value) in &channel.headers {
        let path = at.child("headers").child(name);
        let lower = name.to_ascii_lowercase();
        if HeaderName::from_bytes(name.as_bytes()).is_err() {
            settings.mistake(&path, "is no header name");
        } else if lower == "content-type" {
            settings.mistake(&path, format!("is a key of its own: set {}", at.child("content_type")));
        } else if OWN_HEADERS.contains(&lower.as_str()) {
            settings.mistake(&path, "is set by outboxd itself; leave it out");
        } else if !seen.insert(lower) {
            settings.mistake(&path, "is given twice, in different spellings");
        }
        let value = value.expose_secret();
        if value.chars().any(char::is_control) {
            settings.mistake(&path, "holds a line break or another control character");
        } else if let Err(what) = legal_template(value) {
            settings.mistake(&path, what);
        }
    }
}

fn legal_secret(secret: &str) -> Result<(), String> {
    let advice = "write whsec_ and 24 to 64 random bytes in base64, such as from: openssl rand -base64 32";
    let key = secret.strip_prefix("whsec_").ok_or_else(|| format!("does not begin with whsec_; {advice}"))?;
    let lenient = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let bytes = GeneralPurpose::new(&alphabet::STANDARD, lenient)
        .decode(key)
        .map_err(|_| format!("is no base64 after whsec_; {advice}"))?;
    if !SECRET_BYTES.contains(&bytes.len()) {
        return Err(format!("has {} bytes; {advice}", bytes.len()));
    }
    Ok(())
}
