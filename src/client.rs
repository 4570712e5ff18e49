//! The HTTP client: calls providers and the collector over HTTP/1.1 and HTTP/2.
//!
//! Directly on hyper. Over HTTP/1.1 the connection is driven by the task that makes the call (`http1`), so a call
//! wakes nobody else; over HTTP/2, which the server picks in the TLS handshake, all calls to an origin share one
//! connection with a task of its own (`http2`). Connections that are free wait in the `pool`.
//!
//! Guarantee: a request goes out once. It moves to another connection only if a reused one had ended before anything
//! of it was written. No redirects, no proxies, no cookies. Limit: a peer that closes a connection in the very moment
//! of its reuse leaves the outcome unknown; the request's `handover` tells.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::{Body as _, Frame};
use hyper::body::Incoming;
use rustls::ClientConfig;

mod connect;
mod handover;
mod http1;
mod http2;
mod place;
mod pool;

pub use connect::{Resolve, Resolved};

pub(crate) use connect::System;
pub(crate) use handover::{Handover, Revoked, Tracked};
pub(crate) use place::Place;

use connect::{Connector, Opened};
use http1::Http1;
use http2::{Http2, Tasks};
use pool::Pool;

/// Idle connections are closed before most servers would: what races the peer's close least fails least.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// Makes calls and keeps connections.
pub(crate) struct Client {
    connector: Connector,
    pool: Arc<Pool>,
    tasks: Tasks,
}

/// Why there is no answer. Whether the request went out is known by its [`Handover`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// No connection in time.
    #[error("timeout while connecting")]
    ConnectTimeout,
    /// No connection.
    #[error("no connection")]
    Connect(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The server says that it did not process the request, whose headers these were.
    #[error("the server did not process the request")]
    Unprocessed(HeaderMap),
    /// The connection failed.
    #[error("no answer")]
    Exchange(#[from] hyper::Error),
}

/// A connection that is ours to send on.
enum Connection {
    /// For one call at a time.
    Http1(Box<Http1>),
    /// Shared with others.
    Http2(Http2),
}

/// Whether a connection may have ended while nobody looked.
enum Age {
    Fresh,
    Reused,
}

impl Client {
    /// `connect_timeout` covers the name, the connection and the TLS handshake.
    pub(crate) fn new(tls: ClientConfig, resolver: Arc<dyn Resolve>, connect_timeout: Duration) -> Client {
        Client::with_idle_max(tls, resolver, connect_timeout, IDLE_MAX)
    }

    fn with_idle_max(
        tls: ClientConfig,
        resolver: Arc<dyn Resolve>,
        connect_timeout: Duration,
        idle_max: Duration,
    ) -> Client {
        let tasks = Tasks::default();
        Client {
            connector: Connector::new(tls, resolver, connect_timeout),
            pool: Arc::new(Pool::new(idle_max, tasks.clone())),
            tasks,
        }
    }

    /// Sends one request to `place`, whose path and host become the request's, and waits for the answer's head.
    pub(crate) async fn send<'a>(
        &'a self,
        place: &'a Place,
        mut request: Request<Tracked>,
    ) -> Result<Answer<'a>, Error> {
        loop {
            let (connection, age) = match self.pool.take(place.origin()) {
                Some(connection) => (connection, Age::Reused),
                None => Box::pin(self.connect(place)).await?,
            };
            let mut broken = match connection {
                Connection::Http1(mut http1) => {
                    place.address_http1(&mut request);
                    match http1.exchange(request).await {
                        Ok(response) => return Ok(Answer::new(response, self, place, Some(http1))),
                        Err(broken) => broken,
                    }
                }
                Connection::Http2(mut http2) => {
                    place.address_http2(&mut request);
                    let headers = request.headers().clone();
                    match http2.try_send_request(request).await {
                        Ok(response) => return Ok(Answer::new(response, self, place, None)),
                        Err(broken) if http2::is_unprocessed(broken.error()) => {
                            return Err(Error::Unprocessed(headers));
                        }
                        Err(broken) => broken,
                    }
                }
            };
            match (broken.take_message(), age) {
                // It comes back only as it was, nothing of it written.
                (Some(unsent), Age::Reused) => request = unsent,
                _ => return Err(broken.into_error().into()),
            }
        }
    }

    /// Makes a connection, or waits for one that can be shared.
    async fn connect(&self, place: &Place) -> Result<(Connection, Age), Error> {
        let connecting = async {
            // Where all share one connection, one makes it and the others wait.
            let turn = self.pool.turn(place.origin());
            let _turn = match &turn {
                Some(turn) => Some(turn.lock().await),
                None => None,
            };
            if turn.is_some()
                && let Some(connection) = self.pool.take(place.origin())
            {
                return Ok((connection, Age::Reused));
            }
            match self.connector.open(place).await? {
                Opened::Http1(stream) => Ok((Connection::Http1(Box::new(Http1::new(stream).await?)), Age::Fresh)),
                Opened::Http2(stream) => {
                    let http2 = http2::new(stream, &self.tasks).await?;
                    Ok((Connection::Http2(self.pool.share(place.origin(), http2)), Age::Fresh))
                }
            }
        };
        match tokio::time::timeout(self.connector.timeout(), connecting).await {
            Ok(connected) => connected,
            Err(_) => Err(Error::ConnectTimeout),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.tasks.stop();
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

/// An answer whose body can be read. Read to its end, it gives its connection back; dropped before, it closes it.
pub(crate) struct Answer<'a> {
    status: StatusCode,
    headers: HeaderMap,
    body: Incoming,
    client: &'a Client,
    place: &'a Place,
    http1: Option<Box<Http1>>,
}

impl<'a> Answer<'a> {
    fn new(
        response: Response<Incoming>,
        client: &'a Client,
        place: &'a Place,
        http1: Option<Box<Http1>>,
    ) -> Answer<'a> {
        let (head, body) = response.into_parts();
        Answer { status: head.status, headers: head.headers, body, client, place, http1 }
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// The next piece of the body; None at its end.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        while !self.body.is_end_stream() {
            match self.frame().await {
                Some(Ok(frame)) => {
                    // Trailers say nothing to us.
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
                Some(Err(error)) => {
                    self.http1 = None;
                    return Err(error.into());
                }
                None => break,
            }
        }
        if let Some(mut http1) = self.http1.take()
            && http1.is_reusable()
        {
            self.client.pool.put(self.place.origin(), http1);
        }
        Ok(None)
    }

    async fn frame(&mut self) -> Option<hyper::Result<Frame<Bytes>>> {
        let body = &mut self.body;
        match &mut self.http1 {
            Some(http1) => http1.frame(body).await,
            None => poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
