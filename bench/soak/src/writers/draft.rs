//! One thing that a transaction asks outboxd for, and the SQL for it.

use serde_json::json;
use tokio_postgres::{Client, Error};

/// The topic of the app's events.
pub(crate) const EVENT_TOPIC: &str = "orders";
/// Topics of notifications.
pub(crate) const TOPICS: [&str; 3] = ["orders", "billing", "quiz"];

/// By which of the ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// `notify()`, or `notify_many()` for several.
    Notify,
    /// A plain INSERT, as from an ORM.
    Insert,
    /// `publish()`.
    Publish,
}

/// Not yet written.
#[derive(Debug, Clone)]
pub(super) struct Draft {
    pub(super) numbers: Vec<i64>,
    pub(super) way: Way,
    pub(super) key: Option<String>,
    pub(super) dedup_key: Option<String>,
    pub(super) delay_ms: i32,
    topic: &'static str,
}

impl Draft {
    /// A plain notification.
    pub(super) fn new(number: i64) -> Draft {
        let topic = TOPICS[usize::try_from(number).unwrap_or(0) % TOPICS.len()];
        Draft { numbers: vec![number], way: Way::Notify, key: None, dedup_key: None, delay_ms: 0, topic }
    }

    pub(super) fn by(self, way: Way) -> Draft {
        Draft { way, ..self }
    }

    pub(super) fn with_key(self, key: &str) -> Draft {
        // A key belongs to its topic: all with one key have one, so that their order says something.
        let topic = TOPICS[usize::from(key.bytes().fold(0_u8, u8::wrapping_add)) % TOPICS.len()];
        Draft { key: Some(key.to_owned()), topic, ..self }
    }

    /// All with one key must have one topic.
    pub(super) fn with_dedup_key(self, key: &str) -> Draft {
        Draft { dedup_key: Some(key.to_owned()), topic: TOPICS[0], ..self }
    }

    pub(super) fn delayed(self, delay_ms: i32) -> Draft {
        Draft { delay_ms, ..self }
    }

    pub(super) fn about(self, topic: &'static str) -> Draft {
        Draft { topic, ..self }
    }

    /// Several in one call.
    pub(super) fn and(mut self, numbers: impl Iterator<Item = i64>) -> Draft {
        self.numbers.extend(numbers);
        self
    }

    /// Inside the caller's transaction.
    pub(super) async fn write(&self, client: &Client) -> Result<(), Error> {
        let payload = json!({ "n": self.numbers[0] });
        let recipient = format!("device-{}", self.numbers[0] % 1000);
        match self.way {
            Way::Publish => {
                let sql = "SELECT outboxd.publish($1, $2, $3::jsonb)";
                client.query(sql, &[&EVENT_TOPIC, &self.key.as_deref().unwrap_or("k"), &payload]).await?;
            }
            Way::Insert => {
                let sql = "INSERT INTO outboxd.notification_log (topic, recipient, payload, ordering_key)
                           VALUES ($1, $2, $3, $4)";
                client.execute(sql, &[&self.topic, &recipient, &payload, &self.key]).await?;
            }
            Way::Notify if self.numbers.len() > 1 => {
                let item = |number: &i64| json!({ "recipient": recipient, "payload": { "n": number } });
                let items = serde_json::Value::Array(self.numbers.iter().map(item).collect());
                client.query("SELECT outboxd.notify_many($1, $2::jsonb)", &[&self.topic, &items]).await?;
            }
            Way::Notify => {
                let sql = "SELECT outboxd.notify($1, $2, $3::jsonb, dedup_key => $4, ordering_key => $5,
                    send_at => CASE WHEN $6::int > 0 THEN clock_timestamp() + $6 * interval '1 ms' END)";
                client
                    .query(sql, &[&self.topic, &recipient, &payload, &self.dedup_key, &self.key, &self.delay_ms])
                    .await?;
            }
        }
        Ok(())
    }
}
