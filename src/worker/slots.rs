//! The slots calls are made in, and how many rows may be claimed for them.
//!
//! A claim takes Postgres a millisecond or two. A provider that answers as fast would leave most slots empty if rows were
//! claimed only for those that are free: they would wait for their claim most of the time. So a claim may also count on
//! the slots that come free within a moment, by how many calls have just ended and how long calls take. With a provider that
//! takes its time that is none. A row whose slot does not come free after all is given back, and nothing is counted on for a while.
//!
//! Each slot is a task that makes one call after the other; it is started when it is first needed.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::lock;

/// Slots that come free within this may be counted on.
const MOMENT: Duration = Duration::from_millis(5);
/// And at most so many for each slot there is.
const AHEAD_MAX: usize = 2;
/// A claimed row whose call has not begun after this is given back.
const PATIENCE: Duration = Duration::from_millis(20);
/// How long nothing is counted on after that.
const SOBER: Duration = Duration::from_secs(1);

/// Slots for `concurrency` calls.
pub(super) struct Slots<C> {
    concurrency: usize,
    /// A permit for each row that is being claimed, waits for its slot or is being called.
    rows: Arc<Semaphore>,
    /// A permit for each call in `waiting`.
    arrivals: Semaphore,
    state: Mutex<State<C>>,
}

/// What remains to be done for rows handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Needed {
    /// Slots to be started.
    pub(super) to_start: usize,
    /// Some wait for calls to end.
    pub(super) must_wait: bool,
}

struct State<C> {
    /// Calls to be made, and since when they wait.
    waiting: VecDeque<(Instant, C)>,
    /// Slots started, and those of them that have nothing to do.
    started: usize,
    idle: usize,
    foresight: Foresight,
    /// Rows that may be claimed beyond the slots.
    ahead: usize,
}

impl<C> Slots<C> {
    pub(super) fn new(concurrency: usize) -> Slots<C> {
        Slots {
            concurrency,
            rows: Arc::new(Semaphore::new(concurrency)),
            arrivals: Semaphore::new(0),
            state: Mutex::new(State {
                waiting: VecDeque::new(),
                started: 0,
                idle: 0,
                foresight: Foresight::default(),
                ahead: 0,
            }),
        }
    }

    /// Waits for room for one row and takes room for up to `wanted`: for free slots, and for those that will be. When
    /// more is wanted than there is room for it gives the calls under way up to `gather` to end: a claim of half of what may
    /// be claimed costs Postgres little more than a claim of one. `None`: the end.
    pub(super) async fn room(&self, wanted: usize, gather: Duration) -> Option<OwnedSemaphorePermit> {
        let rows_max = self.look_ahead();
        let wanted = wanted.min(self.concurrency.max(rows_max / 2));
        let worthwhile = wanted.min(rows_max / 2);
        let mut room = Arc::clone(&self.rows).acquire_owned().await.ok()?;
        if room.num_permits() + self.rows.available_permits() < worthwhile {
            let more = Arc::clone(&self.rows).acquire_many_owned(permits(worthwhile - room.num_permits()));
            if let Ok(more) = tokio::time::timeout(gather, more).await {
                room.merge(more.ok()?);
            }
        }
        let left = (wanted - room.num_permits()).min(self.rows.available_permits());
        if let Ok(more) = Arc::clone(&self.rows).try_acquire_many_owned(permits(left)) {
            room.merge(more);
        }
        Some(room)
    }

    /// Messages worth having at hand for a claim.
    pub(super) fn claim_max(&self) -> usize {
        self.concurrency * (1 + AHEAD_MAX) / 2
    }

    /// Room for all the rows that can be called at once while half of the slots stay free: when there is much to do it
    /// may as well be left to others.
    pub(super) fn idle_room(&self) -> Option<OwnedSemaphorePermit> {
        let not_idle = self.concurrency / 2 + lock(&self.state).ahead;
        let idle = self.rows.available_permits().checked_sub(not_idle).filter(|idle| *idle > 0)?;
        Arc::clone(&self.rows).try_acquire_many_owned(permits(idle)).ok()
    }

