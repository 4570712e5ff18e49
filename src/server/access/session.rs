//! The dashboard's session: a cookie that says which token it was made with and until when, signed.
//!
//! **Guarantee.** A session ends after [`LASTS`], with a logout, or when the token is changed or taken out of the
//! configuration; its streams end with it. **Limit.** An instance knows the logouts that it has seen since it started:
//! on another one a copy of the cookie goes on until it ends. docs/api.md says how to end all.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
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

/// Logouts of one token that are remembered until their sessions would have ended; beyond them those that end first are
/// forgotten.
const ENDED_MAX: usize = 10_000;
/// Cookies of ours that are looked at: a browser has one for each way in which it reaches us.
const COOKIES_MAX: usize = 4;

/// What a cookie says, not yet believed:
/// `<name in base64>.<end in seconds since 1970>.<number drawn at random>.<signature in base64>`.
pub(super) struct Session<'a> {
    name: String,
    until_s: u64,
    signed: &'a str,
    signature: &'a str,
}

/// A session, once it was believed: known by its signature.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Known {
    /// Of this token.
    name: String,
    until_s: u64,
    signature: String,
}

impl Known {
    /// Whether its time is over.
    pub(super) fn is_over(&self) -> bool {
        now_s() >= self.until_s
    }
}

/// The sessions that were logged out of, by their tokens and ends.
#[derive(Debug, Default)]
pub(super) struct Ended(Mutex<HashMap<String, BTreeSet<Known>>>);

impl Ended {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, BTreeSet<Known>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, session: Known) {
        let mut all = self.lock();
        let ended = all.entry(session.name.clone()).or_default();
        ended.insert(session);
        while ended.len() > ENDED_MAX || ended.first().is_some_and(Known::is_over) {
            ended.pop_first();
        }
    }

    pub(super) fn holds(&self, session: &Known) -> bool {
        self.lock().get(&session.name).is_some_and(|ended| ended.contains(session))
    }
}

impl<'a> Session<'a> {
    pub(super) fn parse(value: &'a str) -> Option<Session<'a>> {
        let (signed, signature) = value.rsplit_once('.')?;
        let (name, rest) = signed.split_once('.')?;
        let (until, _drawn) = rest.split_once('.')?;
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

    /// The session, if that token's key signed it and its time is not over.
    pub(super) fn known(&self, key: &Key) -> Option<Known> {
        let known = Known { name: self.name.clone(), until_s: self.until_s, signature: self.signature.to_owned() };
        (key.has_signed(self.signed, self.signature) && !known.is_over()).then_some(known)
    }
}

/// A cookie's value for whoever presented the token of this name.
fn sign(name: &str, key: &Key, until_s: u64) -> String {
    let drawn = URL_SAFE_NO_PAD.encode(rand::random::<[u8; 12]>());
    key.sign(&format!("{}.{until_s}.{drawn}", URL_SAFE_NO_PAD.encode(name)))
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
    browser::cookies(headers).filter(move |(name, _)| is_ours(name)).map(|(_, value)| value).take(COOKIES_MAX)
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
        Key::of_token(name, &token.into()).in_installation(&vec![7; 32].into(), PURPOSE)
    }

    #[test]
    fn a_session_is_good_for_its_token_until_it_ends() {
        let later = now_s() + 60;
        let value = sign("ops", &key("ops", "t1"), later);
        let session = Session::parse(&value).unwrap();
        assert_eq!(session.name(), "ops");
        assert!(session.known(&key("ops", "t1")).is_some());
        assert!(session.known(&key("ops", "t2")).is_none(), "the token was changed");
        assert!(session.known(&key("other", "t1")).is_none(), "it was made with another");
        let elsewhere = Key::of_token("ops", &"t1".into()).in_installation(&vec![8; 32].into(), PURPOSE);
        assert!(session.known(&elsewhere).is_none(), "another installation");
        let ended = sign("ops", &key("ops", "t1"), now_s());
        assert!(Session::parse(&ended).unwrap().known(&key("ops", "t1")).is_none());
        let longer = value.replace(&later.to_string(), &(later + 1).to_string());
        assert!(Session::parse(&longer).unwrap().known(&key("ops", "t1")).is_none(), "its end is signed");
        let broken = format!("{value}!");
        assert!(Session::parse(&broken).unwrap().known(&key("ops", "t1")).is_none(), "a signature is base64");
    }

    #[test]
    fn what_is_no_session_is_none() {
        for value in
            ["", ".", "...", "b3Bz.1", "b3Bz.1.AA", "b3Bz.x.n.AA", "!.1.n.AA", "b3Bz.99999999999999999999.n.AA"]
        {
            assert!(Session::parse(value).is_none(), "{value}");
        }
    }

    #[test]
    fn logouts_are_remembered_while_they_matter_and_only_so_many() {
        let ended = Ended::default();
        let session =
            |name: &str, until_s: u64, n: usize| Known { name: name.to_owned(), until_s, signature: n.to_string() };
        ended.add(session("weak", now_s(), 0));
        assert!(!ended.holds(&session("weak", now_s(), 0)), "its time is over anyway");
        let ops = session("ops", now_s() + 500, 0);
        ended.add(ops.clone());
        for n in 0..ENDED_MAX + 5 {
            ended.add(session("weak", now_s() + 1_000 + n as u64, n));
        }
        assert_eq!(ended.lock()["weak"].len(), ENDED_MAX);
        assert!(ended.holds(&ops), "those of one token take no place of another's");
    }
}
