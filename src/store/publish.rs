//! Reserve → push → confirm: the relay's statements.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Row;

use super::due::{Place, STEPS_MAX, Searched};
use super::instance::millis;
use super::refusal::Values;
use super::release::bounded;
use super::{BATCH_ROWS, Error, Result, Store, query};
use crate::queue::Message;

/// How often an admission that lost a race is tried again; then the sweep does it.
const ADMISSIONS_MAX: usize = 5;

/// An `ordering_key` and the topic that it belongs to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OrderingKey {
    /// The topic.
    pub topic: String,
    /// Its key.
    pub key: String,
}

/// Rows reserved for this instance to push, in the order to push them, and the publications they stand under.
#[derive(Debug, Default)]
pub struct Reserved {
    /// What to push.
    pub messages: Vec<Message>,
    /// What to confirm once the push is known to have arrived.
    pub publications: Vec<i64>,
}

/// What a scan found of one topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicFound {
    /// The topic.
    pub topic: Arc<str>,
    /// Rows reserved.
    pub rows: usize,
    /// The highest position among them.
    pub seq_max: i64,
}

/// What a scan reserved.
#[derive(Debug, Default)]
pub struct Found {
    /// To be pushed.
    pub reserved: Reserved,
    /// By topic.
    pub topics: Vec<TopicFound>,
}

impl Found {
    /// Columns of each row: id, epoch, route_step, topic, seq, publication. Pushed in the order of their positions.
    fn of(rows: &[&Row]) -> Result<Found> {
        let mut found = Found::default();
        let mut reserved = Vec::with_capacity(rows.len());
        for row in rows {
            let (id, epoch, seq): (i64, i32, i64) = (row.value(0)?, row.value(1)?, row.value(4)?);
            let (route_step, publication): (i16, i64) = (row.value(2)?, row.value(5)?);
            if found.reserved.publications.last() != Some(&publication) {
                found.reserved.publications.push(publication);
            }
            let topic = found.note(row.value(3)?, seq);
            reserved.push((seq, Message { id, epoch, route_step, topic }));
        }
        reserved.sort_unstable_by_key(|(seq, _)| *seq);
        found.reserved.messages = reserved.into_iter().map(|(_, message)| message).collect();
        Ok(found)
    }

    /// Counts a row and shares its topic's name with the others.
    fn note(&mut self, topic: &str, seq: i64) -> Arc<str> {
        match self.topics.iter_mut().find(|known| *known.topic == *topic) {
            Some(known) => {
                known.rows += 1;
                known.seq_max = known.seq_max.max(seq);
                Arc::clone(&known.topic)
            }
            None => {
                let topic: Arc<str> = Arc::from(topic);
                self.topics.push(TopicFound { topic: Arc::clone(&topic), rows: 1, seq_max: seq });
                topic
            }
        }
    }
}

/// What the fast path found.
#[derive(Debug, Default)]
pub struct Fresh {
    /// Ready rows, now reserved.
    pub found: Found,
    /// Keys whose head waits to be admitted.
    pub keys: Vec<OrderingKey>,
    /// The last id drawn when it scanned.
    pub last_id: i64,
}

/// What the fast path scans.
#[derive(Debug, Clone, Copy)]
pub struct FreshScan<'a> {
    /// The last id drawn at the previous poll.
    pub last_id: i64,
    /// How far below it the scan begins.
    pub overlap: i64,
    /// Topics that are left out.
    pub skip: &'a [Arc<str>],
    /// The only topics that are taken; `None`: any.
    pub only: Option<&'a [&'a str]>,
    /// Rows at most.
    pub rows_max: u32,
}

/// What to reserve of one topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicScan {
    /// The topic.
    pub topic: Arc<str>,
    /// Rows with a higher `seq` only.
    pub after: i64,
    /// Rows at most.
    pub rows_max: u32,
}

/// What came back or late of some topics.
#[derive(Debug, Default)]
pub struct Due {
    /// Rows whose time has come, now reserved.
    pub found: Found,
    /// In how long the next row of a topic is due.
    pub next: Vec<(Arc<str>, Duration)>,
}

impl Store {
    /// The fast path: takes what was committed lately and confirms earlier publications on the way.
    pub async fn reserve_fresh(&self, scan: FreshScan<'_>, instance: i32, confirm: &[i64]) -> Result<Fresh> {
        let query =
            query!("relay/reserve_fresh", Relaxed, [INT8, INT8, TEXT_ARRAY, INT4, INT4, INT8_ARRAY, TEXT_ARRAY, INT8]);
        let skip: Vec<&str> = scan.skip.iter().map(|topic| &**topic).collect();
        let (rows_max, above) = (bounded(scan.rows_max), self.origin.above());
        let rows = self
            .query(query, &[&scan.last_id, &scan.overlap, &skip, &rows_max, &instance, &confirm, &scan.only, &above])
            .await?;
        let mut fresh = Fresh::default();
        let mut reserved = Vec::with_capacity(rows.len());
        for row in &rows {
            match (row.value::<Option<i32>>(1)?, row.value::<Option<String>>(6)?) {
                (Some(_), _) => reserved.push(row),
                (None, Some(key)) => fresh.keys.push(OrderingKey { topic: row.value(3)?, key }),
                (None, None) => fresh.last_id = row.value(0)?,
            }
        }
        fresh.found = Found::of(&reserved)?;
        Ok(fresh)
    }

