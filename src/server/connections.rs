//! Accepts connections and bounds what each may cost. `axum::serve` has no limit on how long a request's head may take.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

/// Connections at a time; more wait in the kernel's queue. A WebSocket counts until it is upgraded; see `live`.
const CONNECTIONS_MAX: usize = 256;
/// How long a request's head may take, and a connection may idle.
const HEAD_TIME_MAX: Duration = Duration::from_secs(5);
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
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let connections = TaskTracker::new();
    while let Some(accepted) = stop.run_until_cancelled(accept(&listener, &permits)).await {
        if let Some((stream, permit)) = accepted {
            connections.spawn(serve(stream, router.clone(), stop.clone(), permit));
        }
    }
    connections.close();
    connections.wait().await;
}

async fn accept(listener: &TcpListener, permits: &Arc<Semaphore>) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let permit = Arc::clone(permits).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, permit)),
        Err(error) => {
            warn!(%error, "a connection could not be accepted");
            tokio::time::sleep(ERROR_WAIT).await;
            None
        }
    }
}

async fn serve(stream: TcpStream, router: Router, stop: CancellationToken, _permit: OwnedSemaphorePermit) {
    // An answer is small, and nobody waits for a second one to fill the packet.
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "a connection keeps its small packets back");
    }
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX);
    // Who asks and does not read the answers must not keep the connection.
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(WRITE_TIME_MAX));
    let stream = TokioIo::new(Box::pin(stream));
    let connection = http.serve_connection(stream, TowerToHyperService::new(router)).with_upgrades();
    tokio::pin!(connection);
    let served = match stop.run_until_cancelled(&mut connection).await {
        Some(served) => served,
        None => {
            connection.as_mut().graceful_shutdown();
            tokio::time::timeout(STOP_GRACE, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = served {
        debug!(%error, "a connection ended early");
    }
}
