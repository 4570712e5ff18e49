//! What waits for one client, bounded. The reader puts in, the session takes out.
//!
//! A client is slow if its socket takes no more and its mailbox is full. One whose session merely waits for its turn on
//! a busy instance is *behind*: the reader waits for it (see `reader`).
//!
//! **Guarantee.** What waits is bounded, in messages and bytes. **Limit.** A full mailbox ends the session: nothing is
//! left out in silence.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::frame::Frame;

/// Messages that may wait.
pub(super) const MESSAGES_MAX: usize = 256;
/// Bytes that may wait; a message that finds the mailbox empty may be longer.
pub(super) const BYTES_MAX: usize = 1 << 20;

/// One client's mailbox.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    state: Mutex<State>,
    arrived: Notify,
    overflowed: Notify,
}

#[derive(Debug, Default)]
struct State {
    frames: VecDeque<Arc<Frame>>,
    bytes: usize,
    /// The client's socket takes no more.
    is_blocked: bool,
    /// It was full; nothing more is taken.
    is_over: bool,
}

impl State {
    fn is_behind(&self) -> bool {
        let is_half_full = self.frames.len() * 2 > MESSAGES_MAX || self.bytes * 2 > BYTES_MAX;
        is_half_full && !self.is_blocked && !self.is_over
    }
}

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Put {
    /// It waits.
    Waits,
    /// It waits, and there is not much room left although the client takes what it is sent.
    Behind,
    /// There was no room; the client is dropped.
    Over,
}

impl Mailbox {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn put(&self, frame: &Arc<Frame>) -> Put {
        let mut state = self.state();
        let length = frame.text.len();
        let has_room = state.frames.len() < MESSAGES_MAX && (state.bytes == 0 || state.bytes + length <= BYTES_MAX);
        if state.is_over || !has_room {
            state.is_over = true;
            state.frames = VecDeque::new();
            self.overflowed.notify_one();
            self.arrived.notify_one();
            return Put::Over;
        }
        state.bytes += length;
        state.frames.push_back(Arc::clone(frame));
        self.arrived.notify_one();
        if state.is_behind() { Put::Behind } else { Put::Waits }
    }

    /// Up to `max` messages in order; `None`: it was full.
    pub(super) fn take(&self, max: usize) -> Option<Vec<Arc<Frame>>> {
        let mut state = self.state();
        if state.is_over {
            return None;
        }
        let count = max.min(state.frames.len());
        let taken: Vec<Arc<Frame>> = state.frames.drain(..count).collect();
        state.bytes -= taken.iter().map(|frame| frame.text.len()).sum::<usize>();
        if state.frames.is_empty() {
            // Most wait most of the time.
            state.frames.shrink_to(8);
        } else {
            self.arrived.notify_one();
        }
        Some(taken)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.state().frames.is_empty()
    }

    pub(super) fn is_behind(&self) -> bool {
        self.state().is_behind()
    }

    pub(super) fn set_blocked(&self, is_blocked: bool) {
        self.state().is_blocked = is_blocked;
    }

    /// Waits until there may be something to take. Cancel-safe.
    pub(super) async fn arrived(&self) {
        self.arrived.notified().await;
    }

    /// Waits until it was full. Cancel-safe.
    pub(super) async fn overflowed(&self) {
        self.overflowed.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(length: usize) -> Arc<Frame> {
        Arc::new(Frame { topic: Arc::from("t"), position: Some(1), text: "x".repeat(length).into() })
    }

    #[test]
    fn what_does_not_fit_ends_it_and_empties_it() {
        for length in [1, BYTES_MAX / 2] {
            let mailbox = Mailbox::default();
            let fits = (0..1000).take_while(|_| mailbox.put(&frame(length)) != Put::Over).count();
            assert_eq!(fits, if length == 1 { MESSAGES_MAX } else { 2 });
            assert!(mailbox.take(1).is_none() && mailbox.is_empty());
        }
    }

    #[test]
    fn one_message_fits_however_long_it_is() {
        let mailbox = Mailbox::default();
        assert_eq!(mailbox.put(&frame(BYTES_MAX * 2)), Put::Behind);
        assert_eq!(mailbox.take(9).map(|taken| taken.len()), Some(1));
        assert_eq!(mailbox.put(&frame(1)), Put::Waits);
    }

    #[test]
    fn only_who_could_take_more_is_behind() {
        let mailbox = Mailbox::default();
        (0..MESSAGES_MAX / 2).for_each(|_| assert_eq!(mailbox.put(&frame(1)), Put::Waits));
        assert_eq!(mailbox.put(&frame(1)), Put::Behind);
        mailbox.set_blocked(true);
        assert!(!mailbox.is_behind() && mailbox.put(&frame(1)) == Put::Waits);
        mailbox.set_blocked(false);
        assert!(mailbox.is_behind());
        assert!(mailbox.take(10).is_some() && !mailbox.is_behind());
    }
}
