//! The row's headers: none is dropped in silence. Each is sent on, because the channel's `forward_headers` names it, or
//! read by a template of the channel; any other fails the attempt before the call, with its name.
//!
//! `traceparent` and `tracestate` always go out. A trace that is not fit for a header is no reason not to deliver.

use std::borrow::Cow;
use std::collections::BTreeMap;

use http::header::{Entry, HeaderMap, HeaderName, HeaderValue};
use serde_json::value::RawValue;

use super::template::Templates;
use crate::config::legal::{Pattern, is_never_forwarded};

/// Bytes of all the row's headers together at most: common servers refuse a request with more.
const ROW_BYTES_MAX: usize = 8 << 10;
/// Of a name in an error, in characters.
const NAME_SHOWN_MAX: usize = 100;

/// What a channel does with the headers of rows.
#[derive(Debug)]
pub(super) struct Forward {
    channel: String,
    allowed: Vec<Pattern>,
}

/// Whether the row's trace goes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trace {
    /// The call is part of it.
    Continues,
    /// The call begins one of its own.
    Begins,
}

impl Forward {
    pub(super) fn new(channel: &str, entries: &[String]) -> Result<Forward, String> {
        let parse = |entry: &String| Pattern::parse(entry).map_err(|what| format!("forward_headers names {what}"));
        Ok(Forward { channel: channel.to_owned(), allowed: entries.iter().map(parse).collect::<Result<_, _>>()? })
    }

    /// Adds the row's headers to `map`. `is_set` knows the names that the channel sets itself. The error is a reason
    /// for an operator.
    pub(super) fn add(
        &self,
        row: &RawValue,
        trace: Trace,
        templates: &Templates,
        is_set: impl Fn(&HeaderName) -> bool,
        map: &mut HeaderMap,
    ) -> Result<(), String> {
        let headers: BTreeMap<Cow<'_, str>, Cow<'_, str>> =
            serde_json::from_str(row.get()).map_err(|_| "headers are not an object of strings".to_owned())?;
        let mut bytes = 0;
        for (given, value) in &headers {
            let name =
                HeaderName::try_from(&**given).map_err(|_| format!("header {} is no header name", shown(given)))?;
            if matches!(name.as_str(), "traceparent" | "tracestate") {
                if let (Trace::Continues, Ok(value)) = (trace, HeaderValue::from_str(value)) {
                    map.insert(name, value);
                }
                continue;
            }
            if !self.sends(&name, templates, &is_set)? {
                continue;
            }
            bytes += name.as_str().len() + value.len();
            if bytes > ROW_BYTES_MAX {
                return Err(format!("the row's headers have more than {ROW_BYTES_MAX} bytes"));
            }
            let value = HeaderValue::from_bytes(value.as_bytes())
                .map_err(|_| format!("header {}: a line break or control character in it", shown(given)))?;
            match map.entry(name) {
                Entry::Vacant(free) => free.insert(value),
                Entry::Occupied(_) => return Err(format!("header {} is given twice", shown(given))),
            };
        }
        Ok(())
    }

    /// Whether it is sent on; it is an error if nobody takes it.
    fn sends(
        &self,
        name: &HeaderName,
        templates: &Templates,
        is_set: impl Fn(&HeaderName) -> bool,
    ) -> Result<bool, String> {
        let (channel, header) = (&self.channel, shown(name.as_str()));
        let is_allowed = self.allowed.iter().any(|pattern| pattern.matches(name.as_str()));
        if is_allowed && !is_never_forwarded(name.as_str()) && !is_set(name) {
            return Ok(true);
        }
        if templates.read_header(name.as_str()) {
            return Ok(false);
        }
        Err(if is_never_forwarded(name.as_str()) {
            format!("header {header} is never taken from a row; channel {channel} may set it itself")
        } else if is_set(name) {
            format!("header {header} is set by channel {channel} itself")
        } else {
            format!("header {header} is not forwarded by channel {channel} (forward_headers)")
        })
    }
}

/// A name of the row's, which may be anything, in an error.
fn shown(name: &str) -> String {
    name.chars().take(NAME_SHOWN_MAX).map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}
