//! What repairs: leases that are over, publications cut short, messages the queue lost, keys nobody admitted.

use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio_postgres::Row;

use super::instance::millis;
use super::publish::OrderingKey;
use super::refusal::{Unusable, Values};
use super::release::bounded;
use super::{Error, Result, Store, query};

/// A claim whose lease is over or whose holder is dead.
#[derive(Debug, Clone)]
pub struct Expired {
    /// The notification.
    pub id: i64,
    /// The token it was claimed under.
    pub token: i32,
    /// Who held it.
    pub instance: i32,
    /// When the app wrote it.
    pub created_at: DateTime<Utc>,
    /// Position on its route.
    pub route_step: i16,
    /// Attempts on this channel.
    pub channel_attempts: i16,
    /// What it is about.
    pub topic: String,
    /// Whether its `expires_at` has passed.
    pub expired: bool,
}

/// Pages of the outbox that one statement goes over at most: 64 MiB.
pub const PAGES_MAX: u32 = 8_192;

/// What a sweep searches for, and in which part of all that is live.
#[derive(Debug, Clone, Copy)]
pub struct Scan<'a> {
    /// Claims of these instances.
    pub dead: &'a [i32],
    /// Also those whose lease is over, whoever holds them.
    pub ends_leases: bool,
    /// From this page of the outbox on.
    pub page: u64,
    /// Pages at most.
    pub pages_max: u32,
    /// Claims at most.
    pub claims_max: u32,
}

/// What a sweep sees of some pages of all that is live.
#[derive(Debug, Clone, Default)]
pub struct Scanned {
    /// Claims to be ended.
    pub expired: Vec<Expired>,
    /// Claims of rows that cannot be read.
    pub unusable: Vec<Unusable>,
    /// How long the oldest of what is published has waited to be claimed; `None`: nothing is.
    pub published_for: Option<Duration>,
    /// How many pages there are in all.
    pub pages: u64,
}

/// An instance that cannot hold anything any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dead {
    /// Its number.
    pub id: i32,
    /// Whether its queue died with it.
    pub memory: bool,
    /// Its last heartbeat.
    pub heartbeat_at: DateTime<Utc>,
    /// Where it ran.
    pub host: String,
    /// Whether it fell silent, without signing off, in the last minutes.
    pub died_lately: bool,
}

impl Store {
    /// Instances that are dead or have signed off lately, as far as one can tell whose own heartbeats have gone through
    /// for so long.
    pub async fn dead_instances(&self, own: i32, steady_for: Duration) -> Result<Vec<Dead>> {
        let query = query!("relay/find_dead_instances", Relaxed, [INT4, INT8]);
        let rows = self.query(query, &[&own, &millis(steady_for)]).await?;
        let dead = |row: &Row| {
            let (id, memory, heartbeat_at) = (row.value(0)?, row.value(1)?, row.value(2)?);
            Ok(Dead { id, memory, heartbeat_at, host: row.value(3)?, died_lately: row.value(4)? })
        };
        rows.iter().map(dead).collect()
    }

