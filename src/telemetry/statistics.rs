//! What happened since it was last taken, counted in memory: per topic, per channel and origin, and how long it took.
//!
//! The loops of an instance add to it; the upkeep takes it every few seconds and adds it to the tables that the views
//! `throughput`, `latency` and `channel_health` read. What is in here when a process dies is missing from those views;
//! nothing else depends on it. Bounded: beyond [`NAMES_MAX`] topics or origins within a few seconds the rest share
//! [`OTHER`]; totals are exact whatever their number.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Topics, and origins of channels, counted by name until it is taken: more than an instance sends to in that time.
pub const NAMES_MAX: usize = 10_000;
/// All the others.
pub const OTHER: &str = "(other)";
/// The subject of a span of whichever topic.
const ALL: &str = "";
/// Of an error only its beginning is shown.
const ERROR_CHARS_MAX: usize = 300;
/// Buckets for 0.1 ms … 12 days; what is beyond counts with the last.
const BUCKETS: std::ops::RangeInclusive<f64> = -13.0..=120.0;

/// The counts of one instance. Cheap to add to: one lock for a batch.
#[derive(Debug, Default)]
pub struct Statistics(Mutex<Counts>);

/// What was counted.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Counts {
    /// Messages pushed.
    pub published: u64,
    /// By topic.
    pub topics: HashMap<String, Topic>,
    /// By channel and origin.
    pub channels: HashMap<(String, String), Channel>,
    /// Spans of time: how many fell into a bucket.
    pub spans: HashMap<Span, u64>,
}

/// What became of a topic's notifications.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Topic {
    /// Became SENT.
    pub sent: u64,
    /// Became FAILED.
    pub failed: u64,
    /// Attempts that are followed by another.
    pub retried: u64,
}

/// What became of calls.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Channel {
    /// Answered with success.
    pub sent: u64,
    /// Failed for sure.
    pub failed: u64,
    /// The outcome is unknown.
    pub unknown: u64,
    /// The last error.
    pub last_error: Option<String>,
}

/// What a span of time is of, and its bucket: about 2^(bucket/4) ms.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// `notify`, `seen` or `call`.
    pub measure: &'static str,
    /// A topic, or a channel for `call`.
    pub subject: String,
    /// An origin for `call`, else empty.
    pub origin: String,
    /// Which bucket.
    pub bucket: i16,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Called<'a> {
    /// With success.
    Sent,
    /// With this error.
    Failed(&'a str),
    /// Nobody knows; this is what was seen.
    Unknown(&'a str),
    /// Nobody was called, for this reason.
    Refused(&'a str),
}

impl Statistics {
    /// To add to.
    pub fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All that was counted; from here on it is counted anew.
    pub fn take(&self) -> Counts {
        std::mem::take(&mut *self.counts())
    }

    /// What was taken and could not be told is counted with the next.
    pub fn put_back(&self, taken: Counts) {
        let mut counts = self.counts();
        counts.published += taken.published;
        for (topic, add) in taken.topics {
            let entry = counts.topic(&topic);
            entry.sent += add.sent;
            entry.failed += add.failed;
            entry.retried += add.retried;
        }
        for ((channel, origin), add) in taken.channels {
            let entry = counts.channel(&channel, &origin);
            entry.sent += add.sent;
            entry.failed += add.failed;
            entry.unknown += add.unknown;
            entry.last_error = entry.last_error.take().or(add.last_error);
        }
        for (span, add) in taken.spans {
            *counts.spans.entry(span).or_default() += add;
        }
    }
}

impl Counts {
    /// Whether nothing happened.
    pub fn is_empty(&self) -> bool {
        self.published == 0 && self.topics.is_empty() && self.channels.is_empty() && self.spans.is_empty()
    }

    /// A notification became SENT.
    pub fn sent(&mut self, topic: &str, since_notify: Duration, since_seen: Duration) {
        self.topic(topic).sent += 1;
        let topic = if self.topics.contains_key(topic) { topic } else { OTHER };
        self.span("notify", topic, "", since_notify);
        self.span("notify", ALL, "", since_notify);
        self.span("seen", topic, "", since_seen);
    }

    /// Of these notifications some became FAILED and some wait for another attempt.
    pub fn attempted<'a>(&mut self, all: impl Iterator<Item = (i64, &'a str)>, failed: &[i64], waiting: &[i64]) {
        let topics: HashMap<i64, &str> = all.collect();
        for topic in failed.iter().filter_map(|id| topics.get(id)) {
            self.topic(topic).failed += 1;
        }
        for topic in waiting.iter().filter_map(|id| topics.get(id)) {
            self.topic(topic).retried += 1;
        }
    }

    /// Notifications became FAILED.
    pub fn failed(&mut self, topic: &str, rows: u64) {
        self.topic(topic).failed += rows;
    }

    /// A provider was called, or was to be.
    pub fn called(&mut self, channel: &str, origin: &str, duration: Duration, called: Called<'_>) {
        let entry = self.channel(channel, origin);
        match called {
            Called::Sent => entry.sent += 1,
            Called::Failed(_) => entry.failed += 1,
            Called::Unknown(_) => entry.unknown += 1,
            Called::Refused(_) => {}
        }
        if let Called::Failed(error) | Called::Unknown(error) | Called::Refused(error) = called {
            entry.last_error = Some(error.chars().take(ERROR_CHARS_MAX).collect());
        }
        if let Called::Refused(_) = called {
            return;
        }
        let is_named = self.channels.contains_key(&(channel.to_owned(), origin.to_owned()));
        self.span("call", channel, if is_named { origin } else { OTHER }, duration);
    }

    fn topic(&mut self, topic: &str) -> &mut Topic {
        let name = if self.topics.len() < NAMES_MAX || self.topics.contains_key(topic) { topic } else { OTHER };
        match self.topics.entry(name.to_owned()) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(Topic::default()),
        }
    }

    fn channel(&mut self, channel: &str, origin: &str) -> &mut Channel {
        let key = (channel.to_owned(), origin.to_owned());
        let is_named = self.channels.len() < NAMES_MAX || self.channels.contains_key(&key);
        let key = if is_named { key } else { (key.0, OTHER.to_owned()) };
        self.channels.entry(key).or_default()
    }

    fn span(&mut self, measure: &'static str, subject: &str, origin: &str, span: Duration) {
        let span = Span { measure, subject: subject.to_owned(), origin: origin.to_owned(), bucket: bucket(span) };
        *self.spans.entry(span).or_default() += 1;
    }
}

