//! What single texts must be, beyond their kind: a setting names its check in `tables.rs`.
//!
//! **Guarantee.** What would fail on every call is refused at start, and no error repeats what may be a secret. Neither
//! a channel nor a row sets a header that frames the message, belongs to the connection or signs it; a row does not say
//! who we are either. **Limit.** Of a URL that is a template only the beginning is judged; all other headers are the
//! operator's to judge.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::header::{HeaderName, HeaderValue};
use url::Url;

use super::redis_url::Address;
use super::{TOPIC_BYTES_MAX, conninfo};
use crate::tls;

/// Says what is wrong and what to write.
pub(super) type Check = fn(&str) -> Legal;
type Legal = Result<(), String>;

/// Characters of a token at least: what is shorter is guessed.
const TOKEN_CHARS_MIN: usize = 16;
/// What makes a good one.
pub(super) const MAKE_TOKEN: &str = "openssl rand -hex 32";
/// What the Standard Webhooks specification asks of a key.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// Headers of the collector that frame the message.
const FRAMING: [&str; 5] = ["connection", "content-length", "content-type", "host", "transfer-encoding"];

fn ensure(holds: bool, what: &str) -> Legal {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

pub(super) fn database_url(text: &str) -> Legal {
    let info = conninfo::parse(text)?;
    tls::postgres::client_config(info.verify, info.root.as_ref()).map(|_| ())
}

pub(super) fn redis_url(text: &str) -> Legal {
    Address::parse(text).map(|_| ())
}

/// It is the hash tag of every key, so a brace would break the tag.
pub(super) fn prefix(text: &str) -> Legal {
    let legal = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    ensure(!text.is_empty() && text.chars().all(legal), "takes letters, digits and - _ . : only, at least one")
}

/// As a browser sends it.
pub(super) fn origin(text: &str) -> Legal {
    let origin = Url::parse(text).ok().map(|url| url.origin().ascii_serialization());
    let what = format!("has {text:?}, which is no origin; write scheme, host and port as in https://shop.example");
    ensure(origin.is_some_and(|origin| origin.eq_ignore_ascii_case(text)), &what)
}

/// It is shown as written, so it may hold no secret. The parser's error does not repeat the URL.
pub(super) fn otlp_endpoint(text: &str) -> Legal {
    let url = Url::parse(text).map_err(|error| format!("is no URL: {error}"))?;
    let is_http = matches!(url.scheme(), "http" | "https");
    ensure(is_http, "must begin with http:// or https://: OTLP over HTTP, usually port 4318")?;
    let is_plain = url.username().is_empty() && url.password().is_none();
    let is_place = is_plain && url.query().is_none() && url.fragment().is_none();
    ensure(is_place, "takes host, port and path only; put credentials into telemetry.otlp_headers")
}

/// Repeats nothing of what was written: without its name a token stands where the name should.
pub(super) fn otlp_header(text: &str) -> Legal {
    let (name, value) = text
        .split_once('=')
        .ok_or("has a header without its =; write \"authorization=Bearer …\", several as a list")?;
    let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| "has a header whose name is none")?;
    let what = format!("has {name}, which is set by outboxd itself; leave it out");
    ensure(!FRAMING.contains(&name.as_str()), &what)?;
    let is_value = HeaderValue::from_str(value.trim()).is_ok();
    ensure(is_value, "has a header with a control character in its value")
}

pub(super) fn service_name(text: &str) -> Legal {
    ensure(!text.trim().is_empty(), "is empty; leave it out for \"outboxd\"")
}

pub(super) fn token(text: &str) -> Legal {
    let what = format!("has fewer than {TOKEN_CHARS_MIN} characters; make one with: {MAKE_TOKEN}");
    ensure(text.chars().count() >= TOKEN_CHARS_MIN, &what)?;
    let what = format!("has a character that a header cannot hold; make one with: {MAKE_TOKEN}");
    ensure(text.chars().all(|c| c.is_ascii_graphic()), &what)
}

/// A topic, or the beginning of topics.
pub(super) fn topics(text: &str) -> Legal {
    let what = format!("has {text:?}, which is no topic: they have 1 to {TOPIC_BYTES_MAX} bytes");
    ensure(!text.is_empty() && text.len() <= TOPIC_BYTES_MAX, &what)?;
    let stands_elsewhere = text.trim_end_matches('*').contains('*') || text.ends_with("**");
    ensure(!stands_elsewhere, &format!("has {text:?}; a * stands at the end alone, as in \"order.*\""))
}

/// What `notify()` takes as a topic, except what looks like a pattern.
pub(super) fn route_name(text: &str) -> Legal {
    let what = "has a *, and routes know no patterns: write one route per topic; [routes.default] serves all topics \
                without one";
    ensure(!text.contains('*'), what)?;
    let is_topic = !text.is_empty() && text.len() <= TOPIC_BYTES_MAX && !text.contains('\0');
    ensure(is_topic, &format!("is named after no topic: they have 1 to {TOPIC_BYTES_MAX} bytes"))
}

