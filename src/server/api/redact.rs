//! What a token without `payloads` does not see: payloads, headers, providers' answers, and recipients but for their ends.
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
const HIDDEN: [&str; 3] = ["payload", "headers", "response"];

pub(super) fn found(found: &mut Found) {
    found.recipient = masked(&found.recipient);
}

pub(super) fn details(details: &mut Details) {
    found(&mut details.found);
    details.payload = None;
    details.headers = None;
    details.attempt_history.iter_mut().for_each(|attempt| attempt.response = None);
}

/// A row of a view. A filter that an operator gave names recipients too; `subject` of an audit is one as text.
pub(in crate::server) fn row(row: &mut Value) {
    match row {
        Value::Object(fields) => {
            HIDDEN.iter().for_each(|key| drop(fields.remove(*key)));
            for (key, value) in fields.iter_mut() {
                match value {
                    Value::String(text) if key == "recipient" => *text = masked(text),
                    Value::String(text) if key == "subject" => *text = subject(text),
                    Value::Object(_) => self::row(value),
                    _ => {}
                }
            }
        }
        // A row that could not be read as JSON.
        other => *other = Value::Null,
    }
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
            "response": "secret", "filter": {"recipient": "+821012345678", "topic": "t"},
            "subject": "{\"recipient\": \"+821012345678\"}",
        });
        row(&mut given);
        let wanted = json!({
            "id": 1, "recipient": "+8****78", "filter": {"recipient": "+8****78", "topic": "t"},
            "subject": "{\"recipient\":\"+8****78\"}",
        });
        assert_eq!(given, wanted);
        let mut unread = json!("{\"payload\": 1e999}");
        row(&mut unread);
        assert_eq!(unread, Value::Null);
    }
}
