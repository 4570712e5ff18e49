//! Answers that say no: `application/problem+json`, as of RFC 9457.

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// A problem whose status says all there is to know, and a sentence for people.
pub(super) fn of(status: StatusCode, detail: &str) -> Response {
    let body = json!({
        "type": "about:blank",
        "title": status.canonical_reason().unwrap_or("Error"),
        "status": status.as_u16(),
        "detail": detail,
    });
    (status, [(CONTENT_TYPE, "application/problem+json")], body.to_string()).into_response()
}
