//! Watches the consumer groups of the streams: one that comes close to being cut is told of before it loses anything.
//!
//! **Guarantee.** A group that is behind by 80 % of what a stream keeps, or was cut, shows in `outboxd.health` within a
//! few seconds. **Limit.** Consumers without a group (plain XREAD) leave no trace in Redis, so nobody can watch them. A
//! group that reads on and is cut between two polls is not seen to be.

use std::time::{Duration, Instant};

use tracing::warn;

use super::LEASE;
use crate::queue::events::EventStreams;
use crate::store::{StageError, Store};
use crate::telemetry::outage::Outage;

/// Between polls.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Streams polled in one round trip; with more, they take turns.
const TOPICS_MAX: u32 = 200;

/// The next poll.
#[derive(Debug)]
pub struct Watch {
    store: Store,
    streams: EventStreams,
    polled_at: Option<Instant>,
    /// The topic that the last poll ended with.
    after: String,
    outage: Outage,
}

impl Watch {
    /// Has seen nothing yet.
    pub fn new(store: Store, streams: EventStreams) -> Watch {
        Watch { store, streams, polled_at: None, after: String::new(), outage: Outage::default() }
    }

    /// One poll of some streams, if it is time for one. Appending does not depend on it.
    pub async fn pass_if_due(&mut self, owner: i32) {
        if self.polled_at.is_some_and(|at| at.elapsed() < POLL_INTERVAL) {
            return;
        }
        let outcome = self.pass(owner).await;
        self.polled_at = Some(Instant::now());
        self.outage.note(outcome, "the consumer groups of events are not seen");
    }

    async fn pass(&mut self, owner: i32) -> Result<(), StageError> {
        let topics = self.store.event_topics(&self.after, TOPICS_MAX).await?;
        let is_last = topics.len() < TOPICS_MAX as usize;
        self.after = topics.last().filter(|_| !is_last).cloned().unwrap_or_default();
        let streams = self.streams.groups(&topics).await?;
        let stream_max = self.streams.stream_max();
        for group in self.store.report_event_groups(LEASE, owner, stream_max, &streams).await? {
            let (topic, name, cut, behind) = (group.topic, group.name, group.cut, group.behind);
            match cut {
                0 => warn!(topic, group = name, behind, stream_max, "a consumer group of events is about to be cut"),
                _ => {
                    warn!(topic, group = name, cut, behind, "a consumer group was cut: replay_events() brings it back")
                }
            }
        }
        Ok(())
    }
}
