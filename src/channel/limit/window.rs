//! A rate: in no span of `per` do more than `count` calls start.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::config::RateLimit;

/// Starts remembered at most; a higher rate is kept as the same rate over a shorter span.
const STARTS_MAX: u32 = 10_000;
/// Starts that are late by up to this are made up for; after a longer pause the spread begins anew.
const CATCH_UP: Duration = Duration::from_millis(100);
/// The soonest that a rate is asked again: so a claim is for several rows where the rate is high.
const RATE_WAIT_MIN: Duration = Duration::from_millis(20);

/// The starts of the last `per`, oldest first, and those that were permitted and are to come.
#[derive(Debug)]
pub(super) struct Window {
    count: usize,
    per: Duration,
    starts: VecDeque<Instant>,
    reserved: usize,
    /// When the next start would be on time, if all were evenly spread.
    next: Option<Instant>,
}

impl Window {
    pub(super) fn new(limit: RateLimit) -> Window {
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

    pub(super) fn per_second(&self) -> f64 {
        self.count as f64 / self.per.as_secs_f64()
    }

    /// Permits a start, or says how long until there is room for one.
    pub(super) fn reserve(&mut self, now: Instant) -> Result<(), Duration> {
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

    pub(super) fn start(&mut self, now: Instant) {
        self.reserved -= 1;
        self.starts.push_back(now);
    }

    /// What was permitted does not start.
    pub(super) fn give_back(&mut self) {
        self.reserved -= 1;
        self.next = self.next.and_then(|next| next.checked_sub(self.step()));
    }

    /// From one start to the next, if all are evenly spread.
    fn step(&self) -> Duration {
        self.per / u32::try_from(self.count).unwrap_or(u32::MAX)
    }
}