    /// How many rows may be claimed in all.
    fn look_ahead(&self) -> usize {
        let mut state = lock(&self.state);
        let under_way = state.started - state.idle;
        let expected = state.foresight.expected(Instant::now(), under_way).min(self.concurrency * AHEAD_MAX);
        if expected > state.ahead {
            self.rows.add_permits(expected - state.ahead);
            state.ahead = expected;
        } else {
            // Those in use are taken back later.
            state.ahead -= self.rows.forget_permits(state.ahead - expected);
        }
        self.concurrency + state.ahead
    }

    /// Hands over claimed rows.
    pub(super) fn call(&self, calls: Vec<C>) -> Needed {
        let (now, arrived) = (Instant::now(), calls.len());
        let mut state = lock(&self.state);
        state.waiting.extend(calls.into_iter().map(|call| (now, call)));
        let beyond_idle = state.waiting.len().saturating_sub(state.idle);
        let to_start = beyond_idle.min(self.concurrency - state.started);
        state.started += to_start;
        drop(state);
        self.arrivals.add_permits(arrived);
        Needed { to_start, must_wait: beyond_idle > to_start }
    }

    /// Waits for a call to make. `None`: the end, and none is left.
    pub(super) async fn next(&self) -> Option<C> {
        lock(&self.state).idle += 1;
        loop {
            let arrived = self.arrivals.acquire().await.map(|arrival| arrival.forget());
            let mut state = lock(&self.state);
            let call = state.waiting.pop_front().map(|(_, call)| call);
            // An arrival without a call was given back.
            if call.is_some() || arrived.is_err() {
                state.idle -= 1;
                return call;
            }
        }
    }

    /// A slot's call is over; it took so long.
    pub(super) fn call_ended(&self, took: Duration) {
        lock(&self.state).foresight.call_ended(took);
    }

    /// A slot is gone.
    pub(super) fn slot_ended(&self) {
        lock(&self.state).started -= 1;
    }

    /// Waits for as long as a claimed row may; then returns the rows that have waited longer, to be given back. Those that
    /// idle slots are about to take are theirs.
    pub(super) async fn overdue(&self) -> Vec<C> {
        tokio::time::sleep(PATIENCE).await;
        let mut state = lock(&self.state);
        let taken = state.idle.min(state.waiting.len());
        let overdue = state.waiting.iter().skip(taken).take_while(|(since, _)| since.elapsed() >= PATIENCE).count();
        if overdue > 0 {
            state.foresight.disappoint(Instant::now());
        }
        state.waiting.drain(taken..taken + overdue).map(|(_, call)| call).collect()
    }

    /// No more calls will come.
    pub(super) fn close(&self) {
        self.arrivals.close();
    }
}

/// How many calls are about to end.
#[derive(Debug, Default)]
struct Foresight {
    calls_ended: usize,
    /// How long calls have taken lately, on average; 0: not known.
    call_seconds: f64,
    /// When it was last looked how many had ended, and how many had.
    looked: Option<(Instant, usize)>,
    /// How many ended in the moment before that.
    ended_in_a_moment: f64,
    sober_until: Option<Instant>,
}

impl Foresight {
    fn call_ended(&mut self, took: Duration) {
        self.calls_ended += 1;
        let weight = if self.call_seconds == 0.0 { 1.0 } else { 1.0 / 32.0 };
        self.call_seconds += (took.as_secs_f64() - self.call_seconds) * weight;
    }

    /// As many as ended in the last moment, looked at no more often than that; but no more than those under way can be
    /// expected to, should all calls of a slow provider have ended at once.
    fn expected(&mut self, now: Instant, under_way: usize) -> usize {
        if self.sober_until.is_some_and(|until| now < until) {
            return 0;
        }
        let (at, ended) = *self.looked.get_or_insert((now, self.calls_ended));
        let moments = now.saturating_duration_since(at).as_secs_f64() / MOMENT.as_secs_f64();
        if moments >= 1.0 {
            self.ended_in_a_moment = (self.calls_ended - ended) as f64 / moments;
            self.looked = Some((now, self.calls_ended));
        }
        let about_to_end = under_way as f64 * MOMENT.as_secs_f64() / self.call_seconds.max(1e-6);
        self.ended_in_a_moment.min(about_to_end) as usize
    }

