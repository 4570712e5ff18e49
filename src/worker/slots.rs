//! The slots calls are made in.
//!
//! A row is claimed only for a slot that is free, and called as soon as the claim is back: a crash leaves no more rows claimed
//! than there are slots. There are `concurrency` of them. But a claim takes Postgres a millisecond or two, and with a
//! provider that answers as fast most slots would be waiting for one. So as many slots are added as calls end within a
//! moment, by how many just have and how long they took, up to as many again. A provider that takes its time gets
//! none; if it begins to, those added go as their calls end.
//!
//! Each slot is a task that makes one call after the other; it is started when it is first needed.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::lock;

/// As many slots are added as calls end within this.
const MOMENT: Duration = Duration::from_millis(5);
/// At most so many for each slot there is.
const ADDED_MAX: usize = 1;

/// Slots for `concurrency` calls, and some more while calls are quick.
pub(super) struct Slots<C> {
    concurrency: usize,
    /// A permit for each slot without a row. Whoever has it may hand over a call: a slot is idle or can be started.
    free: Arc<Semaphore>,
    /// A permit for each call in `handed_over`.
    arrivals: Semaphore,
    state: Mutex<State<C>>,
}

struct State<C> {
    /// Calls on their way to their slots, each with its slot's permit.
    handed_over: VecDeque<(C, OwnedSemaphorePermit)>,
    /// Slots started, and those of them that have nothing to do.
    started: usize,
    idle: usize,
    /// Slots there are beyond `concurrency`.
    added: usize,
    foresight: Foresight,
}

impl<C> Slots<C> {
    pub(super) fn new(concurrency: usize) -> Slots<C> {
        Slots {
            concurrency,
            free: Arc::new(Semaphore::new(concurrency)),
            arrivals: Semaphore::new(0),
            state: Mutex::new(State {
                handed_over: VecDeque::new(),
                started: 0,
                idle: 0,
                added: 0,
                foresight: Foresight::default(),
            }),
        }
    }

    /// Waits for a free slot and takes up to `wanted`. When more are wanted than are free it gives the calls under way up to
    /// `gather` to end: a claim for half of the slots costs Postgres little more than a claim for one. `None`: the end.
    pub(super) async fn take(&self, wanted: usize, gather: Duration) -> Option<OwnedSemaphorePermit> {
        let worthwhile = wanted.min(self.adapt() / 2);
        let wanted = wanted.min(self.concurrency);
        let mut taken = Arc::clone(&self.free).acquire_owned().await.ok()?;
        if 1 + self.free.available_permits() < worthwhile {
            let more = Arc::clone(&self.free).acquire_many_owned(permits(worthwhile - 1));
            if let Ok(more) = tokio::time::timeout(gather, more).await {
                taken.merge(more.ok()?);
            }
        }
        if let Some(more) = self.take_free(wanted - taken.num_permits()) {
            taken.merge(more);
        }
        Some(taken)
    }

    fn take_free(&self, wanted: usize) -> Option<OwnedSemaphorePermit> {
        let free = self.free.available_permits().min(wanted);
        Arc::clone(&self.free).try_acquire_many_owned(permits(free)).ok()
    }

    /// All slots that are free while half of them stay so: when there is much to do it may as well be left to others.
    pub(super) fn take_idle(&self) -> Option<OwnedSemaphorePermit> {
        let not_idle = self.concurrency / 2 + lock(&self.state).added;
        let idle = self.free.available_permits().checked_sub(not_idle).filter(|idle| *idle > 0)?;
        self.take_free(idle)
    }

    /// Adds slots or takes some back. Returns how many there are.
    fn adapt(&self) -> usize {
        let mut state = lock(&self.state);
        let under_way = state.started - state.idle;
        let ending = state.foresight.ending(Instant::now(), under_way).min(self.concurrency * ADDED_MAX);
        if ending > state.added {
            self.free.add_permits(ending - state.added);
            state.added = ending;
        } else {
            // Those in use are taken back later.
            state.added -= self.free.forget_permits(state.added - ending);
        }
        self.concurrency + state.added
    }

