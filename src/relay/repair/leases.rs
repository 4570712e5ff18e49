//! Ends claims whose lease is over or whose holder is dead: their outcome is unknown.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics::counter;

use super::Repair;
use crate::channel::failover::{NoRoute, Route};
use crate::failpoint;
use crate::retry::{self, Decision, Failure, Position};
use crate::store::StageError;
use crate::store::claim::Key;
use crate::store::record::{self, Recorder};
use crate::store::refusal::Unusable;
use crate::store::repair::Expired;

/// A claim whose row was locked is left alone for so long afterwards. Longer than a recorder waits before it tries
/// again.
const LOCKED_REST: Duration = Duration::from_secs(5);

impl Repair {
    /// What is in flight here is not unknown, whatever its lease says: its outcome is on its way. A row that is locked
    /// is passed over, and so is one that was a moment ago: whoever called for it may be alive and about to record what
    /// it could not.
    pub(super) async fn end_leases(
        &self,
        expired: &[Expired],
        dead: &[i32],
        locked: &mut HashMap<Key, Instant>,
    ) -> Result<u64, StageError> {
        let elsewhere: Vec<&Expired> =
            expired.iter().filter(|claim| !self.calls.contains(claim.id, claim.token)).collect();
        if elsewhere.is_empty() {
            return Ok(0);
        }
        let ids: Vec<i64> = elsewhere.iter().map(|claim| claim.id).collect();
        let found = self.store.find_locked(&ids).await?;
        locked.retain(|_, at| at.elapsed() < LOCKED_REST);
        let keys = elsewhere.iter().map(|claim| (claim.id, claim.token));
        locked.extend(keys.filter(|(id, _)| found.contains(id)).map(|key| (key, Instant::now())));
        let free = elsewhere.into_iter().filter(|claim| !locked.contains_key(&(claim.id, claim.token)));
        let unknown: Vec<record::Failed> = free.map(|claim| self.unknown(claim)).collect();
        if unknown.is_empty() {
            return Ok(0);
        }
        let record = self.store.record_failures(&unknown, self.instance.get(), Recorder::Sweep(dead)).await?;
        failpoint::hit("after_leases").await;
        let ended = record.waiting.len() + record.failed.len() + record.canceled.len();
        counter!("outboxd_leases_ended_total").increment(ended as u64);
        counter!("outboxd_unknown_outcomes_total").increment(ended as u64);
        counter!("outboxd_retries_total").increment(record.waiting.len() as u64);
        counter!("outboxd_dead_letters_total").increment(record.failed.len() as u64);
        let topics = unknown.iter().map(|failed| (failed.id, &*failed.topic));
        self.statistics.counts().attempted(topics, &record.failed, &record.waiting);
        self.give_up(&record.unusable).await?;
        if !record.released_keys.is_empty() {
            self.store.admit(&record.released_keys).await?;
        }
        Ok(ended as u64)
    }

    pub(super) async fn give_up(&self, rows: &[Unusable]) -> Result<(), StageError> {
        // What is locked is found again by the next sweep.
        let (keys, locked) = self.store.give_up(rows).await?;
        if !keys.is_empty() {
            self.store.admit(&keys).await?;
        }
        counter!("outboxd_dead_letters_total").increment((rows.len() - locked.len()) as u64);
        Ok(())
    }

    /// Whoever held it is gone without a word: the provider may have it.
    fn unknown(&self, claim: &Expired) -> record::Failed {
        let attempts = u32::try_from(claim.channel_attempts).unwrap_or(1);
        let (channel, next) = match self.router.route_for(&claim.topic) {
            Ok(route) => {
                let position = route.position(claim.route_step);
                let at = Position { channel: position, attempts };
                let next = match retry::decide(&route.policy, at, Failure::Ambiguous, None, rand::random()) {
                    // The lease was the wait.
                    Decision::Retry(_) => record::Next::Retry(Duration::ZERO),
                    Decision::NextChannel => record::Next::Channel(Route::step_after(position)),
                    Decision::GiveUp => record::Next::GiveUp,
                };
                (Arc::clone(route.channels[position].channel.name()), next)
            }
            // Whoever has its route decides.
            Err(NoRoute(_)) => (Arc::from(""), record::Next::Retry(Duration::ZERO)),
        };
        record::Failed {
            id: claim.id,
            token: claim.token,
            created_at: claim.created_at,
            topic: Arc::from(&*claim.topic),
            outcome: "unknown",
            error: format!("worker {} was gone before it recorded an outcome", claim.instance),
            http_status: None,
            channel,
            duration: None,
            response: None,
            provider_id: None,
            next: if claim.expired { record::Next::GiveUp } else { next },
        }
    }
}
