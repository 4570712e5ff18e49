//! Accepts connections and bounds what each may cost. `axum::serve` has no limit on how long a request's head may take.
//!
//! **Guarantee.** Connections that idle, crawl or show no token keep nobody out, and one token keeps none of the others
//! out: [`seats`] says whose goes first. While all are at work for those who may, a few more are kept for whoever asks whether we live: else a probe would have a
//! healthy instance killed. Whoever asks for something else there is told to come again. **Limit.** Connections beyond
//! the reserve wait in the kernel's queue.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use super::problem::{Kind, Problem};
use seats::{AtWork, Seats};
pub(super) use seats::{Peer, Visitor};

mod seats;

/// Connections at a time. A WebSocket counts until it is upgraded; see `live`.
const CONNECTIONS_MAX: usize = 256;
/// Of these, at work for one token: requests that crawl leave the others a share. Its live pages are among them.
const TOKEN_REQUESTS_MAX: usize = 96;
/// Connections beyond them, for one question about our health each; more wait in the kernel's queue.
const RESERVE: usize = 64;
/// How long a request's head may take, and a connection may idle.
const HEAD_TIME_MAX: Duration = Duration::from_secs(5);
/// How long a request's head may take on a connection of the reserve.
const RESERVE_HEAD_TIME_MAX: Duration = Duration::from_millis(500);
/// How long a write may make no progress.
const WRITE_TIME_MAX: Duration = Duration::from_secs(5);
/// Bytes of a request's head at most.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Headers of a request at most.
const HEADERS_MAX: usize = 64;
/// How long answers under way may take once we stop.
const STOP_GRACE: Duration = Duration::from_secs(2);
/// After an error of accept, most likely the limit on open files.
const ERROR_WAIT: Duration = Duration::from_millis(200);

/// Serves until `stop`.
pub(super) async fn run(listener: TcpListener, router: Router, stop: &CancellationToken) {
    let seats = Seats::new(CONNECTIONS_MAX, TOKEN_REQUESTS_MAX);
    // One that was cut off counts until it is closed.
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX + RESERVE));
    let health = router.clone().layer(middleware::from_fn(only_health));
    let connections = TaskTracker::new();
    while let Some(accepted) = stop.run_until_cancelled(accept(&listener, &permits)).await {
        let Some((stream, addr, permit)) = accepted else { continue };
        let peer = Peer::of(addr);
        let (visitor, kind, router) = match seats.take(peer) {
            Some(visitor) => (visitor, Admitted::Any, router.clone()),
            None => (Visitor::of_reserve(peer), Admitted::Reserve, health.clone()),
        };
        connections.spawn(serve(stream, router, visitor, kind, stop.clone(), permit));
    }
    connections.close();
    connections.wait().await;
}

/// What a connection may ask.
#[derive(Debug, Clone, Copy)]
enum Admitted {
    Any,
    Reserve,
}

async fn accept(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
) -> Option<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let permit = Arc::clone(permits).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, addr)) => Some((stream, addr, permit)),
        Err(error) => {
            warn!(%error, "a connection could not be accepted");
            tokio::time::sleep(ERROR_WAIT).await;
            None
        }
    }
}

async fn only_health(request: Request, next: Next) -> Response {
    if ["/livez", "/readyz"].contains(&request.uri().path()) {
        return next.run(request).await;
    }
    let detail = format!("{CONNECTIONS_MAX} connections are open on this instance; try again");
    Problem::new(Kind::Overloaded, detail).into_response()
}

async fn serve(
    stream: TcpStream,
    router: Router,
    visitor: Visitor,
    admitted: Admitted,
    stop: CancellationToken,
    _permit: OwnedSemaphorePermit,
) {
    // An answer is small, and nobody waits for a second one to fill the packet.
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "a connection keeps its small packets back");
    }
    let mut http = http1::Builder::new();
    let (head_time_max, keeps_alive) = match admitted {
        Admitted::Any => (HEAD_TIME_MAX, true),
        Admitted::Reserve => (RESERVE_HEAD_TIME_MAX, false),
    };
    http.timer(TokioTimer::new())
        .header_read_timeout(head_time_max)
        .keep_alive(keeps_alive)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX);
    // Who asks and does not read the answers must not keep the connection.
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(WRITE_TIME_MAX));
    let stream = TokioIo::new(Box::pin(stream));
    let (routes, of_request) = (TowerToHyperService::new(router), visitor.clone());
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        let at_work = of_request.at_work();
        request.extensions_mut().insert(of_request.clone());
        let answer = routes.call(request);
        async move { answer.await.map(|response| response.map(|body| Answer { body, _at_work: at_work })) }
    });
    let connection = http.serve_connection(stream, service).with_upgrades();
    tokio::pin!(connection);
    let served = tokio::select! {
        biased;
        () = visitor.ended() => return,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            tokio::time::timeout(STOP_GRACE, connection).await.unwrap_or(Ok(()))
        }
        served = connection.as_mut() => served,
    };
    if let Err(error) = served {
        debug!(%error, "a connection ended early");
    }
}

/// A body that knows when it was sent.
struct Answer {
    body: Body,
    _at_work: AtWork,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
