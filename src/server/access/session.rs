//! The dashboard's session: a cookie that says which token it was made with and until when, signed with a key made from
//! that token.
//!
//! **Guarantee.** A session ends after [`LASTS`], or when the token is changed or taken out of the configuration.
//! **Limit.** Logging out makes the browser forget the cookie; a copy of it goes on until it ends. docs/api.md says how
//! to end all.

use std::time::Duration;

use axum::http::header::{HOST, HeaderMap, HeaderValue};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::is_local;
use super::signature::{Key, now_s};
use crate::server::browser;

/// What keys of sessions are made for.
pub(super) const PURPOSE: &str = "session";
/// How long a session lasts.
const LASTS: Duration = Duration::from_secs(12 * 60 * 60);
/// Over HTTPS: no other host, and no page that came over plain HTTP, can set a cookie of this name.
const SECURE_NAME: &str = "__Host-outboxd";
/// Over plain HTTP, which only loopback may use: not every browser takes a `Secure` cookie there, as Chromium does.
const PLAIN_NAME: &str = "outboxd";

/// What a cookie says, not yet believed: `<name in base64>.<end in seconds since 1970>.<signature in base64>`.
pub(super) struct Session<'a> {
    name: String,
    until_s: u64,
    signed: &'a str,
    signature: &'a str,
}

impl<'a> Session<'a> {
    pub(super) fn parse(value: &'a str) -> Option<Session<'a>> {
        let (signed, signature) = value.rsplit_once('.')?;
        let (name, until) = signed.split_once('.')?;
        Some(Session {
            name: String::from_utf8(URL_SAFE_NO_PAD.decode(name).ok()?).ok()?,
            until_s: until.parse().ok()?,
            signed,
            signature,
        })
    }

    /// The token that it claims.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether that token's key signed it, and it has not ended.
    pub(super) fn is_valid(&self, key: &Key) -> bool {
        key.has_signed(self.signed, self.signature) && now_s() < self.until_s
    }
}

/// A cookie's value for whoever presented the token of this name.
fn sign(name: &str, key: &Key, until_s: u64) -> String {
    key.sign(&format!("{}.{until_s}", URL_SAFE_NO_PAD.encode(name)))
}

/// `Set-Cookie` that begins a session.
pub(super) fn begin(name: &str, key: &Key, transport: Transport) -> HeaderValue {
    transport.set_cookie(&sign(name, key, now_s() + LASTS.as_secs()), LASTS)
}

/// `Set-Cookie` that ends one.
pub(super) fn end(transport: Transport) -> HeaderValue {
    transport.set_cookie("", Duration::ZERO)
}

/// The values of our cookies. The plain name counts on loopback alone.
pub(super) fn cookies(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let is_local = has_local_host(headers);
    let is_ours = move |name: &str| name == SECURE_NAME || (is_local && name == PLAIN_NAME);
    browser::cookies(headers).filter(move |(name, _)| is_ours(name)).map(|(_, value)| value)
}

/// How the browser reached us. We speak plain HTTP; in front of us there may be TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    /// Everything that is not known to be plain HTTP on loopback. A browser that came over plain HTTP from elsewhere
    /// does not keep the cookie.
    Secure,
    /// Plain HTTP on loopback.
    Plain,
}

impl Transport {
    /// Our pages send `Origin` with a form, and it names the scheme that the browser sees.
    pub(super) fn of(headers: &HeaderMap, origin: Option<&str>) -> Transport {
        let is_https = origin.is_some_and(|origin| origin.starts_with("https://"));
        if has_local_host(headers) && !is_https { Transport::Plain } else { Transport::Secure }
    }

    fn set_cookie(self, value: &str, lasts: Duration) -> HeaderValue {
        let (name, secure) = match self {
            Transport::Secure => (SECURE_NAME, " Secure;"),
            Transport::Plain => (PLAIN_NAME, ""),
        };
        let text = format!("{name}={value}; Path=/; Max-Age={}; HttpOnly;{secure} SameSite=Strict", lasts.as_secs());
        HeaderValue::from_str(&text).expect("base64, digits and points are legal in a header")
    }
}

fn has_local_host(headers: &HeaderMap) -> bool {
    headers.get(HOST).and_then(|host| host.to_str().ok()).is_some_and(is_local)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str, token: &str) -> Key {
        Key::new(PURPOSE, name, &token.into())
    }

    #[test]
    fn a_session_is_good_for_its_token_until_it_ends() {
        let later = now_s() + 60;
        let value = sign("ops", &key("ops", "t1"), later);
        let session = Session::parse(&value).unwrap();
        assert_eq!(session.name(), "ops");
        assert!(session.is_valid(&key("ops", "t1")));
        assert!(!session.is_valid(&key("ops", "t2")), "the token was changed");
        assert!(!session.is_valid(&key("other", "t1")), "it was made with another");
        let ended = sign("ops", &key("ops", "t1"), now_s());
        assert!(!Session::parse(&ended).unwrap().is_valid(&key("ops", "t1")));
        let longer = value.replace(&later.to_string(), &(later + 1).to_string());
        assert!(!Session::parse(&longer).unwrap().is_valid(&key("ops", "t1")), "its end is signed");
        assert!(!Session::parse(&format!("{value}!")).unwrap().is_valid(&key("ops", "t1")), "a signature is base64");
    }

    #[test]
    fn what_is_no_session_is_none() {
        for value in ["", ".", "..", "b3Bz.1", "b3Bz.x.AA", "!.1.AA", "b3Bz.99999999999999999999.AA"] {
            assert!(Session::parse(value).is_none(), "{value}");
        }
    }
}
