//! Which trace a call belongs to: W3C Trace Context.
//!
//! A row may bring a `traceparent` among its headers; then the call is a child of the app's span and follows its decision
//! whether to sample. A row without one gets a trace id made from its `webhook-id`, so that all its attempts, on whatever
//! instance and after whatever restart, are found in one trace and are sampled all or none.
//!
//! The SDK's propagator does not read the `traceparent`: it takes ids of any length and forgets that an id is random.

use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

/// `00-` trace id `-` span id `-` flags.
const TRACEPARENT_BYTES: usize = 55;
/// The flags of version 00 that we pass on: sampled, and that the trace id is random.
const KNOWN_FLAGS: u8 = 0x03;

/// A call's place in its trace, as its provider is told.
#[derive(Debug)]
pub struct Traceparent {
    /// The header, so that the provider's spans hang below ours.
    pub text: String,
    /// Whether the row brought a trace; else it begins here.
    pub is_continued: bool,
}

/// As a header's value.
pub(super) fn traceparent(context: &SpanContext) -> String {
    format!("00-{}-{}-{:02x}", context.trace_id(), context.span_id(), context.trace_flags())
}

/// The app's span, if the row names one.
pub(super) fn parent(headers: &RawValue) -> Option<SpanContext> {
    #[derive(serde::Deserialize)]
    struct Headers<'a> {
        #[serde(borrow)]
        traceparent: Option<std::borrow::Cow<'a, str>>,
    }
    let headers: Headers<'_> = serde_json::from_str(headers.get()).ok()?;
    parse(headers.traceparent?.as_bytes())
}

/// Versions to come may append to what we know, after another dash.
fn parse(text: &[u8]) -> Option<SpanContext> {
    let (known, rest) = text.split_at_checked(TRACEPARENT_BYTES)?;
    let dashes = [known[2], known[35], known[52]];
    let [version] = unhex(&known[..2])?;
    let is_whole = if version == 0 { rest.is_empty() } else { rest.is_empty() || rest[0] == b'-' };
    if version == 0xff || !is_whole || dashes != *b"---" {
        return None;
    }
    let [flags] = unhex(&known[53..])?;
    let parent = SpanContext::new(
        TraceId::from_bytes(unhex(&known[3..35])?),
        SpanId::from_bytes(unhex(&known[36..52])?),
        TraceFlags::new(flags & KNOWN_FLAGS),
        true,
        // The row's tracestate is between the app and the provider.
        TraceState::NONE,
    );
    parent.is_valid().then_some(parent)
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

/// The trace of a notification whose row names none.
pub(super) fn trace_id_of(webhook_id: &str) -> TraceId {
    let mut trace_id = [0; 16];
    trace_id.copy_from_slice(&Sha256::digest(webhook_id.as_bytes())[..16]);
    TraceId::from_bytes(trace_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";

    fn read(traceparent: &str) -> Option<String> {
        let headers = RawValue::from_string(serde_json::json!({ "traceparent": traceparent }).to_string()).unwrap();
        parent(&headers).as_ref().map(super::traceparent)
    }

    #[test]
    fn a_traceparent_is_read_with_the_flags_that_are_known() {
        for flags in ["00", "01", "02", "03"] {
            let text = format!("00-{TRACE}-{SPAN}-{flags}");
            assert_eq!(read(&text), Some(text));
        }
        let to_come = read(&format!("cc-{TRACE}-{SPAN}-09-more"));
        assert_eq!(to_come, Some(format!("00-{TRACE}-{SPAN}-01")), "a version to come");
    }

    #[test]
    fn what_is_no_traceparent_is_not_read() {
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
            assert_eq!(read(&bad), None, "{bad}");
        }
        let not_text = RawValue::from_string(r#"{"traceparent": 1}"#.to_owned()).unwrap();
        assert_eq!(parent(&not_text), None);
    }
}
