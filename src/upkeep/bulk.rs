//! Works off what operators asked for in bulk: `retry_where`, `discard_where`, `cancel_where`, a big `retry_dead`.
//!
//! The call only wrote down what to do. Every instance with the role relay polls every two seconds; Postgres lets one of
//! them at a time take a step, and a step waits for the one before to be sent, so that live traffic goes first
//! (see `sql/functions/_bulk_step.sql`). Progress is in the view `bulk_actions`.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::failpoint;
use crate::store::Store;
use crate::store::action::BulkStep;
use crate::telemetry::outage::Outage;

/// Between polls while there is nothing to do.
const POLL_INTERVAL: Duration = Duration::from_secs(3);
/// Between steps: time for the rows of the last one to be sent.
const STEP_EVERY: Duration = Duration::from_millis(10);

/// Works until `shutdown`.
pub async fn run(store: &Store, shutdown: &CancellationToken) {
    let mut outage = Outage::default();
    let mut wait = POLL_INTERVAL;
    while shutdown.run_until_cancelled(tokio::time::sleep(wait)).await.is_some() {
        wait = POLL_INTERVAL;
        if let Some(Some(step)) = outage.note(store.step_bulk().await, "bulk actions wait") {
            if step.changed > 0 {
                failpoint::hit("after_bulk_step").await;
            }
            note(store, step);
            wait = STEP_EVERY;
        }
    }
}

fn note(store: &Store, step: BulkStep) {
    if step.changed > 0 {
        store.wake_relay();
    }
    if step.ended {
        info!(bulk_action = step.id, "finished; see outboxd.bulk_actions");
    }
}
