//! The idempotency check and what undoes it.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio_postgres::Row;

use super::instance::millis;
use super::publish::{Fresh, LaneScan, Stretches, columns};
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
    pub channel: i16,
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

/// A claim to undo: no call was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Release {
    /// The notification.
    pub id: i64,
    /// The claim's token.
    pub token: i32,
    /// Due again after this.
    pub wait: Duration,
    /// Where on its route it goes on; `None`: on the same channel.
    pub next_channel: Option<i16>,
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
    /// Its topic is paused: to be handed back.
    Paused,
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
            Case::Paused => "paused",
            Case::Stale => "stale",
        }
    }
}

impl Store {
    /// Claims what is claimable of these distinct messages and says for each which case it was. Of several messages of one row,
    /// which only a loss or a repair leaves, the newest is decided first.
    pub async fn claim(
        &self,
        messages: &[Message],
        instance: i32,
        lease: Duration,
        paused_lanes: &[i32],
    ) -> Result<Vec<(Message, Case)>> {
        let query = query!("worker_claim_messages", Durable, [INT8_ARRAY, INT4_ARRAY, INT4, INT8, INT4_ARRAY]);
        let (mut cases, mut topics) = (Vec::with_capacity(messages.len()), Topics::default());
        let mut left = messages.to_vec();
        loop {
            let (newest, older) = newest_of_each(left);
            let (ids, epochs) = split(&newest);
            let rows = self.query(query, &[&ids, &epochs, &instance, &millis(lease), &paused_lanes]).await?;
            cases
                .extend(rows.iter().map(|row| (Message { id: row.get(0), epoch: row.get(1) }, case(row, &mut topics))));
            let ours = |id| cases.iter().any(|(message, case)| message.id == id && matches!(case, Case::Claimed(_)));
            let (stale, undecided): (Vec<_>, Vec<_>) = older.into_iter().partition(|message| ours(message.id));
            cases.extend(stale.into_iter().map(|message| (message, Case::Stale)));
            if undecided.is_empty() {
                return Ok(cases);
            }
            left = undecided;
        }
    }

    /// Takes fresh ready rows of the lanes given and claims them.
    pub async fn claim_fresh(
        &self,
        scans: &[LaneScan],
        instance: i32,
        lease: Duration,
        stretches: Stretches,
    ) -> Result<(Fresh, Vec<Box<Claimed>>)> {
        let query = query!("worker_claim_fresh", Durable, [INT4_ARRAY, INT8_ARRAY, INT4_ARRAY, INT4, INT8, BOOL]);
        let (lanes, after, take) = columns(scans);
        let used = stretches.are_used();
        let rows = self.query(query, &[&lanes, &after, &take, &instance, &millis(lease), &used]).await?;
        let (mut fresh, mut claims, mut topics) = (Fresh::default(), Vec::with_capacity(rows.len()), Topics::default());
        for row in &rows {
            let (lane, seq): (i32, i64) = (row.get(16), row.get(17));
            fresh.keys.extend(row.get::<_, Option<String>>(18));
            if let Case::Claimed(claimed) = case(row, &mut topics) {
                if lane == 0 {
                    fresh.unnamed.push((claimed.id, Some(Arc::clone(&claimed.topic))));
                }
                claims.push(claimed);
            }
            fresh.found(lane, seq);
        }
        fresh.claimed = claims.len() as u64;
        Ok((fresh, claims))
    }

    /// Hands messages of paused topics back.
    pub async fn unpublish(&self, messages: &[Message]) -> Result<()> {
        let query = query!("worker_unpublish_messages", Durable, [INT8_ARRAY, INT4_ARRAY]);
        let (ids, epochs) = split(messages);
        self.query(query, &[&ids, &epochs]).await.map(|_| ())
    }

    /// Undoes claims that made no call; each is due again after its wait.
    pub async fn release(&self, claims: &[Release]) -> Result<()> {
        let query = query!("worker_release_claims", Durable, [INT8_ARRAY, INT4_ARRAY, INT8_ARRAY, INT2_ARRAY]);
        let ids: Vec<i64> = claims.iter().map(|claim| claim.id).collect();
        let tokens: Vec<i32> = claims.iter().map(|claim| claim.token).collect();
        let waits: Vec<i64> = claims.iter().map(|claim| millis(claim.wait)).collect();
        let next_channels: Vec<Option<i16>> = claims.iter().map(|claim| claim.next_channel).collect();
        self.query(query, &[&ids, &tokens, &waits, &next_channels]).await.map(|_| ())
    }

    /// Calls that are still under way keep their rows.
    pub async fn renew(&self, claims: &[(i64, i32)], lease: Duration) -> Result<()> {
        let query = query!("worker_renew_leases", Durable, [INT8_ARRAY, INT4_ARRAY, INT8]);
        let (ids, tokens): (Vec<i64>, Vec<i32>) = claims.iter().copied().unzip();
        self.query(query, &[&ids, &tokens, &millis(lease)]).await.map(|_| ())
    }
}

/// The newest message of each row, by id, and the others.
fn newest_of_each(mut messages: Vec<Message>) -> (Vec<Message>, Vec<Message>) {
    messages.sort_unstable_by_key(|message| (message.id, Reverse(message.epoch)));
    let mut last = None;
    messages.into_iter().partition(|message| last.replace(message.id) != Some(message.id))
}

fn split(messages: &[Message]) -> (Vec<i64>, Vec<i32>) {
    messages.iter().map(|message| (message.id, message.epoch)).unzip()
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

// By position, in the statements' order: a name is looked for among all of them, for each value of each row.
fn case(row: &Row, topics: &mut Topics) -> Case {
    let status: Option<&str> = row.get(9);
    let token: Option<i32> = row.get(2);
    if let (Some(token), Some(status)) = (token, status) {
        // An outbox row of a SENT notification should not exist; if it does, it must not be called.
        return if status == "SENT" { Case::Sent } else { Case::Claimed(Box::new(claimed(row, token, topics))) };
    }
    let found_state: Option<i16> = row.get(7);
    let found_epoch: Option<i32> = row.get(8);
    match (found_state, status) {
        (None, Some("SENT")) => Case::Sent,
        (Some(2), _) => Case::Held,
        (Some(0 | 1), _) if found_epoch == row.get(1) => Case::Paused,
        _ => Case::Stale,
    }
}

fn claimed(row: &Row, token: i32, topics: &mut Topics) -> Claimed {
    Claimed {
        id: row.get(0),
        token,
        attempts: row.get(3),
        channel: row.get(4),
        channel_attempts: row.get(5),
        published_at: row.get(6),
        topic: topics.name(row.get(10)),
        recipient: row.get(11),
        payload: row.get(12),
        headers: row.get(13),
        created_at: row.get(14),
        expires_in_ms: row.get(15),
    }
}
