//! For Rust apps that embed the crate: write in the app's own transaction, push right after its commit.
//!
//! Reserve, push, confirm: as the relay does. The push is only speed. If the process dies before it, the queue is away
//! or too many are waiting, the relay of a running instance publishes the row all the same.
//!
//! ```no_run
//! # async fn example(client: &mut tokio_postgres::Client, config: &outboxd::config::Config) -> Result<(), Box<dyn std::error::Error>> {
//! use outboxd::{Notification, Producer};
//!
//! let producer = Producer::connect(config).await?;
//! let tx = client.transaction().await?;
//! tx.execute("INSERT INTO orders (item) VALUES ('book')", &[]).await?;
//! let ticket = producer.notify(&tx, &Notification::new("orders", "device-1", serde_json::json!({"text": "paid"}))).await?;
//! tx.commit().await?;
//! producer.after_commit(ticket);
//! # Ok(()) }
//! ```

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_postgres::GenericClient;
use tracing::debug;

use crate::config::Config;
use crate::notification::NotificationId;
use crate::queue::{self, Queue};
use crate::store::notify::NewNotification;
use crate::store::{BATCH_ROWS, StageError, Store, pooler};

/// Notifications that may wait to be pushed; what does not fit is left to the relay.
const WAITING_MAX: usize = 10_000;

/// What an app's process is called in a publication: no instance has this number.
const NO_INSTANCE: i32 = 0;

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
    /// Rows of a topic with the same key are sent one after the other.
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
    waiting: mpsc::Sender<i64>,
    pusher: JoinHandle<()>,
}

impl Producer {
    /// Connects to the database and the queue that the instances use. Needs the rights of the daemon's role, and Redis:
    /// an in-process queue is out of another process's reach.
    pub async fn connect(config: &Config) -> Result<Producer, StageError> {
        if config.redis_url.is_none() {
            let why = "an app can only push to a queue in Redis; set redis_url".to_owned();
            return Err(queue::Error::Unusable(why).into());
        }
        pooler::refuse_shared(config).await?;
        let store = Store::open(config)?;
        let queue = queue::open(&config.queue, config.redis_url.as_ref()).await?;
        // The instances check for losses; what this process says of the past is of no interest to it.
        queue.check_loss(0).await?;
        let (waiting, ids) = mpsc::channel(WAITING_MAX);
        Ok(Producer { waiting, pusher: tokio::spawn(push_all(store, queue, ids)) })
    }

    /// Writes a notification in the caller's transaction.
    pub async fn notify(
        &self,
        transaction: &impl GenericClient,
        notification: &Notification<'_>,
    ) -> Result<Ticket, tokio_postgres::Error> {
        let payload = notification.payload.to_string();
        let headers = notification.headers.as_ref().map(Value::to_string);
        let new = NewNotification {
            topic: notification.topic,
            recipient: notification.recipient,
            payload: &payload,
            send_at: notification.send_at,
            dedup_key: notification.dedup_key,
            ordering_key: notification.ordering_key,
            expires_at: notification.expires_at,
            headers: headers.as_deref(),
        };
        let statement = include_str!("../../sql/queries/producer/notify.sql");
        let row = transaction.query_one(statement, &new.parameters()).await?;
        Ok(Ticket { id: NotificationId(row.get(0)) })
    }

    /// Pushes in the background, at once. Call it only after the transaction has committed.
    pub fn after_commit(&self, ticket: Ticket) {
        // What is not ready (a dedup_key that was taken, a later send_at, an ordering key) is not reserved and goes its
        // own way.
        if self.waiting.try_send(ticket.id.0).is_err() {
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

async fn push_all(store: Store, queue: Arc<dyn Queue>, mut ids: mpsc::Receiver<i64>) {
    let mut batch = Vec::with_capacity(BATCH_ROWS as usize);
    while ids.recv_many(&mut batch, BATCH_ROWS as usize).await > 0 {
        if let Err(error) = push(&store, &*queue, &batch).await {
            debug!(%error, notifications = batch.len(), "left to the relay");
        }
        batch.clear();
    }
}

async fn push(store: &Store, queue: &dyn Queue, ids: &[i64]) -> Result<(), StageError> {
    let reserved = store.reserve_ids(ids, NO_INSTANCE).await?.reserved;
    if reserved.messages.is_empty() {
        return Ok(());
    }
    queue.push(&reserved.messages).await?;
    Ok(store.confirm(&reserved.publications).await?)
}
