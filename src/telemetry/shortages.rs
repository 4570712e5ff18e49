//! What this process lacked for its calls lately: told in the log, in metrics and, by the reports, in `health`.
//!
//! A call that could not be made for such a reason goes back, to be made after a wait that grows while it lasts: rows
//! must not go round and round meanwhile.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use metrics::counter;
use tracing::warn;

/// The first wait; it doubles once it is over and nothing has changed.
const WAIT_MIN: Duration = Duration::from_millis(200);
/// The longest wait.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// Between lines of the log.
const SAY_EVERY: Duration = Duration::from_secs(60);
/// Without another for so long, the next one is new.
const OVER_AFTER: Duration = Duration::from_secs(60);

/// The calls of this instance that could not be made.
#[derive(Debug, Default)]
pub struct Shortages(Mutex<Option<Spell>>);

/// One after the other, without a longer pause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spell {
    /// The system's name of the last error.
    pub error: &'static str,
    /// Calls that went back.
    pub calls: u64,
    /// The first.
    pub since: Instant,
    /// The last.
    pub last: Instant,
    wait: Duration,
    wait_since: Instant,
    said_at: Option<Instant>,
}

impl Shortages {
    /// A call could not be made. Says after how long it may be tried again; `random` is in `[0, 1)`.
    pub fn note(&self, error: &'static str, now: Instant, random: f64) -> Duration {
        counter!("outboxd_own_errors_total", "error" => error).increment(1);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let spell = known.take().filter(|spell| now.saturating_duration_since(spell.last) < OVER_AFTER);
        let spell = known.insert(spell.unwrap_or(Spell {
            error,
            calls: 0,
            since: now,
            last: now,
            wait: WAIT_MIN,
            wait_since: now,
            said_at: None,
        }));
        (spell.error, spell.calls, spell.last) = (error, spell.calls + 1, now);
        if now.saturating_duration_since(spell.wait_since) > spell.wait {
            (spell.wait, spell.wait_since) = ((spell.wait * 2).min(WAIT_MAX), now);
        }
        if spell.said_at.is_none_or(|said| now.saturating_duration_since(said) >= SAY_EVERY) {
            spell.said_at = Some(now);
            warn!(
                error,
                calls = spell.calls,
                "calls go back because this process lacks something; what to do: outboxd.health"
            );
        }
        spell.wait.mul_f64(0.5 + random)
    }

    /// The last ones there were.
    pub fn last(&self) -> Option<Spell> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_while_it_lasts_and_begin_anew_after_a_pause() {
        let (shortages, start) = (Shortages::default(), Instant::now());
        let at = |ms: u64| shortages.note("EMFILE", start + Duration::from_millis(ms), 0.5).as_millis();
        // Many at once have one wait.
        assert_eq!([at(0), at(0), at(100), at(201), at(300), at(700)], [200, 200, 200, 400, 400, 800]);
        assert_eq!(shortages.last().unwrap().calls, 6);
        let later: Vec<u128> = (1..=10).map(|n| at(700 + n * 15_000)).collect();
        assert_eq!(later.last(), Some(&10_000));
        assert_eq!(at(700 + 150_000 + 60_000), 200);
        assert_eq!(shortages.last().unwrap().calls, 1);
    }
}
