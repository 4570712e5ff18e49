//! Domain events that wait to be appended to their streams.

use super::release::bounded;
use super::{Result, Store, query};
use crate::queue::events::Event;

/// An event and its place in line. `None`: its retention passed before it was appended.
#[derive(Debug, Clone)]
pub struct Waiting {
    /// Its place.
    pub seq: i64,
    /// What to append.
    pub event: Option<Event>,
}

impl Store {
    /// Events still to be appended, in order.
    pub async fn waiting_events(&self, rows_max: u32) -> Result<Vec<Waiting>> {
        let rows = self.query(query!("events_find_unpublished", Relaxed, [INT4]), &[&bounded(rows_max)]).await?;
        let waiting = |row: &tokio_postgres::Row| Waiting {
            seq: row.get("seq"),
            event: row.get::<_, Option<i64>>("id").map(|id| Event {
                id,
                topic: row.get("topic"),
                key: row.get("key"),
                payload: row.get("payload"),
                headers: row.get("headers"),
                created_at: row.get("created_at"),
            }),
        };
        Ok(rows.iter().map(waiting).collect())
    }

    /// These have been appended; how many were forgotten (none: the duty is somebody else's).
    pub async fn forget_events(&self, seqs: &[i64], owner: i32, duty: &str) -> Result<u64> {
        let query = query!("events_forget_published", Durable, [INT8_ARRAY, INT4, TEXT]);
        Ok(self.query(query, &[&seqs, &owner, &duty]).await?.len() as u64)
    }
}