    /// Reads a part of all that is live, once. What is to be done about it is decided again when it is done.
    pub async fn scan_live(&self, scan: Scan<'_>) -> Result<Scanned> {
        if self.origin.aside_through().is_some() {
            return Ok(Scanned::default());
        }
        let query = query!("relay/find_expired_leases", Relaxed, [INT4_ARRAY, BOOL, INT4, INT8, INT8]);
        let (first, pages) = (page_number(scan.page), i64::from(scan.pages_max));
        let claims_max = bounded(scan.claims_max);
        let mut scanned = Scanned::default();
        for row in &self.query(query, &[&scan.dead, &scan.ends_leases, &claims_max, &first, &pages]).await? {
            match row.value::<Option<i64>>("id")? {
                Some(id) => match expired(row, id) {
                    Ok(claim) => scanned.expired.push(claim),
                    Err(Error::Value(error)) => {
                        scanned.unusable.push(Unusable { id, epoch: row.value("token")?, error })
                    }
                    Err(error) => return Err(error),
                },
                None => {
                    let waited: Option<i64> = row.value("published_for")?;
                    scanned.published_for = waited.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0)));
                    scanned.pages = u64::try_from(row.value::<i64>("pages")?).unwrap_or(0);
                }
            }
        }
        Ok(scanned)
    }

    /// Publications not confirmed within `unconfirmed_for`: their rows are due again.
    pub async fn recall_publications(&self, unconfirmed_for: Duration, publications_max: u32) -> Result<u64> {
        let query = query!("relay/recall_publications", Durable, [INT8, INT4]);
        Ok(self.query(query, &[&millis(unconfirmed_for), &bounded(publications_max)]).await?.len() as u64)
    }

    /// What is published and unclaimed and will not be delivered is due again, under a new epoch. One bounded statement
    /// after the other.
    pub async fn republish(&self, which: Undelivered<'_>) -> Result<u64> {
        let query = query!("relay/republish", Durable, [INT4_ARRAY, INT8, BOOL, INT8, INT8, BOOL]);
        let (by, published_for, overtaken, in_redis): (Option<&[i32]>, Duration, bool, bool) = match which {
            Undelivered::All => (None, Duration::ZERO, false, false),
            Undelivered::PublishedBy(instances) => (Some(instances), Duration::ZERO, false, false),
            Undelivered::InRedis(published_for) => (None, published_for, false, true),
            Undelivered::Overtaken(published_for) => (None, published_for, true, true),
        };
        let pages_max = i64::from(PAGES_MAX);
        let (mut page, mut republished) = (0, 0);
        loop {
            let rows =
                self.query(query, &[&by, &millis(published_for), &overtaken, &page, &pages_max, &in_redis]).await?;
            let Some(row) = rows.first() else { return Ok(republished) };
            let (rows, pages): (i64, i64) = (row.value(0)?, row.value(1)?);
            republished += u64::try_from(rows).unwrap_or(0);
            page += pages_max;
            if page >= pages {
                return Ok(republished);
            }
        }
    }

    /// Reads up to so many keys after this one. Returns those whose head waits to be admitted, and where the next scan
    /// goes on; `None`: there are no more.
    pub async fn waiting_keys(
        &self,
        after: &OrderingKey,
        keys_max: u32,
    ) -> Result<(Vec<OrderingKey>, Option<OrderingKey>)> {
        let query = query!("relay/find_waiting_keys", Relaxed, [TEXT, TEXT, INT4]);
        let rows = self.query(query, &[&after.topic, &after.key, &bounded(keys_max)]).await?;
        let key = |row: &Row| Ok((OrderingKey { topic: row.value(0)?, key: row.value(1)? }, row.value(2)?));
        let keys: Vec<(OrderingKey, bool)> = rows.iter().map(key).collect::<Result<_>>()?;
        let next = keys.last().filter(|_| rows.len() >= keys_max as usize).map(|(key, _)| key.clone());
        Ok((keys.into_iter().filter(|(_, waits)| *waits).map(|(key, _)| key).collect(), next))
    }
}

fn expired(row: &Row, id: i64) -> Result<Expired> {
    Ok(Expired {
        id,
        token: row.value("token")?,
        instance: row.value("instance")?,
        created_at: row.value("created_at")?,
        route_step: row.value("route_step")?,
        channel_attempts: row.value("channel_attempts")?,
        topic: row.value("topic")?,
        expired: row.value::<Option<bool>>("expired")?.unwrap_or(false),
    })
}

fn page_number(page: u64) -> i64 {
    i64::try_from(page).unwrap_or(i64::MAX)
}

/// What was published and will not be delivered.
#[derive(Debug, Clone, Copy)]
pub enum Undelivered<'a> {
    /// All of it: the queue lost data.
    All,
    /// What these instances published, into their own processes or a Redis out of reach.
    PublishedBy(&'a [i32]),
    /// What was published at least so long ago and is in nobody's process: Redis is empty, or out of reach.
    InRedis(Duration),
    /// The same, if the queue in Redis has passed it.
    Overtaken(Duration),
}
