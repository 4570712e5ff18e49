//! Append domain events to the Redis streams of their topics, in order, on one instance at a time.
//!
//! **Guarantee.** Every event committed by `publish()` is appended at least once, in the order recorded, so in order per
//! key for transactions that the app serialises. **Limit.** A crash between appending and forgetting appends a batch
//! again; so may an owner of the duty that was paused for longer than its lease.

use std::time::Duration;

use metrics::counter;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::duty::Duty;
use crate::failpoint;
use crate::publisher::Error;
use crate::queue::events::{Event, EventStreams};
use crate::store::Store;

/// The duty's name in the database.
pub const DUTY: &str = "events";
/// Events appended in one round trip.
const BATCH: u32 = 500;
/// Between looks: while there is something, and while there is nothing.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Waits after errors.
const ERROR_WAIT: Duration = Duration::from_secs(1);

/// Events on one instance.
#[derive(Debug)]
pub struct Events {
    store: Store,
    streams: EventStreams,
    duty: Duty,
}

impl Events {
    /// Works only while the duty is ours.
    pub fn new(store: Store, streams: EventStreams, duty: Duty) -> Events {
        Events { store, streams, duty }
    }

    /// One bounded batch; how many were appended.
    pub async fn pass(&mut self) -> Result<u64, Error> {
        let Some(owner) = self.duty.hold().await? else { return Ok(0) };
        let waiting = self.store.waiting_events(BATCH).await?;
        if waiting.is_empty() {
            return Ok(0);
        }
        let events: Vec<Event> = waiting.iter().filter_map(|waiting| waiting.event.clone()).collect();
        self.streams.append(&events).await?;
        failpoint::hit("after_append").await;
        let seqs: Vec<i64> = waiting.iter().map(|waiting| waiting.seq).collect();
        if self.store.forget_events(&seqs, owner, DUTY).await? == 0 {
            self.duty.lost();
        }
        counter!("outboxd_events_appended_total").increment(events.len() as u64);
        Ok(waiting.len() as u64)
    }
}

/// Appends until `shutdown`, while the duty is ours.
pub async fn run(mut events: Events, shutdown: &CancellationToken) {
    let mut is_down = false;
    while !shutdown.is_cancelled() {
        let wait = match events.pass().await {
            Ok(appended) => {
                if is_down {
                    info!("appending events goes on");
                }
                is_down = false;
                if appended >= u64::from(BATCH) { Duration::ZERO } else { LOOK_EVERY }
            }
            Err(error) => {
                if !is_down {
                    warn!(%error, "appending events waits");
                }
                is_down = true;
                ERROR_WAIT
            }
        };
        shutdown.run_until_cancelled(tokio::time::sleep(wait)).await;
    }
    events.duty.let_go().await;
}
