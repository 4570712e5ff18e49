//! A request's body that tells whether it was taken: the line between "not sent" and "unknown".
//!
//! The connection takes the body only once it is established and about to write. Until then an attempt that
//! runs out of time can be revoked: a revoked body gives nothing, so the provider cannot have received a
//! whole request. Both steps are one atomic exchange, so there is no moment at which a request is counted as
//! not sent and goes out all the same.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Duration, Instant};

const WAITING: u64 = 0;
const REVOKED: u64 = u64::MAX;

/// What became of a body: waiting, revoked, or the microseconds after `started` at which it was taken.
#[derive(Debug)]
pub(super) struct BodyState {
    started: Instant,
    state: AtomicU64,
}

impl BodyState {
    /// A body to send, and the means to see or prevent its sending.
    pub(super) fn track(started: Instant, bytes: Bytes) -> (Arc<BodyState>, TrackedBody) {
        // An empty body is never asked for: count it as gone.
        let state = if bytes.is_empty() { 1 } else { WAITING };
        let state = Arc::new(BodyState { started, state: AtomicU64::new(state) });
        let body = TrackedBody { state: Arc::clone(&state), bytes };
        (state, body)
    }

    /// When the body was taken.
    pub(super) fn sent_at(&self) -> Option<Instant> {
        match self.state.load(Ordering::Acquire) {
            WAITING | REVOKED => None,
            micros => Some(self.started + Duration::from_micros(micros)),
        }
    }

    /// Makes sure that the body is not taken any more, or tells that it was.
    pub(super) fn revoke(&self) -> Revoked {
        match self.state.compare_exchange(WAITING, REVOKED, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) | Err(REVOKED) => Revoked::NotSent,
            Err(_) => Revoked::TooLate,
        }
    }

    fn take(&self) -> bool {
        let micros = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(REVOKED - 1).max(1);
        self.state.compare_exchange(WAITING, micros, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// What [`BodyState::revoke`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Revoked {
    /// The provider has not received the request and will not.
    NotSent,
    /// It may have received it.
    TooLate,
}

/// A body in one piece that says when it is taken.
#[derive(Debug)]
pub(super) struct TrackedBody {
    state: Arc<BodyState>,
    bytes: Bytes,
}

impl Body for TrackedBody {
    type Data = Bytes;
    type Error = RevokedBody;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, RevokedBody>>> {
        if self.bytes.is_empty() {
            return Poll::Ready(None);
        }
        let bytes = std::mem::take(&mut self.bytes);
        Poll::Ready(Some(if self.state.take() { Ok(Frame::data(bytes)) } else { Err(RevokedBody) }))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.len() as u64)
    }
}

/// The attempt was over before its connection was ready.
#[derive(Debug, thiserror::Error)]
#[error("the attempt was over before its connection was ready")]
pub(super) struct RevokedBody;

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(body: &mut TrackedBody) -> Option<Result<Bytes, RevokedBody>> {
        let mut context = Context::from_waker(std::task::Waker::noop());
        match Pin::new(body).poll_frame(&mut context) {
            Poll::Ready(frame) => frame.map(|frame| frame.map(|frame| frame.into_data().unwrap())),
            Poll::Pending => panic!("a body in one piece is always ready"),
        }
    }

    #[test]
    fn a_taken_body_cannot_be_revoked() {
        let (state, mut body) = BodyState::track(Instant::now(), Bytes::from_static(b"x"));
        assert_eq!(state.sent_at(), None);
        assert_eq!(poll(&mut body).unwrap().unwrap(), "x");
        assert!(state.sent_at().is_some());
        assert_eq!(state.revoke(), Revoked::TooLate);
    }

    #[test]
    fn a_revoked_body_gives_nothing() {
        let (state, mut body) = BodyState::track(Instant::now(), Bytes::from_static(b"x"));
        assert_eq!(state.revoke(), Revoked::NotSent);
        assert!(poll(&mut body).unwrap().is_err());
        assert_eq!(state.revoke(), Revoked::NotSent);
    }

    #[test]
    fn an_empty_body_counts_as_sent() {
        let (state, _body) = BodyState::track(Instant::now(), Bytes::new());
        assert_eq!(state.revoke(), Revoked::TooLate);
    }
}
