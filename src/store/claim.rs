//! The claim, which is the idempotency check, and what undoes it.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use tokio_postgres::Row;

use super::instance::millis;
use super::publish::OrderingKey;
use super::refusal::{Unusable, Values, freed_keys};
use super::{Error, Result, Store, query};
use crate::queue::Message;

/// A payload longer than this does not come along with its claim.
pub const LARGE_BYTES: usize = 16 << 10;
/// Payloads of any size that one statement should read at most.
pub const LARGE_PAYLOADS_MAX: usize = 16;

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
    /// JSON text; `None`: it has more than [`LARGE_BYTES`] and is read by its call.
    pub payload: Option<String>,
    /// How long that text is.
    pub payload_bytes: usize,
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
pub struct Contents {
    /// The notification.
    pub id: i64,
    /// What it is about.
    pub topic: String,
    /// Who receives it.
    pub recipient: String,
    /// JSON text of what was asked for, if it is not too long.
    pub payload: Option<String>,
    /// JSON text of an object.
    pub headers: Option<String>,
    /// When the app wrote it.
    pub created_at: DateTime<Utc>,
}

/// A row that goes back to Postgres without a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutBack {
    /// The notification.
    pub id: i64,
    /// The message's epoch, or the claim's token.
    pub epoch: i32,
    /// Due again after this.
    pub wait: Duration,
    /// Where on its route it goes on; `None`: on the same channel.
    pub next_step: Option<i16>,
    /// The origin that it waits for, or [`CHANNEL_WIDE`] for the channel as a whole; `None`: neither.
    ///
    /// [`CHANNEL_WIDE`]: crate::channel::CHANNEL_WIDE
    pub waits_for: Option<Arc<str>>,
}

/// What became of released claims.
#[derive(Debug, Default)]
pub struct ReleaseRecord {
    /// Ordering keys of those that were canceled meanwhile: free for their next row.
    pub released_keys: Vec<OrderingKey>,
    /// Rows that cannot be released: to be given up.
    pub unusable: Vec<Unusable>,
    /// Claims whose rows are locked: to be released again.
    pub locked: Vec<Key>,
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
    /// Another's open transaction has locked its row: it is to come again.
    Locked,
    /// A row that cannot be claimed, or whose record cannot be read: it is to be given up.
    Unusable(Unusable),
}

impl Case {
    /// The name used in metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Case::Claimed(_) => "claimed",
            Case::Held => "held",
            Case::Sent => "sent",
            Case::Stale => "stale",
            Case::Locked => "locked",
            Case::Unusable(_) => "unusable",
        }
    }
}

/// Claims of this instance in flight, from the claim until their outcome is recorded: their leases are renewed, and its
/// own sweep does not end them. By notification: the token, and when it was claimed or renewed.
#[derive(Debug, Default)]
pub struct Calls(Mutex<HashMap<i64, (i32, Instant)>>);

impl Calls {
    /// A row was claimed then.
    pub fn begin(&self, id: i64, token: i32, claimed_at: Instant) {
        self.lock().insert(id, (token, claimed_at));
    }

    /// Their outcomes are recorded.
    pub fn end(&self, ids: impl Iterator<Item = i64>) {
        let mut calls = self.lock();
        for id in ids {
            calls.remove(&id);
        }
    }

    /// Whether this claim is in flight here.
    pub fn contains(&self, id: i64, token: i32) -> bool {
        self.lock().get(&id).is_some_and(|(held, _)| *held == token)
    }

    /// Claims that were made or renewed at least so long ago.
    pub fn older_than(&self, age: Duration) -> Vec<(i64, i32)> {
        let calls = self.lock();
        calls.iter().filter(|(_, (_, since))| since.elapsed() >= age).map(|(&id, &(token, _))| (id, token)).collect()
    }