    /// Hands over a claimed row to each of the slots taken. Returns how many of them are to be started.
    pub(super) fn call(&self, calls: Vec<C>, mut taken: OwnedSemaphorePermit) -> usize {
        let arrived = calls.len();
        let mut state = lock(&self.state);
        state.handed_over.extend(calls.into_iter().map_while(|call| Some((call, taken.split(1)?))));
        // Of those started and not idle each has its row, or will be idle in a moment.
        let to_start = state.handed_over.len().saturating_sub(state.idle);
        let to_start = to_start.min((self.concurrency * (1 + ADDED_MAX)).saturating_sub(state.started));
        state.started += to_start;
        drop(state);
        self.arrivals.add_permits(arrived);
        to_start
    }

    /// No more calls will come.
    pub(super) fn close(&self) {
        self.arrivals.close();
    }
}

/// One slot, started when [`Slots::call`] said so.
pub(super) struct Slot<'a, C> {
    slots: &'a Slots<C>,
    /// Since when it makes its call, and its permit.
    busy: Option<(Instant, OwnedSemaphorePermit)>,
}

impl<C> Slot<'_, C> {
    pub(super) fn of(slots: &Slots<C>) -> Slot<'_, C> {
        Slot { slots, busy: None }
    }

    /// Its call, if it made one, is over. Waits for the next. `None`: the end, and none is left.
    pub(super) async fn next(&mut self) -> Option<C> {
        self.be_idle();
        if let Ok(arrival) = self.slots.arrivals.acquire().await {
            arrival.forget();
        }
        let mut state = lock(&self.slots.state);
        state.idle -= 1;
        let (call, permit) = state.handed_over.pop_front()?;
        self.busy = Some((Instant::now(), permit));
        Some(call)
    }

    /// Idle before its permit is free.
    fn be_idle(&mut self) {
        let mut state = lock(&self.slots.state);
        state.idle += 1;
        if let Some((began, _free_now)) = self.busy.take() {
            state.foresight.call_ended(began.elapsed());
        }
    }
}

/// A call that panics takes its slot with it; another can be started by the time its permit is free.
impl<C> Drop for Slot<'_, C> {
    fn drop(&mut self) {
        lock(&self.slots.state).started -= 1;
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
}

impl Foresight {
    fn call_ended(&mut self, took: Duration) {
        self.calls_ended += 1;
        let weight = if self.call_seconds == 0.0 { 1.0 } else { 1.0 / 32.0 };
        self.call_seconds += (took.as_secs_f64() - self.call_seconds) * weight;
    }

    /// As many as ended in the last moment, looked at no more often than that; but no more than those under way can be
    /// expected to, should all calls of a slow provider have ended at once.
    fn ending(&mut self, now: Instant, under_way: usize) -> usize {
        let (at, ended) = *self.looked.get_or_insert((now, self.calls_ended));
        let moments = now.saturating_duration_since(at).as_secs_f64() / MOMENT.as_secs_f64();
        if moments >= 1.0 {
            self.ended_in_a_moment = (self.calls_ended - ended) as f64 / moments;
            self.looked = Some((now, self.calls_ended));
        }
        let about_to_end = under_way as f64 * MOMENT.as_secs_f64() / self.call_seconds.max(1e-6);
        self.ended_in_a_moment.min(about_to_end) as usize
    }
}

