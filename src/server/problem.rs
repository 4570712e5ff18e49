//! Answers that say no: `application/problem+json`, as of RFC 9457. `docs/api.md` lists the types.

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// What is wrong, as programs tell it apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The request cannot be read.
    BadRequest,
    /// No token, or none that is known.
    Unauthorized,
    /// The token may not do this.
    Forbidden,
    /// A browser sent it for a stranger's page.
    CrossOrigin,
    /// There is nothing here.
    NotFound,
    /// The path does not take the method.
    MethodNotAllowed,
    /// The Host is not ours to answer for.
    Misdirected,
    /// Not now: starting, overloaded, or without Postgres.
    Unavailable,
}

impl Kind {
    /// The status, and the last part of the type's URI.
    fn parts(self) -> (StatusCode, &'static str) {
        match self {
            Kind::BadRequest => (StatusCode::BAD_REQUEST, "bad-request"),
            Kind::Unauthorized => (StatusCode::UNAUTHORIZED, "unauthorized"),
            Kind::Forbidden => (StatusCode::FORBIDDEN, "forbidden"),
            Kind::CrossOrigin => (StatusCode::FORBIDDEN, "cross-origin"),
            Kind::NotFound => (StatusCode::NOT_FOUND, "not-found"),
            Kind::MethodNotAllowed => (StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed"),
            Kind::Misdirected => (StatusCode::MISDIRECTED_REQUEST, "misdirected"),
            Kind::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
        }
    }
}

/// One answer that says no.
#[derive(Debug)]
pub(super) struct Problem {
    kind: Kind,
    detail: String,
}

impl Problem {
    /// `detail` is a sentence for people: what is wrong and what to do.
    pub(super) fn new(kind: Kind, detail: impl Into<String>) -> Problem {
        Problem { kind, detail: detail.into() }
    }
}

impl From<Problem> for Response {
    fn from(problem: Problem) -> Response {
        let (status, name) = problem.kind.parts();
        let body = json!({
            "type": format!("urn:outboxd:problem:{name}"),
            "title": status.canonical_reason().unwrap_or("Error"),
            "status": status.as_u16(),
            "detail": problem.detail,
        });
        let mut response = (status, [(CONTENT_TYPE, "application/problem+json")], body.to_string()).into_response();
        match problem.kind {
            Kind::Unauthorized => {
                let challenge = HeaderValue::from_static("Bearer realm=\"outboxd\"");
                response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
            }
            Kind::Unavailable => {
                response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        response
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        self.into()
    }
}
