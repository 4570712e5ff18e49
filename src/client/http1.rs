//! One HTTP/1.1 connection, driven by the task that uses it.
//!
//! hyper makes two halves of a connection, one that takes requests and one that does the reading and writing, meant
//! for two tasks that wake each other. Here one task polls both, and knows that the first half moves only when the
//! second was polled: it needs no waker of its own. So a call costs one wake-up, by the socket.
//!
//! Limit: while nobody uses the connection nobody watches it. A close by the peer is seen at the next use, before
//! anything is written, if the runtime has heard of it by then.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body as _, Frame};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{Connection, SendRequest, handshake};
use hyper_util::rt::TokioIo;

use super::connect::Stream;
use super::handover::Tracked;

/// A connection for one call at a time.
pub(super) struct Http1 {
    sender: SendRequest<Tracked>,
    /// None once it has ended.
    connection: Option<Connection<TokioIo<Stream>, Tracked>>,
    /// Whether the caller's waker may be left in it.
    watched: bool,
}

impl Http1 {
    pub(super) async fn new(stream: Stream) -> hyper::Result<Http1> {
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        Ok(Http1 { sender, connection: Some(connection), watched: false })
    }

    /// Sends the request and waits for the answer's head. An error gives the request back if it was not begun.
    pub(super) async fn exchange(
        &mut self,
        request: Request<Tracked>,
    ) -> Result<Response<Incoming>, TrySendError<Request<Tracked>>> {
        let mut answer = pin!(self.sender.try_send_request(request));
        let (connection, watched) = (&mut self.connection, &mut self.watched);
        let mut is_written = false;
        poll_fn(|cx| {
            let mut quiet = Context::from_waker(Waker::noop());
            // Nothing can have come before it is written.
            if is_written {
                drive(connection, &mut quiet);
                *watched = false;
                if let Poll::Ready(answer) = answer.as_mut().poll(&mut quiet) {
                    return Poll::Ready(answer);
                }
            }
            is_written = true;
            drive(connection, cx);
            *watched = true;
            answer.as_mut().poll(cx_after(connection.as_ref(), cx, &mut quiet))
        })
        .await
    }

    /// The next frame of the answer's body.
    pub(super) async fn frame(&mut self, body: &mut Incoming) -> Option<hyper::Result<Frame<Bytes>>> {
        poll_fn(|cx| {
            let mut quiet = Context::from_waker(Waker::noop());
            if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(&mut quiet) {
                return Poll::Ready(frame);
            }
            drive(&mut self.connection, &mut quiet);
            self.watched = false;
            if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(&mut quiet) {
                return Poll::Ready(frame);
            }
            drive(&mut self.connection, cx);
            self.watched = true;
            Pin::new(&mut *body).poll_frame(cx_after(self.connection.as_ref(), cx, &mut quiet))
        })
        .await
    }

    /// Whether it can take another request, the last answer having been read to its end. Leaves no waker behind:
    /// what happens to an idle connection is no reason to wake whoever used it last.
    pub(super) fn is_reusable(&mut self) -> bool {
        if self.watched || !self.sender.is_ready() {
            drive(&mut self.connection, &mut Context::from_waker(Waker::noop()));
            self.watched = false;
        }
        self.connection.is_some() && self.sender.is_ready()
    }
}

/// Reads and writes what can be. An error of the connection reaches the caller by way of the answer.
fn drive(connection: &mut Option<Connection<TokioIo<Stream>, Tracked>>, cx: &mut Context<'_>) {
    if let Some(running) = connection
        && Pin::new(running).poll(cx).is_ready()
    {
        // Dropped, it hands back what it did not send.
        *connection = None;
    }
}

/// With its connection ended an answer has nobody else who would wake its reader.
fn cx_after<'a, 'w, C>(
    connection: Option<&C>,
    cx: &'a mut Context<'w>,
    quiet: &'a mut Context<'w>,
) -> &'a mut Context<'w> {
    if connection.is_some() { quiet } else { cx }
}
