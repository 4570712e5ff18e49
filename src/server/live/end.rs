//! How a session ends, and what the client is told.
//!
//! **Guarantee.** Each end has one code, one reason and one name in the metric. **Limit.** Whoever was cut off hears
//! none of it.

use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

/// Our own code: the ticket, or the session of the dashboard, is over. Codes from 4000 on are an application's.
const TICKET_OVER: u16 = 4401;
/// Its ticket or token has as many sessions as it may.
const TOO_MANY_SESSIONS: u16 = 4429;

/// Why a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The client closed it.
    Client,
    /// The connection broke, or what came was no WebSocket.
    Gone,
    /// The client did not take what it was sent.
    Slow,
    /// Nothing was heard for two heartbeats.
    Silent,
    /// The client sends without end.
    Noisy,
    /// The ticket, or the session of the dashboard, is over.
    Expired,
    /// Its ticket or token has as many sessions as it may.
    TooManySessions,
    /// The instance is full, and others have fewer.
    Crowded,
    /// The instance stops.
    Shutdown,
    /// Redis does not answer.
    Unavailable,
    /// This instance reads as many topics as it may.
    TooManyTopics,
}

impl End {
    /// As the metric names it.
    pub(super) fn name(self) -> &'static str {
        match self {
            End::Client => "client",
            End::Gone => "gone",
            End::Slow => "slow",
            End::Silent => "silent",
            End::Noisy => "noisy",
            End::Expired => "expired",
            End::TooManySessions => "too_many",
            End::Crowded => "crowded",
            End::Shutdown => "shutdown",
            End::Unavailable | End::TooManyTopics => "unavailable",
        }
    }

    pub(super) fn code(self) -> CloseCode {
        match self {
            End::Client => CloseCode::Normal,
            End::Gone => CloseCode::Protocol,
            End::Slow | End::Silent | End::Noisy => CloseCode::Policy,
            End::Expired => TICKET_OVER.into(),
            End::TooManySessions => TOO_MANY_SESSIONS.into(),
            End::Shutdown => CloseCode::Away,
            End::Crowded | End::Unavailable | End::TooManyTopics => CloseCode::Again,
        }
    }

    /// At most 123 bytes go into a close frame.
    pub(super) fn reason(self) -> &'static str {
        match self {
            End::Client => "goodbye",
            End::Gone => "the connection broke, or a message was too long or none",
            End::Slow => "too slow: what waited for you did not fit; reconnect with after",
            End::Silent => "nothing was heard from you for two heartbeats",
            End::Noisy => "too many messages from you; this feed only sends",
            End::Expired => "the ticket or session is over; get another and reconnect with after",
            End::TooManySessions => "this ticket or token has as many sessions as it may; close some",
            End::Crowded => {
                "this instance is full, and others have fewer sessions than you; reconnect later with after"
            }
            End::Shutdown => "this instance stops; reconnect with after",
            End::Unavailable => "Redis does not answer; reconnect with after",
            End::TooManyTopics => "this instance, or your token, reads as many topics as it may; reconnect later",
        }
    }
}
