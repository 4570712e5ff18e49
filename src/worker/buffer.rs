//! The buffer in which messages wait, unclaimed, until they may start.
//!
//! They stand in lines, one for each destination of a topic and channel. Turns are nested: channels take turns, in each
//! of them its topics, and in each of those its destinations. So neither a full destination nor the backlog of another
//! topic keeps anybody waiting.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;

use super::recorder::Acks;
use crate::channel::failover::Provider;
use crate::channel::share::Shares;
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
    pub(super) topic: Arc<str>,
    pub(super) messages: VecDeque<Taken>,
}

/// What became of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// A message started.
    Started,
    /// A message started, and nothing else of its line may.
    StartedLast,
    /// Nothing started, nor will anything else of this.
    Stop(Level),
}

/// What cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Line,
    Topic,
    Channel,
    Instance,
}

/// Whoever takes turns with its like.
trait TakesTurns {
    /// The next of it starts, if it may.
    fn turn(&mut self, round: u64, start: &mut dyn FnMut(&mut Line) -> Turn) -> Turn;

    fn is_empty(&self) -> bool;

    fn lines<'a>(&'a mut self, each: &mut dyn FnMut(&'a mut Line));
}

impl TakesTurns for Line {
    fn turn(&mut self, _: u64, start: &mut dyn FnMut(&mut Line) -> Turn) -> Turn {
        start(self)
    }

    fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    fn lines<'a>(&'a mut self, each: &mut dyn FnMut(&'a mut Line)) {
        each(self);
    }
}

/// Members that take turns.
struct Ring<K, T> {
    /// What has stopped when all members have.
    level: Level,
    members: HashMap<K, Member<T>>,
    /// The next first.
    turns: VecDeque<K>,
    /// Who stopped in this round, and had started nothing in it; and who had. What comes free next is for the first.
    waiting: VecDeque<K>,
    served: VecDeque<K>,
    round: u64,
}

struct Member<T> {
    inner: T,
    /// The last round in which it started something.
    started_in: u64,
}

impl<K: Hash + Eq + Clone, T: TakesTurns> Ring<K, T> {
    fn new(level: Level) -> Ring<K, T> {
        let (turns, waiting, served) = Default::default();
        Ring { level, members: HashMap::new(), turns, waiting, served, round: 0 }
    }

    /// The member of this name; a new one goes last.
    fn member(&mut self, key: &K, new: impl FnOnce() -> T) -> &mut T {
        if !self.members.contains_key(key) {
            self.turns.push_back(key.clone());
        }
        &mut self.members.entry(key.clone()).or_insert_with(|| Member { inner: new(), started_in: 0 }).inner
    }

    fn begin_round(&mut self, round: u64) {
        if self.round < round {
            self.round = round;
            self.waiting.append(&mut self.turns);
            self.waiting.append(&mut self.served);
            self.turns.append(&mut self.waiting);
        }
    }

    fn forget_empty(&mut self) {
        self.members.retain(|_, member| !member.inner.is_empty());
        for turns in [&mut self.turns, &mut self.waiting, &mut self.served] {
            turns.retain(|key| self.members.contains_key(key));
        }
    }
}

impl<K: Hash + Eq + Clone, T: TakesTurns> TakesTurns for Ring<K, T> {
    fn turn(&mut self, round: u64, start: &mut dyn FnMut(&mut Line) -> Turn) -> Turn {
        self.begin_round(round);
        while let Some(key) = self.turns.pop_front() {
            let Some(member) = self.members.get_mut(&key) else { continue };
            let turn = member.inner.turn(round, start);
            if !matches!(turn, Turn::Stop(_)) {
                member.started_in = round;
            }
            let has_started = member.started_in == round;
            if member.inner.is_empty() {
                self.members.remove(&key);
            } else {
                match turn {
                    Turn::Started => self.turns.push_back(key),
                    // Not for its own sake: it keeps its place.
                    Turn::Stop(level) if level >= self.level => self.turns.push_front(key),
                    Turn::StartedLast => self.served.push_back(key),
                    Turn::Stop(_) if has_started => self.served.push_back(key),
                    Turn::Stop(_) => self.waiting.push_back(key),
                }
            }
            match turn {
                Turn::Started | Turn::StartedLast => return Turn::Started,
                Turn::Stop(level) if level >= self.level => return turn,
                Turn::Stop(_) => {}
            }
        }
        Turn::Stop(self.level)
    }

    fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    fn lines<'a>(&'a mut self, each: &mut dyn FnMut(&'a mut Line)) {
        for member in self.members.values_mut() {
            member.inner.lines(each);
        }
    }
}

/// By origin, by topic, by channel; messages that go nowhere have no channel and no origin.
type Destinations = Ring<Option<Arc<str>>, Line>;
type Topics = Ring<Arc<str>, Destinations>;
type Channels = Ring<Option<Arc<str>>, Topics>;

/// All lines of one instance.
pub(super) struct Buffer {
    channels: Channels,
    messages: usize,
    /// Messages whose destinations are being read.
    expected: usize,
    round: u64,
    shares: Arc<Shares>,
}

impl Buffer {
    /// Tells `shares` what waits of each topic.
    pub(super) fn new(shares: Arc<Shares>) -> Buffer {
        Buffer { channels: Ring::new(Level::Instance), messages: 0, expected: 0, round: 0, shares }
    }

    /// Messages that wait, or are to come.
    pub(super) fn len(&self) -> usize {
        self.messages + self.expected
    }

    /// So many messages are to come.
    pub(super) fn expect(&mut self, messages: usize) {
        self.expected += messages;
    }

    /// They have come.
    pub(super) fn have_come(&mut self, messages: usize) {
        self.expected -= messages;
    }

    /// Messages of one topic join the line of their destination, up to `length_max` of them in all. Returns the others.
    pub(super) fn join(&mut self, destination: Destination, taken: Vec<Taken>, length_max: usize) -> Vec<Taken> {
        let Some(first) = taken.first().filter(|_| length_max > 0) else { return taken };
        let topic = Arc::clone(&first.delivery.message.topic);
        let (channel, origin) = destination
            .as_ref()
            .map(|(provider, origin)| (Arc::clone(provider.channel.name()), Arc::clone(origin)))
            .unzip();
        let line = self
            .channels
            .member(&channel, || Ring::new(Level::Channel))
            .member(&topic, || Ring::new(Level::Topic))
            .member(&origin, || Line { destination, topic: Arc::clone(&topic), messages: VecDeque::new() });
        let joining = length_max.saturating_sub(line.messages.len()).min(taken.len());
        let mut taken = taken.into_iter();
        line.messages.extend(taken.by_ref().take(joining));
        if let Some((provider, _)) = &line.destination {
            provider.limits.begin_waiting(&topic, joining);
        }
        self.shares.begin_waiting(&topic, joining);
        self.messages += joining;
        taken.collect()
    }

    /// Everybody gets a turn, again and again, until nothing may start any more.
    pub(super) fn take_turns(&mut self, mut turn: impl FnMut(&mut Line) -> Turn) {
        self.round += 1;
        let Buffer { channels, messages, round, shares, .. } = self;
        let mut counted = |line: &mut Line| {
            let before = line.messages.len();
            let outcome = turn(line);
            *messages -= gone(line, before, shares);
            outcome
        };
        while channels.turn(*round, &mut counted) == Turn::Started {}
    }

    /// Of each line that has more messages than `keep` says, the newest go back with what `back` makes of them.
    pub(super) fn shorten<B>(
        &mut self,
        mut keep: impl FnMut(&Line) -> usize,
        mut back: impl FnMut(&Line, Taken) -> B,
    ) -> Vec<B> {
        let mut shortened = Vec::new();
        let Buffer { channels, messages, shares, .. } = self;
        channels.lines(&mut |line| {
            let before = line.messages.len();
            let left = line.messages.split_off(keep(line).min(before));
            shortened.extend(left.into_iter().map(|taken| back(line, taken)));
            *messages -= gone(line, before, shares);
        });
        self.forget_empty();
        shortened
    }

    fn forget_empty(&mut self) {
        for channel in self.channels.members.values_mut() {
            for topic in channel.inner.members.values_mut() {
                topic.inner.forget_empty();
            }
            channel.inner.forget_empty();
        }
        self.channels.forget_empty();
    }
}

/// Messages that are not in the line any more do not wait.
fn gone(line: &Line, before: usize, shares: &Shares) -> usize {
    let gone = before - line.messages.len();
    if gone > 0 {
        if let Some((provider, _)) = &line.destination {
            provider.limits.end_waiting(&line.topic, gone);
        }
        shares.end_waiting(&line.topic, gone);
    }
    gone
}

/// What is left goes back to the queue with its consumer.
impl Drop for Buffer {
    fn drop(&mut self) {
        let Buffer { channels, shares, .. } = self;
        channels.lines(&mut |line| {
            let before = line.messages.len();
            line.messages.clear();
            gone(line, before, shares);
        });
    }
}
