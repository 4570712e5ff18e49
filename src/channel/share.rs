//! How topics share what is limited: the calls of an instance, and those of a channel and of an origin.
//!
//! A topic may have so many calls under way that at least the root of what others leave to it stays free: of 256 calls
//! a topic alone takes 241, and five topics take about 50 each. So the next topic finds a call to start with, however many
//! hosts of the others hang, and nobody has to configure anything. A topic that comes later gets its equal part as the
//! calls of the others end.
//!
//! This also tells how much of a topic can start within a second: so much may wait in the worker, and the relay
//! publishes no more.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::limit::{CLAIM_COUNTED, Load, ON_THEIR_WAY};

/// Who has fewer than this has none to spare.
const SHARED_FROM: usize = 16;
/// Calls at most where nothing limits them.
const CALLS_MAX: usize = 1 << 20;
/// Topics that are remembered although nothing of them is under way.
const IDLE_TOPICS_MAX: usize = 1_000;

/// The calls of one instance, or of one channel of it.
#[derive(Debug)]
pub struct Shares {
    calls: usize,
    /// Calls that may start in a second, if that is limited.
    rate: Option<f64>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    in_flight: usize,
    waiting: usize,
    topics: HashMap<Arc<str>, Topic>,
}

#[derive(Debug, Default)]
struct Topic {
    load: Load,
    /// Messages that wait in the worker.
    waiting: usize,
    /// When messages were first pushed lately, and how many since.
    published: Option<(Instant, usize)>,
}

/// Why a topic may start no call now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoShare {
    /// All calls are under way.
    All,
    /// The topic has its share of them.
    Topic,
}

/// One of the calls; dropping it gives it back.
#[derive(Debug)]
pub struct Share {
    shares: Arc<Shares>,
    topic: Arc<str>,
    granted: Instant,
    /// When the call started, and the longest that it takes: a process that was stopped has seen longer ones.
    started: Option<(Instant, Duration)>,
}

impl Shares {
    /// So many calls may be under way.
    pub fn new(calls: usize) -> Arc<Shares> {
        Shares::with_rate(calls, None)
    }

    /// As [`Shares::new`], and so many may start in a second.
    pub fn with_rate(calls: usize, rate: Option<f64>) -> Arc<Shares> {
        Arc::new(Shares { calls: calls.min(CALLS_MAX), rate, state: Mutex::default() })
    }

    /// The right to have one more call of this topic under way, or why not.
    pub fn try_acquire(self: &Arc<Self>, topic: &Arc<str>, now: Instant) -> Result<Share, NoShare> {
        let mut state = self.lock();
        if state.in_flight >= self.calls {
            return Err(NoShare::All);
        }
        let in_flight = state.topics.get(topic).map_or(0, |topic| topic.load.in_flight());
        if in_flight >= self.share(&state, in_flight) {
            return Err(NoShare::Topic);
        }
        state.in_flight += 1;
        state.topic(topic).load.begin();
        Ok(Share { shares: Arc::clone(self), topic: Arc::clone(topic), granted: now, started: None })
    }

    /// How many calls a topic may have, if it has so many.
    fn share(&self, state: &State, in_flight: usize) -> usize {
        part(self.calls, state.in_flight - in_flight)
    }

    /// How many calls of the topic can be expected to start in a second: as many may wait.
    pub fn per_second(&self, topic: &str, now: Instant) -> usize {
        self.per_second_of(&self.lock(), topic, now)
    }

    fn per_second_of(&self, state: &State, topic: &str, now: Instant) -> usize {
        let (load, waiting) =
            state.topics.get(topic).map_or_else(Default::default, |topic| (topic.load, topic.waiting));
        let share = self.share(state, load.in_flight()).max(load.in_flight()).max(1);
        // Calls that hang say nothing of those that may still start beside them: they may be all to one host.
        let free = load.quick().per_second(share - load.in_flight(), now);
        let of_rate = self.rate.map_or(usize::MAX, |rate| part(rate.ceil() as usize, state.waiting - waiting));
        (load.per_second(share, now).max(free).ceil() as usize).min(of_rate).max(1)
    }

