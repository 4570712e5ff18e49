//! OTLP's JSON: ids in hexadecimal, 64-bit numbers as text, enumerations as numbers.

use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::Span;
use crate::telemetry::VERSION;
use crate::telemetry::trace::hex;

const KIND_INTERNAL: u8 = 1;
const KIND_CLIENT: u8 = 3;
const STATUS_ERROR: u8 = 2;

/// Who sends the spans.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) service_name: String,
    pub(super) instance: String,
}

/// The body of one request.
pub(super) fn request(source: &Source, spans: &[Span]) -> serde_json::Result<Vec<u8>> {
    let attributes = vec![
        Attribute::text("service.name", &source.service_name),
        Attribute::text("service.version", VERSION),
        Attribute::text("service.instance.id", &source.instance),
    ];
    let spans = spans.iter().flat_map(|span| [queued(span), called(span)]).collect();
    serde_json::to_vec(&Request {
        resource_spans: [ResourceSpans {
            resource: Resource { attributes },
            scope_spans: [ScopeSpans { scope: Scope { name: "outboxd", version: VERSION }, spans }],
        }],
    })
}

/// From the publication, by the database's clock, to the call, by ours.
fn queued(span: &Span) -> SpanJson<'_> {
    let published = SystemTime::from(span.call.published_at).min(span.since);
    // Made from the call's, so that the same span sent again has the same id.
    let span_id = u64::from_be_bytes(span.context.span_id).wrapping_neg().to_be_bytes();
    SpanJson {
        span_id: hex(&span_id),
        name: "queued".to_owned(),
        kind: KIND_INTERNAL,
        start_time_unix_nano: unix_nanos(published),
        end_time_unix_nano: unix_nanos(span.since),
        attributes: identity(span),
        status: Status { code: None },
        ..bare(span)
    }
}

fn called(span: &Span) -> SpanJson<'_> {
    let call = &span.call;
    let mut attributes = identity(span);
    attributes.push(Attribute::text("outboxd.outcome", call.outcome));
    if let Some(status) = call.http_status {
        attributes.push(Attribute::number("http.response.status_code", status.into()));
    }
    if let Some(error) = call.error {
        // As the conventions for HTTP want it: the status where there is one.
        let error = call.http_status.map_or(Cow::Borrowed(error), |status| Cow::Owned(status.to_string()));
        attributes.push(Attribute { key: "error.type", value: Value::StringValue(error) });
    }
    SpanJson {
        name: format!("send {}", call.channel),
        kind: KIND_CLIENT,
        attributes,
        status: Status { code: call.error.map(|_| STATUS_ERROR) },
        ..bare(span)
    }
}

fn bare(span: &Span) -> SpanJson<'_> {
    SpanJson {
        trace_id: hex(&span.context.trace_id),
        span_id: hex(&span.context.span_id),
        parent_span_id: span.context.parent_id.map(|id| hex(&id)),
        name: String::new(),
        kind: KIND_INTERNAL,
        start_time_unix_nano: unix_nanos(span.since),
        end_time_unix_nano: unix_nanos(span.until),
        attributes: Vec::new(),
        status: Status { code: None },
    }
}

fn identity(span: &Span) -> Vec<Attribute<'_>> {
    let call = &span.call;
    vec![
        Attribute::number("outboxd.notification.id", call.notification),
        Attribute::text("outboxd.topic", &call.topic),
        Attribute::text("outboxd.channel", &call.channel),
        Attribute::number("outboxd.attempt", call.attempt.into()),
    ]
}

fn unix_nanos(at: SystemTime) -> String {
    at.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_nanos().to_string()
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    resource_spans: [ResourceSpans<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans<'a> {
    resource: Resource<'a>,
    scope_spans: [ScopeSpans<'a>; 1],
}

#[derive(Serialize)]
struct Resource<'a> {
    attributes: Vec<Attribute<'a>>,
}

#[derive(Serialize)]
struct ScopeSpans<'a> {
    scope: Scope,
    spans: Vec<SpanJson<'a>>,
}

#[derive(Serialize)]
struct Scope {
    name: &'static str,
    version: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SpanJson<'a> {
    trace_id: String,
    span_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<String>,
    name: String,
    kind: u8,
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    attributes: Vec<Attribute<'a>>,
    status: Status,
}

#[derive(Serialize)]
struct Status {
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<u8>,
}

#[derive(Serialize)]
struct Attribute<'a> {
    key: &'static str,
    value: Value<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Value<'a> {
    StringValue(Cow<'a, str>),
    IntValue(String),
}

impl<'a> Attribute<'a> {
    fn text(key: &'static str, text: &'a str) -> Attribute<'a> {
        Attribute { key, value: Value::StringValue(Cow::Borrowed(text)) }
    }

    fn number(key: &'static str, number: i64) -> Attribute<'a> {
        Attribute { key, value: Value::IntValue(number.to_string()) }
    }
}
