//! Channels against a real provider.

mod answer;
mod circuit;
mod classification;
mod failover;
mod forward;
mod guard;
mod limits;
mod proxy;
mod request;
mod signed;
mod transport;

use std::time::Duration;

use chrono::DateTime;
use outboxd::channel::{Channel, Failed, Outcome, Outgoing};
use outboxd::config::{self, ChannelConfig, CircuitConfig};
use outboxd::notification::NotificationId;
use serde_json::value::RawValue;

/// A channel's configuration: the defaults, with limits that tests reach.
pub fn config(url: &str) -> ChannelConfig {
    let defaults = config::defaults().channels["default"].clone();
    let circuit = CircuitConfig { failures: 5, unauthorized: 3, ..defaults.circuit };
    let url = url.to_owned();
    ChannelConfig { url, max_in_flight_per_origin: 8, response_bytes_max: 64 << 10, circuit, ..defaults }
}

/// A timeout that no test waits for: what ends is ended by something else.
pub const LONG: Duration = Duration::from_secs(3600);

/// What does not end by itself fails here.
pub async fn in_time<T>(call: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), call).await.expect("it ends")
}

pub fn channel(config: &ChannelConfig) -> Channel {
    Channel::new("push", config).expect("a channel")
}

/// One notification in owned parts.
pub struct Note {
    pub webhook_id: String,
    pub recipient: String,
    pub payload: Box<RawValue>,
    pub headers: Option<Box<RawValue>>,
}

impl Note {
    pub fn to(recipient: &str) -> Note {
        Note {
            webhook_id: "ntf-test-7-1700000000000000".to_owned(),
            recipient: recipient.to_owned(),
            payload: json(r#"{"text": "hello", "n": 12345678901234567890123}"#),
            headers: None,
        }
    }

    pub fn payload(self, text: &str) -> Note {
        Note { payload: json(text), ..self }
    }

    pub fn headers(self, text: &str) -> Note {
        Note { headers: Some(json(text)), ..self }
    }

    pub fn attempt(&self, attempt: u32) -> Outgoing<'_> {
        Outgoing {
            id: NotificationId(7),
            webhook_id: &self.webhook_id,
            topic: "quiz",
            recipient: &self.recipient,
            payload: &self.payload,
            headers: self.headers.as_deref(),
            traceparent: None,
            created_at: DateTime::from_timestamp_micros(1_700_000_000_000_000).unwrap(),
            attempt,
        }
    }
}

fn json(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).expect("JSON")
}

pub fn failed(outcome: Outcome) -> Failed {
    match outcome {
        Outcome::Failed(failed) => failed,
        Outcome::Sent { .. } | Outcome::Short(_) => panic!("a failure was expected, it was {outcome:?}"),
    }
}

pub fn assert_sent(outcome: &Outcome) {
    assert!(matches!(outcome, Outcome::Sent { .. }), "{outcome:?}");
}
