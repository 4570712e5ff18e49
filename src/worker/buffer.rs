//! The buffer in which messages wait, unclaimed, until they may start.
//!
//! They stand in lines, one for each destination and topic, and the lines take turns: a full destination keeps nobody
//! else waiting, and neither does the backlog of another topic for the same destination.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::recorder::Acks;
use crate::channel::failover::Provider;
use crate::queue::Delivery;

/// A message that was taken, and how to acknowledge it.
pub(super) struct Taken {
    pub(super) delivery: Delivery,
    pub(super) acks: Acks,
}

/// Where a message goes, as far as can be told before its claim. `None`: nowhere, its claim will tell why.
pub(super) type Destination = Option<(Arc<Provider>, Arc<str>)>;

/// Messages for one destination of one topic, in the order they came.
pub(super) struct Line {
    pub(super) destination: Destination,
    pub(super) messages: VecDeque<Taken>,
    /// Some of it started in this round of turns.
    has_started: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    channel: Option<Arc<str>>,
    origin: Option<Arc<str>>,
    topic: Arc<str>,
}

/// What became of a line's turn.
pub(super) enum Turn {
    /// It may go on.
    Again,
    /// It cannot go on for now.
    Stop,
}

/// All lines of one instance.
#[derive(Default)]
pub(super) struct Buffer {
    lines: HashMap<Key, Line>,
    /// Lines with messages, the next first.
    turns: VecDeque<Key>,
    messages: usize,
}

impl Buffer {
    /// Messages that wait.
    pub(super) fn len(&self) -> usize {
        self.messages
    }

    fn key(destination: &Destination, topic: &Arc<str>) -> Key {
        let (channel, origin) = destination
            .as_ref()
            .map(|(provider, origin)| (Arc::clone(provider.channel.name()), Arc::clone(origin)))
            .unzip();
        Key { channel, origin, topic: Arc::clone(topic) }
    }

    /// Messages of one topic join the line of their destination, up to `length_max` of them in all. Returns the others.
    pub(super) fn join(&mut self, destination: Destination, taken: Vec<Taken>, length_max: usize) -> Vec<Taken> {
        let Some(first) = taken.first() else { return taken };
        let key = Buffer::key(&destination, &first.delivery.message.topic);
        let line = self.lines.entry(key.clone()).or_insert_with(|| Line {
            destination,
            messages: VecDeque::new(),
            has_started: false,
        });
        if line.messages.is_empty() {
            self.turns.push_back(key);
        }
        let joining = length_max.saturating_sub(line.messages.len()).min(taken.len());
        let mut taken = taken.into_iter();
        line.messages.extend(taken.by_ref().take(joining));
        if let Some((provider, _)) = &line.destination {
            provider.limits.begin_waiting(joining);
        }
        self.messages += joining;
        taken.collect()
    }

    /// Each line gets its turn, again and again, until it says stop or is empty.
    pub(super) fn take_turns(&mut self, mut turn: impl FnMut(&mut Line) -> Turn) {
        // Who started something stands behind those who could not: what comes free next is theirs.
        let (mut waiting, mut served) = (VecDeque::new(), VecDeque::new());
        while let Some(key) = self.turns.pop_front() {
            let Some(line) = self.lines.get_mut(&key) else { continue };
            let before = line.messages.len();
            let outcome = turn(line);
            let gone = before - line.messages.len();
            self.messages -= gone;
            line.has_started |= gone > 0;
            if let Some((provider, _)) = &line.destination {
                provider.limits.end_waiting(gone);
            }
            if line.messages.is_empty() {
                self.lines.remove(&key);
                continue;
            }
            match outcome {
                Turn::Again => self.turns.push_back(key),
                Turn::Stop if line.has_started => served.push_back(key),
                Turn::Stop => waiting.push_back(key),
            }
        }
        waiting.append(&mut served);
        self.turns = waiting;
        for key in &self.turns {
            if let Some(line) = self.lines.get_mut(key) {
                line.has_started = false;
            }
        }
    }
}

/// What is left goes back to the queue with its consumer.
impl Drop for Buffer {
    fn drop(&mut self) {
        for line in self.lines.values() {
            if let Some((provider, _)) = &line.destination {
                provider.limits.end_waiting(line.messages.len());
            }
        }
    }
}
