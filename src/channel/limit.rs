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
//!
//! Topics share the calls of a channel and of an origin as they share those of the instance ([`super::share`]), and what
//! may wait for the rate: one whose calls hang leaves some to the others.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

mod stops;
mod window;

pub use self::stops::Limit;
use self::stops::Stops;
use self::window::Window;
use super::CHANNEL_WIDE;
use super::share::{NoShare, Parts, Share, Shares};
use crate::config::ChannelConfig;

/// What a call is assumed to take before one has ended.
const CALL_ASSUMED: Duration = Duration::from_millis(50);
/// Of the time from the permit to the call, which is for the claim, so much counts at most: waiting for Postgres says
/// nothing of the provider.
pub(super) const CLAIM_COUNTED: Duration = Duration::from_millis(50);
/// What cannot start within a second is told to come back after at least and at most this.
const PROMISE_MIN: Duration = Duration::from_millis(500);
const PROMISE_MAX: Duration = Duration::from_secs(60);
/// The same while nobody knows how long a call takes.
const PROMISE_UNKNOWN_MAX: Duration = Duration::from_secs(1);
/// Messages that were pushed so lately may not have been taken yet.
pub(super) const ON_THEIR_WAY: Duration = Duration::from_millis(200);

/// The limits of one channel.
#[derive(Debug)]
pub struct Limits {
    in_flight_per_origin_max: usize,
    /// Where the channel's calls, or their starts, are limited.
    topics: Option<Arc<Shares>>,
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
    /// Only origins that come from data, and only while they have calls under way.
    origins: HashMap<Arc<str>, Origin>,
}

#[derive(Debug)]
struct Origin {
    load: Load,
    topics: Parts,
}

/// Why a call may not start now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// The channel's rate is used up for so long.
    Rate(Duration),
    /// The channel has its calls under way.
    Channel,
    /// The topic has its share of them.
    Topic,
    /// The origin has its calls under way, or the topic its share of them.
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
    topic: Arc<str>,
    origin: Arc<str>,
    /// Of the channel's calls.
    share: Option<Share>,
    /// A start of the rate is kept for it.
    has_start: bool,
    granted: Instant,
    started: Option<Instant>,
}

impl Limits {
    /// The limits of a channel.
    pub fn new(config: &ChannelConfig) -> Arc<Limits> {
        let rate = config.rate_limit.map(Window::new);
        let topics = (rate.is_some() || config.max_in_flight.is_some()).then(|| {
            Shares::with_rate(config.max_in_flight.unwrap_or(usize::MAX).max(1), rate.as_ref().map(Window::per_second))
        });
        let (channel, stops, origins) = Default::default();
        Arc::new(Limits {
            in_flight_per_origin_max: config.max_in_flight_per_origin.max(1),
            topics,
            timeout: config.timeout,
            waiting: AtomicUsize::new(0),
            state: Mutex::new(State { rate, channel, stops, origins }),
        })
    }

