//! What a token without `payloads` does not see: payloads, headers, providers' answers and what errors quote of them, and
//! recipients, keys and hosts that rows named but for their ends.
//!
//! **Guarantee.** The API and the dashboard hide the same. **Limit.** Rows of views are judged by the names of their
//! columns: a new one that holds an app's data belongs into the list here.

use serde_json::Value;

use crate::masked;
use crate::store::found::{Details, Found};

/// Keys of a view's row that are left out.
const HIDDEN: [&str; 4] = ["payload", "headers", "response", "error_like"];
/// Keys whose value is shown by its ends, be it a text or a number.
const MASKED: [&str; 3] = ["recipient", "dedup_key", "ordering_key"];
/// How errors begin that tell what kept a connection from being made, or ended it.
const OF_THE_CONNECTION: [&str; 2] = ["connect: ", "no answer after the request went out: "];
/// What is told of it: texts that are known to quote nothing. Of two that fit the longer one comes first.
const KNOWN_CAUSES: [&str; 28] = [
    "Connection refused",
    "Connection reset",
    "Connection timed out",
    "Connection aborted",
    "No route to host",
    "Network is unreachable",
    "Network is down",
    "Host is down",
    "Broken pipe",
    "Cannot assign requested address",
    "failed to lookup address information",
    "invalid peer certificate: UnknownIssuer",
    "invalid peer certificate: certificate expired",
    "invalid peer certificate: certificate not valid yet",
    "invalid peer certificate: certificate not valid for name",
    "invalid peer certificate",
    "received fatal alert",
    "received corrupt message",
    "peer is incompatible",
    "peer closed connection",
    "tls handshake eof",
    "unexpected end of file",
    "connection closed",
    "connection error",
    "stream error",
    "operation was canceled",
    "tunnel error",
    "invalid HTTP version parsed",
];
/// Characters of any other error at most.
const CAUSE_CHARS_MAX: usize = 120;

pub(super) fn found(found: &mut Found) {
    found.recipient = masked::ends(&found.recipient);
    for key in [&mut found.dedup_key, &mut found.ordering_key] {
        key.iter_mut().for_each(|key| *key = masked::ends(key));
    }
    found.error.iter_mut().for_each(|error| *error = cause(error));
}

pub(super) fn details(details: &mut Details) {
    found(&mut details.found);
    details.payload = None;
    details.headers = None;
    if let Some(waits) = &mut details.waits {
        waits.explanation = masked::hosts(&waits.explanation);
        for text in [&mut waits.action, &mut waits.origin] {
            text.iter_mut().for_each(|text| *text = masked::hosts(text));
        }
    }
    for attempt in &mut details.attempt_history {
        attempt.response = None;
        attempt.error.iter_mut().for_each(|error| *error = cause(error));
    }
}

/// A row of a view, or what a page was drawn from. A filter that an operator gave names recipients too; `subject` of an
/// audit is one as text.
pub(in crate::server) fn row(row: &mut Value) {
    match row {
        Value::Object(_) => within(row),
        // A row that could not be read as JSON.
        other => *other = Value::Null,
    }
}

