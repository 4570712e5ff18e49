//! Reading an audience, which is somebody else's code.
//!
//! **Guarantee.** It runs with the rights of `outboxd_audience` and no others, in a session that was made for this
//! alone, in a read-only transaction that does nothing else and never commits. So nothing is left to run later as the
//! daemon (deferred triggers, cursors WITH HOLD, NOTIFY), and no name of ours is resolved after it has run, whatever it
//! set. Another session stages what was read. Between the two, a batch is held here and no more: the stream waits.
//!
//! No message of the session is long (`connect/bounded.rs`): foreign code chooses how long a notice or an error is.
//!
//! The session ends with the reading. Behind a transaction-mode pooler its backend would go on to serve others, with
//! what no rollback undoes: prepared statements, advisory locks of the session. So the backend is terminated there,
//! while the transaction still has it. So is one that does not end in time: a function can swallow a cancel, but not
//! that.
//!
//! **Limit.** A procedural language that never looks for interrupts (a loop in PL/Perl without SQL) cannot be ended by
//! us: the run fails at once and says so. The statement is limited in time, a row in length; what the audience takes of
//! the server's disk and memory is limited by the server's settings.

use std::time::{Duration, Instant};

use futures_util::TryStreamExt as _;
use tokio::task::JoinHandle;
use tokio_postgres::error::{Severity, SqlState};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, SimpleQueryMessage};

use super::liveness::{Backend, WHO};
use super::pool::Object;
use super::refusal::Values;
use super::schedule::Reading;
use super::session::{Purpose, Settings};
use super::{Error, Result, Store, pool, query};

/// What marks the session: an advisory lock of two numbers, of which this is the first. A lock that a session so marked
/// holds is the audience's and not ours (`_is_held_by_us.sql`, `migrate/lock.rs`, `end_overdue_readings.sql`). It is held
/// to the end of the transaction, and by nothing to be given up before it. `outb` in ASCII.
const MARK: i32 = 1_869_968_482;
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

/// A session that goes on reading although nobody waits for it any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overdue {
    /// Its backend.
    pub pid: i32,
    /// Its login.
    pub login: String,
    /// Whether it was told to end; else we may not.
    pub is_told: bool,
}

/// Why rows stopped coming.
enum Stopped {
    /// The session that reads says so.
    Reading(tokio_postgres::Error),
    /// The session that reads says nothing.
    Silent,
    /// The session that stages says so.
    Staging(tokio_postgres::Error),
    /// A row cannot be taken.
    Row(String),
    /// There are more than may be.
    TooMany,
    /// Our side of the server is away.
    Away(Error),
}

/// The session that reads. Its connection is closed with it, in the middle of a statement if need be.
struct Reader {
    client: Client,
    backend: Backend,
    /// Ends with the connection, and says why that ended.
    driver: JoinHandle<Option<tokio_postgres::Error>>,
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
}

impl Store {
    /// Reads an audience and stages it. The outer error is ours or the server's, the inner one the audience's.
    pub async fn read_audience(&self, run: i64, reading: &Reading) -> Result<std::result::Result<Read, String>> {
        let mut reader = self.open_reader(reading).await?;
        let mut stage = Stage { store: self, run, attempt: reading.attempt, client: None, rows: 0 };
        let mut read = self.transfer(&reader, reading, &mut stage).await;
        let ended = match matches!(read, Err(Stopped::Silent)) || self.is_pooled {
            true => self.end_reading(&reader.backend).await?,
            false => None,
        };
        // Why the connection ended its driver knows.
        if let Err(Stopped::Reading(error)) = &mut read
            && reader.client.is_closed()
            && error.as_db_error().is_none()
            && let Ok(Some(said)) = (&mut reader.driver).await
        {
            *error = said;
        }
        // Before the last rows are staged: nothing of what the audience holds outlasts its reading.
        drop(reader);
        let staged = match read {
            Ok(rest) => stage.finish(&rest).await,
            Err(stopped) => Err(stopped),
        };
        staged.map_or_else(|stopped| blame(stopped, ended, reading), |read| Ok(Ok(read)))
    }

