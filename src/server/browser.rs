//! Browsers: what they send, where they are led, and what they must not do to us on behalf of a stranger's page.
//!
//! **Guarantee.** Nothing of ours is framed, guessed or cached, and nobody is led to another site. **Limit.** Which
//! requests a stranger's page may make is `access::origin`'s.

use axum::extract::Request;
use axum::http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, COOKIE, HOST, HeaderMap, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::access::is_local;
use super::problem::{Kind, Problem};

/// Nothing is guessed, framed, cached or loaded, unless the answer itself says otherwise.
const HEADERS: [(HeaderName, HeaderValue); 5] = [
    (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    // With `no-referrer` a browser hides the Origin of our own forms.
    (REFERRER_POLICY, HeaderValue::from_static("same-origin")),
    (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'")),
];

pub(super) async fn add_headers(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        response.headers_mut().entry(name).or_insert(value);
    }
    response
}

/// What only proxies add.
fn is_of_a_proxy(name: &HeaderName) -> bool {
    ["forwarded", "via", "x-real-ip"].contains(&name.as_str()) || name.as_str().starts_with("x-forwarded-")
}

/// Without a token only the network protects us. A proxy on this machine opens it to whomever it lets through, and says
/// so in a header. A page whose DNS name is pointed at 127.0.0.1 is on the wrong side of it: its requests carry its own
/// name.
pub(super) async fn only_from_here(request: Request, next: Next) -> Response {
    let host = request.headers().get(HOST).map(|host| host.to_str().unwrap_or_default());
    if let Some(name) = request.headers().keys().find(|name| is_of_a_proxy(name)) {
        let detail = format!(
            "a proxy brought this ({name}), and without a token everybody whom it lets through could do everything: set \
             http_token (OUTBOXD_HTTP_TOKEN) or tokens, and present one; or ask outboxd itself, without the proxy"
        );
        return Problem::new(Kind::Forwarded, detail).into_response();
    }
    if host.is_none_or(is_local) {
        return next.run(request).await;
    }
    let detail = "without a token only localhost and loopback addresses are answered as Host";
    Problem::new(Kind::Misdirected, detail).into_response()
}

/// A page of ours to go to next: never somebody else's.
pub(super) fn own_page(given: &str) -> &str {
    let is_plain = given.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    if is_plain && given.starts_with('/') && !given.starts_with("//") { given } else { "/" }
}

/// The page that asks for a token, with this query, and leads on to a page of ours.
pub(super) fn login_page(query: &str, next: &str) -> String {
    let mut address = url::form_urlencoded::Serializer::for_suffix(format!("/login?{query}"), "/login?".len());
    match own_page(next) {
        "/" => {}
        next => drop(address.append_pair("next", next)),
    }
    address.finish().trim_end_matches('?').to_owned()
}

/// Whether a person asks, by way of a browser, and not a program.
pub(super) fn takes_html(headers: &HeaderMap) -> bool {
    headers.get_all(ACCEPT).iter().any(|accept| accept.to_str().is_ok_and(|types| types.contains("text/html")))
}

/// Names and values of the cookies.
pub(super) fn cookies(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    let lines = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    lines.flat_map(|line| line.split(';').filter_map(|pair| pair.trim().split_once('=')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_login_leads_on_to_one_of_our_pages() {
        for (query, next, address) in [
            ("", "/", "/login"),
            ("failed", "/", "/login?failed"),
            ("", "/dead?x=1", "/login?next=%2Fdead%3Fx%3D1"),
            ("failed", "/dead", "/login?failed&next=%2Fdead"),
            ("", "//example.com", "/login"),
        ] {
            assert_eq!(login_page(query, next), address);
        }
    }

    #[test]
    fn what_comes_next_is_one_of_our_pages() {
        for given in ["/", "/channels", "/notifications?topic=a%20b&status=FAILED"] {
            assert_eq!(own_page(given), given);
        }
        for given in ["", "https://example.com", "//example.com", "/\\example.com", "/a\r\nx: y", "javascript:alert(1)"]
        {
            assert_eq!(own_page(given), "/", "{given}");
        }
    }
}
