//! Postgres: the record of truth. The only module that knows the tables.
//!
//! Every statement stands in `sql/queries/`, one per file, with its purpose, guards, locks and index; here each has
//! one function. Two pools: one whose commits are durable before anyone is told (claims, outcomes), and one for
//! publishing, where losing the last commits in a server crash costs at worst a copy that the claim drops.
//!
//! Each call is bounded in time: by `statement_timeout` in the server and by a clock of our own around it, so that
//! a half-open link ends in [`Error::Unavailable`] and the connection is thrown away.

use std::time::{Duration, Instant};

use deadpool_postgres::{
    Hook, HookError, Manager, ManagerConfig, Object, Pool, PoolError, QueueMode, RecyclingMethod, Runtime,
};
use metrics::histogram;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use crate::config::Config;

pub mod claim;
pub mod connect;
pub mod doorbell;
pub mod duty;
mod error;
pub mod event;
pub mod hold;
pub mod instance;
pub mod observe;
pub mod operate;
pub mod publish;
pub mod record;
pub mod release;
pub mod retention;
pub mod rollup;
pub mod schedule;
pub mod sweep;
mod warm;

pub use error::{Error, Result};

/// Connections that only publish; two loops and a spare.
const RELAXED_POOL_SIZE: usize = 3;
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
    durable: Pool,
    relaxed: Pool,
    session: Session,
    call_timeout: Duration,
}

/// How sessions are set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Session {
    /// Settings and prepared statements last as long as the connection.
    Direct,
    /// A transaction-mode pooler: every transaction brings its settings, nothing is prepared.
    Pooled { statement_timeout_ms: u128 },
}

/// The plans we measured: index paths only, no parallel workers, no JIT. Never-analysed tables and generic plans
/// otherwise turn a 0.1 ms poll into a scan of the backlog.
const PLANNER: &str = "enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_hashjoin = off; \
    SET LOCAL enable_mergejoin = off; SET LOCAL max_parallel_workers_per_gather = 0; SET LOCAL jit = off";

impl Store {
    /// Prepares the pools; connects to nothing yet.
    pub fn open(config: &Config) -> Result<Store> {
        let target = connect::Target::parse(&config.database_url)?;
        let statement_timeout = config.database.statement_timeout;
        let session = if config.database.pooler {
            Session::Pooled { statement_timeout_ms: statement_timeout.as_millis() }
        } else {
            Session::Direct
        };
        let pool = |size: usize, commit: Commit| {
            let mut postgres = target.config.clone();
            postgres
                .application_name("outboxd")
                .connect_timeout(config.database.connect_timeout)
                .keepalives_idle(Duration::from_secs(15))
                .tcp_user_timeout(statement_timeout + CALL_GRACE);
            let manager_config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
            let manager = Manager::from_config(postgres, target.tls.clone(), manager_config);
            let mut builder = Pool::builder(manager)
                .max_size(size)
                // The connection used last: its backend's plans and caches are warm.
                .queue_mode(QueueMode::Lifo)
                .runtime(Runtime::Tokio1)
                .wait_timeout(Some(statement_timeout))
                .create_timeout(Some(config.database.connect_timeout));
            if session == Session::Direct {
                let settings = direct_settings(statement_timeout, commit);
                let limit = config.database.connect_timeout;
                builder = builder.post_create(Hook::async_fn(move |client, _| {
                    let settings = settings.clone();
                    // The pool's own limit ends before this: without one, a link that falls silent now holds a slot for ever.
                    Box::pin(async move {
                        match tokio::time::timeout(limit, client.batch_execute(&settings)).await {
                            Ok(set) => set.map_err(HookError::Backend),
                            Err(_) => Err(HookError::message("no answer to a new session's settings")),
                        }
                    })
                }));
            }
            builder.build().map_err(|error| Error::Bug(error.to_string()))
        };
        Ok(Store {
            durable: pool(config.database.pool_size, Commit::Durable)?,
            relaxed: pool(RELAXED_POOL_SIZE, Commit::Relaxed)?,
            session,
            call_timeout: statement_timeout + CALL_GRACE,
        })
    }

