//! What repairs: leases that are over, publications cut short, messages the queue lost, keys nobody admitted.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::instance::millis;
use super::release::bounded;
use super::{Result, Store, query};

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

/// What a sweep sees of all that is live.
#[derive(Debug, Clone, Default)]
pub struct Look {
    /// Claims to be ended.
    pub expired: Vec<Expired>,
    /// How long the oldest of what is published has waited to be claimed; `None`: nothing is.
    pub published_for: Option<Duration>,
}

/// An instance that cannot hold anything any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dead {
    /// Its number.
    pub id: i32,
    /// Whether its queue died with it.
    pub memory: bool,
}

impl Store {
    /// Instances that are dead or have signed off lately.
    pub async fn dead_instances(&self) -> Result<Vec<Dead>> {
        let rows = self.query(query!("sweeper_find_dead", Relaxed, []), &[]).await?;
        Ok(rows.iter().map(|row| Dead { id: row.get(0), memory: row.get(1) }).collect())
    }

    /// Looks at all that is live, once. What is to be done about it is decided again when it is done.
    pub async fn look_over(&self, dead: &[i32], claims_max: u32) -> Result<Look> {
        let query = query!("sweeper_look_over", Relaxed, [INT4_ARRAY, INT4]);
        let mut look = Look::default();
        for row in &self.query(query, &[&dead, &bounded(claims_max)]).await? {
            match row.get("id") {
                Some(id) => look.expired.push(Expired {
                    id,
                    token: row.get("token"),
                    instance: row.get("instance"),
                    created_at: row.get("created_at"),
                    route_step: row.get("route_step"),
                    channel_attempts: row.get("channel_attempts"),
                    topic: row.get("topic"),
                    expired: row.get::<_, Option<bool>>("expired").unwrap_or(false),
                }),
                None => {
                    let waited: Option<i64> = row.get("published_for");
                    look.published_for = waited.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0)));
                }
            }
        }
        Ok(look)
    }

    /// Publications not confirmed within `unconfirmed_for`: their rows are due again.
    pub async fn recall_publications(&self, unconfirmed_for: Duration, publications_max: u32) -> Result<u64> {
        let query = query!("sweeper_recall_publications", Durable, [INT8, INT4]);
        Ok(self.query(query, &[&millis(unconfirmed_for), &bounded(publications_max)]).await?.len() as u64)
    }

    /// What is published and unclaimed and will not be delivered is due again, under a new epoch.
    pub async fn republish(&self, which: Undelivered<'_>) -> Result<u64> {
        let query = query!("sweeper_republish", Durable, [INT4_ARRAY, INT8, BOOL]);
        let (by, published_for, overtaken): (Option<&[i32]>, Duration, bool) = match which {
            Undelivered::All => (None, Duration::ZERO, false),
            Undelivered::PublishedBy(instances) => (Some(instances), Duration::ZERO, false),
            Undelivered::QueueIsEmpty(published_for) => (None, published_for, false),
            Undelivered::Overtaken(published_for) => (None, published_for, true),
        };
        Ok(self.query(query, &[&by, &millis(published_for), &overtaken]).await?.len() as u64)
    }

    /// Walks up to so many keys after this one. Returns those whose head waits to be admitted, and where the walk goes on;
    /// `None`: it is at the end.
    pub async fn waiting_keys(&self, after: &str, keys_max: u32) -> Result<(Vec<String>, Option<String>)> {
        let query = query!("sweeper_find_waiting_keys", Relaxed, [TEXT, INT4]);
        let rows = self.query(query, &[&after, &bounded(keys_max)]).await?;
        let next = rows.last().filter(|_| rows.len() >= keys_max as usize).map(|row| row.get(0));
        Ok((rows.iter().filter(|row| row.get(1)).map(|row| row.get(0)).collect(), next))
    }
}

/// What was published and will not be delivered.
#[derive(Debug, Clone, Copy)]
pub enum Undelivered<'a> {
    /// All of it: the queue lost data.
    All,
    /// What these dead instances had in their in-process queues.
    PublishedBy(&'a [i32]),
    /// What was published at least so long ago: the queue is empty.
    QueueIsEmpty(Duration),
    /// What was published at least so long ago, if the queue has passed it.
    Overtaken(Duration),
}