    /// The right to start a call of this topic to `origin` now, or why not.
    pub fn try_acquire(self: &Arc<Self>, topic: &Arc<str>, origin: &Arc<str>, now: Instant) -> Result<Permit, Full> {
        let mut state = self.lock();
        let State { rate, channel, origins, stops } = &mut *state;
        let from_data = &**origin != CHANNEL_WIDE;
        let is_full = |known: &Origin| !known.topics.has_room(topic, self.in_flight_per_origin_max);
        if from_data && origins.get(origin).is_some_and(is_full) {
            stops.begin(Limit::Origin, now);
            return Err(Full::Origin);
        }
        let share = self.topics.as_ref().map(|topics| topics.try_acquire(topic, now)).transpose().map_err(|full| {
            stops.begin(Limit::Channel, now);
            match full {
                NoShare::All => Full::Channel,
                NoShare::Topic => Full::Topic,
            }
        })?;
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
            let new = || Origin { load: channel.quick(), topics: Parts::default() };
            let known = origins.entry(Arc::clone(origin)).or_insert_with(new);
            known.load.begin();
            known.topics.take(topic);
        }
        let (limits, topic, origin) = (Arc::clone(self), Arc::clone(topic), Arc::clone(origin));
        Ok(Permit { limits, topic, origin, share, has_start: rate.is_some(), granted: now, started: None })
    }

    /// How many calls of a topic to `origin` the limits can be expected to let start in a second, if `concurrency` are
    /// under way at most. What the instance's calls allow is not counted: topics share them.
    pub fn per_second(&self, topic: &str, origin: &str, concurrency: usize, now: Instant) -> usize {
        self.per_second_of(&self.lock(), origin, concurrency, now).min(self.per_second_of_topic(topic, now))
    }

    /// The same, to all its origins together.
    pub fn per_second_of_topic(&self, topic: &str, now: Instant) -> usize {
        self.topics.as_ref().map_or(usize::MAX, |topics| topics.per_second(topic, now))
    }

    fn per_second_of(&self, state: &State, origin: &str, concurrency: usize, now: Instant) -> usize {
        if *origin == *CHANNEL_WIDE {
            return usize::MAX;
        }
        let load = state.origins.get(origin).map_or_else(|| state.channel.quick(), |known| known.load);
        (load.per_second(self.in_flight_per_origin_max.min(concurrency), now).ceil() as usize).max(1)
    }

    /// When a message for `origin` that cannot start within a second should come back: one after the other.
    pub fn promise(&self, topic: &Arc<str>, origin: &Arc<str>, concurrency: usize, now: Instant) -> Duration {
        let of_topic = self.topics.as_ref().map_or(Duration::ZERO, |topics| topics.promise(topic, now));
        let mut state = self.lock();
        let per_second = self.per_second_of(&state, origin, concurrency, now);
        let State { channel, origins, .. } = &mut *state;
        let is_known = channel.is_known;
        let load = origins.get_mut(origin).map_or(channel, |known| &mut known.load);
        load.is_known |= is_known;
        load.promise(per_second, now).max(of_topic)
    }

    /// How many more messages of a topic can start within a second, beside those that wait.
    pub fn left(&self, topic: &str, now: Instant) -> usize {
        self.topics.as_ref().map_or(usize::MAX, |topics| topics.left(topic, now))
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
            Limit::Origin => None,
        };
        Some(Reached { limit, per_second })
    }

    /// Messages of a topic begin to wait for their permits.
    pub fn begin_waiting(&self, topic: &Arc<str>, messages: usize) {
        self.waiting.fetch_add(messages, Ordering::Relaxed);
        if let Some(topics) = &self.topics {
            topics.begin_waiting(topic, messages);
        }
    }

    /// They have their permits, or go back.
    pub fn end_waiting(&self, topic: &Arc<str>, messages: usize) {
        self.waiting.fetch_sub(messages, Ordering::Relaxed);
        if let Some(topics) = &self.topics {
            topics.end_waiting(topic, messages);
        }
    }

    /// How many more messages of a topic are worth publishing: a second of work may wait, what is on its way included.
    pub fn room(&self, topic: &str, now: Instant) -> usize {
        let room = |topics: &Arc<Shares>| topics.room(topic, now).unwrap_or_else(|| topics.per_second(topic, now));
        self.topics.as_ref().map_or(usize::MAX, room)
    }

    /// So many messages of a topic were pushed.
    pub fn note_published(&self, topic: &Arc<str>, rows: usize, now: Instant) {
        if let Some(topics) = &self.topics {
            topics.note_published(topic, rows, now);
        }
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
        if let Some(share) = &mut self.share {
            share.start(now, self.limits.timeout);
        }
        let mut state = self.limits.lock();
        if let Some(rate) = &mut state.rate {
            rate.start(now);
        }
        self.has_start = false;
        state.channel.start(now);
        if let Some(known) = state.origins.get_mut(&self.origin) {
            known.load.start(now);
        }
    }

    /// The call waits for something else than its limits: the start that the rate kept for it is another's.
    pub fn pause(&mut self) {
        if std::mem::take(&mut self.has_start)
            && let Some(rate) = &mut self.limits.lock().rate
        {
            rate.give_back();
        }
    }

    /// It may start again, or not for so long.
    pub fn resume(&mut self, now: Instant) -> Result<(), Duration> {
        if let Some(rate) = self.limits.lock().rate.as_mut().filter(|_| !self.has_start) {
            rate.reserve(now)?;
            self.has_start = true;
        }
        Ok(())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.pause();
        let claim =
            self.started.unwrap_or_else(Instant::now).saturating_duration_since(self.granted).min(CLAIM_COUNTED);
        let call = self.started.map_or(Duration::ZERO, |started| started.elapsed()).min(self.limits.timeout);
        let took = claim + call;
        let mut state = self.limits.lock();
        let now = Instant::now();
        state.channel.end(took, now);
        if let Some(known) = state.origins.get_mut(&self.origin) {
            known.load.end(took, now);
            known.topics.give_back(&self.topic);
            if known.load.in_flight == 0 {
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
