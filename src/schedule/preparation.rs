//! Preparing one run: read the audience once, then copy it into the log chunk by chunk.
//!
//! Each step is one guarded statement, and the database knows how far the run is, so whoever comes next, on whichever
//! instance, goes on from there.

use std::time::Duration;

use metrics::counter;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::failpoint;
use crate::store::audience::Read;
use crate::store::schedule::{Copied, Reading};
use crate::store::{self, Store};

/// Rows copied by one statement.
const CHUNK_ROWS: u32 = 2_000;
/// After a chunk we rest for this part of the time it took.
const REST_SHARE: u32 = 2;

/// Readings that come to no end, after which the run does: as in `give_up_reading.sql`.
const TRIES_MAX: i32 = 3;
/// So long a try is being taken back at most, when we stop or the server is away.
const TAKE_BACK_MAX: Duration = Duration::from_secs(2);

/// Prepares a run as far as it goes, or until `stop`. An error of the audience ends the run, and so does the third reading
/// that comes to no end; one of the server leaves it to a later try.
pub(super) async fn prepare(store: &Store, owner: i32, run: i64, stop: &CancellationToken) -> store::Result<()> {
    if let Some(reading) = store.start_reading(owner, run).await?
        && !read(store, owner, run, &reading, stop).await?
    {
        return Ok(());
    }
    stop.run_until_cancelled(copy(store, owner, run)).await.unwrap_or(Ok(()))
}

/// Reads the audience; whether it is staged.
async fn read(store: &Store, owner: i32, run: i64, reading: &Reading, stop: &CancellationToken) -> store::Result<bool> {
    failpoint::hit("before_reading").await;
    let read = match reading.tries {
        // Whoever read it those times is not there any more to say how it ended.
        tries if tries > TRIES_MAX => {
            Ok(Ok(Read::Lost("the instance that read the audience ended before it had read it".to_owned())))
        }
        _ => match stop.run_until_cancelled(store.read_audience(run, reading)).await {
            Some(read) => read,
            None => {
                take_back_try(store, run).await;
                return Ok(false);
            }
        },
    };
    let error = match read {
        Ok(Ok(Read::Staged(recipients))) => {
            info!(run, recipients, "read an audience");
            failpoint::hit("after_reading").await;
            return Ok(true);
        }
        Ok(Ok(Read::Void)) => {
            take_back_try(store, run).await;
            return Ok(false);
        }
        Ok(Ok(Read::Lost(reason))) => {
            // What it says may quote a row: that stands in the view alone.
            warn!(run, "an audience came to no end; see outboxd.schedule_runs");
            let failed = store.give_up_reading(owner, run, reading.attempt, &reason).await?;
            note_failure(failed, run);
            return Ok(false);
        }
        Ok(Ok(Read::TooMany)) => {
            let rows_max = reading.rows_max;
            format!("the audience has more than {rows_max} rows (outboxd.setting.audience_rows_max)")
        }
        Ok(Err(error)) => error,
        Err(error) => {
            take_back_try(store, run).await;
            return Err(error);
        }
    };
    fail(store, owner, run, Some(reading.attempt), &error).await?;
    Ok(false)
}

/// If it cannot be taken back, it counts.
async fn take_back_try(store: &Store, run: i64) {
    let taken = tokio::time::timeout(TAKE_BACK_MAX, store.take_back_try(run)).await;
    if let Ok(Err(error)) = taken {
        debug!(run, %error, "a try stays counted");
    }
}

async fn copy(store: &Store, owner: i32, run: i64) -> store::Result<()> {
    loop {
        let started = std::time::Instant::now();
        let copied = match store.copy_recipients(owner, run, CHUNK_ROWS).await {
            Ok(copied) => copied,
            // A row that the log refuses: it will refuse it again.
            Err(store::Error::Bug(error) | store::Error::Value(error)) => {
                return fail(store, owner, run, None, &error).await;
            }
            Err(error) => return Err(error),
        };
        let Some(Copied { is_prepared, is_staged, added }) = copied else { return Ok(()) };
        counter!("outboxd_schedule_prepared_total").increment(added);
        failpoint::hit("after_copy").await;
        if is_prepared {
            info!(run, "prepared");
            return Ok(());
        }
        if !is_staged {
            warn!(run, "the staged audience was lost in a server crash; reading it again");
            return Ok(());
        }
        let rest = (started.elapsed() / REST_SHARE).min(Duration::from_secs(1));
        tokio::time::sleep(rest).await;
    }
}

async fn fail(store: &Store, owner: i32, run: i64, attempt: Option<i32>, error: &str) -> store::Result<()> {
    note_failure(store.fail_run(owner, run, attempt, error).await?, run);
    Ok(())
}

fn note_failure(schedule: Option<String>, run: i64) {
    if let Some(schedule) = schedule {
        counter!("outboxd_schedule_runs_failed_total").increment(1);
        tracing::error!(schedule, run, "a run failed; see outboxd.schedule_runs for the reason");
    }
}
