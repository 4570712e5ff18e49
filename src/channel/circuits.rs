//! The circuits of all channels and origins: asked before each call, told after each, and kept in step with the
//! other instances through [`Circuits::apply`].
//!
//! It knows no database. What it returns as [`CircuitChange`] is to be written where all instances see
//! it, and what is written there is to be given back every second or so. Healthy origins take no memory.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::circuit::{Circuit, CircuitChange, Open, OpenReason, Pass, Verdict};
use super::{CHANNEL_WIDE, Cause, Outcome};
use crate::config::{ChannelConfig, CircuitConfig};

/// Origins of one channel with failures at most. Of more those are forgotten that failed longest ago: whoever has
/// thousands that fail takes nobody else's circuit away.
pub const ORIGINS_MAX: usize = 10_000;
/// So many of them are forgotten at a time, so that they are not searched for one by one.
const FORGOTTEN: usize = ORIGINS_MAX / 10;
/// What was decided here stands against older news from outside for this long.
const OWN_WORD: Duration = Duration::from_secs(3);
/// Failures in a row are forgotten after this long without another.
const STREAK_MAX_AGE: Duration = Duration::from_secs(600);
/// What a probe may take beyond the call's own timeout before another may be made.
pub const PROBE_SLACK: Duration = Duration::from_secs(5);

/// The circuits of all channels.
#[derive(Debug)]
pub struct Circuits {
    rules: HashMap<String, Rule>,
    /// By channel, then origin.
    entries: Mutex<HashMap<String, HashMap<Arc<str>, Entry>>>,
}

#[derive(Debug)]
struct Rule {
    circuit: CircuitConfig,
    probe_for: Duration,
}

#[derive(Debug)]
struct Entry {
    circuit: Circuit,
    /// The last outcome.
    seen_at: Instant,
    /// When this instance last opened or closed it.
    decided_at: Option<Instant>,
}

impl Entry {
    fn new(now: Instant) -> Entry {
        Entry { circuit: Circuit::default(), seen_at: now, decided_at: None }
    }

    /// Whether what all instances see replaces what was decided here.
    fn takes(&self, shared: &SharedCircuit, now: Instant) -> bool {
        !self.is_own_word(now) || shared.changed_at > self.decided_at
    }

    /// Whether its time is not over.
    fn is_in_force(&self, now: Instant) -> bool {
        self.circuit.opened().is_some_and(|open| open.until > now)
    }

    fn is_own_word(&self, now: Instant) -> bool {
        self.decided_at.is_some_and(|at| now.saturating_duration_since(at) < OWN_WORD)
    }
}

/// A circuit as all instances see it.
#[derive(Debug, Clone)]
pub struct SharedCircuit {
    /// Which channel.
    pub channel: String,
    /// Which origin of it.
    pub origin: String,
    /// How much of it is left by the clock it was written with; zero for a circuit that waits for its probe.
    pub left: Duration,
    /// Why; `None`: an operator ended it.
    pub reason: Option<OpenReason>,
    /// When it was written, at the earliest: what an instance decided before that is older news. `None`: long ago.
    pub changed_at: Option<Instant>,
    /// How often in a row the circuit opened.
    pub openings: u32,
    /// How long another instance still has for the probe it took.
    pub probe_elsewhere: Option<Duration>,
}

/// What may go that could not.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Freed {
    /// Something closed.
    pub has_closed: bool,
    /// Channels of which something closed before its time: what waits for that time need not.
    pub closed_early: BTreeSet<String>,
    /// Channels that are to be probed before their time.
    pub probed: BTreeSet<String>,
}

impl Freed {
    fn note_closed(&mut self, channel: &str, entry: &mut Entry, now: Instant) {
        self.has_closed |= entry.circuit.opened().is_some();
        if entry.circuit.take_waits(now) {
            self.closed_early.insert(channel.to_owned());
        }
    }

