//! Renews the leases of calls that are still under way.

use std::sync::Arc;
use std::time::Instant;

use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{Worker, lock};

pub(super) async fn run(worker: Arc<Worker>, stop: CancellationToken) {
    let third = worker.config.lease / 3;
    while stop.run_until_cancelled(tokio::time::sleep(third / 2)).await.is_some() {
        let due: Vec<(i64, i32)> = lock(&worker.progress.calls)
            .iter()
            .filter(|(_, (_, since))| since.elapsed() >= third)
            .map(|(&id, &(token, _))| (id, token))
            .collect();
        if due.is_empty() {
            continue;
        }
        match worker.store.renew(&due, worker.config.lease).await {
            Ok(()) => {
                let mut calls = lock(&worker.progress.calls);
                for (id, token) in due {
                    if let Some(call) = calls.get_mut(&id).filter(|(current, _)| *current == token) {
                        call.1 = Instant::now();
                    }
                }
            }
            Err(error) => warn!(%error, calls = due.len(), "leases could not be renewed"),
        }
    }
}
