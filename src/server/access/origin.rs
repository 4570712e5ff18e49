//! Which requests a browser sends on behalf of our own pages.
//!
//! A page of a stranger can make a browser send a request here, with our cookie, or, where there is no token, with
//! nothing at all. It cannot choose `Sec-Fetch-Site` and `Origin`: the browser does. `SameSite=Strict` keeps our cookie
//! from other sites but not from other ports of the same host, which are the same site.
//!
//! What changes something, opens a WebSocket, or is loaded by a page must come from our own pages; a link may come from
//! anywhere. A program that is no browser sends
//! neither header; with a cookie it must send one, without a token it need not: every browser sends one with such a
//! request, and its Host must be local.
//!
//! **Guarantee.** No page of another origin changes anything here in somebody's name. **Limit.** Without a token, a
//! browser too old to send either header is taken for a program.

use std::net::IpAddr;

use axum::http::header::{HOST, HeaderMap, ORIGIN, UPGRADE};
use axum::http::{HeaderName, Method};

use super::Proof;
use crate::server::problem::{Kind, Problem};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// Refuses what may come from a stranger's page.
pub(super) fn check(proof: Proof, method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
    // A link leads here from anywhere; what a stranger's page loads by itself it has no use for but to keep us busy.
    let is_asked_for =
        is_own_page(headers) != Some(false) || headers.get(SEC_FETCH_MODE).is_some_and(|m| m == "navigate");
    let is_safe = method.is_safe() && !headers.contains_key(UPGRADE) && is_asked_for;
    let is_ours = match proof {
        Proof::Bearer => true,
        Proof::Cookie => is_own_page(headers) == Some(true),
        Proof::None => is_own_page(headers) != Some(false),
    };
    if is_safe || is_ours {
        return Ok(());
    }
    let detail = "a browser sent this for another site's page; open the dashboard itself, or present a bearer token";
    Err(Problem::new(Kind::CrossOrigin, detail))
}

/// Refuses a WebSocket of a page that is neither ours nor of an allowed origin, whatever it presents: programs that are
/// no browser send no Origin.
pub(super) fn check_socket(proof: Proof, headers: &HeaderMap, allowed: &[String]) -> Result<(), Problem> {
    let Some(origin) = headers.get(ORIGIN) else { return check(proof, &Method::GET, headers) };
    let is_allowed = allowed.iter().any(|allowed| origin.as_bytes().eq_ignore_ascii_case(allowed.as_bytes()));
    if is_allowed || is_own_page(headers) == Some(true) {
        return Ok(());
    }
    let detail = "this Origin may not listen; let your backend ask for a ticket, or add it to live.allowed_origins";
    Err(Problem::new(Kind::CrossOrigin, detail))
}

/// `None`: nothing tells, so it is no browser of today.
fn is_own_page(headers: &HeaderMap) -> Option<bool> {
    if let Some(site) = headers.get(SEC_FETCH_SITE) {
        return Some(site == "same-origin" || site == "none");
    }
    let origin = headers.get(ORIGIN)?.to_str().unwrap_or_default();
    let host = headers.get(HOST).and_then(|host| host.to_str().ok())?;
    let authority = origin.split_once("://").map(|(_, authority)| authority);
    Some(authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host)))
}

/// Whether a Host header names this machine's loopback.
pub(in crate::server) fn is_local(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_few_names() {
        for host in ["localhost", "LOCALHOST:8080", "127.0.0.1", "127.0.0.1:1", "127.9.9.9", "[::1]:8080", "[::1]"] {
            assert!(is_local(host), "{host}");
        }
        for host in ["", "example.com", "localhost.example.com:8080", "10.0.0.1", "[fe80::1]:80", "127.0.0.1.nip.io"] {
            assert!(!is_local(host), "{host}");
        }
    }

    fn headers(given: &[(&'static str, &'static str)]) -> HeaderMap {
        given.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[test]
    fn only_our_own_pages_and_programs_that_are_no_browser_change_things() {
        let host = ("host", "127.0.0.1:8080");
        // headers, with a cookie, without any token
        for (given, cookie, open) in [
            (vec![host], false, true),
            (vec![host, ("sec-fetch-site", "same-origin")], true, true),
            (vec![host, ("sec-fetch-site", "none")], true, true),
            (vec![host, ("sec-fetch-site", "same-site")], false, false),
            (vec![host, ("sec-fetch-site", "cross-site")], false, false),
            (vec![host, ("sec-fetch-site", "cross-site"), ("origin", "http://127.0.0.1:8080")], false, false),
            (vec![host, ("origin", "http://127.0.0.1:8080")], true, true),
            (vec![host, ("origin", "http://127.0.0.1:3000")], false, false),
            (vec![host, ("origin", "https://attacker.example")], false, false),
            (vec![host, ("origin", "null")], false, false),
        ] {
            let headers = headers(&given);
            assert_eq!(check(Proof::Cookie, &Method::POST, &headers).is_ok(), cookie, "{given:?}");
            assert_eq!(check(Proof::None, &Method::POST, &headers).is_ok(), open, "{given:?}");
            for (proof, may) in [(Proof::None, open), (Proof::Bearer, true), (Proof::Cookie, open)] {
                assert_eq!(check(proof, &Method::GET, &headers).is_ok(), may, "{given:?}");
            }
            let mut link = headers.clone();
            link.insert(SEC_FETCH_MODE, "navigate".parse().unwrap());
            assert!(check(Proof::Cookie, &Method::GET, &link).is_ok(), "{given:?}");
            assert!(check(Proof::Bearer, &Method::POST, &headers).is_ok(), "{given:?}");
        }
    }

    #[test]
    fn a_page_listens_only_if_it_is_ours_or_its_origin_is_allowed() {
        let host = ("host", "127.0.0.1:8080");
        let allowed = ["https://shop.example".to_owned()];
        for (origin, may) in [
            ("http://127.0.0.1:8080", true),
            ("https://shop.example", true),
            ("https://SHOP.example", true),
            ("https://shop.example.attacker.example", false),
            ("https://shop.example:8443", false),
            ("http://127.0.0.1:3000", false),
            ("null", false),
        ] {
            let headers = headers(&[host, ("origin", origin), ("upgrade", "websocket")]);
            for proof in [Proof::None, Proof::Bearer, Proof::Cookie] {
                assert_eq!(check_socket(proof, &headers, &allowed).is_ok(), may, "{origin} {proof:?}");
            }
        }
        let program = headers(&[host, ("upgrade", "websocket")]);
        for (proof, may) in [(Proof::None, true), (Proof::Bearer, true), (Proof::Cookie, false)] {
            assert_eq!(check_socket(proof, &program, &allowed).is_ok(), may, "{proof:?}");
        }
    }

    #[test]
    fn a_websocket_of_a_strangers_page_is_refused() {
        let given = [("host", "127.0.0.1:8080"), ("origin", "https://attacker.example"), ("upgrade", "websocket")];
        assert!(check(Proof::None, &Method::GET, &headers(&given)).is_err());
        assert!(check(Proof::Cookie, &Method::GET, &headers(&given)).is_err());
    }
}
