//! The connections of all channels: one client for each origin, and one bound over all of them.
//!
//! A client keeps the connections of its origin open for the next call. Dropping it closes those that are idle. So of
//! thousands of origins those that were called last keep theirs, and the others give up their open files.
//!
//! How many connections an origin has is not asked: it is at most the calls that were under way to it at once since its
//! client was made (HTTP/2 needs fewer). **Guarantee.** Counted so, connections never exceed what calls may have open;
//! a call that would go beyond is told [`Shortage::Files`]. **Limit.** A name that is being resolved takes files for a
//! moment, and so does a connection that was begun for a call which then took another: the reserve has room for them.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reqwest::Client;

use super::lookups::Lookups;
use super::outcome::Shortage;

/// Connections that are kept, of a process that says nothing else.
const KEPT_MAX: usize = 1024;

/// What all channels of a process share.
#[derive(Debug)]
pub struct Connections {
    /// Calls may have so many open.
    open_max: usize,
    /// So many are kept, those that calls use at the time included.
    kept_max: usize,
    channels: AtomicUsize,
    /// Names that are being looked up.
    pub(super) lookups: Arc<Lookups>,
    state: Mutex<State>,
}

/// The origin of a channel, by the channel's number.
type Key = (usize, Arc<str>);

#[derive(Debug, Default)]
struct State {
    clients: HashMap<Key, Kept>,
    /// The least recently used first.
    order: BTreeMap<u64, Key>,
    clock: u64,
    /// Of all clients: connections at most.
    connections: usize,
    /// Calls under way, and those of them whose client has left.
    in_flight: usize,
    orphans: usize,
}

#[derive(Debug)]
struct Kept {
    client: Client,
    made_at: u64,
    used_at: u64,
    in_flight: usize,
    in_flight_most: usize,
}

/// One call's client; dropping it says that the call is over.
#[derive(Debug)]
pub(super) struct Lease {
    connections: Arc<Connections>,
    key: Key,
    made_at: u64,
    pub(super) client: Client,
}

impl Connections {
    /// Calls may have `open_max` connections open, of which more are kept the more calls there may be.
    pub fn new(open_max: usize, concurrency: usize) -> Connections {
        Connections {
            open_max: open_max.max(1),
            kept_max: KEPT_MAX.max(concurrency.saturating_mul(2)),
            channels: AtomicUsize::new(0),
            lookups: Arc::default(),
            state: Mutex::default(),
        }
    }

    /// A number for a channel: names may come again.
    pub(super) fn number_channel(&self) -> usize {
        self.channels.fetch_add(1, Ordering::Relaxed)
    }

