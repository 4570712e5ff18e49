//! What a request says, read without a panic and with a problem that says what is wrong.
//!
//! **Guarantee.** Whatever is sent gets an answer of 4xx that names the part at fault, or is taken. **Limit.** A body
//! is read whole before it is judged, within its bound.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::path::ErrorKind;
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use chrono::{DateTime, Utc};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::error::Category;
use utoipa::openapi::schema::{ObjectBuilder, Schema, SchemaType, Type};

use crate::server::problem::{Kind, Problem};

/// How long a body may take to come.
const BODY_TIME_MAX: Duration = Duration::from_secs(5);

/// What stands in the path.
pub(super) struct InPath<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for InPath<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<InPath<T>, Problem> {
        let Path(found) = Path::<T>::from_request_parts(parts, state).await.map_err(|rejection| {
            let kind = match rejection {
                PathRejection::FailedToDeserializePathParams(failed) => Some(failed.into_kind()),
                _ => None,
            };
            match kind {
                Some(ErrorKind::InvalidUtf8InPathParam { .. }) => {
                    Problem::new(Kind::BadRequest, "a part of the path is no UTF-8")
                }
                // What serde says of a name that is none of an enum's.
                Some(ErrorKind::Message(said)) => {
                    Problem::new(Kind::NotFound, format!("there is no such action: {said}"))
                }
                // Whatever cannot be a number is the number of nothing.
                _ => Problem::new(Kind::NotFound, "there is nothing of that number"),
            }
        })?;
        Ok(InPath(found))
    }
}

/// What stands in the query.
pub(super) struct InQuery<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for InQuery<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<InQuery<T>, Problem> {
        let Query(found) = Query::<T>::from_request_parts(parts, state)
            .await
            .map_err(|rejection| Problem::new(Kind::BadRequest, rejection.body_text()))?;
        Ok(InQuery(found))
    }
}

/// A body that is said to be JSON, as it came. A stranger's page cannot make a browser say that without asking first.
pub(in crate::server) struct JsonBytes(pub(in crate::server) Bytes);

impl<S: Send + Sync> FromRequest<S> for JsonBytes {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<JsonBytes, Problem> {
        let said = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let kind = said.split(';').next().unwrap_or_default().trim();
        if !kind.eq_ignore_ascii_case("application/json") {
            return Err(Problem::new(Kind::NotJson, "send JSON, with Content-Type: application/json"));
        }
        match tokio::time::timeout(BODY_TIME_MAX, Bytes::from_request(request, state)).await {
            Ok(read) => read.map(JsonBytes).map_err(|rejection| unread(&rejection)),
            Err(_) => Err(Problem::new(Kind::Timeout, "the body did not come in time")),
        }
    }
}

fn unread(rejection: &BytesRejection) -> Problem {
    if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
        let detail = format!("a body has at most {} bytes; send less at a time", crate::server::BODY_BYTES_MAX);
        return Problem::new(Kind::TooLarge, detail);
    }
    Problem::new(Kind::BadRequest, "the body could not be read to its end")
}

/// Reads JSON: what is none is a bad request, what is another shape invalid.
pub(in crate::server) fn parse<'a, T: serde::Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Problem> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let parsed = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let field = error.path().to_string();
        let subject = if field == "." { "the body".to_owned() } else { field };
        (subject, error.into_inner())
    });
    let whole = parsed.and_then(|parsed| json.end().map(|()| parsed).map_err(|error| (String::new(), error)));
    whole.map_err(|(subject, error)| match error.classify() {
        Category::Data => Problem::new(Kind::Invalid, format!("{subject} does not fit: {error}")),
        Category::Syntax | Category::Eof | Category::Io => {
            Problem::new(Kind::BadRequest, format!("the body is no JSON: {error}"))
        }
    })
}

/// The description of a payload.
pub(super) fn any_but_null() -> Schema {
    use Type::{Array, Boolean, Number, Object, String};
    let any = SchemaType::from_iter([Object, Array, String, Number, Boolean]);
    ObjectBuilder::new().schema_type(any).description(Some("Any JSON but null, up to 256 KiB.")).into()
}

/// A point in time. Says how to write one, which its parser does not.
pub(super) fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<DateTime<Utc>>, D::Error> {
    let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
    let wrong = |_| D::Error::custom(format!("{text:?} is no time such as \"2030-01-01T09:00:00+09:00\""));
    text.parse().map(Some).map_err(wrong)
}