    /// Takes ready rows topic by topic and confirms earlier publications on the way.
    pub async fn reserve_topics(&self, scans: &[TopicScan], instance: i32, confirm: &[i64]) -> Result<Found> {
        let query =
            query!("relay/reserve_topics", Relaxed, [TEXT_ARRAY, INT8_ARRAY, INT4_ARRAY, INT4, INT8_ARRAY, INT8]);
        let topics: Vec<&str> = scans.iter().map(|scan| &*scan.topic).collect();
        let after: Vec<i64> = scans.iter().map(|scan| scan.after).collect();
        let rows_max: Vec<i32> = scans.iter().map(|scan| bounded(scan.rows_max)).collect();
        let above = self.origin.above();
        let rows = self.query(query, &[&topics, &after, &rows_max, &instance, &confirm, &above]).await?;
        Found::of(&rows.iter().collect::<Vec<_>>())
    }

    /// Takes these rows, if they are ready.
    pub async fn reserve_ids(&self, ids: &[i64], instance: i32) -> Result<Found> {
        let query = query!("relay/reserve_ids", Relaxed, [INT8_ARRAY, INT4]);
        let rows = self.query(query, &[&ids, &instance]).await?;
        Found::of(&rows.iter().collect::<Vec<_>>())
    }

    /// Takes rows whose time has come, topic by topic, so many of each from such a step of its route on, going back so
    /// far.
    pub async fn reserve_due(
        &self,
        topics: &[(Arc<str>, u32)],
        steps: &[i16],
        back: Duration,
        instance: i32,
    ) -> Result<Due> {
        let query = query!("relay/reserve_due", Relaxed, [TEXT_ARRAY, INT4_ARRAY, INT8, INT4, INT2_ARRAY, INT8]);
        let names: Vec<&str> = topics.iter().map(|(topic, _)| &**topic).collect();
        let rows_max: Vec<i32> = topics.iter().map(|(_, rows_max)| bounded(*rows_max)).collect();
        let above = self.origin.above();
        let rows = self.query(query, &[&names, &rows_max, &millis(back), &instance, &steps, &above]).await?;
        let (mut reserved, mut next) = (Vec::new(), Vec::new());
        for row in &rows {
            match row.value::<Option<i64>>(0)? {
                Some(_) => reserved.push(row),
                None => next.push((Arc::from(row.value::<&str>(3)?), span(row.value(6)?))),
            }
        }
        Ok(Due { found: Found::of(&reserved)?, next })
    }

    /// The topics with rows that were never published. While a copy is set aside, none: the fast path tells which have
    /// more.
    pub async fn fresh_topics(&self) -> Result<Vec<Arc<str>>> {
        if self.origin.aside_through().is_some() {
            return Ok(Vec::new());
        }
        let rows = self.query(query!("relay/find_topics", Relaxed, []), &[]).await?;
        rows.iter().map(|row| row.value::<&str>(0).map(Arc::from)).collect()
    }

    /// The topics with rows that came back or late and are due in so long, after this place.
    pub async fn returned_topics(&self, after: &Place) -> Result<(Vec<(Arc<str>, Duration)>, Searched)> {
        let query = query!("relay/find_due", Relaxed, [TIMESTAMPTZ, TEXT, INT4, INT8]);
        let above = self.origin.above();
        let rows = self.query(query, &[&after.second, &after.topic, &bounded(STEPS_MAX), &above]).await?;
        let mut topics = Vec::new();
        for row in &rows {
            let Some(topic) = row.value::<Option<&str>>("topic")? else { continue };
            topics.push((Arc::from(topic), span(row.value("due_in_ms")?)));
        }
        Ok((topics, Searched::of(&rows)?))
    }

    /// These publications have arrived in the queue.
    pub async fn confirm(&self, publications: &[i64]) -> Result<()> {
        let query = query!("relay/confirm_publications", Relaxed, [INT8_ARRAY]);
        self.query(query, &[&publications]).await.map(|_| ())
    }

    /// Gives the heads of these keys their turn, if nobody of the key has it: they are due at once. Returns how many.
    pub async fn admit(&self, keys: &[OrderingKey]) -> Result<u64> {
        let mut admitted = 0;
        // Each key takes an entry in the server's table of locks, which all sessions share.
        for keys in keys.chunks(BATCH_ROWS as usize) {
            admitted += self.admit_some(keys).await?;
        }
        Ok(admitted)
    }

    async fn admit_some(&self, keys: &[OrderingKey]) -> Result<u64> {
        let query = query!("relay/admit_heads", Durable, [TEXT_ARRAY, TEXT_ARRAY]);
        let (topics, keys): (Vec<&str>, Vec<&str>) = keys.iter().map(|key| (&*key.topic, &*key.key)).unzip();
        let mut tries = 0;
        loop {
            tries += 1;
            match self.query(query, &[&topics, &keys]).await {
                Ok(rows) => return Ok(rows.len() as u64),
                // Somebody else admitted a head meanwhile: try again.
                Err(Error::Contention(_)) if tries < ADMISSIONS_MAX => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Says until when nobody needs to ring: `ahead` of now while busy, zero while listening.
    pub async fn set_doorbell(&self, ahead: Duration) -> Result<()> {
        self.query(query!("relay/set_doorbell", Relaxed, [INT8]), &[&millis(ahead)]).await.map(|_| ())
    }
}

fn span(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}
