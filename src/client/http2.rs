//! The HTTP/2 connection that calls to one origin share, and the tasks that drive it.

use std::error::Error as _;
use std::time::Duration;

use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio_util::sync::CancellationToken;

use super::connect::Stream;
use super::handover::Tracked;

/// How often a busy connection is asked whether it is still there, and how long it has to answer.
const PING_EVERY: Duration = Duration::from_secs(10);

/// One handle of a shared connection; the last one ends it.
pub(super) type Http2 = SendRequest<Tracked>;

/// Spawns tasks that end with the client at the latest.
#[derive(Debug, Clone, Default)]
pub(super) struct Tasks(CancellationToken);

impl Tasks {
    pub(super) fn spawn<F>(&self, task: F)
    where
        F: Future<Output: Send> + Send + 'static,
    {
        tokio::spawn(self.0.clone().run_until_cancelled_owned(task));
    }

    pub(super) fn stop(&self) {
        self.0.cancel();
    }
}

impl<F> hyper::rt::Executor<F> for Tasks
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, task: F) {
        self.spawn(task);
    }
}

/// Whether HTTP/2 vouches for it: the stream was refused, or came after the last one that the server processed
/// before it retired the connection.
pub(super) fn is_unprocessed(error: &hyper::Error) -> bool {
    let mut cause = error.source();
    while let Some(current) = cause {
        if let Some(error) = current.downcast_ref::<h2::Error>() {
            let reason = error.reason();
            return error.is_remote()
                && ((error.is_go_away() && reason == Some(h2::Reason::NO_ERROR))
                    || (error.is_reset() && reason == Some(h2::Reason::REFUSED_STREAM)));
        }
        cause = current.source();
    }
    false
}

/// Begins a connection and leaves it to a task.
pub(super) async fn new(stream: Stream, tasks: &Tasks) -> hyper::Result<Http2> {
    let (sender, connection) = Builder::new(tasks.clone())
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_EVERY)
        .handshake(TokioIo::new(stream))
        .await?;
    tasks.spawn(async move {
        // Each call has had its part of the error.
        if let Err(error) = connection.await {
            tracing::debug!(%error, "an HTTP/2 connection ended");
        }
    });
    Ok(sender)
}

#[cfg(test)]
mod tests;
