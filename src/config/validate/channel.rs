//! One provider: its URL, templates, headers, secrets and times.
//!
//! **Guarantee.** What would fail on every call is refused at start. **Limit.** Of a URL that is a template only the
//! beginning is judged.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::header::{HeaderName, HeaderValue};
use humantime::format_duration;
use secrecy::ExposeSecret;

use super::{quoting, relation};
use crate::config::forward::{OWN_HEADERS, Pattern};
use crate::config::key::KeyPath;
use crate::config::settings::Settings;
use crate::config::suggest::did_you_mean;
use crate::config::{ChannelConfig, template};

/// What the Standard Webhooks specification asks of a key.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// Notes what is wrong with the channel.
pub(super) fn validate(settings: &mut Settings, name: &str, channel: &ChannelConfig) {
    let at = KeyPath(vec!["channels".into(), name.into()]);
    if let Err(what) = legal_name(name) {
        settings.error(&at, what);
    }
    let url = at.child("url");
    if settings.is_given(&url) {
        legal_template(settings, &url, &channel.url, template::REQUEST);
        if !settings.is_wrong(&url)
            && let Err(what) = legal_url(&channel.url)
        {
            settings.error(&url, what);
        }
    }
    if let Some(source) = &channel.body {
        body(settings, &at.child("body"), source, channel);
    }
    for (key, source) in [("accepted_when", &channel.accepted_when), ("provider_id", &channel.provider_id)] {
        if let Some(source) = source {
            reads_the_answer(settings, &at.child(key), source);
        }
    }
    if HeaderValue::from_str(&channel.content_type).is_err() {
        settings.error(&at.child("content_type"), "is no content type");
    }
    if let Some(Err(what)) = channel.proxy.as_ref().map(|proxy| legal_proxy(proxy.expose_secret())) {
        settings.error(&at.child("proxy"), what);
    }
    times(settings, &at, channel);
    headers(settings, &at, channel);
    forwarded(settings, &at, channel);
    for secret in &channel.secrets {
        if let Err(what) = legal_secret(secret.expose_secret()) {
            settings.error(&at.child("secret"), what);
        }
    }
}

/// A JSON body that the provider could not read, as far as it shows without a notification.
fn body(settings: &mut Settings, path: &KeyPath, source: &str, channel: &ChannelConfig) {
    legal_template(settings, path, source, template::REQUEST);
    if !is_json(channel) || settings.is_wrong(path) {
        return;
    }
    let mut errors = quoting::unquoted(source);
    if errors.is_empty() {
        errors.extend(quoting::no_json(source));
    }
    errors.into_iter().for_each(|what| settings.error(path, what));
}

/// Without an expression it would say the same of every answer.
fn reads_the_answer(settings: &mut Settings, path: &KeyPath, source: &str) {
    legal_template(settings, path, source, template::ANSWER);
    if !source.contains("{{") && !source.contains("{%") {
        let example = if source.starts_with("response") { source.trim() } else { "response.ok" };
        let what = format!("has no {{{{ }}}}, so it says the same of every answer; write \"{{{{ {example} }}}}\"");
        settings.error(path, what);
    }
}

fn is_json(channel: &ChannelConfig) -> bool {
    channel.content_type.contains("json")
}

/// What may surprise whoever wrote the channel's body.
pub(super) fn warnings(name: &str, channel: &ChannelConfig) -> Vec<String> {
    let body = channel.body.as_deref().filter(|_| is_json(channel)).unwrap_or_default();
    let warning = |code: String| {
        format!(
            "channels.{name}.body has {{{{ {code} }}}} between quotes, and a quote in the value would end them; write \
             {{{{ {code}|tojson }}}} without quotes around it"
        )
    };
    quoting::breakable(body).into_iter().map(warning).collect()
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
    if url.trim_start().starts_with("{{") {
        return Ok(());
    }
    if !url.starts_with("http://") && !url.starts_with("https://") {
        return Err("must begin with http:// or https://, or with {{ where it comes from data".into());
    }
    if url.contains("{{") || url.contains("{%") {
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

/// The template reads only what there is.
fn legal_template(settings: &mut Settings, path: &KeyPath, source: &str, known: &'static [&'static str]) {
    match template::check(source, known) {
        Ok(used) => constants(settings, path, &used.with.names),
        Err(reasons) => reasons.iter().for_each(|reason| settings.error(path, format!("is no template: {reason}"))),
    }
}

/// Each constant that a template reads is one of its channel's.
fn constants(settings: &mut Settings, path: &KeyPath, read: &BTreeSet<String>) {
    let with = KeyPath(path.0[..2].to_vec()).child("with");
    let known = settings.children(&with);
    for name in read.iter().filter(|name| !known.contains(name)) {
        let hint = did_you_mean(name, known.iter().map(String::as_str));
        let hint = if hint.is_empty() { format!("; set {}", with.child(name)) } else { hint };
        settings.error(path, format!("reads with.{name}, which the channel has not{hint}"));
    }
}

fn times(settings: &mut Settings, at: &KeyPath, channel: &ChannelConfig) {
    let timeout = at.child("timeout");
    for (name, span) in
        [("connect_timeout", channel.connect_timeout), ("first_byte_timeout", channel.first_byte_timeout)]
    {
        let spans = [span, channel.timeout].map(format_duration);
        relation(settings, span <= channel.timeout, [&at.child(name), &timeout], spans, "at most", "");
    }
}

fn headers(settings: &mut Settings, at: &KeyPath, channel: &ChannelConfig) {
    let mut seen = BTreeSet::new();
    for (name, value) in &channel.headers {
        let path = at.child("headers").child(name);
        let lower = name.to_ascii_lowercase();
        if HeaderName::from_bytes(name.as_bytes()).is_err() {
            settings.error(&path, "is no header name");
        } else if lower == "content-type" {
            settings.error(&path, format!("is a key of its own: set {}", at.child("content_type")));
        } else if OWN_HEADERS.contains(&lower.as_str()) {
            settings.error(&path, "is set by outboxd itself; leave it out");
        } else if !seen.insert(lower) {
            settings.error(&path, "is given twice, in different spellings");
        }
        let value = value.expose_secret();
        if value.chars().any(char::is_control) {
            settings.error(&path, "holds a line break or another control character");
        } else {
            legal_template(settings, &path, value, template::HEADER);
        }
    }
}

fn forwarded(settings: &mut Settings, at: &KeyPath, channel: &ChannelConfig) {
    let path = at.child("forward_headers");
    for entry in &channel.forward_headers {
        if let Err(what) = Pattern::parse(entry) {
            settings.error(&path, format!("names {what}"));
        } else if let Some(own) = channel.headers.keys().find(|own| own.eq_ignore_ascii_case(entry)) {
            let what = format!("names {entry:?}, which {} sets", at.child("headers").child(own));
            settings.error(&path, what);
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
