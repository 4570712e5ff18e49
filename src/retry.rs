//! What follows a failed attempt: wait, the next channel, or give up. And how long to wait before we try again what
//! failed or is expensive. Pure: no clock, no runtime, and the random number is an argument.
//!
//! | failure | not the last channel | the last channel |
//! |---|---|---|
//! | permanent | next channel at once | give up |
//! | transient | backoff, `attempts_before_failover` times, then next channel | backoff, `max_attempts` times, then give up |
//! | ambiguous | as transient, with one attempt more | as transient |
//! | unreadable | give up | give up |
//!
//! An ambiguous failure may have been a delivery, so the same channel, where the receiver can recognise the
//! repeat by its `webhook-id`, is always asked once more before another channel delivers a second time.
//! An unreadable one is our own error and would be the same again: it is left to an operator.
//!
//! A provider's `Retry-After` lengthens the backoff. It neither adds attempts nor stops the failover.
//!
//! May change: the formula of the backoff. Must not: an ambiguous failure going to another channel without a repeat.

use std::time::Duration;

use crate::config::{Backoff, RouteConfig, WhileHeld};

/// Why an attempt did not succeed, as the caller must decide on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Failure {
    /// It may work later: the provider is busy, down or unreachable. Nothing was delivered.
    Transient,
    /// It will never work this way: the provider or the template refused it.
    Permanent,
    /// The request went out and no answer came back: it may have been delivered.
    Ambiguous,
    /// The provider accepted the request, and our own rule cannot tell what its answer means: it may have been
    /// delivered, and asking again would not tell.
    Unreadable,
}

impl Failure {
    /// The name used in SQL, logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Failure::Transient => "transient",
            Failure::Permanent => "permanent",
            Failure::Ambiguous | Failure::Unreadable => "unknown",
        }
    }

    /// Whether it may have been delivered all the same.
    pub fn is_unknown(self) -> bool {
        matches!(self, Failure::Ambiguous | Failure::Unreadable)
    }
}

/// Where on its route a notification stands after an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Index into the route's channels.
    pub channel: usize,
    /// Attempts on this channel, the one just made included.
    pub attempts: u32,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The same channel again, after this wait.
    Retry(Duration),
    /// The route's next channel, at once.
    NextChannel,
    /// Nothing is left to try: FAILED.
    GiveUp,
}

/// Decides what follows a failed attempt.
///
/// `retry_after` is what the provider asked for, already capped by the channel; it counts where it is longer
/// than the backoff. `random` is in `[0, 1)` and spreads the backoff.
pub fn decide(
    route: &RouteConfig,
    position: Position,
    failure: Failure,
    retry_after: Option<Duration>,
    random: f64,
) -> Decision {
    let is_last = position.channel + 1 >= route.channels.len();
    let onward = if is_last { Decision::GiveUp } else { Decision::NextChannel };
    let attempts_max = match (failure, is_last) {
        (Failure::Permanent, _) => return onward,
        (Failure::Unreadable, _) => return Decision::GiveUp,
        (_, true) => route.max_attempts,
        (Failure::Transient, false) => route.attempts_before_failover.min(route.max_attempts),
        (Failure::Ambiguous, false) => route.attempts_before_failover.min(route.max_attempts).saturating_add(1),
    };
    if position.attempts >= attempts_max {
        return onward;
    }
    let wait = backoff(&route.backoff, position.attempts, random);
    Decision::Retry(wait.max(retry_after.unwrap_or_default()))
}

/// Whether work goes on with the route's next channel while this one is held, or waits for it. The last is always
/// waited for.
pub fn moves_on_while_held(route: &RouteConfig, channel: usize, is_failing: bool) -> bool {
    let has_next = channel + 1 < route.channels.len();
    route.while_held == WhileHeld::Failover && is_failing && has_next
}