    /// Whether there is something to search for.
    pub fn is_some(&self) -> bool {
        self.has_closed || !self.probed.is_empty()
    }
}

impl Circuits {
    /// No circuit is open.
    pub fn new(channels: &BTreeMap<String, ChannelConfig>) -> Circuits {
        let rule =
            |config: &ChannelConfig| Rule { circuit: config.circuit.clone(), probe_for: config.timeout + PROBE_SLACK };
        Circuits {
            rules: channels.iter().map(|(name, config)| (name.clone(), rule(config))).collect(),
            entries: Mutex::default(),
        }
    }

    /// Whether a call may be made now. After [`Verdict::Probe`] the caller either makes the call and reports
    /// it with [`Pass::Probe`], or gives the probe back.
    pub fn may_call(&self, channel: &str, origin: &str, now: Instant) -> Verdict {
        let mut entries = self.lock();
        match (entries.get_mut(channel).and_then(|origins| origins.get_mut(origin)), self.rules.get(channel)) {
            (Some(entry), Some(rule)) => entry.circuit.verdict(now, rule.probe_for),
            _ => Verdict::Go,
        }
    }

    /// How long calls are still held, if they are; grants no probe.
    pub fn held_for(&self, channel: &str, origin: &str, now: Instant) -> Option<Duration> {
        let entries = self.lock();
        let until = entries.get(channel)?.get(origin)?.circuit.held_until(now)?;
        Some(until.saturating_duration_since(now))
    }

    /// Whether its circuit is open because calls fail.
    pub fn is_failing(&self, channel: &str, origin: &str) -> bool {
        let entries = self.lock();
        let open = entries.get(channel).and_then(|origins| origins.get(origin)?.circuit.opened());
        open.is_some_and(|open| open.reason == OpenReason::Failures)
    }

    /// How long its circuit is still open, if it is because the provider refuses our credentials.
    pub fn refuses_credentials(&self, channel: &str, origin: &str, now: Instant) -> Option<Duration> {
        let entries = self.lock();
        let open = entries.get(channel)?.get(origin)?.circuit.opened()?;
        (open.reason == OpenReason::Unauthorized).then(|| open.until.saturating_duration_since(now))
    }

    /// Takes an outcome in. What it returns concerns all instances.
    pub fn on_outcome(
        &self,
        channel: &str,
        origin: &Arc<str>,
        pass: Pass,
        now: Instant,
        outcome: &Outcome,
    ) -> Option<CircuitChange> {
        let rule = self.rules.get(channel)?;
        let mut entries = self.lock();
        if entries.get(channel).is_none_or(|origins| !origins.contains_key(origin)) {
            if !is_worth_an_entry(outcome) {
                return None;
            }
            let origins = entries.entry(channel.to_owned()).or_default();
            if origins.len() >= ORIGINS_MAX {
                forget_oldest(origins);
            }
            origins.insert(Arc::clone(origin), Entry::new(now));
        }
        let origins = entries.get_mut(channel)?;
        let entry = origins.get_mut(origin)?;
        let change = entry.circuit.on_outcome(&rule.circuit, pass, now, outcome);
        entry.seen_at = now;
        if change.is_some() {
            entry.decided_at = Some(now);
        } else if entry.circuit.is_idle() && !entry.is_own_word(now) {
            origins.remove(origin);
        }
        change
    }

    /// Another instance makes the probe until then.
    pub fn probe_is_elsewhere(&self, channel: &str, origin: &str, until: Instant) {
        self.with(channel, origin, |circuit| circuit.leave_probe_until(until));
    }

    /// The probe was granted and not made.
    pub fn give_back_probe(&self, channel: &str, origin: &str) {
        self.with(channel, origin, Circuit::give_back_probe);
    }

