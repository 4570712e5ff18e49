//! Values that cannot be used: a statement refuses one row's values, or a row holds what the program cannot represent.
//!
//! **Guarantee.** One such row costs itself and nobody else: a batch is bisected down to it, and it ends FAILED with
//! the reason. Reading a row never panics. **Limit.** A row that cannot even be marked FAILED (a CHECK of its own
//! record is broken) stays where it is, past its lease, and is told as an error.

use std::collections::HashSet;
use std::error::Error as _;
use std::fmt::Display;
use std::ops::Range;

use tokio_postgres::Row;
use tokio_postgres::row::RowIndex;
use tokio_postgres::types::FromSql;
use tracing::error;

use super::claim::Key;
use super::publish::OrderingKey;
use super::record::Failed;
use super::{Error, Result, Store, query};

/// A row that cannot be worked with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unusable {
    /// The notification.
    pub id: i64,
    /// Its epoch now: whatever has moved on since is left alone.
    pub epoch: i32,
    /// Why, for the operator.
    pub error: String,
}

/// Values of a row, without a panic.
pub(super) trait Values {
    /// What is in this column, unless it is nothing that `T` can hold: bytes that are no text, a time beyond all
    /// calendars.
    fn value<'a, T: FromSql<'a>>(&'a self, column: impl RowIndex + Display) -> Result<T>;
}

impl Values for Row {
    fn value<'a, T: FromSql<'a>>(&'a self, column: impl RowIndex + Display) -> Result<T> {
        let unreadable = |error: tokio_postgres::Error| {
            let why = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            Error::Value(format!("its row cannot be read: {why}"))
        };
        self.try_get(column).map_err(unreadable)
    }
}

/// Which parts of a batch to try: all of it at once; if a value in a part is refused, one half of it and then the
/// other; if some of it is locked, what lies between that.
#[derive(Debug)]
pub(super) struct Bisection {
    pub(super) ids: Vec<i64>,
    parts: Vec<Range<usize>>,
    /// The positions of those that are refused alone, and why.
    pub(super) refused: Vec<(usize, String)>,
    /// The positions of those that are locked: see [`super::locks`].
    pub(super) locked: Vec<usize>,
}

impl Bisection {
    /// Of a batch about these notifications.
    pub(super) fn of(ids: Vec<i64>) -> Bisection {
        let whole = 0..ids.len();
        Bisection { ids, parts: Vec::from([whole]), refused: Vec::new(), locked: Vec::new() }
    }

    /// The part to try next.
    pub(super) fn next(&mut self) -> Option<Range<usize>> {
        self.parts.pop()
    }

    /// What became of a part. An error that is no value's fault is given back.
    pub(super) fn tried(&mut self, part: Range<usize>, outcome: Result<()>) -> Result<()> {
        match outcome {
            Err(Error::Value(reason)) if part.len() <= 1 => self.refused.push((part.start, reason)),
            Err(Error::Value(_)) => {
                let middle = part.start + part.len() / 2;
                self.parts.push(middle..part.end);
                self.parts.push(part.start..middle);
            }
            outcome => outcome?,
        }
        Ok(())
    }
}

impl Bisection {
    /// Goes on with what is not locked of a part.
    pub(super) fn pass_over(&mut self, part: Range<usize>, locked: &HashSet<i64>) {
        let mut end = part.end;
        for at in part.clone().rev().filter(|at| locked.contains(&self.ids[*at])) {
            if at + 1 < end {
                self.parts.push(at + 1..end);
            }
            self.locked.push(at);
            end = at;
        }
        if part.start < end {
            self.parts.push(part.start..end);
        }
    }
}

/// Keys that rows free for their next one. The change is made already: what cannot be read is left to the sweep.
pub(super) fn freed_keys(rows: &[Row], column: usize) -> impl Iterator<Item = OrderingKey> {
    let freed = move |row: &Row| {
        let [topic, key] = <[String; 2]>::try_from(row.value::<Option<Vec<String>>>(column).ok()??).ok()?;
        Some(OrderingKey { topic, key })
    };
    rows.iter().filter_map(freed)
}

/// The same failure in words that every database can write.
pub(super) fn in_ascii(failed: &Failed) -> Failed {
    let plain = |text: &str| -> String {
        text.chars().map(|c| if c.is_ascii() && (!c.is_control() || c == '\n') { c } else { '?' }).collect()
    };
    Failed {
        error: plain(&failed.error),
        response: failed.response.as_deref().map(plain),
        channel: plain(&failed.channel).into(),
        ..failed.clone()
    }
}

impl Store {
    /// Rows that cannot be worked with end FAILED, each by itself. Returns the keys they free, and those that are
    /// locked.
    pub async fn give_up(&self, rows: &[Unusable]) -> Result<(Vec<OrderingKey>, Vec<Key>)> {
        let query = query!("worker/give_up", Durable, [INT8, INT4, TEXT]);
        let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
        let known = if ids.is_empty() { HashSet::new() } else { self.find_locked_if_met(&ids).await? };
        let (mut keys, mut locked) = (Vec::new(), Vec::new());
        for row in rows {
            if known.contains(&row.id) {
                locked.push((row.id, row.epoch));
                continue;
            }
            match self.query(query, &[&row.id, &row.epoch, &row.error]).await {
                Ok(ended) => keys.extend(freed_keys(&ended, 0)),
                Err(Error::Locked(reason)) => {
                    self.met(&reason, 1);
                    locked.push((row.id, row.epoch));
                }
                Err(Error::Value(reason)) => {
                    error!(id = row.id, error = row.error, reason, "a row can be neither worked with nor given up");
                }
                Err(error) => return Err(error),
            }
        }
        Ok((keys, locked))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_halved_down_to_what_is_refused() {
        let (mut taken, mut tries, mut bisection) = (Vec::new(), 0, Bisection::of((0..100).collect()));
        while let Some(part) = bisection.next() {
            tries += 1;
            let has_bad = [7, 8, 99].iter().any(|bad| part.contains(bad));
            if !has_bad {
                taken.extend(part.clone());
            }
            bisection.tried(part, if has_bad { Err(Error::Value("no".into())) } else { Ok(()) }).unwrap();
        }
        assert_eq!(bisection.refused, [(7, "no".into()), (8, "no".into()), (99, "no".into())]);
        assert_eq!(taken, (0..99).filter(|item| ![7, 8].contains(item)).collect::<Vec<usize>>());
        assert!(tries < 40, "{tries}");
        let gone = Bisection::of((0..5).collect()).tried(0..5, Err(Error::Unavailable("gone".into())));
        assert!(matches!(gone, Err(Error::Unavailable(_))), "an outage is no value's fault");
    }

    #[test]
    fn what_is_locked_of_a_part_is_passed_over_and_the_rest_tried_in_order() {
        let mut bisection = Bisection::of((10..20).collect());
        let whole = bisection.next().unwrap();
        bisection.pass_over(whole, &HashSet::from([10, 13, 14, 19]));
        let parts: Vec<Range<usize>> = std::iter::from_fn(|| bisection.next()).collect();
        assert_eq!(parts, [1..3, 5..9]);
        bisection.locked.sort_unstable();
        assert_eq!(bisection.locked, [0, 3, 4, 9]);
    }
}