/// The wait after the `attempts`-th failure in a row: `base · 2^(attempts - 1)`, spread by ± `jitter`, never
/// above `max`.
///
/// The unspread wait stays below `max / (1 + jitter)`, so that long waits are spread as well and do not
/// gather at `max`.
pub fn backoff(backoff: &Backoff, attempts: u32, random: f64) -> Duration {
    let jitter = if backoff.jitter.is_finite() { backoff.jitter.clamp(0.0, 1.0) } else { 0.0 };
    let max = backoff.max.as_secs_f64();
    let doublings = i32::try_from(attempts.saturating_sub(1)).unwrap_or(i32::MAX);
    // Overflows to infinity, which `min` brings back.
    let wait = (backoff.base.as_secs_f64() * 2f64.powi(doublings)).min(max / (1.0 + jitter));
    let spread = wait * (1.0 - jitter + 2.0 * jitter * random.clamp(0.0, 1.0));
    Duration::try_from_secs_f64(spread).unwrap_or(backoff.max).min(backoff.max)
}

/// Waits between tries of our own while Postgres or the queue is away: doubled up to a limit, and spread.
#[derive(Debug, Clone, Copy)]
pub struct ErrorWait(Duration);

impl ErrorWait {
    const MIN: Duration = Duration::from_millis(50);
    const MAX: Duration = Duration::from_secs(2);

    /// The wait after this error; the next is longer. `random` is in `[0, 1)`.
    pub fn next(&mut self, random: f64) -> Duration {
        let wait = self.0;
        self.0 = (wait * 2).min(ErrorWait::MAX);
        wait.mul_f64(0.5 + random)
    }
}

/// No error yet.
impl Default for ErrorWait {
    fn default() -> ErrorWait {
        ErrorWait(ErrorWait::MIN)
    }
}

/// Whether a search for work took so little that it is made whenever it may find some.
pub fn is_cheap(took: Duration) -> bool {
    took < Duration::from_millis(3)
}

