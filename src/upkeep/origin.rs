//! Sets aside what a copy of the database brought, and brings it back or cancels it once somebody says whose it is.
//!
//! **Guarantee.** One batch at a time, whoever works it off: an instance that dies leaves the rest to the others.
//! **Limit.** Ten million rows take minutes; what is written meanwhile goes out beside it.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::store::Store;
use crate::telemetry::outage::{ERROR_WAIT, Outage};

/// Between batches: live traffic goes between them.
const STEP_EVERY: Duration = Duration::from_millis(5);

/// Works it off until `shutdown`.
pub async fn run(store: &Store, shutdown: &CancellationToken) {
    let mut outage = Outage::default();
    while shutdown.run_until_cancelled(store.copy_has_work()).await.is_some() {
        warn!("this database came from another one; see outboxd.health, `origin`");
        while shutdown.run_until_cancelled(step(store, &mut outage)).await == Some(true) {}
        if shutdown.is_cancelled() {
            return;
        }
    }
}

/// Whether there is more.
async fn step(store: &Store, outage: &mut Outage) -> bool {
    match outage.note(store.step_origin().await, "what a copy of the database brought is not worked off") {
        Some(has_more) => {
            tokio::time::sleep(STEP_EVERY).await;
            store.wake_relay();
            has_more
        }
        None => {
            tokio::time::sleep(ERROR_WAIT).await;
            true
        }
    }
}
