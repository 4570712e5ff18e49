//! How many calls may start now: a rate, and calls under way per channel and per origin.
//!
//! Nobody waits here. Messages wait unclaimed in the worker until they get a [`Permit`], so one slow or dead origin
//! holds at most `max_in_flight_per_origin` of an instance's calls. How many calls a second can be expected tells the
//! worker what can start within a second, and the relay how much is worth publishing.
//!
//! The rate is exact: in no span of `per` do more than `count` calls start. A token bucket would let through twice as
//! many where a full bucket meets a new span, and a provider that counts would answer 429. Calls are also spread evenly
//! over the span: a burst that takes longer to arrive than the next one would be counted with it. Limits hold per
//! instance. Origins are remembered only while calls to them are under way.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

mod stops;

pub use self::stops::Limit;
use self::stops::Stops;
use super::CHANNEL_WIDE;
use crate::config::{ChannelConfig, RateLimit};

/// What a call is assumed to take before one has ended.
const CALL_ASSUMED: Duration = Duration::from_millis(50);
/// Of the time from the permit to the call, which is for the claim, so much counts at most: waiting for Postgres says
/// nothing of the provider.
const CLAIM_COUNTED: Duration = Duration::from_millis(50);
/// Starts remembered at most; a higher rate is kept as the same rate over a shorter span.
const STARTS_MAX: u32 = 10_000;
/// What cannot start within a second is told to come back after at least and at most this.
const PROMISE_MIN: Duration = Duration::from_millis(500);
const PROMISE_MAX: Duration = Duration::from_secs(60);
/// The same while nobody knows how long a call takes.
const PROMISE_UNKNOWN_MAX: Duration = Duration::from_secs(1);
/// Starts that are late by up to this are made up for; after a longer pause the spread begins anew.
const CATCH_UP: Duration = Duration::from_millis(100);
/// The soonest that a rate is asked again: so a claim is for several rows where the rate is high.
const RATE_WAIT_MIN: Duration = Duration::from_millis(20);
/// Messages that were pushed so lately may not have been taken yet.
const ON_THEIR_WAY: Duration = Duration::from_millis(200);

/// The limits of one channel.
#[derive(Debug)]
pub struct Limits {
    in_flight_max: usize,
    in_flight_per_origin_max: usize,
    /// No call takes longer; a process that was stopped has seen longer ones.
    timeout: Duration,
    /// Messages of this channel that wait for a permit.
    waiting: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    rate: Option<Window>,
    channel: Load,
    stops: Stops,
    /// When messages were first pushed lately, and how many since.
    published: Option<(Instant, usize)>,
    /// Only origins that come from data, and only while they have calls under way.
    origins: HashMap<Arc<str>, Load>,
}

/// Why a call may not start now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// The channel's rate is used up for so long.
    Rate(Duration),
    /// The channel has its calls under way.
    Channel,
    /// The origin has its calls under way.
    Origin,
}

/// A limit that keeps messages waiting.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reached {
    /// Which one.
    pub limit: Limit,
    /// Calls that can be expected to start in a second; `None`: of an origin that says nothing of the channel.
    pub per_second: Option<f64>,
}

/// The right to have one call under way; dropping it gives it back.
#[derive(Debug)]
pub struct Permit {
    limits: Arc<Limits>,
    origin: Arc<str>,
    granted: Instant,
    started: Option<Instant>,
}

impl Limits {
    /// The limits of a channel.
    pub fn new(config: &ChannelConfig) -> Arc<Limits> {
        Arc::new(Limits {
            in_flight_max: config.max_in_flight.unwrap_or(usize::MAX).max(1),
            in_flight_per_origin_max: config.max_in_flight_per_origin.max(1),
            timeout: config.timeout,
            waiting: AtomicUsize::new(0),
            state: Mutex::new(State {
                rate: config.rate_limit.map(Window::new),
                channel: Load::default(),
                stops: Stops::default(),
                published: None,
                origins: HashMap::new(),
            }),
        })
    }