    /// Their leases were renewed then.
    pub fn renewed(&self, claims: &[(i64, i32)], at: Instant) {
        let mut calls = self.lock();
        for (id, token) in claims {
            if let Some(call) = calls.get_mut(id).filter(|(held, _)| held == token) {
                call.1 = at;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<i64, (i32, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store {
    /// Claims what is claimable of these distinct messages and says for each which case it was. Of several messages of
    /// one row, which only a loss or a repair leaves, the newest is decided first.
    pub async fn claim(&self, messages: &[Message], instance: i32, lease: Duration) -> Result<Vec<(Key, Case)>> {
        let (mut cases, mut topics) = (Vec::with_capacity(messages.len()), Topics::default());
        let mut left: Vec<Key> = messages.iter().map(|message| (message.id, message.epoch)).collect();
        if let Some(through) = self.origin.aside_through() {
            let aside = left.extract_if(.., |(id, _)| *id <= through);
            cases.extend(aside.map(|copied| (copied, Case::Stale)));
        }
        loop {
            let (newest, older) = newest_of_each(left);
            self.claim_distinct(&newest, instance, lease, &mut topics, &mut cases).await?;
            let ours = |id| cases.iter().any(|((claimed, _), case)| *claimed == id && matches!(case, Case::Claimed(_)));
            let (stale, undecided): (Vec<Key>, Vec<Key>) = older.into_iter().partition(|(id, _)| ours(*id));
            cases.extend(stale.into_iter().map(|copy| (copy, Case::Stale)));
            if undecided.is_empty() {
                return Ok(cases);
            }
            left = undecided;
        }
    }

    /// Each row once, in the order of ids. A row that cannot be claimed, or is locked, costs nobody else's claim.
    async fn claim_distinct(
        &self,
        keys: &[Key],
        instance: i32,
        lease: Duration,
        topics: &mut Topics,
        cases: &mut Vec<(Key, Case)>,
    ) -> Result<()> {
        let query = query!("worker/claim_messages", Durable, [INT8_ARRAY, INT4_ARRAY, INT4, INT8, INT4]);
        let payload_max = bytes(LARGE_BYTES);
        let (lease, mut bisection) = (millis(lease), self.parts(keys.iter().map(|(id, _)| *id).collect()).await?);
        while let Some(part) = bisection.next() {
            let (ids, epochs): (Vec<i64>, Vec<i32>) = keys[part.clone()].iter().copied().unzip();
            let claimed = self.query(query, &[&ids, &epochs, &instance, &lease, &payload_max]).await.map(|rows| {
                cases.extend(rows.iter().filter_map(|row| decided(row, topics).ok()));
            });
            self.tried(&mut bisection, part, claimed).await?;
        }
        cases.extend(bisection.locked.into_iter().map(|at| (keys[at], Case::Locked)));
        cases.extend(bisection.refused.into_iter().map(|(at, error)| {
            let (id, epoch) = keys[at];
            (keys[at], Case::Unusable(Unusable { id, epoch, error: format!("it cannot be claimed: {error}") }))
        }));
        Ok(())
    }

    /// The payload of a claimed row, as JSON text. `None`: the row is gone.
    pub async fn read_payload(&self, id: i64, created_at: DateTime<Utc>) -> Result<Option<String>> {
        let rows = self.query(query!("worker/read_payload", Relaxed, [INT8, TIMESTAMPTZ]), &[&id, &created_at]).await?;
        rows.first().map(|row| row.value(0)).transpose()
    }

    /// What the URLs of these messages may be made of, with these fields of their payloads (`None`: all of it) where
    /// they are no longer than that; some rows may be gone.
    pub async fn read_destinations(
        &self,
        ids: &[i64],
        fields: Option<&[String]>,
        payload_max: usize,
    ) -> Result<Vec<Contents>> {
        let query = query!("worker/read_destinations", Relaxed, [INT8_ARRAY, INT4, TEXT_ARRAY]);
        let rows = self.query(query, &[&ids, &bytes(payload_max), &fields]).await?;
        let contents = |row: &Row| -> Result<Contents> {
            Ok(Contents {
                id: row.value(0)?,
                topic: row.value(1)?,
                recipient: row.value(2)?,
                payload: row.value(3)?,
                headers: row.value(4)?,
                created_at: row.value(5)?,
            })
        };
        // Of one that cannot be read nothing is known: the claim tells.
        Ok(rows.iter().filter_map(|row| contents(row).ok()).collect())
    }

    /// Messages that cannot start now go back unclaimed, each with its time. Returns those whose rows are locked.
    pub async fn put_back(&self, messages: &[PutBack]) -> Result<Vec<Key>> {
        let query = query!("worker/put_back", Durable, [INT8_ARRAY, INT4_ARRAY, INT8_ARRAY, INT2_ARRAY, TEXT_ARRAY]);
        let mut bisection = self.parts(messages.iter().map(|message| message.id).collect()).await?;
        while let Some(part) = bisection.next() {
            let (ids, epochs, waits, next_steps, origins) = columns(&messages[part.clone()]);
            let put_back = self.query(query, &[&ids, &epochs, &waits, &next_steps, &origins]).await.map(|_| ());
            self.tried(&mut bisection, part, put_back).await?;
        }
        match bisection.refused.pop() {
            Some((_, reason)) => Err(Error::Value(reason)),
            None => Ok(bisection.locked.into_iter().map(|at| (messages[at].id, messages[at].epoch)).collect()),
        }
    }

    /// Undoes claims that made no call; each is due again after its wait.
    pub async fn release(&self, claims: &[PutBack]) -> Result<ReleaseRecord> {
        let query =
            query!("worker/release_claims", Durable, [INT8_ARRAY, INT4_ARRAY, INT8_ARRAY, INT2_ARRAY, TEXT_ARRAY]);
        let mut bisection = self.parts(claims.iter().map(|claim| claim.id).collect()).await?;
        let mut released_keys = Vec::new();
        while let Some(part) = bisection.next() {
            let (ids, tokens, waits, next_steps, origins) = columns(&claims[part.clone()]);
            let released = self.query(query, &[&ids, &tokens, &waits, &next_steps, &origins]).await.map(|rows| {
                released_keys.extend(freed_keys(&rows, 0));
            });
            self.tried(&mut bisection, part, released).await?;
        }
        let unusable = |(at, error)| {
            let PutBack { id, epoch, .. } = claims[at];
            Unusable { id, epoch, error: format!("it cannot be released: {error}") }
        };
        Ok(ReleaseRecord {
            released_keys,
            locked: bisection.locked.into_iter().map(|at| (claims[at].id, claims[at].epoch)).collect(),
            unusable: bisection.refused.into_iter().map(unusable).collect(),
        })
    }

    /// Calls that are still under way keep their rows. Each row once. Returns those whose leases were renewed: not
    /// those of rows that are locked.
    pub async fn renew(&self, mut claims: Vec<Key>, lease: Duration) -> Result<Vec<Key>> {
        let query = query!("worker/renew_leases", Durable, [INT8_ARRAY, INT4_ARRAY, INT8]);
        claims.sort_unstable();
        let (ids, tokens): (Vec<i64>, Vec<i32>) = claims.into_iter().unzip();
        let rows = self.query(query, &[&ids, &tokens, &millis(lease)]).await?;
        rows.iter().map(|row| Ok((row.value(0)?, row.value(1)?))).collect()
    }
}

/// Ids, epochs, waits, next steps and origins.
type Columns<'a> = (Vec<i64>, Vec<i32>, Vec<i64>, Vec<Option<i16>>, Vec<Option<&'a str>>);
fn bytes(bytes: usize) -> i32 {
    i32::try_from(bytes).unwrap_or(i32::MAX)
}

/// As the statements take them: one array per column.
fn columns(rows: &[PutBack]) -> Columns<'_> {
    rows.iter().map(|row| (row.id, row.epoch, millis(row.wait), row.next_step, row.waits_for.as_deref())).collect()
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

/// One message's case. Its record may be unreadable; its id and epoch are not.
fn decided(row: &Row, topics: &mut Topics) -> Result<(Key, Case)> {
    let key @ (id, epoch) = (row.value(0)?, row.value(1)?);
    let unusable = |error: Error| Case::Unusable(Unusable { id, epoch: epoch + 1, error: error.to_string() });
    Ok((key, case(row, topics).unwrap_or_else(unusable)))
}

// By position, in the statement's order: a name is searched for among all of them, for each value of each row.
fn case(row: &Row, topics: &mut Topics) -> Result<Case> {
    let status: Option<&str> = row.value(8)?;
    let token: Option<i32> = row.value(2)?;
    if let Some(token) = token {
        let status = status.ok_or_else(|| Error::Value("its record was deleted".to_owned()))?;
        // An outbox row of a SENT notification should not exist; if it does, it must not be called.
        return match status {
            "SENT" => Ok(Case::Sent),
            _ => Ok(Case::Claimed(Box::new(claimed(row, token, topics)?))),
        };
    }
    Ok(match (row.value::<Option<&str>>(7)?, status) {
        (None, Some("SENT")) => Case::Sent,
        (Some("processing"), _) => Case::Held,
        _ => Case::Stale,
    })
}

fn claimed(row: &Row, token: i32, topics: &mut Topics) -> Result<Claimed> {
    Ok(Claimed {
        id: row.value(0)?,
        token,
        attempts: row.value(3)?,
        route_step: row.value(4)?,
        channel_attempts: row.value(5)?,
        published_at: row.value(6)?,
        topic: topics.name(row.value(9)?),
        recipient: row.value(10)?,
        payload: row.value(11)?,
        payload_bytes: usize::try_from(row.value::<i32>(12)?).unwrap_or(0),
        headers: row.value(13)?,
        created_at: row.value(14)?,
        expires_in_ms: row.value(15)?,
    })
}
