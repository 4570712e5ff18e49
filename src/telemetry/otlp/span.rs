//! The spans of a call, as OpenTelemetry's exporters take them.

use std::borrow::Cow;
use std::time::SystemTime;

use opentelemetry::trace::{self, SpanId, SpanKind, Status, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use super::{Begun, Call};
use crate::telemetry::VERSION;

/// From the publication, by the database's clock, to the call, by ours.
pub(super) fn queued(begun: &Begun, call: &Call) -> SpanData {
    // Made from the call's, which is random: two spans for one random number.
    let span_id = u64::from_be_bytes(begun.context.span_id.to_bytes()).wrapping_neg();
    SpanData {
        span_kind: SpanKind::Internal,
        name: Cow::Borrowed("queued"),
        start_time: SystemTime::from(call.published_at).min(begun.at),
        end_time: begun.at,
        attributes: identity(call),
        ..bare(begun, SpanId::from(span_id))
    }
}

/// The call itself.
pub(super) fn called(begun: &Begun, until: SystemTime, call: &Call) -> SpanData {
    let mut attributes = identity(call);
    attributes.reserve_exact(3);
    attributes.push(KeyValue::new("outboxd.outcome", call.outcome));
    if let Some(status) = call.http_status {
        attributes.push(KeyValue::new("http.response.status_code", i64::from(status)));
    }
    if let Some(error) = call.error {
        // As the conventions for HTTP want it: the status where there is one.
        let error = call.http_status.map_or(Cow::Borrowed(error), |status| Cow::Owned(status.to_string()));
        attributes.push(KeyValue::new("error.type", error));
    }
    SpanData {
        span_kind: SpanKind::Client,
        name: Cow::Owned(format!("send {}", call.channel)),
        end_time: until,
        attributes,
        status: call.error.map_or(Status::Unset, |_| Status::error("")),
        ..bare(begun, begun.context.span_id)
    }
}

fn bare(begun: &Begun, span_id: SpanId) -> SpanData {
    let context = &begun.context;
    SpanData {
        // The row's tracestate is between the app and the provider.
        span_context: trace::SpanContext::new(context.trace_id, span_id, context.flags, false, TraceState::NONE),
        parent_span_id: context.parent_id.unwrap_or(SpanId::INVALID),
        parent_span_is_remote: context.parent_id.is_some(),
        span_kind: SpanKind::Internal,
        name: Cow::Borrowed(""),
        start_time: begun.at,
        end_time: begun.at,
        attributes: Vec::new(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: Status::Unset,
        instrumentation_scope: InstrumentationScope::builder("outboxd").with_version(VERSION).build(),
    }
}

fn identity(call: &Call) -> Vec<KeyValue> {
    vec![
        KeyValue::new("outboxd.notification.id", call.notification),
        KeyValue::new("outboxd.topic", call.topic.clone()),
        KeyValue::new("outboxd.channel", call.channel.clone()),
        KeyValue::new("outboxd.attempt", i64::from(call.attempt)),
    ]
}
