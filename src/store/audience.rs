//! Reading an audience, which is somebody else's code.
//!
//! **Guarantee.** It runs with the rights of `outboxd_audience` and no others, in a session that was made for this
//! alone, in a read-only transaction that does nothing else and never commits. So nothing is left to run later as the
//! daemon (deferred triggers, cursors WITH HOLD, NOTIFY), and no name of ours is resolved after it has run, whatever it
//! set. Another session stages what was read. Between the two, a batch is held here and no more: the stream waits.
//!
//! The session ends with the reading. Behind a transaction-mode pooler its backend would go on to serve others, with
//! what no rollback undoes: prepared statements, advisory locks of the session. So the backend is terminated there,
//! while the transaction still has it. So is one that does not end in time: a function can swallow a cancel, but not
//! that.
//!
//! **Limit.** A procedural language that never looks for interrupts (a loop in PL/Perl without SQL) cannot be ended by
//! us: the run fails at once and says so. The statement is limited in time, a row in length; what the audience takes of
//! the server's disk and memory is limited by the server's settings.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::TryStreamExt as _;
use tokio::task::AbortHandle;
use tokio_postgres::error::{Severity, SqlState};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, SimpleQueryMessage};

use super::liveness::{Backend, WHO};
use super::pool::Object;
use super::refusal::Values;
use super::schedule::Reading;
use super::session::{Purpose, Settings};
use super::{Error, Result, Store, pool, query};

/// Marks the session for `_is_held_by_us.sql`: a lock that it holds is the audience's and not ours. Held to the end of the
/// transaction, and by nothing to be given up before it. `outb` in ASCII, and 1.
const MARK: &str = "SELECT pg_catalog.pg_advisory_xact_lock_shared(1869968482, 1)";
/// Rows staged by one statement.
const BATCH_ROWS: usize = 1_000;
/// Of their texts, about so many bytes.
const BATCH_BYTES: usize = 4 << 20;
/// So long after its time a statement that was canceled is taken for one that does not end.
const END_GRACE: Duration = Duration::from_secs(2);

/// How a reading ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read {
    /// So many rows are staged.
    Staged(u64),
    /// More rows than may be: nothing is staged.
    TooMany,
    /// A later reading or a cancel came in between: nothing is staged.
    Void,
    /// It came to no end, for this reason: nothing is staged. Another try may do better.
    Lost(String),
}

/// Why rows stopped coming.
enum Stopped {
    /// The session that reads says so.
    Reading(tokio_postgres::Error),
    /// The session that stages says so.
    Staging(tokio_postgres::Error),
    /// A row cannot be taken.
    Row(String),
    /// Our side of the server is away.
    Away(Error),
}

/// The session that reads. Its connection is closed with it, in the middle of a statement if need be.
struct Reader {
    client: Client,
    backend: Backend,
    driver: AbortHandle,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// The session that stages, in one transaction. It is not given back to its pool: if this is dropped half-way, the
/// transaction ends with it.
struct Stage<'a> {
    store: &'a Store,
    run: i64,
    attempt: i32,
    client: Option<super::pool::Pooled>,
    rows: u64,
    /// Whether we wait for this session, and not for the audience.
    is_busy: &'a AtomicBool,
}

impl Store {
    /// Reads an audience and stages it. The outer error is ours or the server's, the inner one the audience's.
    pub async fn read_audience(&self, run: i64, reading: &Reading) -> Result<std::result::Result<Read, String>> {
        let reader = self.open_reader(reading).await?;
        let is_staging = AtomicBool::new(false);
        let work = self.transfer(&reader, run, reading, &is_staging);
        let outcome = self.outlast(work, Some(&reader.backend), reading.time_max + END_GRACE).await;
        let is_silent = outcome.is_none();
        let ended = match is_silent || self.is_pooled {
            true => self.end_reading(&reader.backend).await?,
            false => None,
        };
        drop(reader);
        match (outcome, ended) {
            (None, _) if is_staging.load(Ordering::Relaxed) => {
                Err(Error::Unavailable("no answer while an audience was staged".to_owned()))
            }
            (None, None) => Err(Error::Unavailable("no answer while an audience was read".to_owned())),
            (None, Some(false)) => Ok(Err(format!("{}; its backend cannot be ended: a DBA has to", too_long(reading)))),
            (None, Some(true)) => {
                Ok(Ok(Read::Lost(format!("{}, did not end when told to, and was terminated", too_long(reading)))))
            }
            (Some(Ok(read)), _) => Ok(Ok(read)),
            (Some(Err(stopped)), _) => blame(stopped, reading),
        }
    }

