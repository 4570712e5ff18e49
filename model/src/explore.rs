//! Visits every state that can be reached, nearest first, so that the first counterexample is a shortest one.
//!
//! A state is remembered by a fingerprint of 64 bits. Two different states with one fingerprint would be taken for
//! one: with a million states that happens once in some ten million runs.
//!
//! **Nothing is lost** is a property of the whole graph. Some steps need no luck (`Action::is_recovery`). If from every
//! state there is a way along such steps to one where every row has ended, then every fair run without further
//! faults ends every row: whatever it does, the way out stays open, and fairness takes it. A state without such a way
//! is stuck, and the nearest one is the counterexample.

mod fingerprint;
mod symmetry;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::time::{Duration, Instant};

use self::fingerprint::{Known, fingerprint};
use self::symmetry::without_names;
use crate::action::Action;
use crate::properties::{NOTHING_IS_LOST, broken};
use crate::protocol::{Protocol, Step};
use crate::state::State;

/// A scope with more states than this is too large for a test.
const STATES_MAX: usize = 8_000_000;

/// What was found.
#[derive(Debug)]
pub struct Report {
    /// Distinct states.
    pub states: usize,
    /// Steps between them.
    pub steps: u64,
    /// The longest of the shortest ways to a state.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
    /// A shortest way to what must not be.
    pub counterexample: Option<Counterexample>,
}

/// A way to what must not be.
#[derive(Debug)]
pub struct Counterexample {
    /// What it breaks.
    pub property: &'static str,
    /// The steps that lead there.
    pub trace: Vec<Action>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { states, steps, depth, took, .. } = self;
        writeln!(f, "{states} states, {steps} steps, depth {depth}, {:.2} s", took.as_secs_f64())?;
        let Some(Counterexample { property, trace }) = &self.counterexample else { return write!(f, "holds") };
        writeln!(f, "not so, shown by a trace of {}: {property}", trace.len())?;
        trace.iter().enumerate().try_for_each(|(n, action)| writeln!(f, "  {:2}. {action}", n + 1))
    }
}

/// How a state was reached first.
#[derive(Debug, Clone, Copy)]
struct Origin {
    parent: u32,
    /// Which of the parent's steps.
    ordinal: u16,
}

/// Everything that is remembered of the states visited, by the order in which they were found.
#[derive(Default)]
struct Graph {
    known: HashMap<u64, u32, Known>,
    origins: Vec<Origin>,
    /// Recovery steps: targets, and where those of each state end.
    targets: Vec<u32>,
    ends: Vec<u32>,
    /// States in which every row has ended.
    done: Vec<u32>,
    steps: u64,
}

/// Visits everything, or as far as the first counterexample.
///
/// # Panics
///
/// If the scope is too large to be visited.
pub fn check(protocol: &Protocol) -> Report {
    let began = Instant::now();
    let mut graph = Graph::default();
    let initial = protocol.initial();
    graph.find(protocol, &initial, Origin { parent: 0, ordinal: 0 });
    let (mut level, mut depth) = (vec![initial], 0);
    let mut bad = None;
    while !level.is_empty() && bad.is_none() {
        (level, bad) = graph.expand(protocol, &level);
        depth += usize::from(!level.is_empty());
    }
    let bad = bad.or_else(|| graph.stuck().map(|state| (NOTHING_IS_LOST, state, None)));
    let counterexample = bad.map(|(property, state, last)| Counterexample {
        property,
        trace: graph.trace(protocol, state).into_iter().chain(last).collect(),
    });
    Report { states: graph.origins.len(), steps: graph.steps, depth, took: began.elapsed(), counterexample }
}

/// A broken property, in which state, and by which step.
type Bad = (&'static str, u32, Option<Action>);

impl Graph {
    /// The number of a state, and whether it is new.
    fn find(&mut self, protocol: &Protocol, state: &State, origin: Origin) -> (u32, bool) {
        let next = u32::try_from(self.origins.len()).unwrap_or(u32::MAX);
        let print = if protocol.is_reduced { fingerprint(&without_names(state)) } else { fingerprint(state) };
        match self.known.entry(print) {
            Entry::Occupied(known) => (*known.get(), false),
            Entry::Vacant(unknown) => {
                unknown.insert(next);
                self.origins.push(origin);
                assert!(self.origins.len() <= STATES_MAX, "more than {STATES_MAX} states: make the scope smaller");
                if protocol.is_done(state) {
                    self.done.push(next);
                }
                (next, true)
            }
        }
    }

    /// Visits the states of one level, in their order. Returns the next level.
    fn expand(&mut self, protocol: &Protocol, level: &[State]) -> (Vec<State>, Option<Bad>) {
        let mut next = Vec::new();
        let mut steps: Vec<Step> = Vec::new();
        for before in level {
            let number = u32::try_from(self.ends.len()).unwrap_or(u32::MAX);
            steps.clear();
            protocol.steps(before, &mut steps);
            for (ordinal, step) in steps.iter().enumerate() {
                self.steps += 1;
                if let Some(property) = broken(protocol, before, step) {
                    return (next, Some((property, number, Some(step.action))));
                }
                let origin = Origin { parent: number, ordinal: u16::try_from(ordinal).unwrap_or(u16::MAX) };
                let (target, is_new) = self.find(protocol, &step.after, origin);
                if is_new {
                    next.push(step.after);
                }
                if step.action.is_recovery() && target != number {
                    self.targets.push(target);
                }
            }
            self.ends.push(u32::try_from(self.targets.len()).unwrap_or(u32::MAX));
        }
        (next, None)
    }

    /// The nearest state from which no recovery leads to the end of every row.
    fn stuck(&self) -> Option<u32> {
        let (sources, starts) = self.reversed();
        let mut has_way = vec![false; self.origins.len()];
        let mut open = self.done.clone();
        for state in &open {
            has_way[*state as usize] = true;
        }
        while let Some(state) = open.pop() {
            let (from, to) = (starts[state as usize] as usize, starts[state as usize + 1] as usize);
            for source in &sources[from..to] {
                if !std::mem::replace(&mut has_way[*source as usize], true) {
                    open.push(*source);
                }
            }
        }
        has_way.iter().position(|has_way| !has_way).and_then(|state| u32::try_from(state).ok())
    }

    /// The recovery steps by their target: sources, and where those of each target start.
    fn reversed(&self) -> (Vec<u32>, Vec<u32>) {
        let mut starts = vec![0_u32; self.origins.len() + 1];
        for target in &self.targets {
            starts[*target as usize + 1] += 1;
        }
        for state in 1..starts.len() {
            starts[state] += starts[state - 1];
        }
        let (mut sources, mut free) = (vec![0; self.targets.len()], starts.clone());
        let mut from = 0;
        for (source, end) in (0_u32..).zip(&self.ends) {
            for target in &self.targets[from..*end as usize] {
                sources[free[*target as usize] as usize] = source;
                free[*target as usize] += 1;
            }
            from = *end as usize;
        }
        (sources, starts)
    }

    /// The steps that lead to a state, made again from the first.
    fn trace(&self, protocol: &Protocol, mut state: u32) -> Vec<Action> {
        let mut ordinals = Vec::new();
        while state != 0 {
            let Origin { parent, ordinal } = self.origins[state as usize];
            ordinals.push(ordinal);
            state = parent;
        }
        let (mut at, mut trace) = (protocol.initial(), Vec::new());
        for ordinal in ordinals.into_iter().rev() {
            let mut steps = Vec::new();
            protocol.steps(&at, &mut steps);
            let step = steps[usize::from(ordinal)];
            at = step.after;
            trace.push(step.action);
        }
        trace
    }
}
