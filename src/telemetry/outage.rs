//! An outage is told once, however often what it stops is tried again.

use std::fmt::Display;
use std::time::Duration;

use tracing::warn;

/// After an error, before the next try.
pub const ERROR_WAIT: Duration = Duration::from_millis(500);

/// Whether something that is tried again and again fails now.
#[derive(Debug, Default)]
pub struct Outage {
    is_on: bool,
}

impl Outage {
    /// The value; `None` after an error. The first error in a row is logged, with what it means.
    pub fn note<T, E: Display>(&mut self, outcome: Result<T, E>, meaning: &'static str) -> Option<T> {
        match outcome {
            Ok(value) => {
                self.is_on = false;
                Some(value)
            }
            Err(error) => {
                if !self.is_on {
                    warn!(%error, "{meaning}");
                }
                self.is_on = true;
                None
            }
        }
    }

    /// Whether the last try failed.
    pub fn is_on(&self) -> bool {
        self.is_on
    }
}
