//! The doorbell, and who may hold rows that nobody else can see yet.

use std::collections::HashSet;
use std::time::Duration;

use tokio_postgres::Row;

use super::instance::millis;
use super::{Error, Result, Store, query};

/// Transactions, by Postgres's own name for them.
pub type Holders = HashSet<String>;

/// What the doorbell was set to.
#[derive(Debug, Clone, Copy)]
pub struct Bell(i64);

impl Store {
    /// Says until when nobody needs to ring: `ahead` of now while busy, zero while dozing or asleep and listening.
    pub async fn set_doorbell(&self, ahead: Duration) -> Result<Bell> {
        let rows = self.query(query!("wakeup_set_doorbell", Relaxed, [INT8]), &[&millis(ahead)]).await?;
        Ok(Bell(only(&rows)?.get(0)))
    }

    /// Whether the bell is still up; if not, somebody took it down who had not seen it being set.
    pub async fn bell_is_up(&self, bell: &Bell) -> Result<bool> {
        let rows = self.query(query!("wakeup_read_doorbell", Relaxed, [INT8]), &[&bell.0]).await?;
        Ok(only(&rows)?.get(0))
    }

    /// The transactions that may have written rows we cannot see yet.
    pub async fn holders(&self) -> Result<Holders> {
        let rows = self.query(query!("wakeup_find_holders", Relaxed, []), &[]).await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    /// The highest `outbox.seq` drawn so far. Ask before [`Store::holders`].
    pub async fn highest_seq(&self) -> Result<i64> {
        let rows = self.query(query!("wakeup_read_seq", Relaxed, []), &[]).await?;
        Ok(only(&rows)?.get(0))
    }
}

fn only(rows: &[Row]) -> Result<&Row> {
    rows.first().ok_or_else(|| Error::Bug("a sequence has one row".into()))
}
