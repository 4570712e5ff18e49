//! Operators' bulk actions, worked off batch by batch.

use super::{Result, Store, query};

/// What one batch of a bulk action did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BulkStep {
    /// Which action.
    pub id: i64,
    /// Rows changed.
    pub changed: i64,
    /// Whether that was the last.
    pub ended: bool,
}

impl Store {
    /// One batch of the oldest open bulk action. `None`: there is none, or another instance is at it.
    pub async fn step_bulk(&self) -> Result<Option<BulkStep>> {
        let rows = self.query(query!("bulk_step_action", Durable, []), &[]).await?;
        Ok(rows.first().map(|row| BulkStep { id: row.get(0), changed: row.get(1), ended: row.get(2) }))
    }
}
