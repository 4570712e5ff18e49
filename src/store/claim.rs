//! The idempotency check and what undoes it.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio_postgres::Row;

use super::instance::millis;
use super::{Result, Store, query};
use crate::queue::Message;

/// A row this instance holds for one attempt.
#[derive(Debug, Clone)]
pub struct Claimed {
    /// `notification_log.id`.
    pub id: i64,
    /// The attempt's token: failures are recorded only under it.
    pub token: i32,
    /// Attempts in all, this one included.
    pub attempts: i32,
    /// Position on its route.
    pub route_step: i16,
    /// Attempts on this channel, this one included.
    pub channel_attempts: i16,
    /// What it is about.
    pub topic: Arc<str>,
    /// Who receives it.
    pub recipient: String,
    /// JSON text.
    pub payload: String,
    /// JSON text of an object.
    pub headers: Option<String>,
    /// When the app wrote it.
    pub created_at: DateTime<Utc>,
    /// How long after the claim it may still be sent, by the database's clock; negative: it has expired.
    pub expires_in_ms: Option<i64>,
    /// When its message was published.
    pub published_at: DateTime<Utc>,
}

/// A message as the claim knows it: id and epoch.
pub type Key = (i64, i32);

/// What a message's URL may be made of.
#[derive(Debug, Clone)]
pub struct Destination {
    /// The notification.
    pub id: i64,
    /// What it is about.
    pub topic: String,
    /// Who receives it.
    pub recipient: String,
    /// JSON text.
    pub payload: String,
    /// JSON text of an object.
    pub headers: Option<String>,
    /// When the app wrote it.
    pub created_at: DateTime<Utc>,
}

/// A message that goes back unclaimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutBack {
    /// The notification.
    pub id: i64,
    /// The message's epoch.
    pub epoch: i32,
    /// Due again after this.
    pub wait: Duration,
    /// Where on its route it goes on; `None`: on the same channel.
    pub next_step: Option<i16>,
}

/// A claim to undo: no call was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// The notification.
    pub id: i64,
    /// The claim's token.
    pub token: i32,
    /// Due again after this.
    pub wait: Duration,
    /// Where on its route it goes on; `None`: on the same channel.
    pub next_step: Option<i16>,
}

/// Which case a message was.
#[derive(Debug, Clone)]
pub enum Case {
    /// QUEUED: it is ours now.
    Claimed(Box<Claimed>),
    /// PROCESSING: left to its lease.
    Held,
    /// SENT: no call.
    Sent,
    /// A stale copy, a row that has ended otherwise, or an id nobody committed.
    Stale,
}

impl Case {
    /// The name used in metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Case::Claimed(_) => "claimed",
            Case::Held => "held",
            Case::Sent => "sent",
            Case::Stale => "stale",
        }
    }
}

impl Store {
    /// Claims what is claimable of these distinct messages and says for each which case it was. Of several messages of one row,
    /// which only a loss or a repair leaves, the newest is decided first.
    pub async fn claim(&self, messages: &[Message], instance: i32, lease: Duration) -> Result<Vec<(Key, Case)>> {
        let query = query!("worker_claim_messages", Durable, [INT8_ARRAY, INT4_ARRAY, INT4, INT8]);
        let (mut cases, mut topics) = (Vec::with_capacity(messages.len()), Topics::default());
        let mut left: Vec<Key> = messages.iter().map(|message| (message.id, message.epoch)).collect();
        loop {
            let (newest, older) = newest_of_each(left);
            let (ids, epochs): (Vec<i64>, Vec<i32>) = newest.into_iter().unzip();
            let rows = self.query(query, &[&ids, &epochs, &instance, &millis(lease)]).await?;
            cases.extend(rows.iter().map(|row| ((row.get(0), row.get(1)), case(row, &mut topics))));
            let ours = |id| cases.iter().any(|((claimed, _), case)| *claimed == id && matches!(case, Case::Claimed(_)));
            let (stale, undecided): (Vec<Key>, Vec<Key>) = older.into_iter().partition(|(id, _)| ours(*id));
            cases.extend(stale.into_iter().map(|copy| (copy, Case::Stale)));
            if undecided.is_empty() {
                return Ok(cases);
            }
            left = undecided;
        }
    }

