//! What a token without `payloads` does not see: payloads, headers, providers' answers and what errors quote of them, and
//! recipients but for their ends.
//!
//! **Guarantee.** The API and the dashboard hide the same. **Limit.** Rows of views are judged by the names of their
//! columns: a new one that holds an app's data belongs into the list here.

use serde_json::Value;

use crate::config::MASK;
use crate::store::found::{Details, Found};

/// Recipients of fewer characters show nothing.
const SHOWN_FROM: usize = 9;
/// Characters shown at each end of a longer one.
const ENDS: usize = 2;

/// Keys of a view's row that are left out.
const HIDDEN: [&str; 4] = ["payload", "headers", "response", "error_like"];
/// Errors that are told whole: what kept a connection from being made, or ended it.
const OF_THE_CONNECTION: [&str; 2] = ["connect: ", "no answer after the request went out: "];
/// Characters of any other error at most.
const CAUSE_CHARS_MAX: usize = 120;

pub(super) fn found(found: &mut Found) {
    found.recipient = masked(&found.recipient);
    found.error.iter_mut().for_each(|error| *error = cause(error));
}

pub(super) fn details(details: &mut Details) {
    found(&mut details.found);
    details.payload = None;
    details.headers = None;
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
                    ("recipient", Value::String(text)) => *text = masked(text),
                    ("subject", Value::String(text)) => *text = subject(text),
                    ("error" | "last_error", Value::String(text)) => *text = cause(text),
                    ("cause", Value::String(text)) => text.truncate(text.find(':').map_or(text.len(), |at| at + 1)),
                    (_, value) => within(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(within),
        _ => {}
    }
}

/// An error up to its first colon: what follows may quote a row or a provider's answer. As `outboxd._cause()` has it.
fn cause(error: &str) -> String {
    if OF_THE_CONNECTION.iter().any(|beginning| error.starts_with(beginning)) {
        return error.to_owned();
    }
    error.split(':').next().unwrap_or_default().chars().take(CAUSE_CHARS_MAX).collect()
}

fn subject(text: &str) -> String {
    if !text.starts_with('{') {
        return text.to_owned();
    }
    let mut filter = serde_json::from_str(text).unwrap_or_default();
    row(&mut filter);
    filter.to_string()
}

fn masked(recipient: &str) -> String {
    let chars: Vec<char> = recipient.chars().collect();
    if chars.len() < SHOWN_FROM {
        return MASK.to_owned();
    }
    let (head, tail) = (&chars[..ENDS], &chars[chars.len() - ENDS..]);
    format!("{}{MASK}{}", head.iter().collect::<String>(), tail.iter().collect::<String>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_ends_of_a_long_recipient_are_shown() {
        for (recipient, shown) in [
            ("+821012345678", "+8****78"),
            ("someone@example.com", "so****om"),
            ("12345678", "****"),
            ("", "****"),
            ("가나다라마바사아자차", "가나****자차"),
        ] {
            assert_eq!(masked(recipient), shown);
        }
    }

    #[test]
    fn nothing_of_a_row_tells_a_recipient_or_a_payload() {
        let mut given = json!({
            "id": 1, "recipient": "+821012345678", "payload": {"text": "secret"}, "headers": {"x": "secret"},
            "response": "secret", "filter": {"recipient": "+821012345678", "topic": "t", "error_like": "%secret%",
            "cause": "not accepted: secret"}, "subject": "{\"recipient\": \"+821012345678\"}", "error": "not accepted: secret",
            "rows": [{"last_error": "connect: refused"}, {"payload": "secret"}],
        });
        row(&mut given);
        let wanted = json!({
            "id": 1, "recipient": "+8****78",
            "filter": {"recipient": "+8****78", "topic": "t", "cause": "not accepted:"},
            "subject": "{\"recipient\":\"+8****78\"}", "error": "not accepted",
            "rows": [{"last_error": "connect: refused"}, {}],
        });
        assert_eq!(given, wanted);
        let mut unread = json!("{\"payload\": 1e999}");
        row(&mut unread);
        assert_eq!(unread, Value::Null);
    }
}
