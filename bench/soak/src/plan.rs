//! What will happen and when: drawn from the seed before anything starts, so the same options give the same schedule.

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};

/// A lease of the instances under test, and the longest that a call may take.
pub(super) const LEASE: Duration = Duration::from_secs(6);
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(2);
/// Before the first fault, so that a baseline is seen, and after the last.
const QUIET_BEFORE: Duration = Duration::from_secs(3);
const QUIET_AFTER: Duration = Duration::from_secs(4);
/// A server is left alone for so long after it is back.
const PAUSE_AFTER: Duration = Duration::from_secs(2);

/// Which queue carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Queue {
    /// A Redis stream.
    Stream,
    /// Redis lists.
    List,
    /// In process; no Redis at all.
    Memory,
}

impl Queue {
    /// As the configuration calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Queue::Stream => "stream",
            Queue::List => "list",
            Queue::Memory => "memory",
        }
    }
}

/// The kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum)]
pub(super) enum Kind {
    /// SIGKILL to an instance, then a new one.
    InstanceKill,
    /// SIGSTOP beyond the lease, then SIGCONT.
    InstanceStop,
    /// SIGTERM, its drain, then a new one.
    InstanceDrain,
    /// Its wall clock jumps, and jumps back.
    InstanceClock,
    /// `pg_terminate_backend` of all sessions of all instances.
    PostgresTerminate,
    /// An immediate stop, a while, a start.
    PostgresImmediate,
    /// A fast stop, a while, a start.
    PostgresFast,
    /// The primary is killed; the standby, which lacks the last second, is promoted.
    PostgresFailover,
    /// The primary freezes; the same.
    PostgresFreeze,
    /// SIGKILL, and at once a new, empty one.
    RedisRestart,
    /// FLUSHALL.
    RedisFlush,
    /// SIGKILL, and the replica takes over.
    RedisFailover,
    /// SIGKILL, a while, a new, empty one.
    RedisAway,
    /// An instance's links to Postgres are reset, new ones too.
    PostgresCut,
    /// An instance's links to Postgres are open on its side only.
    PostgresHalfOpen,
    /// An instance's links to Postgres carry nothing; what is under way arrives afterwards.
    PostgresSilent,
    /// An instance's links to Redis are reset, new ones too.
    RedisCut,
    /// An instance's links to Redis are open on its side only.
    RedisHalfOpen,
    /// Replies of Redis to an instance vanish.
    RedisSwallow,
    /// An app transaction stays open after `notify()`, then commits.
    OpenTransaction,
    /// A provider answers 503 to everything.
    ProviderDown,
    /// An operator cancels, retries, pauses and resumes.
    Operator,
}

/// What a fault keeps others from touching at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Postgres,
    Redis,
    Instance(usize),
    App,
    Provider,
    Operator,
}

impl Kind {
    /// All that this queue can meet.
    pub(super) fn all(queue: Queue) -> Vec<Kind> {
        let needs_redis = |kind: &Kind| kind.to_string().starts_with("redis");
        Kind::value_variants().iter().copied().filter(|kind| queue != Queue::Memory || !needs_redis(kind)).collect()
    }

    /// How often it is in the bag that faults are drawn from.
    fn weight(self) -> usize {
        match self {
            Kind::InstanceKill => 3,
            Kind::InstanceStop | Kind::PostgresTerminate | Kind::RedisFlush | Kind::Operator => 2,
            _ => 1,
        }
    }

    /// How long it lasts, in seconds.
    fn lasts(self) -> std::ops::Range<f64> {
        match self {
            Kind::InstanceKill => 0.0..3.0,
            Kind::InstanceStop => LEASE.as_secs_f64() + 1.0..LEASE.as_secs_f64() * 2.5,
            Kind::InstanceClock => 5.0..20.0,
            Kind::PostgresImmediate | Kind::PostgresFast => 1.0..25.0,
            Kind::PostgresFreeze => 5.0..20.0,
            Kind::RedisAway => 5.0..60.0,
            Kind::PostgresTerminate => 0.0..6.0,
            Kind::PostgresCut | Kind::RedisCut => 0.1..5.0,
            Kind::PostgresHalfOpen | Kind::PostgresSilent | Kind::RedisHalfOpen | Kind::RedisSwallow => 2.0..15.0,
            Kind::OpenTransaction => 3.0..30.0,
            Kind::ProviderDown => 2.0..12.0,
            Kind::Operator => 1.0..6.0,
            Kind::InstanceDrain | Kind::PostgresFailover | Kind::RedisRestart | Kind::RedisFlush => 0.0..0.1,
            Kind::RedisFailover => 0.0..1.0,
        }
    }

    fn part(self, target: usize) -> Part {
        match self {
            Kind::PostgresTerminate
            | Kind::PostgresImmediate
            | Kind::PostgresFast
            | Kind::PostgresFailover
            | Kind::PostgresFreeze => Part::Postgres,
            Kind::RedisRestart | Kind::RedisFlush | Kind::RedisFailover | Kind::RedisAway => Part::Redis,
            Kind::OpenTransaction => Part::App,
            Kind::ProviderDown => Part::Provider,
            Kind::Operator => Part::Operator,
            _ => Part::Instance(target),
        }
    }

