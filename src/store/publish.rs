//! Reserve → push → confirm: the relay's statements.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Row;

use super::claim::Topics;
use super::instance::millis;
use super::release::bounded;
use super::{Result, Store, query};
use crate::queue::Message;

/// Topics with lanes of their own at most; the rest share lane 0.
const TOPICS_MAX: i64 = 1_000;

/// Rows reserved for this instance to push, in the order to push them, and the publications they stand under.
#[derive(Debug, Default)]
pub struct Reserved {
    /// What to push.
    pub messages: Vec<Message>,
    /// What to confirm once the push is known to have arrived.
    pub publications: Vec<i64>,
}

impl Reserved {
    pub(super) fn add(&mut self, id: i64, epoch: i32, publication: i64) {
        self.messages.push(Message { id, epoch });
        if self.publications.last() != Some(&publication) && !self.publications.contains(&publication) {
            self.publications.push(publication);
        }
    }
}

/// Where to look for fresh rows of one lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneScan {
    /// The lane.
    pub lane: i32,
    /// Rows with a higher `seq` only.
    pub after: i64,
    /// Rows at most.
    pub take: u32,
}

/// What a scan found in one lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneFound {
    /// The lane.
    pub lane: i32,
    /// Rows found, those behind their key included.
    pub rows: u32,
    /// The lowest `seq` among them.
    pub lowest: i64,
    /// The highest.
    pub highest: i64,
}

/// What a scan of the lanes found.
#[derive(Debug, Default)]
pub struct Fresh {
    /// Ready rows, now reserved.
    pub reserved: Reserved,
    /// Ready rows that were claimed instead.
    pub claimed: u64,
    /// Keys of rows that wait behind them, to be admitted.
    pub keys: Vec<String>,
    /// Per lane in which anything was found.
    pub lanes: Vec<LaneFound>,
    /// Lanes whose stretch another relay took at the same moment.
    pub contested: Vec<i32>,
    /// Ready rows of lane 0, whose topics may have no lane yet; with the topic where it was at hand.
    pub unnamed: Vec<(i64, Option<Arc<str>>)>,
}

impl Fresh {
    /// What was reserved, in the order it was written, whichever lane it is in.
    fn of(mut rows: Vec<Row>) -> Fresh {
        rows.sort_by_key(|row| row.get::<_, i64>(2));
        let (mut fresh, mut topics) = (Fresh::default(), Topics::default());
        for row in &rows {
            let (id, lane, seq): (i64, i32, i64) = (row.get(0), row.get(1), row.get(2));
            match (row.get::<_, Option<i32>>(3), row.get::<_, Option<i64>>(4)) {
                (Some(epoch), Some(publication)) => {
                    fresh.reserved.add(id, epoch, publication);
                    if lane == 0 {
                        fresh.unnamed.push((id, row.get::<_, Option<&str>>(5).map(|topic| topics.name(topic))));
                    }
                }
                (Some(_), None) if fresh.contested.contains(&lane) => {}
                (Some(_), None) => fresh.contested.push(lane),
                (None, _) => fresh.keys.extend(row.get::<_, Option<String>>(6)),
            }
            fresh.found(lane, seq);
        }
        fresh
    }

    /// Rows found, those behind their key included.
    pub fn rows(&self) -> u64 {
        self.lanes.iter().map(|lane| u64::from(lane.rows)).sum()
    }

    pub(super) fn found(&mut self, lane: i32, seq: i64) {
        match self.lanes.iter_mut().find(|found| found.lane == lane) {
            Some(found) => {
                found.rows += 1;
                found.lowest = found.lowest.min(seq);
                found.highest = found.highest.max(seq);
            }
            None => self.lanes.push(LaneFound { lane, rows: 1, lowest: seq, highest: seq }),
        }
    }
}

/// Of rows of lane 0 those whose topic may have no lane. A topic that has got one may still have rows of before there.
pub fn of_unknown_topics(rows: &[(i64, Option<Arc<str>>)], known: &HashSet<&str>) -> Vec<i64> {
    let is_unknown = |topic: &Option<Arc<str>>| topic.as_deref().is_none_or(|topic| !known.contains(topic));
    rows.iter().filter(|(_, topic)| is_unknown(topic)).map(|(id, _)| *id).collect()
}

/// Lanes, bounds and numbers of rows, as the statements take them.
pub(super) fn columns(scans: &[LaneScan]) -> (Vec<i32>, Vec<i64>, Vec<i32>) {
    (
        scans.iter().map(|scan| scan.lane).collect(),
        scans.iter().map(|scan| scan.after).collect(),
        scans.iter().map(|scan| bounded(scan.take)).collect(),
    )
}

/// A lane and its topic as operators and the relay know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic {
    /// Its lane in the outbox.
    pub lane: i32,
    /// Its name; lane 0 is nobody's.
    pub name: Option<String>,
    /// Whether an operator paused it.
    pub paused: bool,
    /// How often it was resumed.
    pub rewinds: i32,
    /// Up to which `seq` it is published by stretches.
    pub settled_to: i64,
}

/// Whether a backlog is published by stretches. An in-process queue dies with its instance, and its rows must tell whose they
/// were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stretches {
    /// What is settled is left to them.
    Used,
    /// Every row is reserved by itself.
    Unused,
}

impl Stretches {
    pub(super) fn are_used(self) -> bool {
        self == Stretches::Used
    }
}

