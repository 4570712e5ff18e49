//! Which limit keeps messages of a channel, or of a topic, waiting, for the views: the one that kept them longest since
//! the last report.

use std::time::{Duration, Instant};

/// Messages that a limit kept for less than this, of the two seconds between reports, are not told of.
const STOPPED_MIN: Duration = Duration::from_millis(200);
/// A limit that kept messages waiting so lately is told of still.
const TOLD_FOR: Duration = Duration::from_secs(6);

/// What keeps messages waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// The channel's rate.
    Rate,
    /// The calls that the channel may have under way.
    Channel,
    /// The calls that an origin may have under way.
    Origin,
    /// The topic's share of the instance's calls.
    Share,
    /// The calls that the instance may have under way.
    Concurrency,
}

impl Limit {
    const ALL: [Limit; 5] = [Limit::Rate, Limit::Channel, Limit::Origin, Limit::Share, Limit::Concurrency];

    /// What views call it: the setting that makes it, if there is one.
    pub fn name(self) -> &'static str {
        match self {
            Limit::Rate => "rate_limit",
            Limit::Channel => "max_in_flight",
            Limit::Origin => "max_in_flight_per_origin",
            Limit::Share => "share of topic",
            Limit::Concurrency => "concurrency",
        }
    }
}

/// How long messages could not start, by the limit that kept them, since that was asked last.
#[derive(Debug, Default)]
pub(in crate::channel) struct Stops {
    /// What keeps them now, and since when.
    now: Option<(Limit, Instant)>,
    spans: [Duration; Limit::ALL.len()],
    /// The limit that was told last.
    last: Option<(Limit, Instant)>,
}

impl Stops {
    pub(in crate::channel) fn begin(&mut self, limit: Limit, now: Instant) {
        if self.now.is_none_or(|(known, _)| known != limit) {
            self.end(now);
            self.now = Some((limit, now));
        }
    }

    pub(in crate::channel) fn end(&mut self, now: Instant) {
        if let Some((limit, since)) = self.now.take() {
            self.spans[limit as usize] += now.saturating_duration_since(since);
        }
    }

    /// The limit that kept them longest. A line that is empty for a moment, because the relay brings the next, has not
    /// ended.
    pub(in crate::channel) fn take(&mut self, is_waiting: bool, now: Instant) -> Option<Limit> {
        match (is_waiting, self.now) {
            (true, Some((limit, _))) => {
                self.end(now);
                self.now = Some((limit, now));
            }
            // Whoever stood there went back, or to another channel.
            _ => self.now = None,
        }
        let spans = std::mem::take(&mut self.spans);
        let longest = Limit::ALL.into_iter().max_by_key(|limit| spans[*limit as usize]);
        match longest.filter(|limit| spans[*limit as usize] >= STOPPED_MIN) {
            Some(limit) => self.last = Some((limit, now)),
            None => self.last = self.last.filter(|(_, at)| now.saturating_duration_since(*at) < TOLD_FOR),
        }
        self.last.map(|(limit, _)| limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_that_kept_messages_longest_is_told_and_for_a_while_after() {
        let began = Instant::now();
        let at = |ms: u64| began + Duration::from_millis(ms);
        let mut stops = Stops::default();
        stops.begin(Limit::Rate, at(0));
        stops.end(at(900));
        stops.begin(Limit::Concurrency, at(900));
        stops.end(at(1_200));
        assert_eq!(stops.take(false, at(2_000)), Some(Limit::Rate));
        stops.begin(Limit::Concurrency, at(2_000));
        assert_eq!(stops.take(true, at(4_000)), Some(Limit::Concurrency), "they wait still");
        assert_eq!(stops.take(false, at(6_000)), Some(Limit::Concurrency), "the line may be empty for a moment");
        assert_eq!(stops.take(false, at(11_000)), None);
    }
}
