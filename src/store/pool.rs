//! The pool's connections: made with their settings, and closed once their server is given up.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use deadpool::managed::{self, Metrics, PoolError, RecycleError, RecycleResult};
use deadpool_postgres::ClientWrapper;
use tokio::runtime::Handle;
use tracing::debug;

use super::connect::{self, Target};
use super::liveness::{Backend, Liveness};
use super::origin::Origin;
use super::session::REQUEST_TIMEOUT;
use super::{Commit, Error};

/// How much longer than its statement may take an answer is waited for that nobody wants any more.
const GRACE: Duration = Duration::from_secs(1);

/// The pool.
pub(super) type Pool = managed::Pool<Manager>;
/// One of its connections, in use.
pub(super) type Object = managed::Object<Manager>;

/// Makes connections.
pub(super) struct Manager {
    pub(super) target: Target,
    /// What each begins with; empty behind a transaction-mode pooler.
    pub(super) first: String,
    /// How a transaction begins.
    pub(super) begin: Arc<str>,
    pub(super) timeout: Duration,
    pub(super) liveness: Arc<Liveness>,
    pub(super) origin: Arc<Origin>,
}

impl std::fmt::Debug for Manager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Manager").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// A session with the statements it has prepared.
#[derive(Debug)]
pub(super) struct Pooled {
    client: ClientWrapper,
    /// `None`: behind a transaction-mode pooler it has none of its own.
    pub(super) backend: Option<Backend>,
}

impl Deref for Pooled {
    type Target = ClientWrapper;

    fn deref(&self) -> &ClientWrapper {
        &self.client
    }
}

/// A connection while something is asked on it.
pub(super) enum InUse {
    /// Whoever asks stays for the answer.
    Staying(Option<Object>),
    /// A caller over HTTP may hang up before. Then the connection goes back to the pool with the answer and not before:
    /// else the next caller would wait in line behind it, and the line would have no end.
    Leaving(Option<Object>),
}

impl InUse {
    pub(super) fn new(commit: Commit, connection: Object) -> InUse {
        match commit {
            Commit::Durable | Commit::Relaxed => InUse::Staying(Some(connection)),
            Commit::Request => InUse::Leaving(Some(connection)),
        }
    }

    /// The answer is there.
    pub(super) fn answered(mut self) -> Object {
        let (InUse::Staying(connection) | InUse::Leaving(connection)) = &mut self;
        connection.take().expect(THERE)
    }
}

const THERE: &str = "it is there until it is answered";

impl Deref for InUse {
    type Target = Object;

    fn deref(&self) -> &Object {
        let (InUse::Staying(connection) | InUse::Leaving(connection)) = self;
        connection.as_ref().expect(THERE)
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let InUse::Leaving(connection) = self else { return };
        let (Some(connection), Ok(runtime)) = (connection.take(), Handle::try_current()) else { return };
        runtime.spawn(async move {
            // Answers come in the order of the questions, and the server ends a request's statement.
            let answered = tokio::time::timeout(REQUEST_TIMEOUT + GRACE, connection.batch_execute("")).await;
            if !answered.is_ok_and(|answer| answer.is_ok()) {
                drop(Object::take(connection));
            }
        });
    }
}

impl Manager {
    /// A connection that knows which database it leads to.
    async fn make(&self) -> Result<Pooled, connect::Error> {
        let opened = self.target.open(self.timeout, &self.first).await?;
        let backend = Backend::of(&opened);
        let connection = opened.connection;
        let driver = tokio::spawn(async move {
            if let Err(error) = connection.await {
                debug!(%error, "a connection to Postgres ended");
            }
        });
        let recognised = self.origin.recognise(&opened.client, &self.begin);
        let recognised = tokio::time::timeout(self.timeout, recognised).await;
        let late = |_| Err(connect::Error::Unreachable { reason: "no answer in time".into() });
        if let Err(error) = recognised.unwrap_or_else(late) {
            driver.abort();
            return Err(error);
        }
        Ok(Pooled { client: ClientWrapper::new(opened.client, driver), backend })
    }
}

impl managed::Manager for Manager {
    type Type = Pooled;
    type Error = connect::Error;

    async fn create(&self) -> Result<Pooled, connect::Error> {
        // Boxed: every call may make a connection, and its future would carry this one.
        Box::pin(self.make()).await
    }

    async fn recycle(&self, session: &mut Pooled, metrics: &Metrics) -> RecycleResult<connect::Error> {
        if session.is_closed() || !self.liveness.may_use(metrics.created) {
            return Err(RecycleError::message("its server is gone"));
        }
        Ok(())
    }
}

pub(super) fn error(error: PoolError<connect::Error>) -> Error {
    match error {
        PoolError::Backend(error) => error.into(),
        other => Error::Unavailable(other.to_string()),
    }
}
