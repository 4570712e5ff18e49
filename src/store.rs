//! Postgres: the record of truth. The only module that knows the tables.
//!
//! Every statement stands in `sql/queries/`, one per file, with its purpose, guards, locks and index; here each has
//! one function. Those that differ only in the name of a view or a function are made in [`view`] and [`action`].
//!
//! Three pools: one whose commits are durable before anyone is told (claims, outcomes); one for publishing, sweeps
//! and upkeep, where losing the last commits in a server crash costs at worst a copy that the claim drops; and one for
//! callers over HTTP.
//!
//! Each call is bounded in time: by `statement_timeout` in the server, by a timeout of our own around it, and, after a
//! few silent seconds, by a check whether the session is still at work. So a frozen server or a half-open link ends in
//! [`Error::Unavailable`], and the connection is closed.
//!
//! **Guarantee.** A change is one guarded statement, or two in one transaction: never a read and then a write.
//! **Limit.** After [`Error::Unavailable`] a change may or may not have been made; every statement may be repeated.
//!
//! May change: any statement, if its interleavings are written in its header and raced in a test. Must not: SQL
//! on tables elsewhere; commands use the public views and functions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use deadpool::managed::QueueMode;
use deadpool_postgres::Runtime;
use metrics::histogram;
use tokio::sync::Notify;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use self::liveness::{Liveness, SILENT_AFTER};
use self::pool::{InUse, Manager, Object, Pool};
use self::session::{Purpose, Settings};
use crate::config::Config;

pub mod action;
pub mod audience;
pub mod circuit;
pub mod claim;
pub mod command;
pub mod connect;
pub mod dashboard;
pub mod due;
mod endpoint;
mod error;
pub mod event;
pub mod event_group;
pub mod found;
pub mod instance;
pub mod leader;
mod liveness;
pub mod locks;
pub mod migrate;
pub mod notify;
pub mod observe;
pub mod origin;
mod pool;
pub mod pooler;
pub mod publish;
pub mod record;
pub mod refusal;
pub mod release;
pub mod repair;
pub mod request;
pub mod retention;
pub mod schedule;
pub mod search;
pub mod session;
pub mod statistics;
pub mod view;

pub use error::{Error, Result, StageError};

/// Rows that one statement reserves, releases or records at most.
pub const BATCH_ROWS: u32 = 500;
/// On top of the server's own limit, for the network.
const CALL_GRACE: Duration = Duration::from_secs(5);

/// A runtime statement: its text from `sql/queries/` and the types of its parameters.
pub(crate) struct Query {
    pub(crate) sql: &'static str,
    pub(crate) types: &'static [Type],
    pub(crate) commit: Commit,
}

/// When the caller is told that a statement has committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Commit {
    /// Once it is on disk.
    Durable,
    /// Once it is in memory: for what a crash may undo without harm.
    Relaxed,
    /// Once it is on disk; on the connections of callers over HTTP.
    Request,
}

/// The statement's text is the file's; the types stand beside the function that fills them.
macro_rules! query {
    ($name:literal, $commit:ident, [$($type:ident),*]) => {
        &$crate::store::Query {
            sql: include_str!(concat!("../../sql/queries/", $name, ".sql")),
            types: &[$(tokio_postgres::types::Type::$type),*],
            commit: $crate::store::Commit::$commit,
        }
    };
}
pub(crate) use query;

/// The database, through its pools. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    durable: Connections,
    relaxed: Connections,
    request: Connections,
    /// Behind a transaction-mode pooler every transaction brings its settings, and nothing is prepared. Otherwise
    /// settings and prepared statements last as long as the connection.
    is_pooled: bool,
    liveness: Arc<Liveness>,
    locks: Arc<locks::Locks>,
    call_timeout: Duration,
    /// Somebody in this process made rows due.
    due: Arc<Notify>,
    /// What is to be done about a copy.
    origin: Arc<origin::Origin>,
    /// Somebody rang the doorbell.
    events: Arc<Notify>,
}

/// The connections of one [`Commit`].
#[derive(Debug, Clone)]
struct Connections {
    /// As metrics name them.
    name: &'static str,
    pool: Pool,
    /// How a transaction begins.
    begin: Arc<str>,
}

