//! PENDING rows that are due become QUEUED.

use std::time::Duration;

use super::instance::millis;
use super::publish::Reserved;
use super::{Result, Store, query};

/// What one release did.
#[derive(Debug, Default)]
pub struct Released {
    /// Rows reserved for this instance to push now.
    pub reserved: Reserved,
    /// Rows left to the relay: no room in the window, paused, or behind their key.
    pub left: u64,
    /// Rows that can never be sent; they are FAILED now.
    pub refused: u64,
    /// Of the reserved ones, those whose topic has no lane yet.
    pub unnamed: Vec<i64>,
}

impl Released {
    /// Rows taken in all.
    pub fn count(&self) -> u64 {
        self.reserved.messages.len() as u64 + self.left + self.refused
    }
}

impl Store {
    /// Releases up to `rows_max` due rows and reserves up to `reserve_max` of them for an immediate push.
    pub async fn release_due(
        &self,
        look_back: Duration,
        rows_max: u32,
        reserve_max: u32,
        instance: i32,
    ) -> Result<Released> {
        let query = query!("producer_release_due", Relaxed, [INT8, INT4, INT4, INT4]);
        let rows =
            self.query(query, &[&millis(look_back), &bounded(rows_max), &bounded(reserve_max), &instance]).await?;
        let mut released = Released::default();
        for row in &rows {
            let (id, state): (i64, i32) = (row.get(0), row.get(2));
            match state {
                1 => {
                    released.reserved.add(id, row.get(1), row.get(3));
                    if row.get::<_, i32>(4) == 0 {
                        released.unnamed.push(id);
                    }
                }
                -1 => released.refused += 1,
                _ => released.left += 1,
            }
        }
        Ok(released)
    }

    /// How long until the next PENDING row is due.
    pub async fn next_due(&self, look_back: Duration) -> Result<Option<Duration>> {
        let rows = self.query(query!("producer_next_due", Relaxed, [INT8]), &[&millis(look_back)]).await?;
        Ok(rows.first().map(|row| Duration::from_millis(u64::try_from(row.get::<_, i64>(0)).unwrap_or(0))))
    }
}

pub(super) fn bounded(rows: u32) -> i32 {
    i32::try_from(rows).unwrap_or(i32::MAX)
}
