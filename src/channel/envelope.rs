//! The standard body and the id every attempt carries.

use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::Error;

use super::Outgoing;
use crate::notification::NotificationId;

/// The `webhook-id` of a notification: opaque, the same on every attempt, and unique also across
/// installations and restores, where ids are handed out a second time.
pub fn webhook_id(install: &str, id: NotificationId, created_at: DateTime<Utc>) -> String {
    format!("ntf-{install}-{id}-{}", created_at.timestamp_micros())
}

/// A time as bodies and templates show it, to the microsecond that Postgres keeps.
pub(super) fn timestamp(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Micros, true)
}

/// `{"id", "topic", "recipient", "payload", "created_at"}`, byte for byte the same on every attempt: the
/// payload is copied, not parsed.
pub(super) fn standard_body(outgoing: &Outgoing<'_>) -> Result<Vec<u8>, Error> {
    #[derive(serde::Serialize)]
    struct Envelope<'a> {
        id: i64,
        topic: &'a str,
        recipient: &'a str,
        payload: &'a serde_json::value::RawValue,
        created_at: &'a str,
    }
    let created_at = timestamp(outgoing.created_at);
    let room = outgoing.topic.len() + outgoing.recipient.len() + outgoing.payload.get().len() + 128;
    let mut body = Vec::with_capacity(room);
    serde_json::to_writer(
        &mut body,
        &Envelope {
            id: outgoing.id.0,
            topic: outgoing.topic,
            recipient: outgoing.recipient,
            payload: outgoing.payload,
            created_at: &created_at,
        },
    )?;
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restored_id_gets_another_webhook_id() {
        let first = DateTime::from_timestamp_micros(1_700_000_000_000_001).unwrap();
        let second = DateTime::from_timestamp_micros(1_700_000_000_000_002).unwrap();
        let id = NotificationId(7);
        assert_eq!(webhook_id("a1b2", id, first), "ntf-a1b2-7-1700000000000001");
        assert_ne!(webhook_id("a1b2", id, first), webhook_id("a1b2", id, second));
        assert_ne!(webhook_id("a1b2", id, first), webhook_id("c3d4", id, first));
    }
}
