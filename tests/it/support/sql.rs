//! Short forms for talking SQL in tests: one value, a refusal, a session that waits.

use std::fmt::Display;

use tokio_postgres::types::FromSqlOwned;
use tokio_postgres::{Client, Error};

use super::wait;

/// What Postgres, or one of our functions, said no with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub code: String,
    pub message: String,
    pub hint: String,
}

impl Refusal {
    pub fn of(error: &Error) -> Refusal {
        let db = error.as_db_error().unwrap_or_else(|| panic!("the server answers: {error:?}"));
        Refusal {
            code: db.code().code().to_string(),
            message: db.message().to_string(),
            hint: db.hint().unwrap_or_default().to_string(),
        }
    }
}

/// Whoever has a session: what is said with it.
pub trait Sql {
    fn session(&self) -> &Client;

    /// The single value of a query.
    async fn value<T: FromSqlOwned>(&self, sql: &str) -> T {
        self.session().query_one(sql, &[]).await.unwrap_or_else(|e| panic!("{sql}: {e:?}")).get(0)
    }

    /// The first column of a query.
    async fn values<T: FromSqlOwned>(&self, sql: &str) -> Vec<T> {
        let rows = self.session().query(sql, &[]).await.unwrap_or_else(|e| panic!("{sql}: {e:?}"));
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// How many rows our schema has there: `outbox WHERE state = 'ready'`.
    async fn count(&self, rows: &str) -> i64 {
        self.value(&format!("SELECT count(*) FROM outboxd.{rows}")).await
    }

    /// Runs statements that succeed.
    async fn run(&self, sql: &str) {
        self.session().batch_execute(sql).await.unwrap_or_else(|e| panic!("{sql}: {e:?}"));
    }

    /// Runs statements that are refused.
    async fn refused(&self, sql: &str) -> Refusal {
        match self.session().batch_execute(sql).await {
            Ok(()) => panic!("this was to be refused: {sql}"),
            Err(error) => Refusal::of(&error),
        }
    }

    /// Waits until the query is true, a minute at most.
    async fn until(&self, sql: &str) {
        wait::until(sql, async || self.value::<bool>(sql).await).await;
    }

    /// Waits until our schema has so many rows there.
    async fn until_count(&self, count: impl Display, rows: &str) {
        self.until(&format!("SELECT count(*) = {count} FROM outboxd.{rows}")).await;
    }
}

impl Sql for Client {
    fn session(&self) -> &Client {
        self
    }
}

/// The single value of a query.
pub async fn value<T: FromSqlOwned>(client: &Client, sql: &str) -> T {
    client.value(sql).await
}

/// The first column of a query.
pub async fn values<T: FromSqlOwned>(client: &Client, sql: &str) -> Vec<T> {
    client.values(sql).await
}

/// Runs statements that succeed.
pub async fn run(client: &Client, sql: &str) {
    client.run(sql).await;
}

/// Runs statements that are refused.
pub async fn refused(client: &Client, sql: &str) -> Refusal {
    client.refused(sql).await
}

/// The server's process id of this session.
pub async fn pid(client: &Client) -> i32 {
    client.value("SELECT pg_backend_pid()").await
}

/// How many rows of a table, and entries of its indexes, this statement reads. It is rolled back.
pub async fn rows_read(client: &Client, table: &str, statement: &str) -> i64 {
    let counted = format!(
        "SELECT pg_stat_get_xact_tuples_returned(t) + pg_stat_get_xact_tuples_fetched(t)
              + (SELECT sum(pg_stat_get_xact_tuples_returned(indexrelid))::bigint FROM pg_index WHERE indrelid = t)
           FROM (SELECT 'outboxd.{table}'::regclass AS t) asked"
    );
    client.run("BEGIN").await;
    // What the session read before is counted with it, as long as the server has not been told.
    let before: i64 = client.value(&counted).await;
    client.run(statement).await;
    let after: i64 = client.value(&counted).await;
    client.run("ROLLBACK").await;
    after - before
}

/// Waits until the query is true, a minute at most.
pub async fn until(client: &Client, sql: &str) {
    client.until(sql).await;
}

/// Waits until that session waits for a lock.
pub async fn until_blocked(client: &Client, pid: i32) {
    client.until(&format!("SELECT cardinality(pg_blocking_pids({pid})) > 0")).await;
}
