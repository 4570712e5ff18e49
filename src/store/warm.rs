//! Connections that are ready before there is work.
//!
//! A new connection costs the server a process, and the first use of a statement its parsing and its plan: some ten
//! milliseconds together. Whoever finds a backlog at its start would pay that for every connection at once, while calls wait.

use std::time::Duration;

use futures_util::future::try_join_all;

use super::publish::FreshScan;
use super::{RELAXED_POOL_SIZE, Result, Session, Store};

/// Of the connections for claims and outcomes: as many as a busy worker has under way.
const WORKING: usize = 6;

impl Store {
    /// Makes the connections that work needs and runs its statements on each, for nothing. `works`: claims and records;
    /// `publishes`: reserves. Behind a pooler connections are not ours to prepare.
    pub async fn warm_up(&self, works: bool, publishes: bool) -> Result<()> {
        if !matches!(self.session, Session::Direct) {
            return Ok(());
        }
        // So many at once that each has a connection of its own.
        let working = if works { WORKING.min(self.durable.status().max_size) } else { 0 };
        let publishing = if publishes { RELAXED_POOL_SIZE } else { 0 };
        let nothing = FreshScan { last_id: i64::MAX, overlap: 0, skip: &[], only: None, take: 0 };
        tokio::try_join!(
            async {
                try_join_all((0..working).map(|_| self.claim(&[], 0, Duration::ZERO))).await?;
                try_join_all((0..working).map(|_| self.record_sent(&[], 0))).await
            },
            async {
                try_join_all((0..publishing).map(|_| self.reserve_fresh(nothing, 0, &[]))).await?;
                try_join_all((0..publishing).map(|_| self.reserve_topics(&[], 0, &[]))).await
            },
        )?;
        Ok(())
    }
}