    /// The right to start a call to `origin` now, or why not.
    pub fn try_acquire(self: &Arc<Self>, origin: &Arc<str>, now: Instant) -> Result<Permit, Full> {
        let mut state = self.lock();
        let State { rate, channel, origins, stops, .. } = &mut *state;
        let from_data = &**origin != CHANNEL_WIDE;
        if from_data && origins.get(origin).is_some_and(|load| load.in_flight >= self.in_flight_per_origin_max) {
            stops.begin(Limit::Origin, now);
            return Err(Full::Origin);
        }
        if channel.in_flight >= self.in_flight_max {
            stops.begin(Limit::Channel, now);
            return Err(Full::Channel);
        }
        // Last, because it takes what it grants.
        if let Some(rate) = rate {
            rate.reserve(now).map_err(|wait| {
                stops.begin(Limit::Rate, now);
                Full::Rate(wait)
            })?;
        }
        stops.end(now);
        channel.in_flight += 1;
        if from_data {
            let like_the_others = Load { usual: channel.usual, ..Load::default() };
            origins.entry(Arc::clone(origin)).or_insert(like_the_others).in_flight += 1;
        }
        Ok(Permit { limits: Arc::clone(self), origin: Arc::clone(origin), granted: now, started: None })
    }

    /// How many calls to `origin` can be expected to start in a second, if `concurrency` are under way at most.
    pub fn per_second(&self, origin: &str, concurrency: usize) -> usize {
        let state = self.lock();
        let origin_rate = (*origin != *CHANNEL_WIDE).then(|| {
            let like_the_others = Load { usual: state.channel.usual, ..Load::default() };
            let load = state.origins.get(origin).copied().unwrap_or(like_the_others);
            load.per_second(self.in_flight_per_origin_max.min(concurrency))
        });
        let channel_rate = state.channel.per_second(self.in_flight_max.min(concurrency));
        let rate = state.rate.as_ref().map_or(f64::INFINITY, Window::per_second);
        (channel_rate.min(rate).min(origin_rate.unwrap_or(f64::INFINITY)).ceil() as usize).max(1)
    }

    /// When a message for `origin` that cannot start within a second should come back: one after the other.
    pub fn promise(&self, origin: &Arc<str>, concurrency: usize, now: Instant) -> Duration {
        let between = Duration::from_secs(1) / u32::try_from(self.per_second(origin, concurrency)).unwrap_or(u32::MAX);
        let mut state = self.lock();
        let State { channel, origins, .. } = &mut *state;
        let max = if channel.is_known { PROMISE_MAX } else { PROMISE_UNKNOWN_MAX };
        let load = origins.get_mut(origin).unwrap_or(channel);
        let promised = load.promised.map_or(now, |promised| promised.max(now)) + between;
        let wait = promised.duration_since(now).clamp(PROMISE_MIN, max);
        load.promised = Some(promised.min(now + max));
        wait
    }

    /// A call may not start because the instance has its calls under way.
    pub fn stopped_by_concurrency(&self, now: Instant) {
        self.lock().stops.begin(Limit::Concurrency, now);
    }

    /// The limit that kept messages waiting since this was asked last, or shortly before; `None`: none did.
    pub fn reached(&self, now: Instant) -> Option<Reached> {
        let is_waiting = self.waiting.load(Ordering::Relaxed) > 0;
        let mut state = self.lock();
        let limit = state.stops.take(is_waiting, now)?;
        let in_flight = state.channel.in_flight.max(1);
        let per_second = match limit {
            Limit::Rate => state.rate.as_ref().map(Window::per_second),
            Limit::Channel | Limit::Concurrency => Some(state.channel.per_second(in_flight)),
            Limit::Origin => None,
        };
        Some(Reached { limit, per_second })
    }

    /// Messages begin to wait for their permits.
    pub fn begin_waiting(&self, messages: usize) {
        self.waiting.fetch_add(messages, Ordering::Relaxed);
    }

    /// Messages have their permits, or go back.
    pub fn end_waiting(&self, messages: usize) {
        self.waiting.fetch_sub(messages, Ordering::Relaxed);
    }

    /// How many more messages of this channel are worth publishing: a second of work may wait, what is on its way
    /// included.
    pub fn room(&self, concurrency: usize, now: Instant) -> usize {
        let per_second = self.per_second(CHANNEL_WIDE, concurrency);
        let on_their_way = self.lock().published.filter(|(at, _)| now.saturating_duration_since(*at) < ON_THEIR_WAY);
        let waiting = self.waiting.load(Ordering::Relaxed) + on_their_way.map_or(0, |(_, rows)| rows);
        per_second.saturating_sub(waiting)
    }