    /// What the URLs of these messages may be made of; some rows may be gone.
    pub async fn read_destinations(&self, ids: &[i64]) -> Result<Vec<Destination>> {
        let rows = self.query(query!("worker_read_destinations", Relaxed, [INT8_ARRAY]), &[&ids]).await?;
        let destination = |row: &Row| Destination {
            id: row.get(0),
            topic: row.get(1),
            recipient: row.get(2),
            payload: row.get(3),
            headers: row.get(4),
            created_at: row.get(5),
        };
        Ok(rows.iter().map(destination).collect())
    }

    /// Messages that cannot start now go back unclaimed, each with its time.
    pub async fn put_back(&self, messages: &[PutBack]) -> Result<()> {
        let query = query!("worker_put_back", Durable, [INT8_ARRAY, INT4_ARRAY, INT8_ARRAY, INT2_ARRAY]);
        let ids: Vec<i64> = messages.iter().map(|message| message.id).collect();
        let epochs: Vec<i32> = messages.iter().map(|message| message.epoch).collect();
        let waits: Vec<i64> = messages.iter().map(|message| millis(message.wait)).collect();
        let next_steps: Vec<Option<i16>> = messages.iter().map(|message| message.next_step).collect();
        self.query(query, &[&ids, &epochs, &waits, &next_steps]).await.map(|_| ())
    }

    /// Undoes claims that made no call; each is due again after its wait. Returns the keys of those that were canceled
    /// meanwhile.
    pub async fn release(&self, claims: &[Release]) -> Result<Vec<String>> {
        let query = query!("worker_release_claims", Durable, [INT8_ARRAY, INT4_ARRAY, INT8_ARRAY, INT2_ARRAY]);
        let ids: Vec<i64> = claims.iter().map(|claim| claim.id).collect();
        let tokens: Vec<i32> = claims.iter().map(|claim| claim.token).collect();
        let waits: Vec<i64> = claims.iter().map(|claim| millis(claim.wait)).collect();
        let next_steps: Vec<Option<i16>> = claims.iter().map(|claim| claim.next_step).collect();
        let rows = self.query(query, &[&ids, &tokens, &waits, &next_steps]).await?;
        Ok(rows.iter().filter_map(|row| row.get(0)).collect())
    }

    /// Calls that are still under way keep their rows.
    pub async fn renew(&self, claims: &[(i64, i32)], lease: Duration) -> Result<()> {
        let query = query!("worker_renew_leases", Durable, [INT8_ARRAY, INT4_ARRAY, INT8]);
        let (ids, tokens): (Vec<i64>, Vec<i32>) = claims.iter().copied().unzip();
        self.query(query, &[&ids, &tokens, &millis(lease)]).await.map(|_| ())
    }
}

/// The newest message of each row, by id, and the others.
fn newest_of_each(mut copies: Vec<Key>) -> (Vec<Key>, Vec<Key>) {
    copies.sort_unstable_by_key(|(id, epoch)| (*id, Reverse(*epoch)));
    let mut last = None;
    copies.into_iter().partition(|(id, _)| last.replace(*id) != Some(*id))
}

/// Rows of one batch are mostly of one topic: they share its name.
#[derive(Default)]
pub(super) struct Topics(Option<Arc<str>>);

impl Topics {
    pub(super) fn name(&mut self, topic: &str) -> Arc<str> {
        match &self.0 {
            Some(last) if **last == *topic => Arc::clone(last),
            _ => Arc::clone(self.0.insert(Arc::from(topic))),
        }
    }
}

// By position, in the statement's order: a name is looked for among all of them, for each value of each row.
fn case(row: &Row, topics: &mut Topics) -> Case {
    let status: Option<&str> = row.get(8);
    let token: Option<i32> = row.get(2);
    if let (Some(token), Some(status)) = (token, status) {
        // An outbox row of a SENT notification should not exist; if it does, it must not be called.
        return if status == "SENT" { Case::Sent } else { Case::Claimed(Box::new(claimed(row, token, topics))) };
    }
    match (row.get::<_, Option<&str>>(7), status) {
        (None, Some("SENT")) => Case::Sent,
        (Some("processing"), _) => Case::Held,
        _ => Case::Stale,
    }
}

fn claimed(row: &Row, token: i32, topics: &mut Topics) -> Claimed {
    Claimed {
        id: row.get(0),
        token,
        attempts: row.get(3),
        route_step: row.get(4),
        channel_attempts: row.get(5),
        published_at: row.get(6),
        topic: topics.name(row.get(9)),
        recipient: row.get(10),
        payload: row.get(11),
        headers: row.get(12),
        created_at: row.get(13),
        expires_in_ms: row.get(14),
    }
}
