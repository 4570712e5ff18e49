//! Preparing one run: read the audience once, then copy it into the log chunk by chunk.
//!
//! Each step is one guarded statement, and the database knows how far the run is, so whoever comes next, on whichever
//! instance, goes on from there.

use std::time::Duration;

use metrics::counter;
use tracing::{info, warn};

use crate::failpoint;
use crate::store::audience::Read;
use crate::store::schedule::Copied;
use crate::store::{self, Store};

/// Rows copied by one statement.
const CHUNK_ROWS: u32 = 2_000;
/// After a chunk we rest for this part of the time it took.
const REST_SHARE: u32 = 2;

/// Prepares a run as far as it goes. An error of the audience ends the run, and so does the third reading that comes to
/// no end; one of the server leaves it to a later try.
pub(super) async fn prepare(store: &Store, owner: i32, run: i64) -> store::Result<()> {
    if let Some(reading) = store.start_reading(owner, run).await? {
        failpoint::hit("before_reading").await;
        let error = match store.read_audience(run, &reading).await? {
            Ok(Read::Staged(recipients)) => {
                info!(run, recipients, "read an audience");
                None
            }
            Ok(Read::Void) => return Ok(()),
            Ok(Read::Lost(reason)) => {
                // What it says may quote a row: that stands in the view alone.
                warn!(run, "an audience came to no end; see outboxd.schedule_runs");
                let failed = store.give_up_reading(owner, run, reading.attempt, &reason).await?;
                note_failure(failed, run);
                return Ok(());
            }
            Ok(Read::TooMany) => {
                let rows_max = reading.rows_max;
                Some(format!("the audience has more than {rows_max} rows (outboxd.setting.audience_rows_max)"))
            }
            Err(error) => Some(error),
        };
        if let Some(error) = error {
            return fail(store, owner, run, Some(reading.attempt), &error).await;
        }
        failpoint::hit("after_reading").await;
    }
    copy(store, owner, run).await
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