fn within(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            HIDDEN.iter().for_each(|key| drop(fields.remove(*key)));
            for (key, value) in fields.iter_mut() {
                match (key.as_str(), value) {
                    (_, Value::Null) => {}
                    (key, Value::String(text)) if MASKED.contains(&key) => *text = masked::ends(text),
                    (key, other) if MASKED.contains(&key) => *other = masked::ends(&other.to_string()).into(),
                    ("subject", Value::String(text)) => *text = subject(text),
                    ("error" | "last_error", Value::String(text)) => *text = cause(text),
                    ("cause", Value::String(text)) => text.truncate(text.find(':').map_or(text.len(), |at| at + 1)),
                    (_, value) => within(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(within),
        Value::String(text) if text.contains("://") => *text = masked::hosts(text),
        _ => {}
    }
}

/// An error up to its first colon: what follows may quote a row or a provider's answer. As `outboxd._cause()` has it.
fn cause(error: &str) -> String {
    let of_the_connection = OF_THE_CONNECTION.iter().find_map(|beginning| {
        let rest = error.strip_prefix(beginning)?;
        let known = KNOWN_CAUSES.iter().find(|known| rest.starts_with(**known))?;
        Some(format!("{beginning}{known}"))
    });
    let until_colon = || error.split(':').next().unwrap_or_default().chars().take(CAUSE_CHARS_MAX).collect();
    of_the_connection.unwrap_or_else(until_colon)
}

fn subject(text: &str) -> String {
    if !text.starts_with('{') {
        return masked::hosts(text);
    }
    let mut filter = serde_json::from_str(text).unwrap_or_default();
    row(&mut filter);
    filter.to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_of_a_row_tells_a_recipient_or_a_payload() {
        let mut given = json!({
            "id": 1, "recipient": "+821012345678", "payload": {"text": "secret"}, "headers": {"x": "secret"},
            "response": "secret", "filter": {"recipient": "+821012345678", "topic": "t", "error_like": "%secret%",
            "cause": "not accepted: secret"}, "subject": "{\"recipient\": \"+821012345678\"}", "error": "not accepted: secret",
            "rows": [{"last_error": "connect: Connection refused (os error 111)"}, {"payload": "secret"}],
            "held": [{"origin": "https://secret-4711.hooks.example:8443", "ordering_key": "by secret-4711"}],
            "action": "SELECT outboxd.probe_channel('push', 'https://secret-4711.hooks.example')",
            "dedup_key": null,
        });
        row(&mut given);
        let wanted = json!({
            "id": 1, "recipient": "+8****78",
            "filter": {"recipient": "+8****78", "topic": "t", "cause": "not accepted:"},
            "subject": "{\"recipient\":\"+8****78\"}", "error": "not accepted",
            "rows": [{"last_error": "connect: Connection refused"}, {}],
            "held": [{"origin": "https://se****le:8443", "ordering_key": "by****11"}],
            "action": "SELECT outboxd.probe_channel('push', 'https://se****le')",
            "dedup_key": null,
        });
        assert_eq!(given, wanted);
        let mut number = json!({"filter": {"recipient": 821012345678_i64}, "subject": "{\"recipient\": 821012345678}"});
        row(&mut number);
        let wanted = json!({"filter": {"recipient": "82****78"}, "subject": "{\"recipient\":\"82****78\"}"});
        assert_eq!(number, wanted, "a recipient may be given as a number");
        let mut unread = json!("{\"payload\": 1e999}");
        row(&mut unread);
        assert_eq!(unread, Value::Null);
    }

    #[test]
    fn of_an_error_no_more_is_told_than_is_known_to_quote_nothing() {
        for (error, shown) in [
            ("connect: Connection refused (os error 111)", "connect: Connection refused"),
            (
                "connect: invalid peer certificate: certificate not valid for name \"secret.example\"; certificate is",
                "connect: invalid peer certificate: certificate not valid for name",
            ),
            ("connect: invalid peer certificate: Other(secret)", "connect: invalid peer certificate"),
            ("connect: secret", "connect"),
            (
                "no answer after the request went out: connection closed before",
                "no answer after the request went out: connection closed",
            ),
            ("no answer after the request went out: secret", "no answer after the request went out"),
            ("status 500 Internal Server Error", "status 500 Internal Server Error"),
        ] {
            assert_eq!(cause(error), shown);
        }
        let in_sql = include_str!("../../../sql/functions/_cause.sql");
        for known in KNOWN_CAUSES {
            assert!(in_sql.contains(known), "{known}");
        }
        assert_eq!(in_sql.matches('|').count(), KNOWN_CAUSES.len(), "both have the same list");
    }
}
