//! The circuit breaker of a provider, or of one origin of it. Pure: the time is an argument.
//!
//! ```text
//!            failures or 401/403 in a row             time over: one probe
//!   closed ───────────────────────────────► open ───────────────────────────► half-open
//!     ▲                                      ▲                                  │   │
//!     └──────────────────────────────────────┼────────── the probe succeeds ────┘   │
//!                                            └── it fails: open for twice as long ──┘
//! ```
//!
//! It is open for at most `open_max`, or for as long as the provider asked for (`Retry-After`) if that is longer.
//! `Retry-After` alone opens it in the same way but needs no probe: the provider said when to come back. 401/403 are counted where all instances see them: see [`CircuitChange::Refused`].

use std::time::{Duration, Instant};

use super::{Cause, Failed, Outcome};
use crate::config::CircuitConfig;
use crate::retry::Failure;

/// An end that would move by less than this is left where it is: many 429 at once open it once.
const OPEN_STEP_MIN: Duration = Duration::from_secs(1);
/// Whoever waits for a probe under way asks again after this: mostly it is over long before it must be.
const PROBE_POLL: Duration = Duration::from_secs(1);

/// Why calls are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OpenReason {
    /// The provider asked for it.
    RetryAfter,
    /// Too many failures in a row: the circuit is open.
    Failures,
    /// Too many 401/403 in a row: the circuit is open.
    Unauthorized,
}

impl OpenReason {
    /// Every reason.
    pub const ALL: [OpenReason; 3] = [OpenReason::RetryAfter, OpenReason::Failures, OpenReason::Unauthorized];

    /// The name used in SQL, logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            OpenReason::RetryAfter => "retry_after",
            OpenReason::Failures => "failures",
            OpenReason::Unauthorized => "unauthorized",
        }
    }

    /// The inverse of [`OpenReason::name`].
    pub fn parse(name: &str) -> Option<OpenReason> {
        OpenReason::ALL.into_iter().find(|reason| reason.name() == name)
    }

    fn is_circuit(self) -> bool {
        self != OpenReason::RetryAfter
    }
}

/// A circuit that is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Open {
    /// When it is over; then an open circuit is half-open.
    pub until: Instant,
    /// Why.
    pub reason: OpenReason,
    /// How often the circuit opened without closing in between; 0 for `Retry-After`.
    pub openings: u32,
}

/// Whether a call may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Yes.
    Go,
    /// This one alone, to see whether the provider is back.
    Probe,
    /// Not before then.
    OpenUntil(Instant),
}

/// On which verdict a call was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// [`Verdict::Go`].
    Normal,
    /// [`Verdict::Probe`].
    Probe,
}

/// What all instances have to learn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CircuitChange {
    /// Calls are held for this long from now.
    Open {
        /// How long.
        wait: Duration,
        /// Why.
        reason: OpenReason,
        /// How often in a row; to be kept with it.
        openings: u32,
        /// The provider asked for this wait.
        is_asked: bool,
    },
    /// The circuit closed: calls go out again.
    Close,
    /// The probe said nothing about the provider: another may be made.
    ProbeAgain,
    /// The provider refused our credentials: to be counted with what the other instances hear. What completes the
    /// streak calls [`Circuit::open_refused`].
    Refused,
    /// It knows us after all: the count starts anew.
    Recognised,
}

impl CircuitChange {
    /// Whether a circuit is another than it was.
    pub fn is_decision(self) -> bool {
        !matches!(self, CircuitChange::Refused | CircuitChange::Recognised)
    }
}

/// The circuit of one (channel, origin).
#[derive(Debug, Default)]
pub struct Circuit {
    failures: u32,
    /// A refusal that was heard here is counted.
    is_refused: bool,
    open: Option<Open>,
    /// Work was told to wait until then, at the latest.
    waits_until: Option<Instant>,
    probe_until: Option<Instant>,
}

/// What an outcome says about the provider.
enum Signal {
    /// Nothing: it was not asked.
    None,
    /// It works.
    Works,
    /// It answered and refused this one request, or asks us to slow down.
    Answers,
    /// It does not know us.
    Unauthorized,
    /// It fails.
    Fails,
}

impl Circuit {
    /// Until when and why it is open; past that time it waits for its probe.
    pub fn opened(&self) -> Option<Open> {
        self.open
    }

    /// Whether there is nothing to remember.
    pub fn is_idle(&self) -> bool {
        self.open.is_none() && self.failures == 0 && !self.is_refused
    }

    /// Is open as somebody decided, here or elsewhere.
    pub fn set_open(&mut self, open: Open) {
        self.waits_until = self.waits_until.max(Some(open.until));
        self.open = Some(open);
    }

    /// Whether work was told to wait for longer than this; asked when the circuit is closed, and answered once.
    pub fn take_waits(&mut self, now: Instant) -> bool {
        self.waits_until.take().is_some_and(|until| until > now)
    }

    /// Leaves the probe to another instance until then.
    pub fn leave_probe_until(&mut self, until: Instant) {
        self.probe_until = Some(until);
    }

    /// Lets somebody else make the probe.
    pub fn give_back_probe(&mut self) {
        self.probe_until = None;
    }

