//! For Rust apps that embed the crate: write in the app's own transaction, push right after its commit.
//!
//! The push is only speed. If the process dies before it, the queue is away or too many are waiting, the relay of a
//! running instance publishes the row all the same; if both push, the second message is a copy and is dropped at the
//! claim.
//!
//! ```no_run
//! # async fn example(client: &mut tokio_postgres::Client, config: &outboxd::config::Config) -> Result<(), Box<dyn std::error::Error>> {
//! use outboxd::{Notification, Producer};
//!
//! let producer = Producer::connect(&config.queue, config.redis_url.as_ref()).await?;
//! let tx = client.transaction().await?;
//! tx.execute("INSERT INTO orders (item) VALUES ('book')", &[]).await?;
//! let ticket = producer.notify(&tx, &Notification::new("orders", "device-1", serde_json::json!({"text": "paid"}))).await?;
//! tx.commit().await?;
//! producer.after_commit(ticket);
//! # Ok(()) }
//! ```

use std::sync::Arc;

use chrono::{DateTime, Utc};
use secrecy::SecretString;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_postgres::GenericClient;
use tokio_postgres::types::ToSql;
use tracing::debug;

use crate::config::QueueConfig;
use crate::notification::NotificationId;
use crate::queue::{self, Message, Queue};

/// Messages that may wait to be pushed; what does not fit is left to the relay.
const WAITING_MAX: usize = 10_000;
/// Messages pushed in one round trip at most.
const BATCH_MAX: usize = 500;

/// The usual call, and the one with everything.
const NOTIFY: &str = "SELECT outboxd.notify($1::text, $2::text, $3::jsonb)";
const NOTIFY_WITH: &str = "SELECT outboxd.notify($1::text, $2::text, $3::jsonb, coalesce($4::timestamptz, now()), $5::text, \
    $6::text, $7::timestamptz, $8::jsonb)";

/// What to send to whom: the arguments of `outboxd.notify()`.
#[derive(Debug, Clone, PartialEq)]
pub struct Notification<'a> {
    /// What it is about; decides the route.
    pub topic: &'a str,
    /// Device token, phone number, URL …
    pub recipient: &'a str,
    /// What the templates and the standard body show.
    pub payload: Value,
    /// Not before this time; `None`: now.
    pub send_at: Option<DateTime<Utc>>,
    /// The same (topic, dedup_key) is enqueued once.
    pub dedup_key: Option<&'a str>,
    /// Rows with the same key are sent one after the other.
    pub ordering_key: Option<&'a str>,
    /// Past this time it is not sent.
    pub expires_at: Option<DateTime<Utc>>,
    /// An object of strings; may hold a `traceparent`.
    pub headers: Option<Value>,
}

impl<'a> Notification<'a> {
    /// A notification to be sent now.
    pub fn new(topic: &'a str, recipient: &'a str, payload: Value) -> Notification<'a> {
        Notification {
            topic,
            recipient,
            payload,
            send_at: None,
            dedup_key: None,
            ordering_key: None,
            expires_at: None,
            headers: None,
        }
    }

    /// Whether anything is set that may be left out.
    fn asks_for_more(&self) -> bool {
        let keys = self.dedup_key.is_some() || self.ordering_key.is_some();
        keys || self.send_at.is_some() || self.expires_at.is_some() || self.headers.is_some()
    }
}

/// Proof of a written notification; worth something only after the commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "hand it to `after_commit` once the transaction has committed"]
pub struct Ticket {
    id: NotificationId,
}

impl Ticket {
    /// The notification's id.
    pub fn id(self) -> NotificationId {
        self.id
    }
}

/// Writes notifications in the app's transactions and pushes them after the commit. Cheap to share by reference.
#[derive(Debug)]
pub struct Producer {
    waiting: mpsc::Sender<Message>,
    pusher: JoinHandle<()>,
}

impl Producer {
    /// Connects to the queue the instances use. Needs Redis: an in-process queue is out of another process's reach.
    pub async fn connect(config: &QueueConfig, redis_url: Option<&SecretString>) -> queue::Result<Producer> {
        if redis_url.is_none() {
            return Err(queue::Error::Unusable("an app can only push to a queue in Redis; set redis_url".to_owned()));
        }
        let queue = queue::open(config, redis_url).await?;
        // The instances look for losses; what this process says of the past is of no interest to it.
        queue.check_loss(0).await?;
        let (waiting, messages) = mpsc::channel(WAITING_MAX);
        Ok(Producer { waiting, pusher: tokio::spawn(push_all(queue, messages)) })
    }

    /// Writes a notification in the caller's transaction.
    pub async fn notify(
        &self,
        transaction: &impl GenericClient,
        notification: &Notification<'_>,
    ) -> Result<Ticket, tokio_postgres::Error> {
        let arguments: [&(dyn ToSql + Sync); 8] = [
            &notification.topic,
            &notification.recipient,
            &notification.payload,
            &notification.send_at,
            &notification.dedup_key,
            &notification.ordering_key,
            &notification.expires_at,
            &notification.headers,
        ];
        let row = if notification.asks_for_more() {
            transaction.query_one(NOTIFY_WITH, &arguments).await?
        } else {
            transaction.query_one(NOTIFY, &arguments[..3]).await?
        };
        Ok(Ticket { id: NotificationId(row.get(0)) })
    }

    /// Pushes in the background, at once. Call it only after the transaction has committed.
    pub fn after_commit(&self, ticket: Ticket) {
        // Under epoch 0: the row was just written. If it was not (a dedup_key that was taken, a later send_at, an
        // ordering key that is busy), the claim drops the message and the row goes its own way.
        if self.waiting.try_send(Message { id: ticket.id.0, epoch: 0 }).is_err() {
            debug!(id = %ticket.id, "left to the relay");
        }
    }

    /// Waits until what is waiting has been pushed or given up.
    pub async fn close(self) {
        drop(self.waiting);
        if let Err(error) = self.pusher.await {
            debug!(%error, "the pusher ended early; the relay publishes what it left");
        }
    }
}

async fn push_all(queue: Arc<dyn Queue>, mut messages: mpsc::Receiver<Message>) {
    let mut batch = Vec::with_capacity(BATCH_MAX);
    while messages.recv_many(&mut batch, BATCH_MAX).await > 0 {
        if let Err(error) = queue.push(&batch).await {
            debug!(%error, messages = batch.len(), "left to the relay");
        }
        batch.clear();
    }
}
