//! Whether the database is the one that the installation lives in, or a copy of it.
//!
//! Every connection asks before its first use, and each heartbeat: `outboxd._recognise()`, which says what to do. While
//! the live work that a copy brought is set aside, in batches, nothing up to the last id that it brought is published,
//! released or claimed. What is written from then on has a higher id and goes out at once; a new row of a key that came
//! with the copy goes once that is set aside.
//!
//! **Guarantee.** No statement of an instance runs on a copy before somebody has noticed it. **Limit.** Behind a
//! transaction-mode pooler an instance may use a server for a heartbeat before it notices that it was exchanged. A copy
//! of the files cannot be told from its original.

use std::sync::atomic::{AtomicI64, Ordering};

use tokio::sync::Notify;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::refusal::Values;
use super::{Error, Result, Store, connect, query};
use crate::queue::owner::Identity;

/// The column by which the answer is told from those of settings.
const WORK: &str = "origin_work";

/// What is to be done, as the database said last.
#[derive(Debug, Default)]
pub(super) struct Origin {
    /// As `outboxd._origin_work()` answers.
    work: AtomicI64,
    changed: Notify,
}

impl Origin {
    /// The last notification that the copy brought, while what it brought is set aside.
    pub(super) fn aside_through(&self) -> Option<i64> {
        Some(self.work.load(Ordering::Acquire)).filter(|through| *through > 0)
    }

    /// Only notifications above this one may be published; 0: any.
    pub(super) fn above(&self) -> i64 {
        self.aside_through().unwrap_or(0)
    }

    /// The database has said it.
    pub(super) fn note(&self, work: i64) {
        self.work.store(work, Ordering::Release);
        if work != 0 {
            self.changed.notify_one();
        }
    }

    /// Asks on a new connection, in a transaction that begins with these statements.
    pub(super) async fn recognise(&self, client: &Client, begin: &str) -> std::result::Result<(), connect::Error> {
        let question = format!("{begin}; SELECT outboxd._recognise() AS {WORK}; COMMIT");
        let unreachable = |error: &tokio_postgres::Error| connect::Error::Unreachable { reason: reason(error) };
        let messages = match client.simple_query(&question).await {
            Ok(messages) => messages,
            // There is no schema of ours, or an older one: nothing can be done here anyway.
            Err(error) if error.code().is_some_and(is_not_ours) => {
                return client.batch_execute("ROLLBACK").await.map_err(|error| unreachable(&error));
            }
            Err(error) => return Err(unreachable(&error)),
        };
        let answer = messages.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.try_get(WORK).ok().flatten(),
            _ => None,
        });
        self.note(answer.and_then(|work| work.parse().ok()).unwrap_or(0));
        Ok(())
    }
}

fn reason(error: &tokio_postgres::Error) -> String {
    error.as_db_error().map_or_else(|| error.to_string(), |said| said.message().to_owned())
}

fn is_not_ours(code: &SqlState) -> bool {
    let codes = [
        &SqlState::INVALID_SCHEMA_NAME,
        &SqlState::UNDEFINED_FUNCTION,
        &SqlState::UNDEFINED_TABLE,
        &SqlState::INSUFFICIENT_PRIVILEGE,
    ];
    codes.contains(&code)
}

impl Store {
    /// Whose keys in Redis an instance may use.
    pub async fn identity(&self) -> Result<Identity> {
        let rows = self.query(query!("upkeep/read_identity", Durable, []), &[]).await?;
        let row = rows.first().ok_or_else(|| Error::Bug("there is no row of settings".into()))?;
        Ok(Identity { install_id: row.value(0)?, database: row.value(1)?, is_moved: row.value(2)? })
    }

    /// Until there is something to be done about a copy.
    pub async fn copy_has_work(&self) {
        while self.origin.work.load(Ordering::Acquire) == 0 {
            self.origin.changed.notified().await;
        }
    }

    /// One batch of it. Whether there is more.
    pub async fn step_origin(&self) -> Result<bool> {
        let rows = self.query(query!("upkeep/step_origin", Relaxed, []), &[]).await?;
        let work = rows.first().map_or(Ok(0), |row| row.value(0))?;
        self.origin.note(work);
        Ok(work != 0)
    }
}
