//! Connections that wait for their next call, by origin.
//!
//! HTTP/1.1: the one put back last is taken first, so that those which a quieter time does not need grow old and are
//! closed. There are never more of an origin than calls were made to it at once. HTTP/2: one, which all share.
//!
//! Guarantee: a connection that nobody used for `idle_max` is not used again, and is closed soon after. A task looks
//! after that while there are any.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::Connection;
use super::http1::Http1;
use super::http2::{Http2, Tasks};

/// How often connections are looked at while one may be idle: so much later than due are they closed.
const SWEEPS_PER_IDLE_MAX: u32 = 5;

/// The connections of one client.
pub(super) struct Pool {
    idle_max: Duration,
    tasks: Tasks,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    origins: HashMap<Arc<str>, Origin>,
    is_swept: bool,
}

#[derive(Default)]
struct Origin {
    /// The one that was put back last comes last.
    idle: Vec<Idle>,
    shared: Option<Shared>,
    /// Whose turn it is to make the shared connection, where there has been one.
    turn: Option<Arc<tokio::sync::Mutex<()>>>,
}

struct Idle {
    http1: Box<Http1>,
    since: Instant,
}

struct Shared {
    http2: Http2,
    used: Instant,
}

impl Pool {
    pub(super) fn new(idle_max: Duration, tasks: Tasks) -> Pool {
        Pool { idle_max, tasks, state: Mutex::default() }
    }

    /// A connection to use. It may have ended all the same: sending on it tells.
    pub(super) fn take(&self, origin: &Arc<str>) -> Option<Connection> {
        let now = Instant::now();
        let mut state = self.state();
        let found = state.origins.get_mut(origin)?;
        if let Some(shared) = &mut found.shared {
            if !shared.http2.is_closed() {
                shared.used = now;
                return Some(Connection::Http2(shared.http2.clone()));
            }
            found.shared = None;
        }
        let idle = found.idle.pop()?;
        if now.duration_since(idle.since) < self.idle_max {
            return Some(Connection::Http1(idle.http1));
        }
        // The others are older still.
        let stale = std::mem::take(&mut found.idle);
        drop(state);
        drop(stale);
        None
    }

    /// Keeps a connection for the next call.
    pub(super) fn put(self: &Arc<Pool>, origin: &Arc<str>, http1: Box<Http1>) {
        let mut state = self.state();
        let idle = Idle { http1, since: Instant::now() };
        match state.origins.get_mut(origin) {
            Some(found) => found.idle.push(idle),
            None => state.origins.entry(Arc::clone(origin)).or_default().idle.push(idle),
        }
        self.keep_swept(&mut state);
    }

    /// Gives everybody this connection, or returns the one that somebody else was quicker with.
    pub(super) fn share(self: &Arc<Pool>, origin: &Arc<str>, http2: Http2) -> Http2 {
        let mut state = self.state();
        let found = state.origins.entry(Arc::clone(origin)).or_default();
        found.turn.get_or_insert_default();
        let used = Instant::now();
        match &mut found.shared {
            Some(shared) if !shared.http2.is_closed() => {
                shared.used = used;
                return shared.http2.clone();
            }
            shared => *shared = Some(Shared { http2: http2.clone(), used }),
        }
        self.keep_swept(&mut state);
        http2
    }

    /// What to hold while making a connection that will be shared, as far as is known.
    pub(super) fn turn(&self, origin: &Arc<str>) -> Option<Arc<tokio::sync::Mutex<()>>> {
        self.state().origins.get(origin)?.turn.clone()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.state().origins.is_empty()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep_swept(self: &Arc<Pool>, state: &mut State) {
        if !state.is_swept {
            state.is_swept = true;
            self.tasks.spawn(sweep(Arc::downgrade(self), self.idle_max / SWEEPS_PER_IDLE_MAX));
        }
    }

    /// Closes what nobody used for long. False: nothing is left to look after.
    fn close_stale(&self) -> bool {
        let now = Instant::now();
        let is_stale = |since: Instant| now.duration_since(since) >= self.idle_max;
        let mut stale = Vec::new();
        let mut state = self.state();
        state.origins.retain(|_, origin| {
            let old = origin.idle.partition_point(|idle| is_stale(idle.since));
            stale.extend(origin.idle.drain(..old));
            // Calls that run have a handle of their own.
            origin.shared.take_if(|shared| shared.http2.is_closed() || is_stale(shared.used));
            !origin.idle.is_empty() || origin.shared.is_some()
        });
        state.is_swept = !state.origins.is_empty();
        let is_swept = state.is_swept;
        drop(state);
        // Closing takes system calls, and nobody should wait for them.
        drop(stale);
        is_swept
    }
}

async fn sweep(pool: Weak<Pool>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        match pool.upgrade() {
            Some(pool) if pool.close_stale() => {}
            _ => return,
        }
    }
}