    async fn open_reader(&self, reading: &Reading) -> Result<Reader> {
        let opened = self.liveness.target.open(self.liveness.timeout, "").await?;
        let (client, connection) = (opened.client, opened.connection);
        let mut connection = connection;
        // What the audience has to say besides its rows is nobody's: notices are dropped.
        let driver = tokio::spawn(async move {
            while let Some(Ok(_)) = std::future::poll_fn(|context| connection.poll_message(context)).await {}
        });
        let driver = driver.abort_handle();
        let begin = Settings::new(Purpose::Audience, reading.time_max).begin();
        let begin = format!("{begin}; {MARK}; {WHO}");
        let answered = tokio::time::timeout(self.call_timeout, client.simple_query(&begin)).await;
        let messages = match answered {
            Ok(Ok(messages)) => messages,
            Ok(Err(error)) => {
                driver.abort();
                return Err(Error::of(&error));
            }
            Err(_) => {
                driver.abort();
                return Err(Error::Unavailable("no answer to BEGIN".to_owned()));
            }
        };
        let mut rows = messages.into_iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let backend = rows.find_map(|row| Backend::told(&row));
        let backend = backend.ok_or_else(|| Error::Bug("a session does not say who serves it".to_owned()))?;
        Ok(Reader { client, backend, driver })
    }

    /// From the audience to the table, batch by batch.
    async fn transfer(
        &self,
        reader: &Reader,
        run: i64,
        reading: &Reading,
        is_staging: &AtomicBool,
    ) -> std::result::Result<Read, Stopped> {
        let query = query!("schedule/read_audience", Durable, [TEXT, TIMESTAMPTZ, INT8]);
        let params: [&(dyn ToSql + Sync); 3] = [&reading.audience, &reading.slot, &reading.rows_max];
        // One round trip and nothing prepared.
        let typed = params.into_iter().zip(query.types.iter().cloned());
        let rows = reader.client.query_typed_raw(query.sql, typed).await.map_err(Stopped::Reading)?;
        let mut rows = pin!(rows);
        let mut stage =
            Stage { store: self, run, attempt: reading.attempt, client: None, rows: 0, is_busy: is_staging };
        let rows_max = u64::try_from(reading.rows_max).unwrap_or(0);
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while let Some(row) = rows.try_next().await.map_err(Stopped::Reading)? {
            let rows_read = stage.rows + batch.len() as u64 + 1;
            if rows_read > rows_max {
                return Ok(Read::TooMany);
            }
            bytes += length(&row, rows_read)?;
            batch.push(row);
            if batch.len() == BATCH_ROWS || bytes >= BATCH_BYTES {
                stage.write(&batch).await?;
                (batch, bytes) = (Vec::new(), 0);
            }
        }
        if !self.is_pooled {
            reader.client.batch_execute("ROLLBACK").await.map_err(Stopped::Reading)?;
        }
        stage.write(&batch).await?;
        stage.finish().await
    }

    /// Terminates a backend that reads an audience. `None`: it is not there; false: it goes on.
    async fn end_reading(&self, backend: &Backend) -> Result<Option<bool>> {
        let rows = self.query(query!("schedule/end_reading", Relaxed, [TEXT]), &[&backend.as_str()]).await?;
        rows.first().map(|row| row.value(0)).transpose()
    }

    /// Terminates what reads an audience although nobody waits for it any more; how many.
    pub async fn end_overdue_readings(&self) -> Result<u64> {
        Ok(self.query(query!("schedule/end_overdue_readings", Relaxed, []), &[]).await?.len() as u64)
    }
}