/// Four buckets to a doubling: a value read from one is within 9 %.
fn bucket(span: Duration) -> i16 {
    let position = (span.as_secs_f64() * 1_000.0).log2() * 4.0;
    // Within i16 by the clamp; log2(0) is minus infinity and clamped too.
    position.round().clamp(*BUCKETS.start(), *BUCKETS.end()) as i16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_within_9_percent_of_what_fell_into_it() {
        for tenths in 2..50_000u64 {
            let span = Duration::from_micros(tenths * 100);
            let shown = 2f64.powf(f64::from(bucket(span)) / 4.0);
            let ratio = shown / (span.as_secs_f64() * 1_000.0);
            assert!((0.91..1.10).contains(&ratio), "{span:?} is shown as {shown} ms");
        }
        assert_eq!(bucket(Duration::ZERO), -13);
        assert_eq!(bucket(Duration::MAX), 120);
    }

    #[test]
    fn names_beyond_the_limit_share_one() {
        let mut counts = Counts::default();
        for n in 0..NAMES_MAX * 2 {
            counts.sent(&format!("t{n}"), Duration::from_millis(5), Duration::from_millis(1));
            counts.called("hook", &format!("https://{n}.example"), Duration::from_millis(3), Called::Failed("no"));
        }
        counts.sent("t0", Duration::from_millis(5), Duration::from_millis(1));
        assert_eq!(counts.topics["t0"].sent, 2);
        assert_eq!(counts.topics[OTHER].sent, NAMES_MAX as u64);
        assert_eq!(counts.channels[&("hook".to_owned(), OTHER.to_owned())].failed, NAMES_MAX as u64);
        assert_eq!(counts.spans.keys().filter(|span| span.measure == "call").count(), NAMES_MAX + 1);
    }

    #[test]
    fn what_is_refused_before_the_call_is_told_and_is_no_call() {
        let mut counts = Counts::default();
        counts.called("hook", "", Duration::ZERO, Called::Refused("template body: `payload.x` is undefined"));
        let channel = &counts.channels[&("hook".to_owned(), String::new())];
        assert_eq!((channel.sent, channel.failed, channel.unknown), (0, 0, 0));
        assert!(channel.last_error.is_some() && counts.spans.is_empty());
    }

    #[test]
    fn what_is_put_back_is_counted_with_the_next() {
        let statistics = Statistics::default();
        statistics.counts().failed("t", 2);
        statistics.counts().called("hook", "", Duration::from_millis(3), Called::Unknown("gone"));
        let taken = statistics.take();
        assert!(statistics.take().is_empty());
        statistics.counts().failed("t", 1);
        statistics.counts().called("hook", "", Duration::from_millis(3), Called::Failed("newer"));
        statistics.put_back(taken);
        let all = statistics.take();
        assert_eq!(all.topics["t"].failed, 3);
        let channel = &all.channels[&("hook".to_owned(), String::new())];
        assert_eq!((channel.failed, channel.unknown), (1, 1));
        assert_eq!(channel.last_error.as_deref(), Some("newer"));
        assert_eq!(all.spans.values().sum::<u64>(), 2);
    }
}
