//! How many calls may start now: a rate, and calls under way per channel and per origin.
//!
//! Nobody waits here. What cannot start is told when to come back, so a worker parks the row and gives its
//! slot to another: one slow or dead origin holds at most `max_in_flight_per_origin` slots. The times handed
//! out are spread, so that a parked crowd does not return all at once.
//!
//! The rate is exact: in no span of `per` do more than `count` calls start. A bucket of tokens would let
//! through twice as many where a full bucket meets a new span, and a provider that counts would answer 429.
//! Limits hold per instance. Origins are remembered only while calls to them are under way.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::CHANNEL_WIDE;
use crate::config::{ChannelConfig, RateLimit};

/// The soonest a refused call is told to come back: sooner would only spin.
const RETRY_MIN: Duration = Duration::from_millis(10);
/// The latest, where a slot and not the rate is missing: slots may come free at any time.
const SLOT_RETRY_MAX: Duration = Duration::from_secs(5);
/// What a call is assumed to take before one has ended.
const CALL_ASSUMED: Duration = Duration::from_millis(50);
/// Starts remembered at most; a higher rate is kept as the same rate over a shorter span.
const STARTS_MAX: u32 = 10_000;

/// The limits of one channel.
#[derive(Debug)]
pub struct Limits {
    in_flight_max: usize,
    in_flight_per_origin_max: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    rate: Option<Window>,
    channel: Slots,
    /// Only origins that come from data, and only while they have calls under way.
    origins: HashMap<Arc<str>, Slots>,
}

/// Why a call may not start now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// The channel's rate is used up.
    Rate,
    /// The channel has its calls under way.
    Channel,
    /// The origin has its calls under way.
    Origin,
}

/// A call that may not start now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryIn {
    /// When to ask again.
    pub wait: Duration,
    /// Why.
    pub full: Full,
}

/// The right to have one call under way; dropping it gives the slot back.
#[derive(Debug)]
pub struct Permit {
    limits: Arc<Limits>,
    origin: Arc<str>,
    started: Instant,
}

impl Limits {
    /// The limits of a channel.
    pub fn new(config: &ChannelConfig) -> Arc<Limits> {
        Arc::new(Limits {
            in_flight_max: config.max_in_flight.unwrap_or(usize::MAX).max(1),
            in_flight_per_origin_max: config.max_in_flight_per_origin.max(1),
            state: Mutex::new(State {
                rate: config.rate_limit.map(Window::new),
                channel: Slots::default(),
                origins: HashMap::new(),
            }),
        })
    }

    /// The right to start a call to `origin` now, or when to ask again.
    pub fn try_acquire(self: &Arc<Self>, origin: &Arc<str>, now: Instant) -> Result<Permit, RetryIn> {
        let mut state = self.lock();
        let State { rate, channel, origins } = &mut *state;
        let from_data = &**origin != CHANNEL_WIDE;
        if from_data && let Some(slots) = origins.get_mut(origin) {
            slots.room(self.in_flight_per_origin_max, now).map_err(|wait| RetryIn { wait, full: Full::Origin })?;
        }
        channel.room(self.in_flight_max, now).map_err(|wait| RetryIn { wait, full: Full::Channel })?;
        // Last, because it takes what it grants.
        if let Some(rate) = rate {
            rate.start(now).map_err(|wait| RetryIn { wait, full: Full::Rate })?;
        }
        channel.in_flight += 1;
        if from_data {
            origins.entry(Arc::clone(origin)).or_default().in_flight += 1;
        }
        Ok(Permit { limits: Arc::clone(self), origin: Arc::clone(origin), started: now })
    }

    /// Calls under way.
    pub fn in_flight(&self) -> usize {
        self.lock().channel.in_flight
    }

    /// Origins with calls under way.
    pub fn origins(&self) -> usize {
        self.lock().origins.len()
    }

    /// Counters stay whole even if a thread panicked while it held them.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let took = self.started.elapsed();
        let mut state = self.limits.lock();
        state.channel.leave(took);
        if let Some(slots) = state.origins.get_mut(&self.origin) {
            slots.leave(took);
            if slots.in_flight == 0 {
                state.origins.remove(&self.origin);
            }
        }
    }
}

/// Calls under way, and when those that found no room were told to come back.
#[derive(Debug)]
struct Slots {
    in_flight: usize,
    /// How long a call takes, smoothed.
    usual: Duration,
    promised: Option<Instant>,
}

impl Default for Slots {
    fn default() -> Slots {
        Slots { in_flight: 0, usual: CALL_ASSUMED, promised: None }
    }
}

impl Slots {
    /// Nothing if there is room, else a time by which a slot should be free for this caller.
    fn room(&mut self, in_flight_max: usize, now: Instant) -> Result<(), Duration> {
        if self.in_flight < in_flight_max {
            return Ok(());
        }
        let between = self.usual / u32::try_from(in_flight_max).unwrap_or(u32::MAX);
        let promised = self.promised.map_or(now, |promised| promised.max(now)) + between;
        let wait = promised.duration_since(now).clamp(RETRY_MIN, SLOT_RETRY_MAX);
        self.promised = Some(now + wait);
        Err(wait)
    }

    fn leave(&mut self, took: Duration) {
        self.in_flight -= 1;
        self.usual = (self.usual * 7 + took) / 8;
    }
}

/// The starts of the last `per`, oldest first.
#[derive(Debug)]
struct Window {
    count: usize,
    per: Duration,
    starts: VecDeque<Instant>,
    promised: Option<Instant>,
}

impl Window {
    fn new(limit: RateLimit) -> Window {
        let count = limit.count.max(1);
        let scale = count.div_ceil(STARTS_MAX);
        Window { count: (count / scale) as usize, per: limit.per / scale, starts: VecDeque::new(), promised: None }
    }

    /// Starts a call now, or says when there will be room for this caller.
    fn start(&mut self, now: Instant) -> Result<(), Duration> {
        while self.starts.front().is_some_and(|start| now.saturating_duration_since(*start) >= self.per) {
            self.starts.pop_front();
        }
        let Some(oldest) = self.starts.front().filter(|_| self.starts.len() >= self.count) else {
            self.starts.push_back(now);
            return Ok(());
        };
        let between = self.per / u32::try_from(self.count).unwrap_or(u32::MAX);
        let free = *oldest + self.per;
        let promised = self.promised.map_or(free, |promised| (promised + between).max(free));
        self.promised = Some(promised);
        Err(promised.saturating_duration_since(now).max(RETRY_MIN))
    }
}