    /// Until when calls wait, if they do: for the end of its time, or for the probe that is under way.
    pub fn held_until(&self, now: Instant) -> Option<Instant> {
        let open = self.open?;
        if open.until > now {
            return Some(open.until);
        }
        let probe_until = self.probe_until.filter(|until| *until > now && open.reason.is_circuit())?;
        Some(probe_until.min(now + PROBE_POLL))
    }

    /// Whether a call may be made now. [`Verdict::Probe`] is given once; the next only after `probe_for`,
    /// should the first never report.
    pub fn verdict(&mut self, now: Instant, probe_for: Duration) -> Verdict {
        if let Some(until) = self.held_until(now) {
            return Verdict::OpenUntil(until);
        }
        match self.open {
            Some(open) if open.reason.is_circuit() => {
                self.probe_until = Some(now + probe_for);
                Verdict::Probe
            }
            _ => {
                self.open = None;
                Verdict::Go
            }
        }
    }

    /// Takes an outcome in and says what changed for everybody.
    pub fn on_outcome(
        &mut self,
        config: &CircuitConfig,
        pass: Pass,
        now: Instant,
        outcome: &Outcome,
    ) -> Option<CircuitChange> {
        if pass == Pass::Probe {
            self.probe_until = None;
        }
        let is_open = self.open.is_some_and(|open| open.reason.is_circuit());
        let change = match signal(outcome) {
            Signal::None => return (pass == Pass::Probe).then_some(CircuitChange::ProbeAgain),
            Signal::Works => self.close(),
            // Of the calls that began before the circuit opened only a success says that it should close.
            Signal::Answers if is_open && pass == Pass::Normal => None,
            Signal::Answers => self.close(),
            Signal::Unauthorized if pass == Pass::Probe => Some(self.trip(config, now, OpenReason::Unauthorized)),
            Signal::Unauthorized => {
                if !is_open {
                    self.failures = 0;
                    self.is_refused = true;
                }
                Some(CircuitChange::Refused)
            }
            Signal::Fails if is_open && pass == Pass::Normal => None,
            Signal::Fails => {
                self.failures += 1;
                let due = pass == Pass::Probe || self.failures >= config.failures.max(1);
                due.then(|| self.trip(config, now, OpenReason::Failures))
            }
        };
        match outcome {
            Outcome::Failed(Failed { failure: Failure::Transient, retry_after: Some(wait), .. }) => {
                self.stay_open_at_least(now, *wait).or(change)
            }
            _ => change,
        }
    }

    /// The streak of refusals is complete; many calls at once may find it so.
    pub fn open_refused(&mut self, config: &CircuitConfig, now: Instant) -> Option<CircuitChange> {
        let is_open = self.open.is_some_and(|open| open.reason.is_circuit());
        (!is_open).then(|| self.trip(config, now, OpenReason::Unauthorized))
    }

    fn close(&mut self) -> Option<CircuitChange> {
        self.failures = 0;
        let was_refused = std::mem::take(&mut self.is_refused);
        if self.open.is_some_and(|open| open.reason.is_circuit()) {
            self.open = None;
            return Some(CircuitChange::Close);
        }
        was_refused.then_some(CircuitChange::Recognised)
    }

    fn trip(&mut self, config: &CircuitConfig, now: Instant, reason: OpenReason) -> CircuitChange {
        let (held_until, openings) = self.open.map_or((now, 0), |open| (open.until, open.openings));
        let longest = config.open_max.max(config.open_for);
        let wait = config.open_for.saturating_mul(1u32.checked_shl(openings).unwrap_or(u32::MAX)).min(longest);
        let openings = openings.saturating_add(1);
        let until = held_until.max(now + wait);
        self.set_open(Open { until, reason, openings });
        self.failures = 0;
        self.is_refused = false;
        CircuitChange::Open { wait: until.duration_since(now), reason, openings, is_asked: until > now + wait }
    }

    /// Open for as long as the provider asked for; an open circuit stays one.
    fn stay_open_at_least(&mut self, now: Instant, wait: Duration) -> Option<CircuitChange> {
        let held_until = self.open.map_or(now, |open| open.until.max(now));
        if wait.is_zero() || (self.open.is_some() && now + wait < held_until + OPEN_STEP_MIN) {
            return None;
        }
        let (reason, openings) = self.open.map_or((OpenReason::RetryAfter, 0), |open| (open.reason, open.openings));
        self.set_open(Open { until: now + wait, reason, openings });
        Some(CircuitChange::Open { wait, reason, openings, is_asked: true })
    }
}

fn signal(outcome: &Outcome) -> Signal {
    match outcome {
        Outcome::Sent { .. } => Signal::Works,
        Outcome::Short(_) | Outcome::Failed(Failed { cause: Cause::Template | Cause::Guard, .. }) => Signal::None,
        Outcome::Failed(failed) if failed.is_unauthorized() => Signal::Unauthorized,
        Outcome::Failed(Failed { status: Some(429), retry_after: Some(_), .. }) => Signal::Answers,
        Outcome::Failed(Failed { failure: Failure::Permanent, .. }) => Signal::Answers,
        Outcome::Failed(_) => Signal::Fails,
    }
}