/// Of a channel or a token: it appears in views, metrics and logs.
pub(super) fn name(text: &str) -> Legal {
    let legal = |c: char| c.is_ascii_alphanumeric() || "-_.:/".contains(c);
    let is_name = (1..=100).contains(&text.len()) && text.chars().all(legal);
    ensure(is_name, "has a name that will not do: letters, digits and - _ . : / only, 1 to 100 of them")
}

/// The parser's error does not repeat the URL, which may hold a token.
pub(super) fn url(text: &str) -> Legal {
    if text.trim_start().starts_with("{{") {
        return Ok(());
    }
    let is_http = text.starts_with("http://") || text.starts_with("https://");
    ensure(is_http, "must begin with http:// or https://, or with {{ where it comes from data")?;
    if text.contains("{{") || text.contains("{%") {
        return Ok(());
    }
    Url::parse(text).map(|_| ()).map_err(|error| format!("is no URL: {error}"))
}

pub(super) fn proxy(text: &str) -> Legal {
    let url = Url::parse(text).map_err(|error| format!("is no URL: {error}; write http://egress:4750"))?;
    ensure(matches!(url.scheme(), "http" | "https"), "must begin with http:// or https://")?;
    let is_place = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
    ensure(is_place, "takes host and port only, and a user name and password if the proxy asks for them")?;
    http::Uri::try_from(url.as_str()).map(|_| ()).map_err(|error| format!("is no URL: {error}"))
}

pub(super) fn content_type(text: &str) -> Legal {
    ensure(HeaderValue::from_str(text).is_ok(), "is no content type")
}

pub(super) fn header_value(text: &str) -> Legal {
    ensure(!text.chars().any(char::is_control), "holds a line break or another control character")
}

pub(super) fn webhook_secret(text: &str) -> Legal {
    let advice = "write whsec_ and 24 to 64 random bytes in base64, such as from: openssl rand -base64 32";
    let key = text.strip_prefix("whsec_").ok_or_else(|| format!("does not begin with whsec_; {advice}"))?;
    let lenient = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let bytes = GeneralPurpose::new(&alphabet::STANDARD, lenient)
        .decode(key)
        .map_err(|_| format!("is no base64 after whsec_; {advice}"))?;
    ensure(SECRET_BYTES.contains(&bytes.len()), &format!("has {} bytes; {advice}", bytes.len()))
}

pub(super) fn forwarded(text: &str) -> Legal {
    Pattern::parse(text).map(|_| ()).map_err(|what| format!("names {what}"))
}

/// Not for operators: they frame the message, belong to the connection or the signature, or every request carries them.
const OWN_HEADERS: &str = "connection content-length host idempotency-key te trailer transfer-encoding upgrade webhook-id \
                           webhook-signature webhook-timestamp";

/// Whether a channel may not set a header of this name, in lower case.
pub(crate) fn is_own_header(name: &str) -> bool {
    OWN_HEADERS.split(' ').any(|own| own == name)
}

/// Nor from a row, beside those: they frame the message or say who we are.
const NEVER: [&str; 5] = ["authorization", "cookie", "expect", "keep-alive", "www-authenticate"];
/// Nor what begins so.
const NEVER_BEGINNING: [&str; 4] = ["content-", "outboxd-", "proxy-", "webhook-"];

/// Whether no channel may send on a header of this name, in lower case.
pub(crate) fn is_never_forwarded(name: &str) -> bool {
    is_own_header(name) || NEVER.contains(&name) || NEVER_BEGINNING.iter().any(|beginning| name.starts_with(beginning))
}

/// One entry of `forward_headers`, in lower case: a name, or with a `*` behind it the beginning of names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern(String);

impl Pattern {
    /// Reads an entry. The error is for an operator, after "names".
    pub(crate) fn parse(text: &str) -> Result<Pattern, String> {
        let lower = text.to_ascii_lowercase();
        let name = lower.strip_suffix('*').unwrap_or(&lower);
        let is_name = HeaderName::from_bytes(name.as_bytes()).is_ok() && !name.contains('*');
        if !is_name && lower != "*" {
            return Err(format!(
                "{text:?}, which is no header name; write \"x-request-id\", or \"x-*\" for all that begin so"
            ));
        }
        if is_never_forwarded(name) {
            return Err(format!("{text:?}, which is never taken from a row"));
        }
        Ok(Pattern(lower))
    }

    /// Whether it means this name, in lower case.
    pub(crate) fn matches(&self, name: &str) -> bool {
        self.0.strip_suffix('*').map_or(self.0 == name, |beginning| name.starts_with(beginning))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_a_name_or_the_beginning_of_names() {
        for (entry, name, expected) in [
            ("X-Request-Id", "x-request-id", true),
            ("x-request-id", "x-request-id-2", false),
            ("x-*", "x-request-id", true),
            ("x-*", "y-request-id", false),
            ("*", "tenant", true),
        ] {
            assert_eq!(Pattern::parse(entry).unwrap().matches(name), expected, "{entry} {name}");
        }
        for entry in ["", "a b", "x-*-id", "**", "Authorization", "content-*", "Webhook-Id", "proxy-x", "te", "host"] {
            assert!(Pattern::parse(entry).is_err(), "{entry}");
        }
    }
}
