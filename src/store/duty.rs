//! Leases of the duties that one instance does at a time for all.

use std::time::Duration;

use super::instance::millis;
use super::{Result, Store, query};

/// What became of asking for a duty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It is ours as of now.
    New,
    /// It was ours and still is.
    Kept,
    /// Somebody else has it.
    Elsewhere,
}

impl Store {
    /// Takes or keeps a duty for `lease` from now, by the database's clock.
    pub async fn take_duty(&self, name: &str, instance: i32, lease: Duration) -> Result<Taken> {
        let query = query!("duty_take", Relaxed, [TEXT, INT4, INT8]);
        let rows = self.query(query, &[&name, &instance, &millis(lease)]).await?;
        Ok(match rows.first().map(|row| row.get::<_, bool>(0)) {
            Some(true) => Taken::New,
            Some(false) => Taken::Kept,
            None => Taken::Elsewhere,
        })
    }

    /// Gives a duty up.
    pub async fn release_duty(&self, name: &str, instance: i32) -> Result<()> {
        self.query(query!("duty_release", Durable, [TEXT, INT4]), &[&name, &instance]).await.map(|_| ())
    }
}