    fn disappoint(&mut self, now: Instant) {
        *self = Foresight { calls_ended: self.calls_ended, sober_until: Some(now + SOBER), ..Foresight::default() };
    }
}

fn permits(rows: usize) -> u32 {
    u32::try_from(rows).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: Duration = Duration::from_millis(1);

    impl Foresight {
        fn calls_ended(&mut self, calls: usize, took: Duration) {
            (0..calls).for_each(|_| self.call_ended(took));
        }
    }

    #[test]
    fn as_many_calls_are_expected_to_end_in_a_moment_as_have() {
        let (mut foresight, start) = (Foresight::default(), Instant::now());
        assert_eq!(foresight.expected(start, 64), 0, "nothing is known yet");
        foresight.calls_ended(120, QUICK);
        assert_eq!(foresight.expected(start + MOMENT * 2, 64), 60);
        assert_eq!(foresight.expected(start + MOMENT * 2, 64), 60, "it is too early to look again");
        assert_eq!(foresight.expected(start + MOMENT * 2, 0), 0, "no call is under way");
        foresight.calls_ended(1, QUICK);
        assert_eq!(foresight.expected(start + MOMENT * 12, 64), 0, "they have become few");
    }

    #[test]
    fn calls_of_a_slow_provider_that_end_at_once_promise_nothing() {
        let (mut foresight, start) = (Foresight::default(), Instant::now());
        foresight.expected(start, 64);
        foresight.calls_ended(64, MOMENT * 40);
        assert_eq!(foresight.expected(start + MOMENT, 64), 1);
    }

    #[test]
    fn a_disappointment_sobers_for_a_while() {
        let (mut foresight, start) = (Foresight::default(), Instant::now());
        foresight.expected(start, 64);
        foresight.calls_ended(50, QUICK);
        assert_eq!(foresight.expected(start + MOMENT, 64), 50);
        foresight.disappoint(start);
        foresight.calls_ended(50, QUICK);
        assert_eq!(foresight.expected(start + SOBER / 2, 64), 0);
        foresight.expected(start + SOBER, 64);
        foresight.calls_ended(50, QUICK);
        assert_eq!(foresight.expected(start + SOBER + MOMENT, 64), 50);
    }

    #[tokio::test]
    async fn no_more_is_claimed_than_there_are_slots_while_no_call_ends() {
        let slots = Slots::<u8>::new(4);
        let room = slots.room(10, Duration::ZERO).await.unwrap();
        assert_eq!(room.num_permits(), 4);
        let more = slots.room(10, Duration::ZERO);
        assert!(tokio::time::timeout(MOMENT * 2, more).await.is_err(), "all room is taken");
    }

    #[tokio::test]
    async fn slots_are_started_as_they_are_needed_and_take_what_waits_in_order() {
        let slots = Slots::new(2);
        assert_eq!(slots.call(vec!['a']), Needed { to_start: 1, must_wait: false });
        assert_eq!(slots.next().await, Some('a'));
        assert_eq!(slots.call(vec!['b', 'c']), Needed { to_start: 1, must_wait: true });
        assert_eq!(slots.next().await, Some('b'));
        slots.call_ended(QUICK);
        assert_eq!(slots.next().await, Some('c'));
        slots.close();
        assert_eq!(slots.next().await, None);
    }

    #[tokio::test]
    async fn a_row_whose_slot_does_not_come_free_is_given_back() {
        let slots = Slots::new(1);
        slots.call(vec!['a', 'b', 'c']);
        assert_eq!(slots.next().await, Some('a'));
        assert_eq!(slots.overdue().await, ['b', 'c']);
        slots.call(vec!['d']);
        assert_eq!(slots.next().await, Some('d'), "an arrival whose row was given back is passed over");
    }

    #[tokio::test]
    async fn what_waits_at_the_end_is_still_called() {
        let slots = Slots::new(1);
        slots.call(vec!['a', 'b']);
        slots.close();
        assert_eq!([slots.next().await, slots.next().await, slots.next().await], [Some('a'), Some('b'), None]);
    }
}