    async fn open_reader(&self, reading: &Reading) -> Result<Reader> {
        let (client, mut connection) = self.liveness.target.connect_bounded(self.liveness.timeout).await?;
        // What the audience has to say besides its rows is nobody's: notices are dropped.
        let driver = tokio::spawn(async move {
            loop {
                match std::future::poll_fn(|context| connection.poll_message(context)).await {
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Some(error),
                    None => return None,
                }
            }
        });
        let begin = Settings::new(Purpose::Audience, reading.time_max).begin();
        // Any login may take any advisory lock. So it is not waited for, and nobody knows its number before it is taken.
        let number: i32 = rand::random();
        let mark = format!("SELECT pg_catalog.pg_try_advisory_xact_lock({MARK}, {number}) AS is_marked");
        let begin = format!("{begin}; {mark}; {WHO}");
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
        let row = |message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        };
        let rows: Vec<_> = messages.into_iter().filter_map(row).collect();
        let is_marked = rows.iter().any(|row| row.try_get("is_marked").ok().flatten() == Some("t"));
        let reader = match rows.iter().find_map(Backend::told) {
            Some(backend) => Reader { client, backend, driver },
            None => {
                driver.abort();
                return Err(Error::Bug("a session does not say who serves it".to_owned()));
            }
        };
        if !is_marked {
            return Err(Error::Unavailable("somebody holds the very lock that was to mark a reading".to_owned()));
        }
        Ok(reader)
    }

    /// From the audience to the table, batch by batch; what is left, less than a batch. Of two sessions the one is asked for
    /// an answer that owes it.
    async fn transfer(
        &self,
        reader: &Reader,
        reading: &Reading,
        stage: &mut Stage<'_>,
    ) -> std::result::Result<Vec<Row>, Stopped> {
        let deadline = Instant::now() + reading.time_max + END_GRACE;
        let query = query!("schedule/read_audience", Durable, [TEXT, TIMESTAMPTZ, INT8]);
        let params: [&(dyn ToSql + Sync); 3] = [&reading.audience, &reading.slot, &reading.rows_max];
        // One round trip and nothing prepared.
        let typed = params.into_iter().zip(query.types.iter().cloned());
        let asked = reader.client.query_typed_raw(query.sql, typed);
        let rows = self.read(reader, deadline, asked).await?;
        let mut rows = std::pin::pin!(rows);
        let rows_max = u64::try_from(reading.rows_max).unwrap_or(0);
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while let Some(row) = self.read(reader, deadline, rows.try_next()).await? {
            let rows_read = stage.rows + batch.len() as u64 + 1;
            if rows_read > rows_max {
                return Err(Stopped::TooMany);
            }
            bytes += length(&row, rows_read)?;
            batch.push(row);
            if batch.len() == BATCH_ROWS || bytes >= BATCH_BYTES {
                stage.write(&batch).await?;
                (batch, bytes) = (Vec::new(), 0);
            }
        }
        Ok(batch)
    }

    /// What the session that reads answers, if it does so in time.
    async fn read<T>(
        &self,
        reader: &Reader,
        deadline: Instant,
        work: impl Future<Output = std::result::Result<T, tokio_postgres::Error>>,
    ) -> std::result::Result<T, Stopped> {
        let limit = deadline.saturating_duration_since(Instant::now());
        let answer = self.outlast(work, Some(&reader.backend), limit).await;
        answer.ok_or(Stopped::Silent)?.map_err(Stopped::Reading)
    }

    /// Terminates a backend that reads an audience. `None`: it is not there; false: it goes on.
    async fn end_reading(&self, backend: &Backend) -> Result<Option<bool>> {
        let rows = self.query(query!("schedule/end_reading", Relaxed, [TEXT]), &[&backend.as_str()]).await?;
        rows.first().map(|row| row.value(0)).transpose()
    }

    /// Terminates what reads an audience although nobody waits for it any more.
    pub async fn end_overdue_readings(&self) -> Result<Vec<Overdue>> {
        let rows = self.query(query!("schedule/end_overdue_readings", Relaxed, []), &[]).await?;
        let overdue = |row: &Row| Ok(Overdue { pid: row.value(0)?, login: row.value(1)?, is_told: row.value(2)? });
        rows.iter().map(overdue).collect()
    }
}

