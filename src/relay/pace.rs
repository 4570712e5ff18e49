//! Whether there is so much to do that polling beats the bell, and how long to pause between polls.

use std::time::{Duration, Instant};

/// How far ahead of now the bell is set while busy, and how often.
const BUSY_AHEAD: Duration = Duration::from_millis(400);
const BUSY_REFRESH: Duration = Duration::from_millis(120);
/// How often it is set while listening: it is stale after 5 s.
const LISTEN_REFRESH: Duration = Duration::from_millis(1500);
/// More rows or rings than this within the span make an instance busy: 500 a second. Up to there ringing costs the app
/// nothing that can be measured.
const CALM_ROWS_MAX: u64 = 50;
const SPAN: Duration = Duration::from_millis(100);
/// An app that rings for what may not be published (a paused topic) is asked not to for so long.
const RUNG_FOR: Duration = Duration::from_secs(10);
/// The shortest pause between polls, by how much it grows while nothing is found, and how long it becomes while busy.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_GROWTH: f64 = 1.5;
const BUSY_PAUSE_MAX: Duration = Duration::from_millis(10);

/// Busy, and polling without a bell; or listening for it.
#[derive(Debug)]
pub(crate) struct Pace {
    is_busy: bool,
    /// Without a bell there is only polling.
    can_hear: bool,
    /// Rows found and rings heard in the span that began then.
    rows: u64,
    rings: u64,
    since: Instant,
    busy_until: Instant,
    pause: Duration,
    bell_at: Option<Instant>,
}

impl Pace {
    /// Nobody rings yet: whoever commits now is found by polling.
    pub(crate) fn new() -> Pace {
        let now = Instant::now();
        Pace {
            is_busy: false,
            can_hear: false,
            rows: 0,
            rings: 0,
            since: now,
            busy_until: now,
            pause: PAUSE_MIN,
            bell_at: None,
        }
    }

    /// Counts what a pass found and how often the bell rang meanwhile.
    pub(crate) fn note(&mut self, rows: u64, rings: u64, can_hear: bool) {
        if can_hear && !self.can_hear {
            // Whoever read the bell before it is set does not ring.
            self.listen();
        }
        self.can_hear = can_hear;
        self.rows += rows;
        self.rings += rings;
        let now = Instant::now();
        let spans = now.duration_since(self.since).as_secs_f64() / SPAN.as_secs_f64();
        let calm_max = (CALM_ROWS_MAX as f64 * spans.max(1.0)) as u64;
        if self.rows > calm_max || self.rings > calm_max {
            let span = if self.rows > calm_max { SPAN } else { RUNG_FOR };
            self.busy_until = self.busy_until.max(now + span);
            if !self.is_busy {
                (self.is_busy, self.bell_at) = (true, None);
            }
        } else if self.is_busy && now >= self.busy_until {
            self.is_busy = false;
            self.listen();
        }
        if spans >= 1.0 {
            (self.rows, self.rings, self.since) = (0, 0, now);
        }
        self.pause = if rows > 0 && (self.is_busy || !can_hear) { PAUSE_MIN } else { self.pause.mul_f64(PAUSE_GROWTH) };
    }

    /// The bell is to be set, and a transaction may have read it just before: poll soon, and then less and less often.
    /// Whoever stays open for d is found after about d/2 more.
    fn listen(&mut self) {
        (self.pause, self.bell_at) = (PAUSE_MIN, None);
    }

    /// How far ahead the bell is to be set now; `None`: it need not be.
    pub(crate) fn bell(&mut self) -> Option<Duration> {
        let refresh = if self.is_busy { BUSY_REFRESH } else { LISTEN_REFRESH };
        if !self.can_hear || self.bell_at.is_some_and(|at| at.elapsed() < refresh) {
            return None;
        }
        self.bell_at = Some(Instant::now());
        Some(if self.is_busy { BUSY_AHEAD } else { Duration::ZERO })
    }

    /// How long to pause before the next poll. `poll_max`: the longest while the bell is not heard; `listen_max`: while
    /// it is.
    pub(crate) fn pause(&mut self, poll_max: Duration, listen_max: Duration) -> Duration {
        let max = match (self.can_hear, self.is_busy) {
            (true, false) => listen_max,
            (true, true) => BUSY_PAUSE_MAX.min(poll_max),
            (false, _) => poll_max,
        };
        self.pause = self.pause.min(max);
        self.pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLL: Duration = Duration::from_millis(50);
    const LISTEN: Duration = Duration::from_secs(1);

    /// So much time has passed.
    fn after(pace: &mut Pace, span: Duration) {
        for at in [&mut pace.since, &mut pace.busy_until] {
            *at = at.checked_sub(span).unwrap_or(*at);
        }
        pace.bell_at = pace.bell_at.and_then(|at| at.checked_sub(span));
    }

    fn listening() -> Pace {
        let mut pace = Pace::new();
        pace.note(0, 0, true);
        pace
    }

    #[test]
    fn a_few_rows_leave_it_listening_so_that_the_app_rings() {
        let mut pace = listening();
        pace.note(CALM_ROWS_MAX, CALM_ROWS_MAX, true);
        assert_eq!(pace.bell(), Some(Duration::ZERO));
        assert_eq!(pace.bell(), None, "it was set just now");
        after(&mut pace, LISTEN_REFRESH);
        assert_eq!(pace.bell(), Some(Duration::ZERO));
    }

    #[test]
    fn many_rows_make_it_busy_at_once_and_a_quiet_span_lets_it_listen_again() {
        let mut pace = listening();
        pace.bell();
        pace.note(CALM_ROWS_MAX + 1, 0, true);
        assert_eq!((pace.bell(), pace.pause(POLL, LISTEN)), (Some(BUSY_AHEAD), PAUSE_MIN));
        after(&mut pace, SPAN / 2);
        pace.note(0, 0, true);
        assert!(pace.is_busy, "the span is not over");
        after(&mut pace, 2 * SPAN);
        pace.note(0, 0, true);
        assert_eq!(pace.bell(), Some(Duration::ZERO));
    }

    #[test]
    fn after_the_bell_is_set_it_polls_soon_and_then_less_and_less_often() {
        let mut pace = listening();
        let mut pauses = Vec::new();
        for _ in 0..40 {
            pauses.push(pace.pause(POLL, LISTEN));
            pace.note(0, 0, true);
        }
        assert!(pauses[0] < 2 * PAUSE_MIN && pauses.is_sorted() && pauses[39] == LISTEN, "{pauses:?}");
        pace.note(3, 1, true);
        assert_eq!(pace.pause(POLL, LISTEN), LISTEN, "what the bell told needs no further poll");
    }

    #[test]
    fn whoever_rings_for_what_may_not_be_published_is_asked_not_to_for_longer() {
        let mut pace = listening();
        pace.note(0, CALM_ROWS_MAX + 1, true);
        after(&mut pace, RUNG_FOR / 2);
        pace.note(0, 0, true);
        assert!(pace.is_busy);
        after(&mut pace, RUNG_FOR);
        pace.note(0, 0, true);
        assert!(!pace.is_busy);
    }

    #[test]
    fn without_a_bell_it_only_polls() {
        let mut pace = Pace::new();
        for _ in 0..40 {
            pace.note(0, 0, false);
        }
        assert_eq!((pace.bell(), pace.pause(POLL, LISTEN)), (None, POLL));
        pace.note(1, 0, false);
        assert_eq!(pace.pause(POLL, LISTEN), PAUSE_MIN);
    }
}