    /// Whether Redis forgets.
    pub(super) fn loses_redis(self) -> bool {
        matches!(self, Kind::RedisRestart | Kind::RedisFlush | Kind::RedisFailover | Kind::RedisAway)
    }

    /// Whether the tail of what was committed may be gone.
    pub(super) fn loses_tail(self) -> bool {
        matches!(self, Kind::PostgresFailover | Kind::PostgresFreeze)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.to_possible_value().as_ref().map_or("", |value| value.get_name()))
    }
}

/// One fault of the schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    /// Since the start.
    pub(super) at: Duration,
    /// What.
    pub(super) kind: Kind,
    /// Which instance, where it is about one.
    pub(super) target: usize,
    /// Until it is healed.
    pub(super) lasts: Duration,
    /// Chance for details.
    pub(super) dice: u32,
}

/// What the schedule is drawn from.
#[derive(Debug, Clone)]
pub(super) struct Options {
    pub(super) seed: u64,
    pub(super) span: Duration,
    pub(super) faults_per_minute: f64,
    pub(super) instances: usize,
    pub(super) kinds: Vec<Kind>,
}

/// The schedule. Kinds are drawn from a bag that holds each of them, so none is left out for long.
pub(super) fn draw(options: &Options) -> Vec<Fault> {
    let mut random = StdRng::seed_from_u64(options.seed);
    let (mut faults, mut bag) = (Vec::new(), Vec::new());
    let mut busy: Vec<(Part, Duration)> = Vec::new();
    let end = options.span.saturating_sub(QUIET_AFTER);
    let mean_s = 60.0 / options.faults_per_minute.max(0.01);
    let mut at = QUIET_BEFORE;
    while at < end && !options.kinds.is_empty() {
        if bag.is_empty() {
            bag = options.kinds.iter().flat_map(|kind| std::iter::repeat_n(*kind, kind.weight())).collect();
            bag.shuffle(&mut random);
        }
        let fault = throw(&mut random, options, at);
        // Of the bag, the first that touches nothing that is broken and that ends in time.
        let free = |part: Part| !busy.iter().any(|(other, until)| *other == part && *until > at);
        let fits = |kind: &Kind| free(kind.part(fault.target)) && at + longest(*kind, options, &fault) < end;
        if let Some(place) = bag.iter().rposition(fits) {
            let kind = bag.remove(place);
            let lasts = longest(kind, options, &fault);
            busy.push((kind.part(fault.target), at + lasts + PAUSE_AFTER));
            faults.push(Fault { kind, lasts, ..fault });
        }
        // Between half and one and a half of the mean.
        at += Duration::from_secs_f64(mean_s * random.random_range(0.5..1.5));
    }
    faults
}

/// Chance, the same number of draws whatever comes of it.
fn throw(random: &mut StdRng, options: &Options, at: Duration) -> Fault {
    let target = random.random_range(0..options.instances.max(1));
    let (share, dice) = (random.random_range(0..1000), random.random::<u32>());
    Fault { at, kind: Kind::Operator, target, lasts: Duration::from_millis(share), dice }
}

/// How long this kind lasts with this draw; in a short run, shorter.
fn longest(kind: Kind, options: &Options, drawn: &Fault) -> Duration {
    let range = kind.lasts();
    let most = range.end.min(options.span.as_secs_f64() / 5.0).max(range.start);
    let share = drawn.lasts.as_millis() as f64 / 1000.0;
    Duration::from_millis(((range.start + (most - range.start) * share) * 1000.0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(seed: u64, queue: Queue) -> Options {
        let kinds = Kind::all(queue);
        Options { seed, span: Duration::from_secs(600), faults_per_minute: 6.0, instances: 3, kinds }
    }

    #[test]
    fn the_same_seed_gives_the_same_schedule() {
        assert_eq!(draw(&options(7, Queue::Stream)), draw(&options(7, Queue::Stream)));
        assert_ne!(draw(&options(7, Queue::Stream)), draw(&options(8, Queue::Stream)));
    }

    #[test]
    fn every_kind_comes_within_ten_minutes_and_ends_before_the_end() {
        for seed in 0..20 {
            let faults = draw(&options(seed, Queue::Stream));
            for kind in Kind::all(Queue::Stream) {
                assert!(faults.iter().any(|fault| fault.kind == kind), "seed {seed} has no {kind}");
            }
            assert!(faults.iter().all(|fault| fault.at + fault.lasts < Duration::from_secs(600)));
        }
    }

    #[test]
    fn without_redis_nothing_happens_to_redis() {
        assert!(draw(&options(7, Queue::Memory)).iter().all(|fault| !fault.kind.loses_redis()));
    }

    #[test]
    fn two_faults_never_break_the_same_part_at_once() {
        for seed in 0..20 {
            let faults = draw(&options(seed, Queue::List));
            for (place, fault) in faults.iter().enumerate() {
                let part = fault.kind.part(fault.target);
                let meets = |other: &Fault| other.kind.part(other.target) == part && other.at < fault.at + fault.lasts;
                assert!(!faults[place + 1..].iter().any(meets), "seed {seed}: {fault:?}");
            }
        }
    }
}
