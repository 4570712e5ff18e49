//! `POST /v1/notifications`: an app writes without SQL. One round trip to Postgres, one transaction a request.
//!
//! **Guarantee.** All of a request is written or nothing; a repeat under its Idempotency-Key gets the first answer.
//! **Limit.** For as long as `retention.idempotency`.

use axum::http::header::{CONTENT_TYPE, HeaderMap, LOCATION};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};
use utoipa::ToSchema;

use super::input::{self, JsonBytes};
use crate::server::access::Caller;
use crate::server::problem::{Kind, Problem, Shape};
use crate::server::readiness::Ready;
use crate::store::notify::{Idempotency, NewNotification, Posted};

/// Notifications of one request at most.
const BATCH_MAX: usize = 1_000;
/// Characters of an Idempotency-Key at most.
const KEY_CHARS_MAX: usize = 255;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// One notification to write; the fields are the arguments of `outboxd.notify()`.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Draft<'a> {
    /// What it is about; decides the route. 1 to 200 bytes.
    #[schema(min_length = 1, max_length = 200)]
    topic: String,
    /// Device token, phone number, URL … 1 to 2048 bytes.
    #[schema(min_length = 1, max_length = 2048)]
    recipient: String,
    /// Any JSON but null, up to 256 KiB.
    #[serde(borrow)]
    #[schema(schema_with = input::any_but_null)]
    payload: &'a RawValue,
    /// Not before this time; absent: now.
    #[serde(default, deserialize_with = "input::time", skip_serializing_if = "Option::is_none")]
    send_at: Option<DateTime<Utc>>,
    /// The same (topic, dedup_key) again gives the first one's id and writes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 512)]
    dedup_key: Option<String>,
    /// Those of a topic with the same key are sent one after the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 512)]
    ordering_key: Option<String>,
    /// Past this time it is not sent but FAILED.
    #[serde(default, deserialize_with = "input::time", skip_serializing_if = "Option::is_none")]
    expires_at: Option<DateTime<Utc>>,
    /// An object of strings.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    headers: Option<&'a RawValue>,
}

/// One notification, or an array of up to 1,000.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes the body, which is read as one or the other")]
enum Drafts<'a> {
    /// One.
    One(Draft<'a>),
    /// Several, in one transaction.
    Many(Vec<Draft<'a>>),
}

/// What was written: `id` of one, or `ids` of an array, in its order.
#[derive(Serialize, ToSchema)]
struct Written {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ids: Option<Vec<i64>>,
}

/// Writes one notification, or an array of them, in one transaction.
#[utoipa::path(
    post,
    path = "/v1/notifications",
    operation_id = "writeNotifications",
    tag = "notifications",
    params(("Idempotency-Key" = Option<String>, Header, pattern = "^[!-~]{1,255}$",
        description = "A repeat under the same key gets the first answer; keys are each token's own.")),
    request_body = Drafts<'_>,
    responses(
        (status = 201, description = "They are written, or were under this key", body = Written),
        (status = 403, description = "The token may not write to the topic", body = Shape),
        (status = 409, description = "A request with this Idempotency-Key is under way", body = Shape),
        (status = 422, description = "A value cannot be taken, or the key belongs to another body", body = Shape),
        (status = 503, description = "Postgres is away, or too much is asked at a time", body = Shape)
    )
)]
pub(super) async fn create(
    caller: Caller,
    Ready(store): Ready,
    headers: HeaderMap,
    JsonBytes(body): JsonBytes,
) -> Result<Response, Problem> {
    let key = idempotency_key(&headers)?;
    let is_many = body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
    let drafts: Vec<Draft<'_>> = if is_many { input::parse(&body)? } else { vec![input::parse(&body)?] };
    check(&caller, &drafts)?;
    if let ([draft], None) = (&*drafts, key)
        && !is_many
    {
        let id = store.notify(&draft.as_new()).await?;
        return Ok(written(&[id], Shown::One));
    }
    let items = serde_json::to_string(&drafts)
        .map_err(|error| Problem::new(Kind::Internal, format!("the notifications do not serialize: {error}")))?;
    let digest = Sha256::digest(&body);
    let once = key.map(|key| Idempotency { key, digest: &digest });
    let shown = if is_many { Shown::Many } else { Shown::One };
    match store.post(caller.name(), once, &items).await? {
        Posted::Done(ids) => Ok(written(&ids, shown)),
        Posted::Replayed(ids) => {
            let mut response = written(&ids, shown);
            response.headers_mut().insert(IDEMPOTENCY_REPLAYED, HeaderValue::from_static("true"));
            Ok(response)
        }
        Posted::OtherBody => {
            let detail = "this Idempotency-Key was used with another body; a new request needs a new key";
            Err(Problem::new(Kind::KeyReused, detail))
        }
        Posted::UnderWay => {
            let detail = "a request with this Idempotency-Key is under way; ask again for its answer";
            Err(Problem::new(Kind::KeyUnderWay, detail))
        }
    }
}

impl Draft<'_> {
    fn as_new(&self) -> NewNotification<'_> {
        NewNotification {
            topic: &self.topic,
            recipient: &self.recipient,
            payload: self.payload.get(),
            send_at: self.send_at,
            dedup_key: self.dedup_key.as_deref(),
            ordering_key: self.ordering_key.as_deref(),
            expires_at: self.expires_at,
            headers: self.headers.map(RawValue::get),
        }
    }
}

fn check(caller: &Caller, drafts: &[Draft<'_>]) -> Result<(), Problem> {
    if drafts.is_empty() || drafts.len() > BATCH_MAX {
        let detail = format!("an array has 1 to {BATCH_MAX} notifications, not {}", drafts.len());
        return Err(Problem::new(Kind::Invalid, detail));
    }
    if drafts.iter().any(|draft| draft.payload.get() == "null") {
        return Err(Problem::new(Kind::Invalid, "payload must not be null"));
    }
    drafts.iter().try_for_each(|draft| caller.check_topic("write to", &draft.topic))
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let legal =
        |key: &&str| (1..=KEY_CHARS_MAX).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic());
    let key = value.to_str().ok().filter(legal).ok_or_else(|| {
        let detail = format!("an Idempotency-Key has 1 to {KEY_CHARS_MAX} visible ASCII characters, without spaces");
        Problem::new(Kind::BadRequest, detail)
    })?;
    Ok(Some(key))
}

#[derive(Clone, Copy)]
enum Shown {
    One,
    Many,
}

/// The same ids always make the same answer: a replay needs no more than them.
fn written(ids: &[i64], shown: Shown) -> Response {
    let body = match (shown, ids) {
        (Shown::One, [id]) => Written { id: Some(*id), ids: None },
        _ => Written { id: None, ids: Some(ids.to_vec()) },
    };
    let location = body.id.map(|id| format!("/v1/notifications/{id}"));
    let text = serde_json::to_string(&body).expect("numbers serialize");
    let mut response = (StatusCode::CREATED, [(CONTENT_TYPE, "application/json")], text).into_response();
    if let Some(location) = location.and_then(|location| HeaderValue::from_str(&location).ok()) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}
