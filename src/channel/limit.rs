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
pub(super) use self::stops::Stops;
use super::CHANNEL_WIDE;
use crate::config::{ChannelConfig, RateLimit};

/// What a call is assumed to take before one has ended.
pub(super) const CALL_ASSUMED: Duration = Duration::from_millis(50);
/// Of the time from the permit to the call, which is for the claim, so much counts at most: waiting for Postgres says
/// nothing of the provider.
pub(super) const CLAIM_COUNTED: Duration = Duration::from_millis(50);
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
pub(super) const ON_THEIR_WAY: Duration = Duration::from_millis(200);

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
        channel.begin();
        if from_data {
            origins.entry(Arc::clone(origin)).or_insert_with(|| channel.quick()).begin();
        }
        Ok(Permit { limits: Arc::clone(self), origin: Arc::clone(origin), granted: now, started: None })
    }

    /// How many calls to `origin` the limits can be expected to let start in a second, if `concurrency` are under way
    /// at most. What the instance's calls allow is not counted: topics share them ([`super::share`]).
    pub fn per_second(&self, origin: &str, concurrency: usize, now: Instant) -> usize {
        let state = self.lock();
        let origin_rate = (*origin != *CHANNEL_WIDE).then(|| {
            let load = state.origins.get(origin).copied().unwrap_or_else(|| state.channel.quick());
            load.per_second(self.in_flight_per_origin_max.min(concurrency), now)
        });
        let channel_rate =
            (self.in_flight_max < concurrency).then(|| state.channel.per_second(self.in_flight_max, now));
        let rate = state.rate.as_ref().map(Window::per_second);
        let rates = [origin_rate, channel_rate, rate].into_iter().flatten();
        (rates.fold(f64::INFINITY, f64::min).ceil() as usize).max(1)
    }

    /// When a message for `origin` that cannot start within a second should come back: one after the other.
    pub fn promise(&self, origin: &Arc<str>, concurrency: usize, now: Instant) -> Duration {
        let per_second = self.per_second(origin, concurrency, now);
        let mut state = self.lock();
        let State { channel, origins, .. } = &mut *state;
        let is_known = channel.is_known;
        let load = origins.get_mut(origin).unwrap_or(channel);
        load.is_known |= is_known;
        load.promise(per_second, now)
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
            Limit::Channel | Limit::Concurrency => Some(state.channel.per_second(in_flight, now)),
            Limit::Origin | Limit::Share => None,
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
        let per_second = self.per_second(CHANNEL_WIDE, concurrency, now);
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
        self.lock().channel.in_flight()
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
        let mut state = self.limits.lock();
        if let Some(rate) = &mut state.rate {
            rate.start(now);
        }
        state.channel.start(now);
        if let Some(load) = state.origins.get_mut(&self.origin) {
            load.start(now);
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
        let now = Instant::now();
        state.channel.end(took, now);
        if let Some(load) = state.origins.get_mut(&self.origin) {
            load.end(took, now);
            if load.in_flight == 0 {
                state.origins.remove(&self.origin);
            }
        }
    }
}

/// Calls under way, how long one takes, and until when others were told to wait.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    in_flight: usize,
    /// How long a permit is held, smoothed, as far as it is the provider's doing.
    usual: Duration,
    /// Since when calls are under way and none has ended.
    stalled_since: Option<Instant>,
    /// A call has ended: it is not only assumed.
    is_known: bool,
    promised: Option<Instant>,
}

impl Default for Load {
    fn default() -> Load {
        Load { in_flight: 0, usual: CALL_ASSUMED, stalled_since: None, is_known: false, promised: None }
    }
}

impl Load {
    /// One of which nothing is known, beside this one: as quick, but never slow for what others are.
    pub(super) fn quick(&self) -> Load {
        Load { usual: self.usual.min(CALL_ASSUMED), ..Load::default() }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// What can start in a second, if so many may be under way. Calls that have not ended for longer than usual show
    /// it before they do.
    pub(super) fn per_second(&self, in_flight_max: usize, now: Instant) -> f64 {
        let stalled = self.stalled_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        in_flight_max as f64 / self.usual.max(stalled).as_secs_f64().max(1e-4)
    }

    /// When the next of those that cannot start within a second should come back, if so many start in one.
    pub(super) fn promise(&mut self, per_second: usize, now: Instant) -> Duration {
        let between = Duration::from_secs(1) / u32::try_from(per_second).unwrap_or(u32::MAX);
        let max = if self.is_known { PROMISE_MAX } else { PROMISE_UNKNOWN_MAX };
        let promised = self.promised.map_or(now, |promised| promised.max(now)) + between;
        self.promised = Some(promised.min(now + max));
        promised.duration_since(now).clamp(PROMISE_MIN, max)
    }

    /// A call has its permit.
    pub(super) fn begin(&mut self) {
        self.in_flight += 1;
    }

    /// It starts.
    pub(super) fn start(&mut self, now: Instant) {
        self.stalled_since.get_or_insert(now);
    }

    /// Its permit is given back without a call.
    pub(super) fn give_back(&mut self) {
        self.in_flight -= 1;
        self.stalled_since = self.stalled_since.filter(|_| self.in_flight > 0);
    }

    /// It has ended; its permit was held for so long.
    pub(super) fn end(&mut self, took: Duration, now: Instant) {
        self.in_flight -= 1;
        self.is_known = true;
        self.usual = (self.usual * 7 + took) / 8;
        self.stalled_since = (self.in_flight > 0).then_some(now);
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