    /// Asks the server for an answer.
    pub async fn ping(&self) -> Result<()> {
        self.call(Commit::Durable, async |client| client.batch_execute("").await).await
    }

    /// Connections in use and at most, of the durable pool.
    pub fn pool_use(&self) -> (usize, usize) {
        let status = self.durable.status();
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
            client.batch_execute(&self.begin(second.0.commit)).await?;
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
        if self.session == Session::Direct {
            return self.run_within(client, query, params).await;
        }
        // Sent together, in one round trip: if the statement fails, COMMIT rolls back.
        let begin = self.begin(query.commit);
        let (began, rows, committed) = tokio::join!(
            client.batch_execute(&begin),
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
        match self.session {
            Session::Direct => {
                let statement = client.prepare_typed_cached(query.sql, query.types).await?;
                client.query(&statement, params).await
            }
            Session::Pooled { .. } => {
                let typed: Vec<_> = params.iter().copied().zip(query.types.iter().cloned()).collect();
                client.query_typed(query.sql, &typed).await
            }
        }
    }

    fn begin(&self, commit: Commit) -> String {
        match self.session {
            Session::Direct => "BEGIN".to_owned(),
            Session::Pooled { statement_timeout_ms } => format!(
                "BEGIN; SET LOCAL {PLANNER}; SET LOCAL statement_timeout = {statement_timeout_ms}; \
                 SET LOCAL synchronous_commit = {}",
                commit.setting()
            ),
        }
    }

    /// Takes a connection, bounds the call, and throws the connection away if the call did not come back.
    async fn call<T>(
        &self,
        commit: Commit,
        work: impl AsyncFnOnce(&Object) -> std::result::Result<T, tokio_postgres::Error>,
    ) -> Result<T> {
        let (pool, name) = match commit {
            Commit::Durable => (&self.durable, "durable"),
            Commit::Relaxed => (&self.relaxed, "relaxed"),
        };
        let asked_at = Instant::now();
        let client = pool.get().await;
        histogram!("outboxd_database_pool_wait_seconds", "pool" => name).record(asked_at.elapsed().as_secs_f64());
        let client = client.map_err(pool_error)?;
        match tokio::time::timeout(self.call_timeout, work(&client)).await {
            Ok(outcome) => outcome.map_err(|error| Error::of(&error)),
            Err(_) => {
                drop(Object::take(client));
                Err(Error::Unavailable(format!("no answer within {}", humantime::format_duration(self.call_timeout))))
            }
        }
    }
}

impl Commit {
    fn setting(self) -> &'static str {
        match self {
            Commit::Durable => "on",
            Commit::Relaxed => "off",
        }
    }
}

fn direct_settings(statement_timeout: Duration, commit: Commit) -> String {
    format!(
        "SET {}; SET statement_timeout = {}; SET synchronous_commit = {}; SET lock_timeout = 0; \
         SET idle_in_transaction_session_timeout = {}; \
         SET plan_cache_mode = force_generic_plan",
        PLANNER.replace("SET LOCAL", "SET"),
        statement_timeout.as_millis(),
        commit.setting(),
        statement_timeout.as_millis(),
    )
}

fn pool_error(error: PoolError) -> Error {
    match error {
        PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => Error::of(&error),
        other => Error::Unavailable(other.to_string()),
    }
}

/// A session of its own outside the pools: for LISTEN and for migrations.
pub async fn dedicated(
    config: &Config,
) -> Result<(Client, tokio_postgres::Connection<tokio_postgres::Socket, connect::TlsStream>)> {
    let target = connect::Target::parse(&config.database_url)?;
    Ok(target.connect(config.database.connect_timeout).await?)
}
