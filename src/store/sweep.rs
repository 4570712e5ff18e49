//! What repairs: leases that are over, publications cut short, messages the queue lost, keys nobody admitted.

use std::time::Duration;

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
    /// Position on its route.
    pub channel: i16,
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
                    channel: row.get("route_step"),
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
    pub async fn recall_publications(&self, unconfirmed_for: Duration) -> Result<u64> {
        let query = query!("sweeper_recall_publications", Durable, [INT8]);
        Ok(self.query(query, &[&millis(unconfirmed_for)]).await?.len() as u64)
    }

    /// What is published and unclaimed is due again, under a new epoch: all of it, or what these instances published.
    pub async fn republish_lost(&self, published_by: Option<&[i32]>) -> Result<u64> {
        let query = query!("sweeper_republish_lost", Durable, [INT4_ARRAY]);
        Ok(self.query(query, &[&published_by]).await?.len() as u64)
    }

    /// The last net: published long ago and overtaken, or the queue is empty.
    pub async fn republish_overtaken(&self, published_for: Duration, queue: QueueSeen) -> Result<u64> {
        let query = query!("sweeper_republish_overtaken", Durable, [INT8, BOOL]);
        let is_empty = queue == QueueSeen::Empty;
        Ok(self.query(query, &[&millis(published_for), &is_empty]).await?.len() as u64)
    }

    /// Ready rows that lie below a stretch of this age and are covered by none get a timer.
    pub async fn republish_strays(&self, older_than: Duration, rows_max: u32) -> Result<u64> {
        let query = query!("sweeper_republish_strays", Durable, [INT8, INT4]);
        Ok(self.query(query, &[&millis(older_than), &bounded(rows_max)]).await?.len() as u64)
    }

    /// Rows that have been due for this long and have no timer get one.
    pub async fn adopt_timers(&self, due_for: Duration, rows_max: u32) -> Result<u64> {
        let query = query!("sweeper_adopt_timers", Durable, [INT8, INT4]);
        Ok(self.query(query, &[&millis(due_for), &bounded(rows_max)]).await?.len() as u64)
    }

    /// Stretches of which no row waits to be claimed need not be kept.
    pub async fn forget_stretches(&self) -> Result<()> {
        self.query(query!("sweeper_forget_stretches", Relaxed, []), &[]).await.map(|_| ())
    }

    /// Keys with waiting rows and no live one.
    pub async fn waiting_keys(&self, keys_max: u32) -> Result<Vec<String>> {
        let query = query!("sweeper_find_waiting_keys", Relaxed, [INT4]);
        let rows = self.query(query, &[&bounded(keys_max)]).await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }
}

/// What the sweep knows of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueSeen {
    /// Nothing waits and nothing is in flight.
    Empty,
    /// There is, or may be, something in it.
    InUse,
}
