//! What a client is sent, as JSON text. `docs/live.md` is the contract.
//!
//! **Guarantee.** Payloads are passed on as they were written. **Limit.** What is no JSON is not of our making and goes
//! to nobody.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;
use tokio_tungstenite::tungstenite::Utf8Bytes;

use crate::queue::events::Event;

/// A message, made once and shared by all sessions it goes to.
#[derive(Debug)]
pub(super) struct Frame {
    /// What it is about; a session's positions are by topic.
    pub topic: Arc<str>,
    /// The event's place in its stream; `None`: it is no event.
    pub position: Option<i64>,
    /// As it is written.
    pub text: Utf8Bytes,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Message<'a> {
    Event {
        topic: &'a str,
        position: i64,
        id: i64,
        key: &'a str,
        payload: &'a RawValue,
        headers: &'a RawValue,
        created_at: &'a str,
    },
    /// Events after one position and before another are not to be had here.
    Gap { topic: &'a str, after: i64, position: Option<i64> },
    /// Everything asked for has been sent; what follows is new.
    Ready { positions: &'a BTreeMap<&'a str, i64> },
    /// Up to here there was nothing more for this client.
    Position { positions: &'a BTreeMap<&'a str, i64> },
}

impl Message<'_> {
    fn text(&self) -> Utf8Bytes {
        serde_json::to_string(self).expect("texts, numbers and checked JSON are JSON").into()
    }
}

/// `None`: its payload or its headers are no JSON, so it is not of our making.
pub(super) fn event(topic: &Arc<str>, event: &Event) -> Option<Frame> {
    let message = Message::Event {
        topic,
        position: event.position,
        id: event.id,
        key: &event.key,
        payload: serde_json::from_str(&event.payload).ok()?,
        headers: serde_json::from_str(event.headers.as_deref().unwrap_or("{}")).ok()?,
        created_at: &event.created_at,
    };
    Some(Frame { topic: Arc::clone(topic), position: Some(event.position), text: message.text() })
}

/// `next` is the position of the event that follows, if there is one yet.
pub(super) fn gap(topic: &Arc<str>, after: i64, next: Option<i64>) -> Frame {
    let text = Message::Gap { topic, after, position: next }.text();
    Frame { topic: Arc::clone(topic), position: None, text }
}

pub(super) fn ready(positions: &BTreeMap<&str, i64>) -> Utf8Bytes {
    Message::Ready { positions }.text()
}

pub(super) fn position(positions: &BTreeMap<&str, i64>) -> Utf8Bytes {
    Message::Position { positions }.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_passed_on_as_it_is_and_what_is_no_json_is_not() {
        let topic = Arc::from("order");
        let deep = format!("{}1{}", "[".repeat(500), "]".repeat(500));
        for payload in [r#"{"n": 9007199254740993, "é": "\u0001"}"#, deep.as_str()] {
            let given = Event { id: 7, position: 3, payload: payload.to_owned(), ..Event::default() };
            let frame = event(&topic, &given).expect("an event");
            assert!(frame.text.contains(&format!(r#""payload":{payload}"#)), "{}", frame.text);
            assert!(
                frame.text.starts_with(r#"{"type":"event","topic":"order","position":3,"id":7,"#),
                "{}",
                frame.text
            );
        }
        let given = Event { payload: "{\"a\":1}}".to_owned(), ..Event::default() };
        assert!(event(&topic, &given).is_none());
    }

    #[test]
    fn a_gap_names_what_is_around_it() {
        let topic = Arc::from("order");
        assert_eq!(gap(&topic, 5, Some(9)).text.as_str(), r#"{"type":"gap","topic":"order","after":5,"position":9}"#);
        assert_eq!(gap(&topic, 5, None).text.as_str(), r#"{"type":"gap","topic":"order","after":5,"position":null}"#);
    }
}
