//! Answers that say no: `application/problem+json`, as of RFC 9457. `docs/api.md` lists the types.
//!
//! **Guarantee.** A type means the same for good; programs tell problems apart by it. **Limit.** `detail` is for people
//! and may change.

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, UPGRADE, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tracing::{debug, error};

use crate::store;
use crate::store::request::{Reason, RequestError};

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
    /// A proxy brought it, and there are no tokens.
    Forwarded,
    /// There is nothing here.
    NotFound,
    /// The path does not take the method.
    MethodNotAllowed,
    /// The Host is not ours to answer for.
    Misdirected,
    /// The path speaks WebSocket only.
    UpgradeRequired,
    /// This configuration cannot do it.
    NotImplemented,
    /// The body did not come in time.
    Timeout,
    /// The body is larger than can be taken.
    TooLarge,
    /// The body is not said to be JSON.
    NotJson,
    /// A value is not one that can be taken.
    Invalid,
    /// It is not in a state in which that can be done.
    Conflict,
    /// A request with the same Idempotency-Key is under way.
    KeyUnderWay,
    /// The Idempotency-Key belongs to another request.
    KeyReused,
    /// Not now: starting, or without Postgres.
    Unavailable,
    /// Not now: too many requests at a time.
    Overloaded,
    /// Somebody who operates outboxd must act; the log says why.
    Internal,
}

impl Kind {
    /// The status, and the last part of the type's URI.
    fn parts(self) -> (StatusCode, &'static str) {
        match self {
            Kind::BadRequest => (StatusCode::BAD_REQUEST, "bad-request"),
            Kind::Unauthorized => (StatusCode::UNAUTHORIZED, "unauthorized"),
            Kind::Forbidden => (StatusCode::FORBIDDEN, "forbidden"),
            Kind::CrossOrigin => (StatusCode::FORBIDDEN, "cross-origin"),
            Kind::Forwarded => (StatusCode::FORBIDDEN, "forwarded"),
            Kind::NotFound => (StatusCode::NOT_FOUND, "not-found"),
            Kind::MethodNotAllowed => (StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed"),
            Kind::Misdirected => (StatusCode::MISDIRECTED_REQUEST, "misdirected"),
            Kind::UpgradeRequired => (StatusCode::UPGRADE_REQUIRED, "upgrade-required"),
            Kind::NotImplemented => (StatusCode::NOT_IMPLEMENTED, "not-implemented"),
            Kind::Timeout => (StatusCode::REQUEST_TIMEOUT, "timeout"),
            Kind::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "too-large"),
            Kind::NotJson => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "not-json"),
            Kind::Invalid => (StatusCode::UNPROCESSABLE_ENTITY, "invalid"),
            Kind::Conflict => (StatusCode::CONFLICT, "conflict"),
            Kind::KeyUnderWay => (StatusCode::CONFLICT, "idempotency-key-under-way"),
            Kind::KeyReused => (StatusCode::UNPROCESSABLE_ENTITY, "idempotency-key-reused"),
            Kind::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
            Kind::Overloaded => (StatusCode::SERVICE_UNAVAILABLE, "overloaded"),
            Kind::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        }
    }
}

/// What an answer that says no looks like, for the description of the API.
#[derive(utoipa::ToSchema)]
#[schema(as = Problem)]
#[expect(dead_code, reason = "describes what is written by hand")]
pub(super) struct Shape {
    /// Tells problems apart: `urn:outboxd:problem:…`, listed in docs/api.md.
    r#type: String,
    /// The status in words.
    title: String,
    /// The status.
    status: u16,
    /// What is wrong and what to do, for people.
    detail: String,
}

/// One answer that says no.
#[derive(Debug, Clone)]
pub(super) struct Problem {
    kind: Kind,
    detail: String,
}

impl Problem {
    /// `detail` is a sentence for people: what is wrong and what to do.
    pub(super) fn new(kind: Kind, detail: impl Into<String>) -> Problem {
        Problem { kind, detail: detail.into() }
    }

    /// Of what kind.
    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// As HTTP tells it.
    pub(super) fn status(&self) -> StatusCode {
        self.kind.parts().0
    }

    /// The sentence for people.
    pub(super) fn detail(&self) -> &str {
        &self.detail
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (status, name) = self.kind.parts();
        let body = json!({
            "type": format!("urn:outboxd:problem:{name}"),
            "title": status.canonical_reason().unwrap_or("Error"),
            "status": status.as_u16(),
            "detail": self.detail,
        });
        let mut response = (status, [(CONTENT_TYPE, "application/problem+json")], body.to_string()).into_response();
        match self.kind {
            Kind::Unauthorized => {
                let challenge = HeaderValue::from_static("Bearer realm=\"outboxd\"");
                response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
            }
            Kind::UpgradeRequired => {
                response.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
            }
            Kind::Unavailable | Kind::Overloaded | Kind::KeyUnderWay => {
                response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        response
    }
}

/// What the store says no to, in its words.
impl From<RequestError> for Problem {
    fn from(error: RequestError) -> Problem {
        match error {
            RequestError::Denied(denied) => {
                let kind = match denied.reason {
                    Reason::NotFound => Kind::NotFound,
                    Reason::WrongState => Kind::Conflict,
                    Reason::Invalid => Kind::Invalid,
                };
                let hint = denied.hint.map(|hint| format!("; {hint}")).unwrap_or_default();
                Problem::new(kind, format!("{}{hint}", denied.message))
            }
            RequestError::OutOfTime => {
                debug!("a request was ended by its time limit, or by somebody on the server");
                Problem::new(
                    Kind::Unavailable,
                    "it takes longer than a request may, and nothing was changed; try again when Postgres is less busy",
                )
            }
            RequestError::Store(error) if error.is_passing() => {
                debug!(%error, "a request could not be answered");
                Problem::new(Kind::Unavailable, "Postgres is away or busy; try again")
            }
            // A value of a row that cannot be read is a value of the app's, and not what this caller sent.
            RequestError::Store(store::Error::Value(why)) => Problem::new(Kind::Invalid, why),
            RequestError::Store(error) => {
                error!(%error, "a request could not be answered");
                Problem::new(
                    Kind::Internal,
                    "Postgres refused outboxd; its log says why, and `outboxd check` what to do",
                )
            }
        }
    }
}
