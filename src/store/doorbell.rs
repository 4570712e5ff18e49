//! The doorbell: whether the app should ring.

use std::time::Duration;

use super::instance::millis;
use super::{Result, Store, query};

impl Store {
    /// Says until when nobody needs to ring: `ahead` of now while busy, zero while listening.
    pub async fn set_doorbell(&self, ahead: Duration) -> Result<()> {
        self.query(query!("relay/set_doorbell", Relaxed, [INT8]), &[&millis(ahead)]).await.map(|_| ())
    }
}