    /// When a message that cannot start within a second should come back: one after the other.
    pub fn promise(&self, topic: &Arc<str>, now: Instant) -> Duration {
        let mut state = self.lock();
        let per_second = self.per_second_of(&state, topic, now);
        state.topic(topic).load.promise(per_second, now)
    }

    /// Messages begin to wait.
    pub fn begin_waiting(&self, topic: &Arc<str>, messages: usize) {
        let mut state = self.lock();
        state.waiting += messages;
        state.topic(topic).waiting += messages;
    }

    /// Messages start, or go back.
    pub fn end_waiting(&self, topic: &Arc<str>, messages: usize) {
        let mut state = self.lock();
        state.waiting -= messages;
        state.topic(topic).waiting -= messages;
    }

    /// How many more messages of the topic are worth publishing: a second of work may wait, what is on its way
    /// included. `None`: it has had none lately.
    pub fn room(&self, topic: &str, now: Instant) -> Option<usize> {
        let state = self.lock();
        let known = state.topics.get(topic)?;
        let on_their_way = known.on_their_way(now);
        Some(self.per_second_of(&state, topic, now).saturating_sub(known.waiting + on_their_way))
    }

    /// How many more messages of the topic can start within a second, beside those that wait.
    pub fn left(&self, topic: &str, now: Instant) -> usize {
        let state = self.lock();
        let waiting = state.topics.get(topic).map_or(0, |topic| topic.waiting);
        self.per_second_of(&state, topic, now).saturating_sub(waiting)
    }

    /// So many messages of the topic were pushed.
    pub fn note_published(&self, topic: &Arc<str>, rows: usize, now: Instant) {
        let mut state = self.lock();
        if state.topics.len() > IDLE_TOPICS_MAX {
            state.topics.retain(|_, topic| topic.is_busy(now));
        }
        let topic = state.topic(topic);
        topic.published = match topic.published {
            Some((at, before)) if now.saturating_duration_since(at) < ON_THEIR_WAY => Some((at, before + rows)),
            _ => Some((now, rows)),
        };
    }

    /// Counters stay whole even if a thread panicked while it held them.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn topic(&mut self, name: &Arc<str>) -> &mut Topic {
        self.topics.entry(Arc::clone(name)).or_default()
    }
}

impl Topic {
    fn on_their_way(&self, now: Instant) -> usize {
        let lately = self.published.filter(|(at, _)| now.saturating_duration_since(*at) < ON_THEIR_WAY);
        lately.map_or(0, |(_, rows)| rows)
    }

    fn is_busy(&self, now: Instant) -> bool {
        self.load.in_flight() > 0 || self.waiting > 0 || self.on_their_way(now) > 0
    }
}

impl Share {
    /// The call starts now, and takes no longer than `timeout`.
    pub fn start(&mut self, now: Instant, timeout: Duration) {
        self.started = Some((now, timeout));
        self.shares.lock().topic(&self.topic).load.start(now);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut state = self.shares.lock();
        state.in_flight -= 1;
        let load = &mut state.topic(&self.topic).load;
        // Without a call nothing is known of how long one takes.
        let Some((started, timeout)) = self.started else { return load.give_back() };
        let claim = started.saturating_duration_since(self.granted).min(CLAIM_COUNTED);
        load.end(claim + now.saturating_duration_since(started).min(timeout), now);
    }
}

/// How many of `all` a topic may have while others have so many.
fn part(all: usize, others: usize) -> usize {
    let not_others = all.saturating_sub(others);
    if all < SHARED_FROM { not_others } else { not_others - left_to_others(not_others) }
}

/// Few, and who has how many of them.
#[derive(Debug, Default)]
pub(super) struct Parts {
    taken: usize,
    /// Only who has some.
    topics: Vec<(Arc<str>, usize)>,
}

