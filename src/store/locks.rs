//! Rows that another's open transaction has locked: an operator's cancel() before its COMMIT, say.
//!
//! **Guarantee.** Such a row waits alone. A statement waits for a lock no longer than `lock_timeout`; then the locked
//! rows of its batch are told apart, the others go on, and whoever brought them keeps the locked ones and comes again.
//! While locks are met, each batch is asked about first, so that nobody waits for the same lock twice. Without locks
//! nothing is asked. **Limit.** Whoever meets a lock first has waited for it, and so has its batch: a second.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::warn;

use super::refusal::{Bisection, Values};
use super::{Error, Result, Store, query};

/// Rows that are locked are tried again after this.
pub const ASK_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// After the last lock was met, for so long batches are asked about first. Longer than locked rows wait.
const ASKED_FIRST_FOR: Duration = Duration::from_secs(5);

/// When a lock was last met.
#[derive(Debug, Default)]
pub(super) struct Locks(Mutex<Option<Instant>>);

impl Locks {
    fn meet(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn are_met(&self) -> bool {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_some_and(|last| last.elapsed() < ASKED_FIRST_FOR)
    }
}

impl Store {
    /// Which of these notifications are locked now.
    pub async fn find_locked(&self, ids: &[i64]) -> Result<HashSet<i64>> {
        let rows = self.query(query!("worker/find_locked", Durable, [INT8_ARRAY]), &[&ids]).await?;
        let locked: HashSet<i64> = rows.iter().map(|row| row.value(0)).collect::<Result<_>>()?;
        if !locked.is_empty() {
            self.locks.meet();
        }
        Ok(locked)
    }

    /// Those of them that are locked, if locks are met at all.
    pub(super) async fn find_locked_if_met(&self, ids: &[i64]) -> Result<HashSet<i64>> {
        if !self.locks.are_met() {
            return Ok(HashSet::new());
        }
        self.find_locked(ids).await
    }

    /// The parts of a batch to try.
    pub(super) async fn parts(&self, ids: Vec<i64>) -> Result<Bisection> {
        let locked = self.find_locked_if_met(&ids).await?;
        let mut bisection = Bisection::of(ids);
        if !locked.is_empty()
            && let Some(whole) = bisection.next()
        {
            bisection.pass_over(whole, &locked);
        }
        Ok(bisection)
    }

    /// What became of a part. An error that is neither a value's nor a lock's is given back.
    pub(super) async fn tried(&self, bisection: &mut Bisection, part: Range<usize>, outcome: Result<()>) -> Result<()> {
        let Err(Error::Locked(reason)) = outcome else { return bisection.tried(part, outcome) };
        let ids = &bisection.ids[part.clone()];
        let mut locked = match self.find_locked(ids).await {
            // The whole table is.
            Err(Error::Locked(_)) => HashSet::new(),
            found => found?,
        };
        if locked.is_empty() {
            // It was another lock, or is gone: all of them come again, rather than wait here for ever.
            locked.extend(ids);
        }
        self.met(&reason, locked.len());
        bisection.pass_over(part, &locked);
        Ok(())
    }

    /// A statement has waited for a lock in vain.
    pub(super) fn met(&self, reason: &str, rows: usize) {
        self.locks.meet();
        warn!(reason, rows, "another's open transaction has locked rows; they wait until it ends, the others go on");
    }
}
