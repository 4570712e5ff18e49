//! How large a world is explored: which rows, which queue, and how much may go wrong.

/// What may go wrong, or is done by a person. Each happens only as often as the scope allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A process is killed. Its memory and its in-process queue are gone.
    Crash,
    /// The shared queue loses all messages, or one.
    Loss,
    /// A push or its confirmation takes longer than the 5 s after which a publication is recalled.
    Delay,
    /// A process stops (SIGSTOP) and looks dead; it may go on later.
    Stall,
    /// A lease runs out although its worker is alive: its renewals did not come through.
    Expiry,
    /// Postgres has committed, but the reply is lost.
    Cut,
    /// A process goes over to its in-process queue, because Redis is away.
    Fallback,
    /// A row commits so late that the fast path has passed it.
    Missed,
    /// The provider refuses.
    Refusal,
    /// A claim is undone before its call: its channel is held.
    Undo,
    /// A message is put back unclaimed: its destination is full.
    PutBack,
    /// An operator cancels.
    Cancel,
    /// An operator retries.
    Retry,
}

const EVENTS: usize = Event::Retry as usize + 1;

/// How much may still happen: of each kind, and together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Budget {
    together: u8,
    of: [u8; EVENTS],
}

impl Budget {
    /// At most `together` events, and of each kind at most as many as named here.
    pub fn new(together: u8, kinds: &[(Event, u8)]) -> Budget {
        let mut of = [0; EVENTS];
        for (event, times) in kinds {
            of[*event as usize] = (*times).min(together);
        }
        Budget { together, of }
    }

    /// Whether it may happen once more.
    pub fn allows(&self, event: Event) -> bool {
        self.of[event as usize] > 0
    }

    /// It happens. What can no longer happen counts as used up, so that equal futures are equal states.
    pub fn spend(&mut self, event: Event) {
        self.of[event as usize] = self.of[event as usize].saturating_sub(1);
        self.together = self.together.saturating_sub(1);
        for left in &mut self.of {
            *left = (*left).min(self.together);
        }
    }
}

/// How the app writes a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// By `notify()`: QUEUED at once.
    Notify,
    /// By a plain INSERT: PENDING until the producer releases it.
    Insert,
}

/// One notification of the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// Whether it has the ordering key. There is one in each topic.
    pub has_key: bool,
    /// Which topic it belongs to.
    pub topic: u8,
    /// How the app writes it.
    pub written: Written,
}

/// A row without a key.
pub const PLAIN: Kind = Kind { has_key: false, topic: 0, written: Written::Notify };
/// A row with the key.
pub const KEYED: Kind = Kind { has_key: true, topic: 0, written: Written::Notify };
/// A row with the same key in another topic.
pub const KEYED_ELSEWHERE: Kind = Kind { topic: 1, ..KEYED };
/// A row with the key that the producer releases.
pub const KEYED_INSERT: Kind = Kind { has_key: true, topic: 0, written: Written::Insert };

/// In which order the app's transactions run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum App {
    /// One after the other: then the rows of a key must be sent in that order.
    OneAfterAnother,
    /// At the same time: numbers may commit out of order, and there is no order to keep.
    AtOnce,
}

/// What carries messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// One queue for all: Redis.
    Shared,
    /// Each process has its own.
    InProcess,
}

/// A bounded world.
#[derive(Debug, Clone, Copy)]
pub struct Scope {
    /// Its rows: one to three.
    pub rows: &'static [Kind],
    /// How the app writes them.
    pub app: App,
    /// What carries messages.
    pub queue: Queue,
    /// Attempts before a row is FAILED.
    pub attempts_max: u8,
    /// What may happen.
    pub budget: Budget,
}

impl Scope {
    /// Whether two rows have one key.
    pub fn share_key(&self, one: u8, other: u8) -> bool {
        let (one, other) = (&self.rows[usize::from(one)], &self.rows[usize::from(other)]);
        one.has_key && other.has_key && one.topic == other.topic
    }
}