fn permits(rows: usize) -> u32 {
    u32::try_from(rows).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: Duration = Duration::from_millis(1);
    const SLOW: Duration = Duration::from_millis(200);

    impl Foresight {
        fn calls_ended(&mut self, calls: usize, took: Duration) {
            (0..calls).for_each(|_| self.call_ended(took));
        }
    }

    /// Slots whose last moment saw `ended` calls end that took so long, and all of which make calls.
    async fn busy_slots(concurrency: usize, ended: usize, took: Duration) -> (Slots<u8>, OwnedSemaphorePermit) {
        let slots = Slots::new(concurrency);
        let taken = slots.take(concurrency, Duration::ZERO).await.unwrap();
        {
            let mut state = lock(&slots.state);
            state.started = concurrency;
            state.foresight.calls_ended(ended, took);
            // It does not look again, however long the test takes.
            state.foresight.looked = Some((Instant::now() + Duration::from_secs(3_600), ended));
            state.foresight.ended_in_a_moment = ended as f64;
        }
        (slots, taken)
    }

    async fn can_take(slots: &Slots<u8>) -> usize {
        let taken = slots.take(100, Duration::ZERO);
        tokio::time::timeout(MOMENT, taken).await.map_or(0, |taken| taken.unwrap().num_permits())
    }

    #[test]
    fn as_many_calls_are_expected_to_end_in_a_moment_as_have() {
        let (mut foresight, start) = (Foresight::default(), Instant::now());
        assert_eq!(foresight.ending(start, 64), 0, "nothing is known yet");
        foresight.calls_ended(120, QUICK);
        assert_eq!(foresight.ending(start + MOMENT * 2, 64), 60);
        assert_eq!(foresight.ending(start + MOMENT * 2, 64), 60, "it is too early to look again");
        assert_eq!(foresight.ending(start + MOMENT * 2, 0), 0, "no call is under way");
        foresight.calls_ended(1, QUICK);
        assert_eq!(foresight.ending(start + MOMENT * 12, 64), 0, "they have become few");
    }

    #[test]
    fn calls_of_a_slow_provider_that_end_at_once_promise_nothing() {
        let (mut foresight, start) = (Foresight::default(), Instant::now());
        foresight.ending(start, 64);
        foresight.calls_ended(64, SLOW);
        assert_eq!(foresight.ending(start + MOMENT, 64), 1);
    }

    #[tokio::test]
    async fn while_no_call_ends_there_are_no_more_slots_than_configured() {
        let (slots, _taken) = busy_slots(4, 0, QUICK).await;
        assert_eq!(can_take(&slots).await, 0);
    }

    #[tokio::test]
    async fn while_calls_are_slow_there_are_no_more_slots_than_configured() {
        let (slots, _taken) = busy_slots(4, 4, SLOW).await;
        assert_eq!(can_take(&slots).await, 0);
    }

    #[tokio::test]
    async fn quick_calls_add_slots_up_to_as_many_again() {
        let (slots, _taken) = busy_slots(4, 3, QUICK).await;
        assert_eq!(can_take(&slots).await, 3);
        let (slots, _taken) = busy_slots(4, 100, QUICK).await;
        assert_eq!(can_take(&slots).await, 4);
    }

    #[tokio::test]
    async fn slots_added_go_as_their_calls_end() {
        let (slots, taken) = busy_slots(4, 100, QUICK).await;
        let added = slots.take(4, Duration::ZERO).await.unwrap();
        lock(&slots.state).foresight.ended_in_a_moment = 0.0;
        assert_eq!(can_take(&slots).await, 0, "all are in use");
        drop(added);
        assert_eq!(slots.adapt(), 4);
        assert_eq!(can_take(&slots).await, 0, "those that came free are gone");
        drop(taken);
        assert_eq!(can_take(&slots).await, 4);
    }

    #[tokio::test]
    async fn slots_are_started_as_they_are_needed_and_take_calls_in_order() {
        let slots = Slots::new(2);
        let mut taken = slots.take(2, Duration::ZERO).await.unwrap();
        assert_eq!(slots.call(vec!['a'], taken.split(1).unwrap()), 1);
        let mut slot = Slot::of(&slots);
        assert_eq!(slot.next().await, Some('a'));
        assert_eq!(slots.call(vec!['b'], taken), 1, "the first is busy");
        assert_eq!(slots.free.available_permits(), 0);
        assert_eq!(slot.next().await, Some('b'));
        assert_eq!(slots.free.available_permits(), 1, "its first call is over");
    }

    #[tokio::test]
    async fn slots_taken_in_vain_are_free_again() {
        let slots = Slots::new(2);
        let taken = slots.take(2, Duration::ZERO).await.unwrap();
        assert_eq!(slots.call(vec!['a'], taken), 1);
        assert_eq!(slots.free.available_permits(), 1);
    }

    #[tokio::test]
    async fn a_call_that_panics_leaves_room_for_another_slot() {
        let slots = Slots::new(1);
        let taken = slots.take(1, Duration::ZERO).await.unwrap();
        assert_eq!(slots.call(vec!['a'], taken), 1);
        let mut slot = Slot::of(&slots);
        slot.next().await;
        drop(slot);
        let taken = slots.take(1, Duration::ZERO).await.unwrap();
        assert_eq!(slots.call(vec!['b'], taken), 1);
    }

    #[tokio::test]
    async fn what_was_handed_over_is_called_although_the_end_has_come() {
        let slots = Slots::new(1);
        let taken = slots.take(1, Duration::ZERO).await.unwrap();
        slots.call(vec!['a'], taken);
        slots.close();
        let mut slot = Slot::of(&slots);
        assert_eq!([slot.next().await, slot.next().await], [Some('a'), None]);
    }
}