impl Store {
    /// Prepares the pools; connects to nothing yet.
    pub fn open(config: &Config) -> Result<Store> {
        let mut target = connect::Target::parse(&config.database_url)?;
        let database = &config.database;
        let call_timeout = database.statement_timeout + CALL_GRACE;
        // After so long without a word the kernel asks whether the other end is there.
        target.config.keepalives_idle(Duration::from_secs(15)).tcp_user_timeout(call_timeout);
        let liveness = Arc::new(Liveness::new(target.clone(), database.connect_timeout, database.pooler));
        let origin = Arc::<origin::Origin>::default();
        let connections = |name: &'static str, size: usize, purpose: Purpose| {
            let settings = Settings::new(purpose, database.statement_timeout);
            let (first, begin) = match database.pooler {
                true => (String::new(), settings.begin()),
                false => (format!("{}; {}", settings.for_session(), liveness::WHO), "BEGIN".to_owned()),
            };
            let (target, liveness, origin) = (target.clone(), Arc::clone(&liveness), Arc::clone(&origin));
            let begin: Arc<str> = begin.into();
            let manager = Manager {
                target,
                first,
                begin: Arc::clone(&begin),
                timeout: database.connect_timeout,
                liveness,
                origin,
            };
            let pool = Pool::builder(manager)
                .max_size(size)
                // The connection used last: its backend's plans and caches are warm.
                .queue_mode(QueueMode::Lifo)
                .runtime(Runtime::Tokio1)
                .wait_timeout(Some(database.statement_timeout))
                .build()
                .map_err(|error| Error::Bug(error.to_string()))?;
            Ok::<_, Error>(Connections { name, pool, begin })
        };
        Ok(Store {
            durable: connections("durable", database.pool_size, Purpose::Durable)?,
            // For publishing, sweeps and upkeep, whose loops seldom ask at once.
            relaxed: connections("relaxed", 3, Purpose::Relaxed)?,
            request: connections("request", database.api_pool_size, Purpose::Request)?,
            is_pooled: database.pooler,
            liveness,
            locks: Arc::default(),
            call_timeout,
            due: Arc::new(Notify::new()),
            origin,
            events: Arc::new(Notify::new()),
        })
    }

    /// Rows have become due: retries, heads of keys, what an operator released. The relay of this process need not wait
    /// for its next poll.
    pub fn wake_relay(&self) {
        self.due.notify_one();
    }

    /// Until somebody in this process calls [`Store::wake_relay`].
    pub async fn woken(&self) {
        self.due.notified().await;
    }

    /// The doorbell was heard: there may be events to append.
    pub fn wake_events(&self) {
        self.events.notify_one();
    }

    /// Until somebody in this process calls [`Store::wake_events`].
    pub async fn events_woken(&self) {
        self.events.notified().await;
    }

    /// Asks the server for an answer.
    pub async fn ping(&self) -> Result<()> {
        self.call(Commit::Durable, async |client| client.batch_execute("").await).await
    }

    /// Whether Postgres answered the last call, whoever made it. While it does not, somebody tries again at least every
    /// second: the heartbeat.
    pub fn answers(&self) -> bool {
        self.liveness.answers()
    }

    /// Until a call is answered; at once, if the last one was.
    pub async fn answers_again(&self) {
        self.liveness.until(true).await;
    }

    /// Until a call is not answered; at once, if the last one was not.
    pub async fn falls_silent(&self) {
        self.liveness.until(false).await;
    }

    /// Connections in use and at most, of the durable pool.
    pub fn pool_use(&self) -> (usize, usize) {
        let status = self.durable.pool.status();
        (status.size.saturating_sub(status.available), status.max_size)
    }

    /// Runs one statement as a transaction of its own.
    pub(crate) async fn query(&self, query: &Query, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
        self.call(query.commit, async |client| self.run(client, query, params).await).await
    }

    /// Runs two statements in one transaction; the second sees what the first waited for.
    pub(crate) async fn query_pair(
        &self,
        first: (&Query, &[&(dyn ToSql + Sync)]),
        second: (&Query, &[&(dyn ToSql + Sync)]),
    ) -> Result<(Vec<Row>, Vec<Row>)> {
        self.call(second.0.commit, async |client| {
            client.batch_execute(&self.connections(second.0.commit).begin).await?;
            let outcome = async {
                Ok((
                    self.run_within(client, first.0, first.1).await?,
                    self.run_within(client, second.0, second.1).await?,
                ))
            };
            match outcome.await {
                Ok(rows) => client.batch_execute("COMMIT").await.map(|()| rows),
                Err(error) => {
                    client.batch_execute("ROLLBACK").await?;
                    Err(error)
                }
            }
        })
        .await
    }

    async fn run(
        &self,
        client: &Object,
        query: &Query,
        params: &[&(dyn ToSql + Sync)],
    ) -> std::result::Result<Vec<Row>, tokio_postgres::Error> {
        if !self.is_pooled {
            return self.run_within(client, query, params).await;
        }
        // Sent together, in one round trip: if the statement fails, COMMIT rolls back.
        let begin = &self.connections(query.commit).begin;
        let (began, rows, committed) = tokio::join!(
            client.batch_execute(begin),
            self.run_within(client, query, params),
            client.batch_execute("COMMIT")
        );
        began?;
        let rows = rows?;
        committed?;
        Ok(rows)
    }

    async fn run_within(
        &self,
        client: &Object,
        query: &Query,
        params: &[&(dyn ToSql + Sync)],
    ) -> std::result::Result<Vec<Row>, tokio_postgres::Error> {
        if self.is_pooled {
            let typed: Vec<_> = params.iter().copied().zip(query.types.iter().cloned()).collect();
            return client.query_typed(query.sql, &typed).await;
        }
        let statement = client.prepare_typed_cached(query.sql, query.types).await?;
        client.query(&statement, params).await
    }

    fn connections(&self, commit: Commit) -> &Connections {
        match commit {
            Commit::Durable => &self.durable,
            Commit::Relaxed => &self.relaxed,
            Commit::Request => &self.request,
        }
    }

    /// Runs a call and remembers whether it was answered.
    async fn call<T>(
        &self,
        commit: Commit,
        work: impl AsyncFnOnce(&Object) -> std::result::Result<T, tokio_postgres::Error>,
    ) -> Result<T> {
        let outcome = self.try_call(commit, work).await.map_err(|failed| match failed {
            Failed::Said(error) => Error::of(&error),
            Failed::Away(error) => error,
        });
        self.liveness.note(!matches!(outcome, Err(Error::Unavailable(_))));
        outcome
    }

    /// The same, with the server's own words.
    async fn try_call<T>(
        &self,
        commit: Commit,
        work: impl AsyncFnOnce(&Object) -> std::result::Result<T, tokio_postgres::Error>,
    ) -> std::result::Result<T, Failed> {
        let Connections { name, pool, .. } = self.connections(commit);
        let asked_at = Instant::now();
        let client = pool.get().await;
        histogram!("outboxd_database_pool_wait_seconds", "pool" => *name).record(asked_at.elapsed().as_secs_f64());
        let client = InUse::new(commit, client.map_err(|error| Failed::Away(pool::error(error)))?);
        let answered = self.outlast(work(&client), client.backend.as_ref(), self.call_timeout).await;
        let client = client.answered();
        match answered {
            Some(Err(error)) => {
                if Error::is_of_this_connection(&error) {
                    drop(Object::take(client));
                }
                Err(Failed::Said(error))
            }
            Some(Ok(outcome)) => Ok(outcome),
            None => {
                drop(Object::take(client));
                self.liveness.give_up();
                Err(Failed::Away(Error::Unavailable("a session fell silent".to_owned())))
            }
        }
    }

    /// Waits for an answer as long as one is to be expected.
    async fn outlast<T>(
        &self,
        work: impl Future<Output = T>,
        backend: Option<&liveness::Backend>,
        limit: Duration,
    ) -> Option<T> {
        let mut work = std::pin::pin!(work);
        let deadline = Instant::now() + limit;
        loop {
            let patience = SILENT_AFTER.min(deadline.saturating_duration_since(Instant::now()));
            if let Ok(answer) = tokio::time::timeout(patience, &mut work).await {
                return Some(answer);
            }
            let is_gone = async { Instant::now() >= deadline || self.liveness.is_gone(backend).await };
            tokio::select! {
                answer = &mut work => return Some(answer),
                is_gone = is_gone => if is_gone {
                    return None;
                },
            }
        }
    }
}

/// Why a call did not come to its end.
enum Failed {
    /// The driver or the server says so.
    Said(tokio_postgres::Error),
    /// There was no connection, or no answer.
    Away(Error),
}

/// A session of its own outside the pools that does little but listen. Not for transaction-mode poolers.
pub async fn dedicated(
    config: &Config,
) -> Result<(Client, tokio_postgres::Connection<tokio_postgres::Socket, connect::TlsStream>)> {
    let target = connect::Target::parse(&config.database_url)?;
    let settings = Settings::new(Purpose::Idle, config.database.statement_timeout);
    let opened = target.open(config.database.connect_timeout, &settings.for_session()).await?;
    Ok((opened.client, opened.connection))
}
