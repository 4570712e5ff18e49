//! What a client that comes back lacks: from the position that it has up to where this instance reads on.
//!
//! **Guarantee.** Nothing is sent twice, and nothing is missing without a gap. **Limit.** Only the newest events, as
//! many as a client may be behind.

use std::sync::Arc;

use metrics::counter;

use super::end::End;
use super::frame;
use super::session::Session;
use super::socket::{Socket, fragments};
use crate::queue::events::{Entry, EntryId, Mark};

/// Events that a client may be behind; of more it gets the newest, and is told of the gap.
pub(super) const EVENTS_MAX: usize = 1_000;
/// Entries read at a time.
const PAGE: usize = 32;

/// What has been replayed.
struct Progress {
    /// The last position that the client has.
    reached: i64,
    /// What comes next is the reader's.
    is_done: bool,
}

impl Session {
    /// Sends what comes after `after` and not after `mark`; a gap where something is missing. True: the client has come
    /// further than this instance, so the next ones up to `after` are not for it.
    pub(super) async fn replay(
        &self,
        socket: &mut Socket,
        topic: &Arc<str>,
        after: i64,
        mark: &Mark,
    ) -> Result<bool, End> {
        let found = self.or_end(self.feed.locate(topic, after, EVENTS_MAX).await)?;
        let end = found.end.position;
        let mut progress = Progress { reached: after, is_done: found.first.is_none() };
        if let Some((entry, position)) = found.first {
            if position > after + 1 {
                self.tell_gap(socket, topic, after, Some(position)).await?;
            }
            let mut from = entry;
            while !progress.is_done {
                from = self.send_page(socket, topic, from, mark, &mut progress).await?;
            }
        }
        // The stream has lost what the client has, or what this instance has seen; nobody sends that twice.
        if end < after || end < mark.position {
            self.tell_gap(socket, topic, progress.reached.min(end), None).await?;
            return Ok(false);
        }
        Ok(after > mark.position)
    }

    async fn tell_gap(&self, socket: &mut Socket, topic: &Arc<str>, after: i64, next: Option<i64>) -> Result<(), End> {
        self.write(socket, fragments(frame::gap(topic, after, next).text).collect()).await
    }

    async fn send_page(
        &self,
        socket: &mut Socket,
        topic: &Arc<str>,
        from: EntryId,
        mark: &Mark,
        progress: &mut Progress,
    ) -> Result<EntryId, End> {
        let page = {
            let _turn = self.live.replays.acquire().await;
            self.or_end(self.feed.page(topic, from, PAGE).await)?
        };
        progress.is_done = page.len() < PAGE;
        let next = page.last().map_or(from, |entry| entry.entry.next());
        let mut texts = Vec::new();
        for Entry { entry, event } in &page {
            let Some(event) = event else { continue };
            if *entry > mark.entry && event.position > mark.position {
                progress.is_done = true;
                break;
            }
            progress.reached = event.position;
            if self.listener.key.as_deref().is_none_or(|key| key == event.key) {
                texts.extend(frame::event(topic, event).map(|frame| frame.text));
            }
        }
        counter!("outboxd_live_events_sent_total").increment(texts.len() as u64);
        self.write(socket, texts.into_iter().flat_map(fragments).collect()).await?;
        Ok(next)
    }
}