impl Parts {
    /// Whether this topic may have one more of `all`.
    pub(super) fn has_room(&self, topic: &str, all: usize) -> bool {
        let own = self.topics.iter().find(|(name, _)| **name == *topic).map_or(0, |(_, own)| *own);
        self.taken < all && own < part(all, self.taken - own)
    }

    /// Takes one.
    pub(super) fn take(&mut self, topic: &Arc<str>) {
        self.taken += 1;
        match self.topics.iter_mut().find(|(name, _)| name == topic) {
            Some((_, own)) => *own += 1,
            None => self.topics.push((Arc::clone(topic), 1)),
        }
    }

    /// Gives one back.
    pub(super) fn give_back(&mut self, topic: &str) {
        self.taken -= 1;
        self.topics.retain_mut(|(name, own)| {
            *own -= usize::from(**name == *topic);
            *own > 0
        });
    }
}

/// Of so many calls, how many a topic leaves free: their root, about.
fn left_to_others(calls: usize) -> usize {
    // The most of which with its square no more than all are used.
    ((4 * calls + 1).isqrt() - 1) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each of these topics takes one call after the other, in turns, until none may take any more.
    fn fill(shares: &Arc<Shares>, topics: usize) -> Vec<Vec<Share>> {
        let names: Vec<Arc<str>> = (0..topics).map(|n| Arc::from(format!("t{n}"))).collect();
        let mut held: Vec<Vec<Share>> = names.iter().map(|_| Vec::new()).collect();
        loop {
            let mut is_full = true;
            for (name, held) in names.iter().zip(&mut held) {
                if let Ok(share) = shares.try_acquire(name, Instant::now()) {
                    held.push(share);
                    is_full = false;
                }
            }
            if is_full {
                return held;
            }
        }
    }

    #[test]
    fn topics_that_fill_the_calls_leave_some_whatever_their_number() {
        for (concurrency, topics, each, left) in [
            (16, 1, 13, 3),
            (256, 1, 241, 15),
            (16, 5, 3, 1),
            (256, 5, 50, 7),
            (16, 15, 1, 1),
            (1, 1, 1, 0),
            (8, 1, 8, 0),
        ] {
            let shares = Shares::new(concurrency);
            let held = fill(&shares, topics);
            let most = held.iter().map(Vec::len).max();
            let free = concurrency - held.iter().map(Vec::len).sum::<usize>();
            assert_eq!((most, free), (Some(each), left), "{topics} topics of {concurrency} calls");
            assert_eq!(shares.try_acquire(&Arc::from("next"), Instant::now()).is_ok(), left > 0);
        }
    }

    #[test]
    fn who_comes_later_gets_an_equal_part_as_the_calls_of_the_others_end() {
        let shares = Shares::new(256);
        let mut first = fill(&shares, 1).remove(0);
        let (late, now): (Arc<str>, _) = (Arc::from("late"), Instant::now());
        let mut second = Vec::new();
        while first.pop().is_some() && first.len() > second.len() {
            while let Ok(share) = shares.try_acquire(&late, now) {
                second.push(share);
            }
        }
        assert!(second.len() > 115 && shares.try_acquire(&Arc::from("t0"), now).is_ok(), "{}", second.len());
    }

    #[test]
    fn calls_that_do_not_end_show_how_slow_a_topic_is_before_the_first_has_ended() {
        let shares = Shares::new(256);
        let mut held = fill(&shares, 1).remove(0);
        let now = Instant::now();
        assert_eq!(shares.per_second("t0", now), 241 * 20, "assumed");
        held.iter_mut().for_each(|share| share.start(now, Duration::from_secs(5)));
        assert_eq!(shares.per_second("t0", now + Duration::from_secs(2)), 121);
        assert_eq!(shares.per_second("other", now + Duration::from_secs(2)), 15 * 20 - 3 * 20, "nobody else is slow");
    }
}
