//! What the sweeps say in the log.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use tracing::{debug, info, warn};

use crate::store::repair::Dead;

/// What a sweep repaired.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Claims ended because their lease was over or their holder dead.
    pub leases_ended: u64,
    /// Rows of publications that were never confirmed.
    pub recalled: u64,
    /// Rows the queue lost, or that nothing else would have found.
    pub lost: u64,
    /// Heads of keys that nobody had admitted.
    pub admitted: u64,
}

impl Counts {
    /// To admit keys is ordinary work; the rest means that something failed before.
    pub(super) fn log(self) {
        let Counts { leases_ended, recalled, lost, admitted } = self;
        match leases_ended + recalled + lost {
            0 => debug!(admitted, "admitted keys"),
            _ => info!(leases_ended, recalled, lost, admitted, "repaired"),
        }
    }
}

/// Says once of each instance that died lately that it is dead.
pub(super) fn dead_instances(dead: &[Dead], reported: &mut HashSet<(i32, DateTime<Utc>)>) {
    reported.retain(|known| dead.iter().any(|dead| *known == (dead.id, dead.heartbeat_at)));
    for dead in dead.iter().filter(|dead| dead.died_lately) {
        if reported.insert((dead.id, dead.heartbeat_at)) {
            warn!(instance = dead.id, host = dead.host, last_heartbeat = %dead.heartbeat_at, "an instance is dead; its leases end");
        }
    }
}