impl Stage<'_> {
    async fn write(&mut self, batch: &[Row]) -> std::result::Result<(), Stopped> {
        let column = |index| move |row| text(row, index);
        let recipients = batch.iter().map(column(0)).collect::<std::result::Result<Vec<_>, _>>()?;
        let payloads = batch.iter().map(column(1)).collect::<std::result::Result<Vec<_>, _>>()?;
        let before = i64::try_from(self.rows).unwrap_or(i64::MAX);
        let (run, attempt) = (self.run, self.attempt);
        let query = query!("schedule/stage_audience", Durable, [INT8, INT4, INT8, TEXT_ARRAY, TEXT_ARRAY]);
        let params: [&(dyn ToSql + Sync); 5] = [&run, &attempt, &before, &recipients, &payloads];
        let typed: Vec<_> = params.into_iter().zip(query.types.iter().cloned()).collect();
        let store = self.store;
        let client = self.client().await?;
        answer(store, client, client.execute_typed(query.sql, &typed)).await?;
        self.rows += batch.len() as u64;
        Ok(())
    }

    /// Stages the last rows. What is staged stands, or nothing is.
    async fn finish(mut self, rest: &[Row]) -> std::result::Result<Read, Stopped> {
        self.write(rest).await?;
        let (run, attempt, rows) = (self.run, self.attempt, i64::try_from(self.rows).unwrap_or(i64::MAX));
        let query = query!("schedule/finish_reading", Durable, [INT8, INT4, INT8]);
        let params: [&(dyn ToSql + Sync); 3] = [&run, &attempt, &rows];
        let typed: Vec<_> = params.into_iter().zip(query.types.iter().cloned()).collect();
        let store = self.store;
        let client = self.client().await?;
        let stands = !answer(store, client, client.query_typed(query.sql, &typed)).await?.is_empty();
        let end = if stands { "COMMIT" } else { "ROLLBACK" };
        answer(store, client, client.batch_execute(end)).await?;
        Ok(if stands { Read::Staged(self.rows) } else { Read::Void })
    }

    /// In its transaction, which begins with the first rows: it does not wait for the audience's first.
    async fn client(&mut self) -> std::result::Result<&super::pool::Pooled, Stopped> {
        if self.client.is_none() {
            let connections = &self.store.durable;
            let client = connections.pool.get().await.map_err(|error| Stopped::Away(pool::error(error)))?;
            let client = Object::take(client);
            answer(self.store, &client, client.batch_execute(&connections.begin)).await?;
            self.client = Some(client);
        }
        self.client.as_ref().ok_or_else(|| Stopped::Away(Error::Bug("no session to stage in".to_owned())))
    }
}

/// What the session that stages answers.
async fn answer<T>(
    store: &Store,
    client: &super::pool::Pooled,
    work: impl Future<Output = std::result::Result<T, tokio_postgres::Error>>,
) -> std::result::Result<T, Stopped> {
    match store.outlast(work, client.backend.as_ref(), store.call_timeout).await {
        Some(answered) => answered.map_err(Stopped::Staging),
        None => Err(Stopped::Away(Error::Unavailable("no answer while an audience was staged".to_owned()))),
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
fn blame(stopped: Stopped, ended: Option<bool>, reading: &Reading) -> Result<std::result::Result<Read, String>> {
    let unreadable = |said: String| format!("the audience cannot be read: {said}");
    match stopped {
        Stopped::Silent => match ended {
            None => Err(Error::Unavailable("no answer while an audience was read".to_owned())),
            Some(false) => Ok(Err(format!("{}; its backend cannot be ended: a DBA has to", too_long(reading)))),
            Some(true) => {
                Ok(Ok(Read::Lost(format!("{}, did not end when told to, and was terminated", too_long(reading)))))
            }
        },
        Stopped::Away(error) => Err(error),
        Stopped::TooMany => Ok(Ok(Read::TooMany)),
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
