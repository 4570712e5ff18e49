//! Whether there is so much to do that polling beats the bell.

use std::time::{Duration, Instant};

/// How far ahead of now the doorbell is set while busy.
const BUSY_AHEAD: Duration = Duration::from_millis(400);
/// Pauses between polls when there is much to find and otherwise: the shortest when something was just found.
const BUSY_PAUSE_MIN: Duration = Duration::from_millis(1);
const DOZE_PAUSE_MIN: Duration = Duration::from_millis(10);
/// More rows or rings than this within the span make an instance busy: 500 a second. Up to here ringing costs the app nothing that
/// can be measured; see ARCHITECTURE.md.
const DOZE_ROWS_MAX: u64 = 50;
const PACE_SPAN: Duration = Duration::from_millis(100);
/// An app that rings for what may not be published (a paused topic) is asked not to for longer and longer, up to this.
const HOLD_MAX: Duration = Duration::from_secs(10);

/// Busy, or dozing.
#[derive(Debug)]
pub(super) struct Pace {
    pub(super) is_busy: bool,
    /// Busy only because an app rings for what may not be published: it is asked not to, and there is little to find.
    is_rung: bool,
    /// Without a bell there is no dozing.
    pub(super) can_hear: bool,
    /// Rows found and rings heard in the span that began then.
    rows: u64,
    rings: u64,
    since: Instant,
    /// How long the span lasts if it is a busy one.
    hold: Duration,
}

impl Pace {
    pub(super) fn new() -> Pace {
        Pace {
            is_busy: false,
            is_rung: false,
            can_hear: true,
            rows: 0,
            rings: 0,
            since: Instant::now(),
            hold: PACE_SPAN,
        }
    }

    /// A new day; what the last one taught of the app's ringing stays.
    pub(super) fn wake(&mut self, can_hear: bool) {
        (self.is_busy, self.is_rung, self.can_hear) = (!can_hear, false, can_hear);
        self.begin_span();
    }

    fn begin_span(&mut self) {
        (self.rows, self.rings, self.since) = (0, 0, Instant::now());
    }

    /// Counts the rows and rings of a pass; true if that makes the instance busy or lets it doze.
    pub(super) fn changes(&mut self, rows: u64, rings: u64) -> bool {
        self.rows += rows;
        self.rings += rings;
        let was_busy = self.is_busy;
        let spans = self.since.elapsed().as_secs_f64() / PACE_SPAN.as_secs_f64();
        let rows_max = (DOZE_ROWS_MAX as f64 * spans.max(1.0)) as u64;
        if !self.can_hear {
            self.is_busy = true;
        } else if was_busy {
            self.is_rung &= self.rows <= rows_max;
            if self.since.elapsed() > self.hold {
                self.is_busy = self.rows > rows_max;
                self.begin_span();
            }
        } else if self.rows > rows_max || self.rings > rows_max {
            // Rung for nothing we may publish: again and again, if we doze again soon.
            self.is_rung = self.rows <= rows_max;
            self.hold = if self.is_rung { (self.hold * 4).min(HOLD_MAX) } else { PACE_SPAN };
            self.is_busy = true;
            self.begin_span();
        } else if spans > 1.0 {
            self.begin_span();
        }
        self.is_busy != was_busy
    }

    pub(super) fn may_sleep(&self) -> bool {
        self.can_hear && !self.is_busy
    }

    pub(super) fn doorbell_ahead(&self) -> Duration {
        if self.is_busy { BUSY_AHEAD } else { Duration::ZERO }
    }

    /// There is so much to find that the next poll comes at once.
    pub(super) fn has_much(&self) -> bool {
        self.is_busy && !self.is_rung
    }

    pub(super) fn pause_min(&self) -> Duration {
        if self.has_much() { BUSY_PAUSE_MIN } else { DOZE_PAUSE_MIN }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So much of the span is over.
    fn after(pace: &mut Pace, span: Duration) {
        pace.since = Instant::now().checked_sub(span).unwrap_or(pace.since);
    }

    fn awake(can_hear: bool) -> Pace {
        let mut pace = Pace::new();
        pace.wake(can_hear);
        pace
    }

    #[test]
    fn a_few_rows_leave_it_dozing_so_that_the_app_rings() {
        let mut pace = awake(true);
        assert!(!pace.changes(DOZE_ROWS_MAX, DOZE_ROWS_MAX));
        assert_eq!((pace.doorbell_ahead(), pace.pause_min()), (Duration::ZERO, DOZE_PAUSE_MIN));
    }

    #[test]
    fn many_rows_make_it_busy_at_once_and_a_quiet_span_lets_it_doze_again() {
        let mut pace = awake(true);
        assert!(pace.changes(DOZE_ROWS_MAX + 1, 0) && !pace.may_sleep());
        assert_eq!((pace.doorbell_ahead(), pace.pause_min()), (BUSY_AHEAD, BUSY_PAUSE_MIN));
        assert!(!pace.changes(0, 0), "the span is not over");
        after(&mut pace, 2 * PACE_SPAN);
        assert!(pace.changes(0, 0) && pace.may_sleep());
    }

    #[test]
    fn it_stays_busy_while_there_is_much_to_do() {
        let mut pace = awake(true);
        pace.changes(DOZE_ROWS_MAX + 1, 0);
        for _ in 0..10 {
            after(&mut pace, 2 * PACE_SPAN);
            assert!(!pace.changes(3 * DOZE_ROWS_MAX, 0) && pace.is_busy);
        }
    }

    #[test]
    fn whoever_rings_for_what_may_not_be_published_is_asked_not_to_for_longer_and_longer() {
        let mut pace = awake(true);
        let mut holds = Vec::new();
        for _ in 0..8 {
            assert!(pace.changes(0, DOZE_ROWS_MAX + 1) && !pace.may_sleep(), "rung busy");
            holds.push(pace.hold.as_millis());
            let hold = pace.hold;
            after(&mut pace, hold / 2);
            assert!(!pace.changes(0, 0), "it polls and the app does not ring");
            after(&mut pace, hold * 2);
            assert!(pace.changes(0, 0) && pace.may_sleep());
        }
        assert_eq!(holds, [400, 1_600, 6_400, 10_000, 10_000, 10_000, 10_000, 10_000]);
        pace.changes(DOZE_ROWS_MAX + 1, DOZE_ROWS_MAX + 1);
        assert_eq!(pace.hold, PACE_SPAN, "rings for what could be published are forgotten");
    }

    #[test]
    fn rung_for_nothing_it_polls_like_a_dozer_until_there_is_much_to_find() {
        let mut pace = awake(true);
        pace.changes(1, DOZE_ROWS_MAX + 1);
        assert_eq!((pace.doorbell_ahead(), pace.pause_min()), (BUSY_AHEAD, DOZE_PAUSE_MIN));
        pace.changes(DOZE_ROWS_MAX + 1, 0);
        assert_eq!((pace.has_much(), pace.pause_min()), (true, BUSY_PAUSE_MIN));
    }

    #[test]
    fn without_a_bell_it_never_dozes() {
        let mut pace = awake(false);
        after(&mut pace, 2 * PACE_SPAN);
        assert!(!pace.changes(0, 0) && pace.is_busy);
    }
}