    /// So many messages of this channel were pushed.
    pub fn note_published(&self, rows: usize, now: Instant) {
        let mut state = self.lock();
        state.published = match state.published {
            Some((at, before)) if now.saturating_duration_since(at) < ON_THEIR_WAY => Some((at, before + rows)),
            _ => Some((now, rows)),
        };
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

impl Permit {
    /// The call starts now: the rate counts when calls start, not when they were permitted.
    pub fn start(&mut self, now: Instant) {
        self.started = Some(now);
        if let Some(rate) = &mut self.limits.lock().rate {
            rate.start(now);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let claim =
            self.started.unwrap_or_else(Instant::now).saturating_duration_since(self.granted).min(CLAIM_COUNTED);
        let call = self.started.map_or(Duration::ZERO, |started| started.elapsed()).min(self.limits.timeout);
        let took = claim + call;
        let mut state = self.limits.lock();
        if let Some(rate) = state.rate.as_mut().filter(|_| self.started.is_none()) {
            rate.give_back();
        }
        state.channel.end(took);
        if let Some(load) = state.origins.get_mut(&self.origin) {
            load.end(took);
            if load.in_flight == 0 {
                state.origins.remove(&self.origin);
            }
        }
    }
}

/// Calls under way, how long one takes, and until when others were told to wait.
#[derive(Debug, Clone, Copy)]
struct Load {
    in_flight: usize,
    /// How long a permit is held, smoothed, as far as it is the provider's doing.
    usual: Duration,
    /// A call has ended: it is not only assumed.
    is_known: bool,
    promised: Option<Instant>,
}

impl Default for Load {
    fn default() -> Load {
        Load { in_flight: 0, usual: CALL_ASSUMED, is_known: false, promised: None }
    }
}

impl Load {
    fn per_second(&self, in_flight_max: usize) -> f64 {
        in_flight_max as f64 / self.usual.as_secs_f64().max(1e-4)
    }

    fn end(&mut self, took: Duration) {
        self.in_flight -= 1;
        self.is_known = true;
        self.usual = (self.usual * 7 + took) / 8;
    }
}

/// The starts of the last `per`, oldest first, and those that were permitted and are to come.
#[derive(Debug)]
struct Window {
    count: usize,
    per: Duration,
    starts: VecDeque<Instant>,
    reserved: usize,
    /// When the next start would be on time, if all were evenly spread.
    next: Option<Instant>,
}

impl Window {
    fn new(limit: RateLimit) -> Window {
        let count = limit.count.max(1);
        let scale = count.div_ceil(STARTS_MAX);
        Window {
            count: (count / scale) as usize,
            per: limit.per / scale,
            starts: VecDeque::new(),
            reserved: 0,
            next: None,
        }
    }

    fn per_second(&self) -> f64 {
        self.count as f64 / self.per.as_secs_f64()
    }

    /// Permits a start, or says how long until there is room for one.
    fn reserve(&mut self, now: Instant) -> Result<(), Duration> {
        while self.starts.front().is_some_and(|start| now.saturating_duration_since(*start) >= self.per) {
            self.starts.pop_front();
        }
        let next = self.next.filter(|next| *next + CATCH_UP > now).unwrap_or(now);
        if next > now {
            return Err(next.duration_since(now).max(RATE_WAIT_MIN));
        }
        if self.starts.len() + self.reserved < self.count {
            self.reserved += 1;
            self.next = Some(next + self.step());
            return Ok(());
        }
        let free_in = self.starts.front().map(|oldest| (*oldest + self.per).saturating_duration_since(now));
        Err(free_in.unwrap_or_default().max(RATE_WAIT_MIN))
    }

    fn start(&mut self, now: Instant) {
        self.reserved -= 1;
        self.starts.push_back(now);
    }

    /// What was permitted does not start.
    fn give_back(&mut self) {
        self.reserved -= 1;
        self.next = self.next.and_then(|next| next.checked_sub(self.step()));
    }

    /// From one start to the next, if all are evenly spread.
    fn step(&self) -> Duration {
        self.per / u32::try_from(self.count).unwrap_or(u32::MAX)
    }
}
