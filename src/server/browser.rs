//! What a browser must not do to us on behalf of a stranger's page.

use axum::extract::Request;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, HeaderName, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use axum::middleware::Next;
use axum::response::Response;

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

/// Without a token only the network protects us, and a page whose DNS name is pointed at 127.0.0.1 is on the wrong side
/// of it: its requests carry its own name.
pub(super) async fn only_local_names(request: Request, next: Next) -> Response {
    let host = request.headers().get(HOST).map(|host| host.to_str().unwrap_or_default());
    if host.is_none_or(is_local) {
        return next.run(request).await;
    }
    let detail = "without a token only localhost and loopback addresses are answered as Host";
    Problem::new(Kind::Misdirected, detail).into()
}

/// A page of ours to go to next: never somebody else's.
pub(super) fn own_page(given: &str) -> &str {
    let is_plain = given.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    if is_plain && given.starts_with('/') && !given.starts_with("//") { given } else { "/" }
}

#[cfg(test)]
mod tests {
    use super::*;

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
