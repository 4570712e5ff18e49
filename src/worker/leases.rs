//! Renews the leases of calls that are still under way.

use std::sync::Arc;
use std::time::Instant;

use tokio_util::sync::CancellationToken;

use super::Worker;
use crate::telemetry::outage::{ERROR_WAIT, Outage};

pub(super) async fn run(worker: Arc<Worker>, stop: CancellationToken) {
    let third = worker.config.lease / 3;
    let (mut wait, mut outage) = (third / 2, Outage::default());
    while stop.run_until_cancelled(tokio::time::sleep(wait)).await.is_some() {
        wait = third / 2;
        let due = worker.calls.older_than(third);
        if due.is_empty() {
            continue;
        }
        let renewed = worker.store.renew(due, worker.config.lease).await;
        match outage.note(renewed, "leases of calls under way could not be renewed") {
            Some(renewed) => worker.calls.renewed(&renewed, Instant::now()),
            None => wait = ERROR_WAIT.min(third / 2),
        }
    }
}
