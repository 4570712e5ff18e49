//! Domain events on their way to their streams.

use super::refusal::Values;
use super::release::bounded;
use super::{Result, Store, query};
use crate::queue::events::Event;

/// How far the streams are known to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The last publication that was numbered.
    pub newest: i64,
    /// The last one that Redis is known to have had.
    pub appended: i64,
    /// Redis lost some, and not all of it is back.
    pub is_restoring: bool,
    /// There are events without a publication.
    pub has_waiting: bool,
    /// publish() rings when it commits.
    pub is_rung: bool,
}

/// What to append next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unappended {
    /// In order. May be empty, if nothing is kept that the streams should hold.
    pub events: Vec<Event>,
    /// The number that the streams have come to with them.
    pub goal: i64,
}

/// How much at a time.
#[derive(Debug, Clone, Copy)]
pub struct BatchMax {
    /// Events.
    pub events: u32,
    /// Bytes of their payloads and headers.
    pub bytes: u32,
}

impl Store {
    /// How far the streams are known to be.
    pub async fn event_progress(&self) -> Result<Progress> {
        let rows = self.query(query!("events/read_progress", Relaxed, []), &[]).await?;
        let row = rows.first().ok_or_else(|| super::Error::Bug("event_progress has no row".into()))?;
        Ok(Progress {
            newest: row.value("newest")?,
            appended: row.value("appended")?,
            is_restoring: row.value("is_restoring")?,
            has_waiting: row.value("has_waiting")?,
            is_rung: row.value("is_rung")?,
        })
    }

    /// Gives waiting events their numbers, once Redis has come to `appended`, the last one; whether it did.
    pub async fn reserve_events(&self, lease: &str, owner: i32, appended: i64, max: BatchMax) -> Result<bool> {
        let query = query!("events/reserve_waiting", Durable, [TEXT, INT4, INT8, INT4, INT4]);
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
            [&lease, &owner, &appended, &bounded(max.events), &bounded(max.bytes)];
        Ok(!self.query(query, &params).await?.is_empty())
    }

    /// The next events that streams which have come to `appended`, and keep `stream_max` events, do not have.
    pub async fn unappended_events(&self, appended: i64, stream_max: u32, max: BatchMax) -> Result<Unappended> {
        let query = query!("events/find_unappended", Relaxed, [INT8, INT8, INT4, INT4]);
        let (events, bytes) = (bounded(max.events), bounded(max.bytes));
        let rows = self.query(query, &[&appended, &i64::from(stream_max), &events, &bytes]).await?;
        let goal = rows.first().map_or(Ok(appended), |row| row.value("goal"))?;
        let mut events = Vec::with_capacity(rows.len());
        for row in &rows {
            let Some(id) = row.value::<Option<i64>>("id")? else { continue };
            events.push(Event {
                id,
                topic: row.value("topic")?,
                key: row.value("key")?,
                payload: row.value("payload")?,
                headers: row.value("headers")?,
                created_at: row.value("created_at")?,
                position: row.value("position")?,
            });
        }
        Ok(Unappended { events, goal })
    }

    /// Redis has come to this number.
    pub async fn confirm_events(&self, lease: &str, owner: i32, appended: i64) -> Result<()> {
        let query = query!("events/confirm_appended", Relaxed, [TEXT, INT4, INT8]);
        self.query(query, &[&lease, &owner, &appended]).await.map(|_| ())
    }

    /// Redis lost events; whether the lease is still ours to say so.
    pub async fn record_event_loss(&self, lease: &str, owner: i32) -> Result<bool> {
        let query = query!("events/record_loss", Durable, [TEXT, INT4]);
        Ok(!self.query(query, &[&lease, &owner]).await?.is_empty())
    }

    /// So many lost events are back.
    pub async fn restored_events(&self, lease: &str, owner: i32, events: i64) -> Result<()> {
        self.record_restored(lease, owner, events, false).await.map(|_| ())
    }

    /// All lost events are back; how many that were.
    pub async fn end_event_loss(&self, lease: &str, owner: i32) -> Result<i64> {
        self.record_restored(lease, owner, 0, true).await
    }

    async fn record_restored(&self, lease: &str, owner: i32, events: i64, is_all: bool) -> Result<i64> {
        let query = query!("events/record_restored", Durable, [TEXT, INT4, INT8, BOOL]);
        let rows = self.query(query, &[&lease, &owner, &events, &is_all]).await?;
        rows.first().map_or(Ok(0), |row| row.value(0))
    }
}
