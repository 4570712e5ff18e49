//! Which trace a call belongs to: W3C Trace Context.
//!
//! A row may bring a `traceparent` among its headers; then the call is a child of the app's span and follows its decision
//! whether to sample. A row without one gets a trace id made from its `webhook-id`, so that all its attempts, on whatever
//! instance and after whatever restart, are found in one trace and are sampled all or none.
//!
//! The SDK's propagator does not read the `traceparent`: it takes ids of any length and forgets that an id is random.

use opentelemetry::trace::{SpanId, SpanKind, TraceFlags, TraceId};
use opentelemetry_sdk::trace::{Sampler, SamplingDecision, ShouldSample as _};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

/// `00-` trace id `-` span id `-` flags.
const TRACEPARENT_BYTES: usize = 55;
/// The flags of version 00 that we pass on: sampled, and that the trace id is random.
const KNOWN_FLAGS: u8 = 0x03;

/// A call's place in its trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanContext {
    /// The trace.
    pub trace_id: TraceId,
    /// The call.
    pub span_id: SpanId,
    /// The app's span; absent: the trace begins here.
    pub parent_id: Option<SpanId>,
    /// What is known of the trace: that it is sampled, and whether its id is random.
    pub flags: TraceFlags,
}

impl SpanContext {
    /// The context of one call, if it is to be traced: as the row's `traceparent` says, else for `ratio` of all rows.
    pub fn begin(headers: Option<&RawValue>, webhook_id: &str, ratio: f64) -> Option<SpanContext> {
        let span_id = SpanId::from(rand::random::<u64>().max(1));
        match headers.and_then(parent) {
            Some(parent) => parent.flags.is_sampled().then_some(SpanContext {
                trace_id: parent.trace_id,
                span_id,
                parent_id: Some(parent.span_id),
                flags: parent.flags,
            }),
            None => {
                let trace_id = trace_id_of(webhook_id);
                is_sampled(trace_id, ratio).then_some(SpanContext {
                    trace_id,
                    span_id,
                    parent_id: None,
                    flags: TraceFlags::SAMPLED,
                })
            }
        }
    }

    /// What the provider is told, so that its spans hang below ours.
    pub fn traceparent(&self) -> String {
        format!("00-{}-{}-{:02x}", self.trace_id, self.span_id, self.flags)
    }
}

/// The app's span.
#[derive(Debug, PartialEq, Eq)]
struct Parent {
    trace_id: TraceId,
    span_id: SpanId,
    flags: TraceFlags,
}

fn parent(headers: &RawValue) -> Option<Parent> {
    #[derive(serde::Deserialize)]
    struct Headers<'a> {
        #[serde(borrow)]
        traceparent: Option<std::borrow::Cow<'a, str>>,
    }
    let headers: Headers<'_> = serde_json::from_str(headers.get()).ok()?;
    parse(headers.traceparent?.as_bytes())
}

/// Versions to come may append to what we know, after another dash.
fn parse(text: &[u8]) -> Option<Parent> {
    let (known, rest) = text.split_at_checked(TRACEPARENT_BYTES)?;
    let dashes = [known[2], known[35], known[52]];
    let [version] = unhex(&known[..2])?;
    let is_whole = if version == 0 { rest.is_empty() } else { rest.is_empty() || rest[0] == b'-' };
    if version == 0xff || !is_whole || dashes != *b"---" {
        return None;
    }
    let [flags] = unhex(&known[53..])?;
    let parent = Parent {
        trace_id: TraceId::from_bytes(unhex(&known[3..35])?),
        span_id: SpanId::from_bytes(unhex(&known[36..52])?),
        flags: TraceFlags::new(flags & KNOWN_FLAGS),
    };
    (parent.trace_id != TraceId::INVALID && parent.span_id != SpanId::INVALID).then_some(parent)
}

/// Only lower case: upper case is not a `traceparent`.
fn unhex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

fn trace_id_of(webhook_id: &str) -> TraceId {
    let mut trace_id = [0; 16];
    trace_id.copy_from_slice(&Sha256::digest(webhook_id.as_bytes())[..16]);
    TraceId::from_bytes(trace_id)
}

/// By the trace id, so that everybody decides alike.
fn is_sampled(trace_id: TraceId, ratio: f64) -> bool {
    let sampler = Sampler::TraceIdRatioBased(ratio);
    let decision = sampler.should_sample(None, trace_id, "", &SpanKind::Client, &[], &[]).decision;
    decision == SamplingDecision::RecordAndSample
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";

    fn begin(traceparent: &str, ratio: f64) -> Option<SpanContext> {
        let headers = RawValue::from_string(serde_json::json!({ "traceparent": traceparent }).to_string()).unwrap();
        SpanContext::begin(Some(&headers), "ntf-a-1-1", ratio)
    }

    #[test]
    fn a_call_is_a_child_of_the_apps_span_and_follows_its_decision() {
        let child = begin(&format!("00-{TRACE}-{SPAN}-01"), 0.0).expect("sampled by the app");
        assert_eq!(
            (child.trace_id.to_string().as_str(), child.parent_id.map(|id| id.to_string())),
            (TRACE, Some(SPAN.to_owned()))
        );
        assert_eq!(child.traceparent(), format!("00-{TRACE}-{}-01", child.span_id));
        assert_ne!(child.span_id.to_string(), SPAN);
        assert_eq!(begin(&format!("00-{TRACE}-{SPAN}-00"), 1.0), None);
        let random = begin(&format!("00-{TRACE}-{SPAN}-03"), 0.0).expect("sampled");
        assert!(random.traceparent().ends_with("-03"));
        let later = begin(&format!("cc-{TRACE}-{SPAN}-09-more"), 0.0).expect("a version to come");
        assert!(later.traceparent().starts_with("00-") && later.traceparent().ends_with("-01"));
    }

    #[test]
    fn what_is_no_traceparent_begins_a_trace() {
        for bad in [
            String::new(),
            "00-abc-def-01".to_owned(),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("cc-{TRACE}-{SPAN}-01more"),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{}-{SPAN}-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{TRACE}_{SPAN}-01"),
            format!("00-{TRACE}-{SPAN}-é"),
        ] {
            let root = begin(&bad, 1.0).expect("a trace of its own");
            assert_eq!((root.parent_id, root.flags), (None, TraceFlags::SAMPLED), "{bad}");
            assert_eq!(begin(&bad, 0.0), None, "{bad}");
        }
        let not_text = RawValue::from_string(r#"{"traceparent": 1}"#.to_owned()).unwrap();
        assert!(SpanContext::begin(Some(&not_text), "ntf-a-1-1", 1.0).is_some());
    }

    #[test]
    fn all_attempts_of_a_notification_share_a_trace_and_their_fate() {
        let mut sampled = 0;
        for n in 0..1000 {
            let id = format!("ntf-a-{n}-1");
            let attempts = [(); 3].map(|()| SpanContext::begin(None, &id, 0.3));
            let traces: Vec<_> = attempts.iter().flatten().map(|attempt| attempt.trace_id).collect();
            assert!(traces.is_empty() || traces == [traces[0]; 3], "all or none");
            sampled += usize::from(!traces.is_empty());
        }
        assert!((250..350).contains(&sampled), "{sampled} of 1000");
    }
}