    /// Updates them with what all instances see: a whole snapshot, taken at `now`. Says what became free.
    pub fn apply(&self, shared: &[SharedCircuit], now: Instant) -> Freed {
        let mut entries = self.lock();
        let mut freed = Freed::default();
        let known: HashMap<(&str, &str), &SharedCircuit> =
            shared.iter().map(|seen| ((seen.channel.as_str(), seen.origin.as_str()), seen)).collect();
        for (channel, origins) in entries.iter_mut() {
            origins.retain(|origin, entry| {
                if entry.circuit.opened().is_none() {
                    // Closed here, perhaps.
                    freed.note_closed(channel, entry, now);
                }
                if known.contains_key(&(channel.as_str(), &**origin)) || entry.is_own_word(now) {
                    return true;
                }
                // Closed elsewhere, or by an operator. A streak that opened nothing yet is known here only.
                freed.note_closed(channel, entry, now);
                entry.circuit.opened().is_none() && now.saturating_duration_since(entry.seen_at) < STREAK_MAX_AGE
            });
        }
        for seen in shared.iter().filter(|seen| self.rules.contains_key(&seen.channel)) {
            let origins = entries.entry(seen.channel.clone()).or_default();
            let Some(reason) = seen.reason else {
                let is_ended = |entry: &Entry| entry.circuit.opened().is_some() && entry.takes(seen, now);
                for (_, mut entry) in origins.extract_if(|origin, entry| **origin == *seen.origin && is_ended(entry)) {
                    freed.note_closed(&seen.channel, &mut entry, now);
                }
                continue;
            };
            // As old as it is for those that wrote it.
            let new = || Entry::new(seen.changed_at.or(now.checked_sub(STREAK_MAX_AGE)).unwrap_or(now));
            let entry = origins.entry(Arc::from(seen.origin.as_str())).or_insert_with(new);
            if !entry.takes(seen, now) {
                continue;
            }
            if seen.left.is_zero() && entry.is_in_force(now) {
                freed.probed.insert(seen.channel.clone());
            }
            entry.circuit.set_open(Open { until: now + seen.left, reason, openings: seen.openings });
            if let Some(left) = seen.probe_elsewhere {
                entry.circuit.leave_probe_until(now + left);
            }
        }
        freed
    }

    /// How many are remembered.
    pub fn len(&self) -> usize {
        self.lock().values().map(HashMap::len).sum()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Those that are open or wait for their probe: channel, origin, until when and why.
    pub fn open(&self) -> Vec<(String, Arc<str>, Open)> {
        let entries = self.lock();
        let all = entries.iter().flat_map(|(channel, origins)| {
            origins
                .iter()
                .filter_map(move |(origin, entry)| Some((channel.clone(), Arc::clone(origin), entry.circuit.opened()?)))
        });
        all.collect()
    }

    fn with(&self, channel: &str, origin: &str, change: impl FnOnce(&mut Circuit)) {
        if let Some(entry) = self.lock().get_mut(channel).and_then(|origins| origins.get_mut(origin)) {
            change(&mut entry.circuit);
        }
    }

    /// Entries stay usable even if a thread panicked while it held them.
    fn lock(&self) -> MutexGuard<'_, HashMap<String, HashMap<Arc<str>, Entry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What holds for the channel as a whole is kept.
fn forget_oldest(origins: &mut HashMap<Arc<str>, Entry>) {
    let mut times: Vec<Instant> = origins.values().map(|entry| entry.seen_at).collect();
    let left = times.len().saturating_sub(ORIGINS_MAX - FORGOTTEN);
    let (_, last, _) = times.select_nth_unstable(left.min(times.len() - 1));
    let (last, mut left) = (*last, left);
    origins.retain(|origin, entry| {
        let goes = left > 0 && entry.seen_at <= last && **origin != *CHANNEL_WIDE;
        left -= usize::from(goes);
        !goes
    });
}

/// Only what may become a streak or open a circuit is remembered.
fn is_worth_an_entry(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Sent { .. } | Outcome::Short(_) => false,
        Outcome::Failed(failed) => !matches!(failed.cause, Cause::Template | Cause::Guard),
    }
}