/// How long to leave the database alone after work that took so long: at least `every`, and so long that the work takes
/// no more than a twentieth of the time. What is cheap now may become expensive, behind somebody's old snapshot.
pub fn rest_after(took: Duration, every: Duration) -> Duration {
    every.max(took * 20)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config;

    const BASE: Duration = Duration::from_secs(5);

    fn route(channels: usize, max_attempts: u32, attempts_before_failover: u32) -> RouteConfig {
        let channels = (0..channels).map(|n| format!("channel-{n}")).collect();
        let mut defaults = config::defaults().routes["default"].clone();
        (defaults.backoff.base, defaults.backoff.jitter) = (BASE, 0.0);
        RouteConfig { channels, max_attempts, attempts_before_failover, while_held: WhileHeld::Wait, ..defaults }
    }

    fn at(channel: usize, attempts: u32) -> Position {
        Position { channel, attempts }
    }

    #[test]
    fn each_failure_leads_where_the_table_says() {
        use Decision::{GiveUp, NextChannel, Retry};
        use Failure::{Ambiguous, Permanent, Transient, Unreadable};
        let three = route(3, 4, 3);
        let hasty = route(2, 1, 1);
        let cases = [
            (&three, at(0, 1), Permanent, NextChannel),
            (&three, at(2, 1), Permanent, GiveUp),
            (&three, at(0, 1), Transient, Retry(BASE)),
            (&three, at(0, 2), Transient, Retry(BASE * 2)),
            (&three, at(0, 3), Transient, NextChannel),
            (&three, at(1, 3), Transient, NextChannel),
            (&three, at(2, 3), Transient, Retry(BASE * 4)),
            (&three, at(2, 4), Transient, GiveUp),
            (&three, at(0, 3), Ambiguous, Retry(BASE * 4)),
            (&three, at(0, 4), Ambiguous, NextChannel),
            (&three, at(2, 4), Ambiguous, GiveUp),
            (&three, at(0, 1), Unreadable, GiveUp),
            (&hasty, at(0, 1), Transient, NextChannel),
            (&hasty, at(0, 1), Ambiguous, Retry(BASE)),
            (&hasty, at(0, 2), Ambiguous, NextChannel),
            (&hasty, at(1, 1), Ambiguous, GiveUp),
            (&hasty, at(9, 1), Transient, GiveUp),
        ];
        for (route, position, failure, expected) in cases {
            assert_eq!(decide(route, position, failure, None, 0.5), expected, "{position:?} {failure:?}");
        }
    }

    #[test]
    fn max_attempts_bounds_every_channel() {
        let route = route(2, 2, 5);
        assert_eq!(decide(&route, at(0, 2), Failure::Transient, None, 0.5), Decision::NextChannel);
    }

    #[test]
    fn retry_after_counts_where_it_is_longer_than_the_backoff() {
        let route = route(1, 4, 3);
        for (asked, expected) in [(1, BASE), (60, Duration::from_secs(60))] {
            let asked = Some(Duration::from_secs(asked));
            let decision = decide(&route, at(0, 1), Failure::Transient, asked, 0.5);
            assert_eq!(decision, Decision::Retry(expected));
        }
    }

    #[test]
    fn held_work_waits_unless_the_route_says_failover_and_has_a_next_channel() {
        let mut route = route(2, 4, 3);
        assert!(!moves_on_while_held(&route, 0, true));
        route.while_held = WhileHeld::Failover;
        assert!(moves_on_while_held(&route, 0, true));
        assert!(!moves_on_while_held(&route, 0, false), "paused, 401 or Retry-After");
        assert!(!moves_on_while_held(&route, 1, true));
    }

    #[test]
    fn waits_after_errors_double_up_to_two_seconds() {
        let mut wait = ErrorWait::default();
        let waits: Vec<u128> = (0..8).map(|_| wait.next(0.5).as_millis()).collect();
        assert_eq!(waits, [50, 100, 200, 400, 800, 1_600, 2_000, 2_000]);
    }

    proptest! {
        #[test]
        fn backoff_never_exceeds_its_max(
            base_ms in 0u64..=u64::MAX, max_ms in 0u64..=u64::MAX, jitter in any::<f64>(),
            attempts in any::<u32>(), random in 0.0f64..1.0,
        ) {
            let limits = Backoff { base: Duration::from_millis(base_ms), max: Duration::from_millis(max_ms), jitter };
            prop_assert!(backoff(&limits, attempts, random) <= limits.max);
        }

        #[test]
        fn backoff_never_shrinks_with_attempts(
            base_ms in 1u64..100_000, max_ms in 1u64..100_000_000, jitter in 0.0f64..=1.0,
            attempts in 0u32..100, random in 0.0f64..1.0,
        ) {
            let limits = Backoff { base: Duration::from_millis(base_ms), max: Duration::from_millis(max_ms), jitter };
            prop_assert!(backoff(&limits, attempts, random) <= backoff(&limits, attempts + 1, random));
        }

        #[test]
        fn jitter_spreads_around_the_wait_and_no_further(jitter in 0.0f64..=1.0, random in 0.0f64..1.0) {
            let limits = Backoff { base: Duration::from_secs(10), max: Duration::from_secs(3600), jitter };
            let wait = backoff(&limits, 1, random).as_secs_f64();
            prop_assert!(wait >= 10.0 * (1.0 - jitter) - 1e-6 && wait <= 10.0 * (1.0 + jitter) + 1e-6);
        }

        #[test]
        fn every_route_ends(
            channels in 1usize..5, max_attempts in 0u32..10, before in 0u32..10,
            failures in prop::collection::vec(0u8..3, 200),
        ) {
            let route = route(channels, max_attempts, before);
            let mut position = at(0, 1);
            let mut calls = 0usize;
            for failure in failures {
                calls += 1;
                let failure = [Failure::Transient, Failure::Permanent, Failure::Ambiguous][failure as usize];
                match decide(&route, position, failure, None, 0.5) {
                    Decision::Retry(_) => position.attempts += 1,
                    Decision::NextChannel => position = at(position.channel + 1, 1),
                    Decision::GiveUp => break,
                }
                prop_assert!(position.channel < channels);
            }
            prop_assert!(calls <= channels * (max_attempts as usize + 1).max(1), "{calls} calls");
        }
    }
}
