//! The bearer token.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use hmac::{Hmac, KeyInit as _, Mac as _};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::Sha256;

use super::problem;

/// What callers must present. Only a keyed hash of it is kept, and hashes are compared in constant time, so that
/// neither memory nor timing tells it.
pub(super) struct Token {
    key: Hmac<Sha256>,
    expected: [u8; 32],
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    pub(super) fn new(secret: &SecretString) -> Token {
        let key = Hmac::<Sha256>::new_from_slice(&rand::random::<[u8; 32]>()).expect("HMAC takes keys of any length");
        let mut mac = key.clone();
        mac.update(secret.expose_secret().as_bytes());
        Token { key, expected: mac.finalize().into_bytes().into() }
    }

    fn matches(&self, given: &[u8]) -> bool {
        let mut mac = self.key.clone();
        mac.update(given);
        mac.verify_slice(&self.expected).is_ok()
    }
}

/// Lets a request pass that presents the token, or any if there is none.
pub(super) async fn require(State(token): State<Option<Arc<Token>>>, request: Request, next: Next) -> Response {
    match token {
        Some(token) if !presented(request.headers()).is_some_and(|given| token.matches(given)) => {
            let detail = "present the token: Authorization: Bearer <http_token>";
            let mut response = problem::of(StatusCode::UNAUTHORIZED, detail);
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"outboxd\""));
            response
        }
        _ => next.run(request).await,
    }
}

fn presented(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_matches() {
        let token = Token::new(&SecretString::from("hunter2"));
        assert!(token.matches(b"hunter2"));
        for wrong in [&b""[..], b"hunter", b"hunter22", b"Hunter2"] {
            assert!(!token.matches(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn the_scheme_is_bearer_in_any_case() {
        for (value, wanted) in [
            ("Bearer abc", Some(&b"abc"[..])),
            ("bearer  abc ", Some(b"abc")),
            ("Basic abc", None),
            ("Bearer", None),
            ("", None),
        ] {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static(value))]);
            assert_eq!(presented(&headers), wanted, "{value:?}");
        }
        assert_eq!(presented(&HeaderMap::new()), None);
    }
}
