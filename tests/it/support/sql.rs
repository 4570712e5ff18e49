//! Short forms for talking SQL in tests: one value, a refusal, a session that waits.

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

/// The single value of a query.
pub async fn value<T: FromSqlOwned>(client: &Client, sql: &str) -> T {
    client.query_one(sql, &[]).await.unwrap_or_else(|e| panic!("{sql}: {e:?}")).get(0)
}

/// The first column of a query.
pub async fn values<T: FromSqlOwned>(client: &Client, sql: &str) -> Vec<T> {
    let rows = client.query(sql, &[]).await.unwrap_or_else(|e| panic!("{sql}: {e:?}"));
    rows.iter().map(|row| row.get(0)).collect()
}

/// Runs statements that succeed.
pub async fn run(client: &Client, sql: &str) {
    client.batch_execute(sql).await.unwrap_or_else(|e| panic!("{sql}: {e:?}"));
}

/// Runs statements that are refused.
pub async fn refused(client: &Client, sql: &str) -> Refusal {
    match client.batch_execute(sql).await {
        Ok(()) => panic!("this was to be refused: {sql}"),
        Err(error) => Refusal::of(&error),
    }
}

/// The server's process id of this session.
pub async fn pid(client: &Client) -> i32 {
    value(client, "SELECT pg_backend_pid()").await
}

/// How many rows of a table, and entries of its indexes, this statement reads. It is rolled back.
pub async fn rows_read(client: &Client, table: &str, statement: &str) -> i64 {
    let counted = format!(
        "SELECT pg_stat_get_xact_tuples_returned(t) + pg_stat_get_xact_tuples_fetched(t)
              + (SELECT sum(pg_stat_get_xact_tuples_returned(indexrelid))::bigint FROM pg_index WHERE indrelid = t)
           FROM (SELECT 'outboxd.{table}'::regclass AS t) asked"
    );
    run(client, "BEGIN").await;
    // What the session read before is counted with it, as long as the server has not been told.
    let before: i64 = value(client, &counted).await;
    run(client, statement).await;
    let after: i64 = value(client, &counted).await;
    run(client, "ROLLBACK").await;
    after - before
}

/// Waits until the query is true, a minute at most.
pub async fn until(client: &Client, sql: &str) {
    wait::until(sql, async || value::<bool>(client, sql).await).await;
}

/// Waits until that session waits for a lock.
pub async fn until_blocked(client: &Client, pid: i32) {
    until(client, &format!("SELECT cardinality(pg_blocking_pids({pid})) > 0")).await;
}