impl Stage<'_> {
    async fn write(&mut self, batch: &[Row]) -> std::result::Result<(), Stopped> {
        let column = |index| move |row| text(row, index);
        let recipients = batch.iter().map(column(0)).collect::<std::result::Result<Vec<_>, _>>()?;
        let payloads = batch.iter().map(column(1)).collect::<std::result::Result<Vec<_>, _>>()?;
        self.is_busy.store(true, Ordering::Relaxed);
        let before = i64::try_from(self.rows).unwrap_or(i64::MAX);
        let (run, attempt) = (self.run, self.attempt);
        let query = query!("schedule/stage_audience", Durable, [INT8, INT4, INT8, TEXT_ARRAY, TEXT_ARRAY]);
        let params: [&(dyn ToSql + Sync); 5] = [&run, &attempt, &before, &recipients, &payloads];
        let typed: Vec<_> = params.into_iter().zip(query.types.iter().cloned()).collect();
        let client = self.client().await?;
        client.execute_typed(query.sql, &typed).await.map_err(Stopped::Staging)?;
        self.rows += batch.len() as u64;
        self.is_busy.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// What is staged stands, or nothing is.
    async fn finish(mut self) -> std::result::Result<Read, Stopped> {
        self.is_busy.store(true, Ordering::Relaxed);
        let (run, attempt, rows) = (self.run, self.attempt, i64::try_from(self.rows).unwrap_or(i64::MAX));
        let query = query!("schedule/finish_reading", Durable, [INT8, INT4, INT8]);
        let params: [&(dyn ToSql + Sync); 3] = [&run, &attempt, &rows];
        let typed: Vec<_> = params.into_iter().zip(query.types.iter().cloned()).collect();
        let client = self.client().await?;
        let stands = !client.query_typed(query.sql, &typed).await.map_err(Stopped::Staging)?.is_empty();
        client.batch_execute(if stands { "COMMIT" } else { "ROLLBACK" }).await.map_err(Stopped::Staging)?;
        Ok(if stands { Read::Staged(self.rows) } else { Read::Void })
    }

    /// In its transaction, which begins with the first rows: it does not wait for the audience's first.
    async fn client(&mut self) -> std::result::Result<&super::pool::Pooled, Stopped> {
        if self.client.is_none() {
            let connections = &self.store.durable;
            let client = connections.pool.get().await.map_err(|error| Stopped::Away(pool::error(error)))?;
            let client = Object::take(client);
            client.batch_execute(&connections.begin).await.map_err(Stopped::Staging)?;
            self.client = Some(client);
        }
        self.client.as_ref().ok_or_else(|| Stopped::Away(Error::Bug("no session to stage in".to_owned())))
    }
}

/// How long a row's texts are, if it may be taken at all.
fn length(row: &Row, number: u64) -> std::result::Result<usize, Stopped> {
    let recipient = text(row, 0)?.unwrap_or_default();
    let payload_bytes: Option<i32> = row.value(2).map_err(|error| unreadable_row(&error))?;
    let payload = text(row, 1)?;
    if let (None, Some(bytes)) = (payload, payload_bytes) {
        let reason = format!("the payload of its row {number} has {bytes} bytes: payload_has_at_most_256_kib");
        return Err(Stopped::Row(reason));
    }
    Ok(recipient.len() + payload.unwrap_or_default().len())
}

fn text(row: &Row, index: usize) -> std::result::Result<Option<&str>, Stopped> {
    row.value(index).map_err(|error| unreadable_row(&error))
}

fn unreadable_row(error: &Error) -> Stopped {
    Stopped::Row(error.to_string())
}

fn too_long(reading: &Reading) -> String {
    let limit = humantime::format_duration(reading.time_max);
    format!("the audience took longer than {limit} (outboxd.setting.audience_time_max)")
}

/// The audience's fault (wrong columns, its own error, too slow) or the server's (away, out of space, restarting). What
/// an audience's session says may be the audience's own words, so it is never taken for an outage of the server: those
/// that may pass are tried again, and counted.
fn blame(stopped: Stopped, reading: &Reading) -> Result<std::result::Result<Read, String>> {
    let unreadable = |said: String| format!("the audience cannot be read: {said}");
    match stopped {
        Stopped::Away(error) => Err(error),
        Stopped::Row(reason) => Ok(Err(unreadable(reason))),
        Stopped::Staging(error) => match (Error::of(&error), error.as_db_error()) {
            (Error::Value(_) | Error::Bug(_), Some(db)) => {
                Ok(Err(unreadable(format!("{} ({})", db.message(), db.code().code()))))
            }
            (class, _) => Err(class),
        },
        Stopped::Reading(error) => {
            let class = Error::of(&error);
            let Some(db) = error.as_db_error() else {
                return Ok(Ok(Read::Lost(format!("its session ended while it read the audience: {class}"))));
            };
            let said = unreadable(format!("{} ({})", db.message(), db.code().code()));
            let is_its_end = matches!(db.parsed_severity(), Some(Severity::Fatal | Severity::Panic));
            // What it does not support, and what may not be written, nobody else was asked for.
            let is_its_own = [SqlState::FEATURE_NOT_SUPPORTED, SqlState::READ_ONLY_SQL_TRANSACTION];
            match class {
                _ if *db.code() == SqlState::QUERY_CANCELED => Ok(Ok(Read::Lost(too_long(reading)))),
                _ if !is_its_end && is_its_own.contains(db.code()) => Ok(Err(said)),
                _ if is_its_end => Ok(Ok(Read::Lost(said))),
                Error::Unavailable(_) | Error::Contention(_) | Error::Locked(_) => Ok(Ok(Read::Lost(said))),
                Error::Refused(_) | Error::Value(_) | Error::Bug(_) => Ok(Err(said)),
            }
        }
    }
}
