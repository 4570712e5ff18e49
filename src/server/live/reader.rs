//! Reads the streams of all topics that somebody here listens to, on one connection, and hands the entries to the hub.
//!
//! **Guarantee.** One connection, however many sessions and topics. **Limit.** In a burst all wait for those who take
//! what they are sent, for a bounded time.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::hub::Hub;
use super::mailbox::Mailbox;
use crate::queue;
use crate::queue::events::{Feed, Mark};
use crate::telemetry::outage::{ERROR_WAIT, Outage};

/// How long one read waits; a topic that is added meanwhile is read with the next one.
const BLOCK: Duration = Duration::from_millis(100);
/// Entries of one read at most, over all topics.
const ENTRIES_MAX: usize = 1_000;
/// Between a read that found something and the next: what comes at the same time is read together.
const GATHER: Duration = Duration::from_millis(1);
/// Between checks whether a stream began anew.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// How long sessions that are behind are waited for at a time.
const PACE_MAX: Duration = Duration::from_secs(5);
const PACE_POLL: Duration = Duration::from_millis(2);

/// Reads until `stop`; nothing while nobody listens.
pub(super) async fn run(hub: &Hub, feed: &Feed, stop: &CancellationToken) {
    let mut checked_at = Instant::now();
    let mut outage = Outage::default();
    while !stop.is_cancelled() {
        if hub.cursors().is_empty() {
            stop.run_until_cancelled(hub.added()).await;
            continue;
        }
        let Some(outcome) = stop.run_until_cancelled(pass(hub, feed, &mut checked_at)).await else { return };
        if outage.note(outcome, "the live feed waits").is_none() {
            stop.run_until_cancelled(tokio::time::sleep(ERROR_WAIT)).await;
        }
    }
}

/// One read.
async fn pass(hub: &Hub, feed: &Feed, checked_at: &mut Instant) -> queue::Result<()> {
    let cursors = hub.cursors();
    if checked_at.elapsed() >= CHECK_EVERY {
        *checked_at = Instant::now();
        let ends = feed.ends(&cursors).await?;
        for ((topic, seen), end) in cursors.iter().zip(ends) {
            if end < *seen {
                info!(topic = &**topic, "the stream of this topic began anew");
                hub.begin_anew(topic, *seen);
            }
        }
        return Ok(());
    }
    let max = (ENTRIES_MAX / cursors.len().max(1)).clamp(1, 100);
    let entries = feed.read(&cursors, max, BLOCK).await?;
    let is_idle = entries.is_empty();
    for (topic, entry) in entries {
        pace(hub.deliver(&topic, &entry)).await;
    }
    if !is_idle {
        tokio::time::sleep(GATHER).await;
    }
    Ok(())
}

/// Lets sessions catch up whose clients take what they are sent. A burst is then written at the pace of this machine,
/// and only clients that take nothing are left behind and dropped.
async fn pace(mut behind: Vec<Arc<Mailbox>>) {
    let since = Instant::now();
    loop {
        behind.retain(|mailbox| mailbox.is_behind());
        if behind.is_empty() || since.elapsed() >= PACE_MAX {
            break;
        }
        tokio::time::sleep(PACE_POLL).await;
    }
    // One entry may wake thousands of sessions.
    tokio::task::yield_now().await;
}

/// Where a stream ends now.
pub(super) async fn end(feed: &Feed, topic: &str) -> queue::Result<Mark> {
    Ok(feed.locate(topic, i64::MAX, 0).await?.end)
}