impl Store {
    /// Takes fresh ready rows of the lanes given and confirms earlier publications on the way.
    pub async fn reserve_fresh(
        &self,
        scans: &[LaneScan],
        instance: i32,
        confirm: &[i64],
        stretches: Stretches,
    ) -> Result<Fresh> {
        let query =
            query!("relay_reserve_fresh", Relaxed, [INT4_ARRAY, INT8_ARRAY, INT4_ARRAY, INT4, INT8_ARRAY, BOOL]);
        let (lanes, after, take) = columns(scans);
        let used = stretches.are_used();
        Ok(Fresh::of(self.query(query, &[&lanes, &after, &take, &instance, &confirm, &used]).await?))
    }

    /// Takes the next stretch of what is settled in the lanes given and confirms earlier publications on the way.
    pub async fn reserve_stretch(&self, scans: &[LaneScan], instance: i32, confirm: &[i64]) -> Result<Fresh> {
        let query = query!("relay_reserve_stretch", Relaxed, [INT4_ARRAY, INT8_ARRAY, INT4_ARRAY, INT4, INT8_ARRAY]);
        let (lanes, after, take) = columns(scans);
        Ok(Fresh::of(self.query(query, &[&lanes, &after, &take, &instance, &confirm]).await?))
    }

    /// Lanes in which every transaction that could have drawn a `seq` up to this one has ended. Says up to where each is settled
    /// now: one that is new here is not yet, unless this instance is `alone`.
    pub async fn settle(&self, lanes: &[i32], up_to: i64, alone: bool) -> Result<Vec<(i32, i64)>> {
        let query = query!("relay_settle_lanes", Relaxed, [INT4_ARRAY, INT8, BOOL]);
        let rows = self.query(query, &[&lanes, &up_to, &alone]).await?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    /// The numbers were set back: what was settled beyond the highest is not.
    pub async fn unsettle(&self, highest: i64) -> Result<()> {
        self.query(query!("relay_unsettle_lanes", Durable, [INT8]), &[&highest]).await.map(|_| ())
    }

    /// Takes rows whose timer has run out. The count includes rows that were parked in a paused lane, and void timers.
    pub async fn reserve_due(&self, look_back: Duration, rows_max: u32, instance: i32) -> Result<(Reserved, u64)> {
        let query = query!("relay_reserve_due", Relaxed, [INT8, INT4, INT4]);
        let rows = self.query(query, &[&millis(look_back), &bounded(rows_max), &instance]).await?;
        let mut reserved = Reserved::default();
        for row in &rows {
            if let Some(epoch) = row.get(1) {
                reserved.add(row.get(0), epoch, row.get(2));
            }
        }
        Ok((reserved, rows.len() as u64))
    }

    /// How long until the next timer runs out.
    pub async fn next_timer(&self, look_back: Duration) -> Result<Option<Duration>> {
        let rows = self.query(query!("relay_next_timer", Relaxed, [INT8]), &[&millis(look_back)]).await?;
        Ok(rows.first().map(|row| Duration::from_millis(u64::try_from(row.get::<_, i64>(0)).unwrap_or(0))))
    }

    /// These publications have arrived in the queue.
    pub async fn confirm(&self, publications: &[i64]) -> Result<()> {
        let query = query!("relay_confirm_publications", Relaxed, [INT8_ARRAY]);
        self.query(query, &[&publications]).await.map(|_| ())
    }

    /// Gives the heads of these keys their turn, if nobody of the key has it, reserved for this instance to push.
    pub async fn admit(&self, keys: &[String], instance: i32) -> Result<Reserved> {
        let lock = query!("relay_lock_keys", Relaxed, [TEXT_ARRAY]);
        let admit = query!("relay_admit_heads", Relaxed, [TEXT_ARRAY, INT4]);
        let (_, rows) = self.query_pair((lock, &[&keys]), (admit, &[&keys, &instance])).await?;
        let mut reserved = Reserved::default();
        for row in &rows {
            reserved.add(row.get(0), row.get(1), row.get(2));
        }
        Ok(reserved)
    }

    /// The lanes and what an operator has said of them.
    pub async fn topics(&self) -> Result<Vec<Topic>> {
        let rows = self.query(query!("relay_load_topics", Relaxed, []), &[]).await?;
        let topic = |row: &Row| Topic {
            lane: row.get(0),
            name: row.get(1),
            paused: row.get(2),
            rewinds: row.get(3),
            settled_to: row.get(4),
        };
        Ok(rows.iter().map(topic).collect())
    }

    /// Gives lanes to the topics of rows just published from lane 0.
    pub async fn register_topics(&self, ids: &[i64]) -> Result<()> {
        let query = query!("relay_register_topics", Relaxed, [INT8_ARRAY, INT8]);
        self.query(query, &[&ids, &TOPICS_MAX]).await.map(|_| ())
    }

    /// Gives lanes to the topics named in the configuration.
    pub async fn name_topics(&self, names: &[String]) -> Result<()> {
        self.query(query!("relay_name_topics", Relaxed, [TEXT_ARRAY]), &[&names]).await.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rows_whose_topic_is_not_known_to_have_a_lane_are_looked_at() {
        let rows =
            [(1, Some(Arc::from("known"))), (2, Some(Arc::from("new"))), (3, None), (4, Some(Arc::from("known")))];
        assert_eq!(of_unknown_topics(&rows, &HashSet::from(["known", "other"])), [2, 3]);
    }
}