    /// The client of an origin, for one call; `make` makes one if it has none.
    pub(super) fn lease(
        self: &Arc<Self>,
        channel: usize,
        origin: &Arc<str>,
        make: impl FnOnce() -> reqwest::Result<Client>,
    ) -> Result<Lease, Refused> {
        let key = (channel, Arc::clone(origin));
        let mut state = self.lock();
        if state.in_flight >= self.open_max {
            return Err(Refused::Short(Shortage::Files));
        }
        state.clock += 1;
        let now = state.clock;
        if !state.clients.contains_key(&key) {
            let client = make().map_err(Refused::Unusable)?;
            let kept = Kept { client, made_at: now, used_at: now, in_flight: 0, in_flight_most: 0 };
            state.clients.insert(key.clone(), kept);
        }
        let (client, made_at) = state.begin(&key, now);
        let left = state.leave_room(self.open_max, self.kept_max);
        drop(state);
        // Closes connections.
        drop(left);
        Ok(Lease { connections: Arc::clone(self), key, made_at, client })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As many as there may be files, for a channel by itself.
impl Default for Connections {
    fn default() -> Connections {
        Connections::new(usize::MAX, 0)
    }
}

/// Why there is no client.
#[derive(Debug)]
pub(super) enum Refused {
    Short(Shortage),
    Unusable(reqwest::Error),
}

impl State {
    fn begin(&mut self, key: &Key, now: u64) -> (Client, u64) {
        let State { clients, order, connections, in_flight, .. } = self;
        let kept = clients.get_mut(key).expect("it was put there under this lock");
        order.remove(&kept.used_at);
        order.insert(now, key.clone());
        kept.used_at = now;
        kept.in_flight += 1;
        *in_flight += 1;
        if kept.in_flight > kept.in_flight_most {
            kept.in_flight_most = kept.in_flight;
            *connections += 1;
        }
        (kept.client.clone(), kept.made_at)
    }

    /// The least recently used leave, but not the last. A call under way goes on, and its connection ends with it.
    fn leave_room(&mut self, open_max: usize, kept_max: usize) -> Vec<Client> {
        let mut left = Vec::new();
        while (self.connections > kept_max || self.connections + self.orphans > open_max) && self.clients.len() > 1 {
            let Some((_, key)) = self.order.pop_first() else { break };
            let Some(kept) = self.clients.remove(&key) else { continue };
            self.connections -= kept.in_flight_most;
            self.orphans += kept.in_flight;
            left.push(kept.client);
        }
        left
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut state = self.connections.lock();
        state.in_flight -= 1;
        match state.clients.get_mut(&self.key).filter(|kept| kept.made_at == self.made_at) {
            Some(kept) => kept.in_flight -= 1,
            None => state.orphans -= 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(connections: &Arc<Connections>, origin: &str) -> Result<Lease, Refused> {
        connections.lease(0, &Arc::from(origin), || Ok(Client::new()))
    }

    fn has(connections: &Connections, origin: &str) -> bool {
        connections.lock().clients.contains_key(&(0, Arc::from(origin)))
    }

    fn small(open_max: usize) -> Arc<Connections> {
        let _provider = rustls::crypto::ring::default_provider().install_default();
        Arc::new(Connections::new(open_max, 0))
    }

    #[test]
    fn the_origin_that_was_called_least_recently_gives_up_its_connections() {
        let connections = small(3);
        for origin in ["a", "b", "c", "a", "d"] {
            lease(&connections, origin).unwrap();
        }
        assert!(!has(&connections, "b"));
        assert!(["a", "c", "d"].iter().all(|origin| has(&connections, origin)));
        assert_eq!(connections.lock().connections, 3);
    }

    #[test]
    fn an_origin_counts_with_the_most_calls_it_had_at_once() {
        let connections = small(4);
        let calls: Vec<Lease> = (0..3).map(|_| lease(&connections, "a").unwrap()).collect();
        drop(calls);
        assert_eq!(connections.lock().connections, 3);
        lease(&connections, "b").unwrap();
        lease(&connections, "c").unwrap();
        assert!(!has(&connections, "a"));
        assert_eq!(connections.lock().connections, 2);
    }

    #[test]
    fn calls_under_way_are_never_more_than_there_may_be_open() {
        let connections = small(2);
        let calls: Vec<Lease> = ["a", "b"].iter().map(|origin| lease(&connections, origin).unwrap()).collect();
        assert!(matches!(lease(&connections, "c"), Err(Refused::Short(Shortage::Files))));
        drop(calls);
        let _call = lease(&connections, "c").unwrap();
        let state = connections.lock();
        assert_eq!((state.in_flight, state.orphans), (1, 0));
        assert!(state.connections <= 2, "{state:?}");
    }

    #[test]
    fn a_call_whose_client_has_left_is_counted_until_it_ends() {
        let connections = small(2);
        let first = lease(&connections, "a").unwrap();
        lease(&connections, "b").unwrap();
        lease(&connections, "c").unwrap();
        assert!(!has(&connections, "a"));
        assert_eq!(connections.lock().orphans, 1);
        // Its next call has a client of its own, and the first one's end is not that one's.
        let second = lease(&connections, "a").unwrap();
        drop(first);
        assert_eq!(connections.lock().orphans, 0);
        assert_eq!(connections.lock().clients[&(0, Arc::from("a"))].in_flight, 1);
        drop(second);
        assert_eq!(connections.lock().in_flight, 0);
    }
}
