//! Operators' bulk actions, worked off batch by batch.

use super::refusal::Values;
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
        let rows = self.query(query!("upkeep/step_bulk_action", Durable, []), &[]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        Ok(Some(BulkStep { id: row.value(0)?, changed: row.value(1)?, ended: row.value(2)? }))
    }
}
