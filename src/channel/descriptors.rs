//! How many files the process may have open, and how many of them calls may take. Each connection is one.
//!
//! What Postgres, Redis and the HTTP port need is set aside: calls never take the last ones, so that a process with too
//! many destinations still records what it did and answers for itself.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::lookups::LOOKUPS_MAX;
use crate::config::Config;

/// The limit is raised to at most this: the kernel's own default for one process.
const LIMIT_MAX: u64 = 1 << 20;
/// Connections to the HTTP port, those of its own reserve included.
const HTTP_PORT: u64 = 256 + 64;
/// Publishing and listening, beside the two pools of Postgres.
const POSTGRES_OTHERS: u64 = 8;
/// Connections to Redis: pushing, taking, maintaining, events, the live feed.
const REDIS: u64 = 16;
/// Names that are being looked up: a socket each.
const LOOKUPS: u64 = LOOKUPS_MAX as u64;
/// The program's own: standard streams, timers, connections that come too late for their call.
const OWN: u64 = 32;
/// Sessions of the live feed that there may be in any case.
const LIVE_MIN: u64 = 64;

/// A call's own connection, and one that is kept or is being closed while it is made.
const CALL: u64 = 2;

/// Open files, as they are shared out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptors {
    /// The process may have so many open.
    pub limit: u64,
    /// Of which calls leave so many to the others.
    pub reserve: u64,
    /// So many would leave nothing to wish for.
    pub wanted: u64,
}

impl Descriptors {
    /// Raises the soft limit to the hard one, and tells if that is not enough: nothing here uses `select()`, which is what the soft one protects.
    pub fn raise(config: &Config) -> Descriptors {
        let (soft, hard) = limits();
        let wanted = hard.min(LIMIT_MAX).max(soft);
        if wanted > soft && setrlimit(Resource::RLIMIT_NOFILE, wanted, hard).is_err() {
            tracing::debug!(soft, hard, "the limit on open files cannot be raised");
        }
        let files = Descriptors::shared_out(limits().0, config);
        if let Some(warning) = files.warning(config) {
            tracing::warn!("{warning}");
        }
        files
    }

    /// As after [`Descriptors::raise`]; changes nothing.
    pub fn foreseen(config: &Config) -> Descriptors {
        let (soft, hard) = limits();
        Descriptors::shared_out(hard.min(LIMIT_MAX).max(soft), config)
    }

    fn shared_out(limit: u64, config: &Config) -> Descriptors {
        let pools = (config.database.pool_size + config.database.api_pool_size) as u64;
        let needed = HTTP_PORT + POSTGRES_OTHERS + REDIS + LOOKUPS + OWN + pools;
        let wanted = needed + config.worker.concurrency as u64 * CALL;
        Descriptors { limit, reserve: needed.min(limit / 2), wanted }
    }

    /// Connections that calls may have open.
    pub fn for_calls(&self) -> usize {
        usize::try_from(self.limit - self.reserve).unwrap_or(usize::MAX)
    }

    /// Sessions of the live feed that may be open: they take what nothing else wants, and a few in any case.
    pub fn live_sessions_max(&self) -> usize {
        usize::try_from(self.limit.saturating_sub(self.wanted).max(LIVE_MIN)).unwrap_or(usize::MAX)
    }

    /// Calls that may be under way at once.
    pub fn calls_max(&self) -> usize {
        (self.for_calls() / CALL as usize).max(1)
    }

    /// What does not fit, and what to do.
    pub fn warning(&self, config: &Config) -> Option<String> {
        if self.limit >= self.wanted {
            return None;
        }
        let Descriptors { limit, wanted, .. } = self;
        Some(format!(
            "the process may have {limit} files open, and needs up to {wanted}: worker.concurrency = {} calls, {HTTP_PORT} \
             connections to the HTTP port, Postgres and Redis. Raise the limit (LimitNOFILE= of systemd, ulimit -n, --ulimit \
             nofile= of a container), or lower worker.concurrency. Until then at most {} calls are under way at once",
            config.worker.concurrency,
            self.calls_max()
        ))
    }
}

/// Soft and hard.
fn limits() -> (u64, u64) {
    // It fails for no resource that exists.
    getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((1024, 1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_sessions_take_only_files_that_nothing_else_wants() {
        let files = |limit| Descriptors { limit, reserve: 434, wanted: 946 };
        assert_eq!(files(65_536).live_sessions_max(), 64_590);
        assert_eq!([files(1024), files(512)].map(|files| files.live_sessions_max()), [78, 64]);
    }
}
