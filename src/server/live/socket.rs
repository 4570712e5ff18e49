//! From a GET to a WebSocket, and what is written to it. axum has the first too, but writes each message in one piece, and
//! a session would keep room for the longest for as long as it lasts. Here a long one goes out in fragments.
//!
//! **Guarantee.** A session keeps room for one fragment, however long its messages are. **Limit.** No compression.

use axum::extract::FromRequestParts;
use axum::http::header::{
    CONNECTION, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};
use tracing::debug;

use crate::server::problem::{Kind, Problem};

/// What we speak. A client that presents its ticket as a subprotocol offers this one too.
const PROTOCOL: &str = "outboxd.v1";
/// Bytes of a client's message at most; it has nothing to say.
const RECEIVED_BYTES_MAX: usize = 1 << 10;
/// Read and write buffers of a session; there are thousands. The second also holds one fragment.
const READ_BUFFER_BYTES: usize = 1 << 10;
const WRITE_BUFFER_BYTES: usize = 4 << 10;
/// Bytes of a fragment at most.
const FRAGMENT_BYTES_MAX: usize = 8 << 10;

/// A client's WebSocket.
pub(super) type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// A client that wants to speak WebSocket.
pub(super) struct Upgrade {
    connection: OnUpgrade,
    accept: HeaderValue,
    is_offered: bool,
}

impl<S: Sync> FromRequestParts<S> for Upgrade {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Upgrade, Problem> {
        let headers = &parts.headers;
        let asks = parts.method == Method::GET
            && names(headers, &CONNECTION).any(|name| name.eq_ignore_ascii_case("upgrade"))
            && names(headers, &UPGRADE).any(|name| name.eq_ignore_ascii_case("websocket"))
            && names(headers, &SEC_WEBSOCKET_VERSION).any(|version| version == "13");
        let accept = headers.get(SEC_WEBSOCKET_KEY).map(|key| derive_accept_key(key.as_bytes()));
        let accept = accept.and_then(|accept| HeaderValue::from_str(&accept).ok());
        let is_offered = names(headers, &SEC_WEBSOCKET_PROTOCOL).any(|name| name == PROTOCOL);
        match (asks, accept, parts.extensions.remove::<OnUpgrade>()) {
            (true, Some(accept), Some(connection)) => Ok(Upgrade { connection, accept, is_offered }),
            _ => Err(Problem::new(Kind::UpgradeRequired, "open this as a WebSocket, version 13")),
        }
    }
}

impl Upgrade {
    /// Says yes; what follows is `serve`'s. It is dropped if the client goes before.
    pub(super) fn answer<F>(self, serve: impl FnOnce(Socket) -> F + Send + 'static) -> Response
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Upgrade { connection, accept, is_offered } = self;
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER_BYTES)
            .write_buffer_size(WRITE_BUFFER_BYTES)
            .max_message_size(Some(RECEIVED_BYTES_MAX))
            .max_frame_size(Some(RECEIVED_BYTES_MAX));
        // Whoever stops waits for it: `serve` holds a token of the sessions.
        tokio::spawn(async move {
            match connection.await {
                Ok(upgraded) => {
                    let io = TokioIo::new(upgraded);
                    serve(WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await).await;
                }
                Err(error) => debug!(%error, "a client left before its upgrade"),
            }
        });
        let upgrade = [
            (CONNECTION, HeaderValue::from_static("upgrade")),
            (UPGRADE, HeaderValue::from_static("websocket")),
            (SEC_WEBSOCKET_ACCEPT, accept),
        ];
        let mut response = (StatusCode::SWITCHING_PROTOCOLS, upgrade).into_response();
        if is_offered {
            response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
        }
        response
    }
}

/// The members of a header that is a list.
pub(super) fn names<'a>(headers: &'a HeaderMap, header: &HeaderName) -> impl Iterator<Item = &'a str> {
    let lines = headers.get_all(header).into_iter().filter_map(|value| value.to_str().ok());
    lines.flat_map(|line| line.split(',').map(str::trim))
}

/// A text as one message, in as many fragments as it takes.
pub(super) fn fragments(text: Utf8Bytes) -> impl Iterator<Item = Message> {
    let bytes = Bytes::from(text);
    let count = bytes.len().div_ceil(FRAGMENT_BYTES_MAX).max(1);
    (0..count).map(move |n| {
        let from = n * FRAGMENT_BYTES_MAX;
        let piece = bytes.slice(from..bytes.len().min(from + FRAGMENT_BYTES_MAX));
        let kind = if n == 0 { Data::Text } else { Data::Continue };
        Message::Frame(Frame::message(piece, OpCode::Data(kind), n + 1 == count))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_together_are_the_text() {
        for length in [0, 1, FRAGMENT_BYTES_MAX, FRAGMENT_BYTES_MAX + 1, 3 * FRAGMENT_BYTES_MAX] {
            let text = "x".repeat(length);
            let frames: Vec<Frame> = fragments(text.clone().into())
                .map(|message| match message {
                    Message::Frame(frame) => frame,
                    other => panic!("{other:?}"),
                })
                .collect();
            let whole: Vec<u8> = frames.iter().flat_map(|frame| frame.payload().to_vec()).collect();
            assert_eq!(whole, text.as_bytes());
            assert!(frames.iter().all(|frame| frame.payload().len() <= FRAGMENT_BYTES_MAX));
            let finals: Vec<bool> = frames.iter().map(|frame| frame.header().is_final).collect();
            assert_eq!(finals.iter().filter(|is_final| **is_final).count(), 1);
            assert_eq!(finals.last(), Some(&true));
            assert_eq!(frames[0].header().opcode, OpCode::Data(Data::Text));
            assert!(frames[1..].iter().all(|frame| frame.header().opcode == OpCode::Data(Data::Continue)));
        }
    }
}
