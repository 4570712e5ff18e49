//! Who listens to what, and how far this instance has come in each stream.
//!
//! Every event of a topic that somebody listens to passes here once, is made a message once, and goes into the mailbox
//! of each session that wants it. What a stream holds a second time (Redis lost it, and it was appended again) is told
//! by its position and goes to nobody.
//!
//! **Guarantee.** A session gets each event of its topics once, in order, or a gap. **Limit.** So many topics are read
//! at a time, not all of them for one token; more are refused.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::frame::{self, Frame};
use super::mailbox::{Mailbox, Put};
use crate::queue::events::{Entry, EntryId, Event, Mark};

/// Topics that are read at most: each read names all of them.
pub(super) const TOPICS_MAX: usize = 1_000;

/// Of these, first asked for by one token: it leaves the others a share.
const OF_TOKEN_MAX: usize = 750;

/// A session, as the hub knows it.
#[derive(Debug, Clone)]
pub(super) struct Listener {
    /// Used once.
    pub number: u64,
    /// The token by which it came; `None`: there are no tokens.
    pub token: Option<Arc<str>>,
    /// Only events of this key; `None`: all.
    pub key: Option<Arc<str>>,
    pub mailbox: Arc<Mailbox>,
}

/// What came of joining.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Joined {
    /// Everything after this comes to the mailbox.
    After(Mark),
    /// Nobody listens yet, so nobody knows where the stream is.
    Unknown,
    /// Too many topics.
    Full,
}

#[derive(Debug, Default)]
pub(super) struct Hub {
    topics: Mutex<HashMap<Arc<str>, Topic>>,
    /// A topic was added.
    added: Notify,
}

#[derive(Debug)]
struct Topic {
    /// How far it was read.
    mark: Mark,
    /// Of whoever asked for it first.
    token: Option<Arc<str>>,
    listeners: HashMap<Option<Arc<str>>, HashMap<u64, Arc<Mailbox>>>,
}

impl Hub {
    fn topics(&self) -> MutexGuard<'_, HashMap<Arc<str>, Topic>> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `end`: where the stream ends, if the caller has asked.
    pub(super) fn join(&self, topic: &Arc<str>, listener: &Listener, end: Option<Mark>) -> Joined {
        let mut topics = self.topics();
        if !topics.contains_key(topic) {
            let token = listener.token.clone();
            let of_token = || topics.values().filter(|topic| topic.token == token).count();
            if topics.len() >= TOPICS_MAX || (token.is_some() && of_token() >= OF_TOKEN_MAX) {
                return Joined::Full;
            }
            let Some(mark) = end else { return Joined::Unknown };
            topics.insert(Arc::clone(topic), Topic { mark, token, listeners: HashMap::new() });
            self.added.notify_one();
        }
        let Some(known) = topics.get_mut(topic) else { return Joined::Unknown };
        let of_key = known.listeners.entry(listener.key.clone()).or_default();
        of_key.insert(listener.number, Arc::clone(&listener.mailbox));
        Joined::After(known.mark.clone())
    }

    /// Nothing more comes to this session.
    pub(super) fn leave(&self, wanted: impl Iterator<Item = Arc<str>>, listener: &Listener) {
        let mut topics = self.topics();
        for topic in wanted {
            let Some(known) = topics.get_mut(&topic) else { continue };
            if let Some(of_key) = known.listeners.get_mut(&listener.key) {
                of_key.remove(&listener.number);
                if of_key.is_empty() {
                    known.listeners.remove(&listener.key);
                }
            }
            if known.listeners.is_empty() {
                topics.remove(&topic);
            }
        }
    }

    /// How far a topic was read. Everything up to there is in the mailboxes, or was.
    pub(super) fn position(&self, topic: &str) -> Option<i64> {
        self.topics().get(topic).map(|topic| topic.mark.position)
    }

    /// Where to read on.
    pub(super) fn cursors(&self) -> Vec<(Arc<str>, EntryId)> {
        self.topics().iter().map(|(name, topic)| (Arc::clone(name), topic.mark.entry)).collect()
    }

    /// Waits until a topic is added. Cancel-safe.
    pub(super) async fn added(&self) {
        self.added.notified().await;
    }

    /// The stream has given fewer ids than we have seen: it is another one. It is read from its beginning, and the
    /// positions tell what is new.
    pub(super) fn begin_anew(&self, name: &str, seen: EntryId) {
        if let Some(topic) = self.topics().get_mut(name)
            && topic.mark.entry == seen
        {
            topic.mark.entry = EntryId::START;
        }
    }

    /// Puts an entry into the mailboxes of those who want it. Returns who is behind.
    pub(super) fn deliver(&self, name: &str, entry: &Entry) -> Vec<Arc<Mailbox>> {
        let mut topics = self.topics();
        let Some((name, _)) = topics.get_key_value(name) else { return Vec::new() };
        let name = Arc::clone(name);
        let Some(topic) = topics.get_mut(&name) else { return Vec::new() };
        // The topic was left and joined again while this was read.
        if entry.entry <= topic.mark.entry {
            return Vec::new();
        }
        topic.mark.entry = entry.entry;
        let Some(event) = &entry.event else { return Vec::new() };
        let after = topic.mark.position;
        let news = judge(&topic.mark, event);
        if news == News::Repeat {
            return Vec::new();
        }
        topic.mark.position = event.position;
        if topic.mark.created_at < event.created_at {
            topic.mark.created_at.clone_from(&event.created_at);
        }
        let mut behind = Vec::new();
        if news == News::AfterGap {
            let gap = Arc::new(frame::gap(&name, after, Some(event.position)));
            topic.listeners.values_mut().for_each(|of_key| put(of_key, &gap, &mut behind));
        }
        let key = Some(Arc::from(event.key.as_str()));
        if topic.listeners.contains_key(&None) || topic.listeners.contains_key(&key) {
            let Some(frame) = frame::event(&name, event).map(Arc::new) else { return behind };
            for key in [None, key] {
                if let Some(of_key) = topic.listeners.get_mut(&key) {
                    put(of_key, &frame, &mut behind);
                }
            }
        }
        behind
    }
}

fn put(listeners: &mut HashMap<u64, Arc<Mailbox>>, frame: &Arc<Frame>, behind: &mut Vec<Arc<Mailbox>>) {
    listeners.retain(|_, mailbox| {
        let put = mailbox.put(frame);
        if put == Put::Behind {
            behind.push(Arc::clone(mailbox));
        }
        put != Put::Over
    });
}

/// What an event is to those who have all up to `mark`.
#[derive(Debug, PartialEq, Eq)]
enum News {
    /// They have it: the stream holds it again.
    Repeat,
    /// It is the next one.
    Next,
    /// Something before it is missing; or positions begin again, because the database was set back.
    AfterGap,
}

/// An event that was recorded after all that were seen is new, whatever its position.
fn judge(mark: &Mark, event: &Event) -> News {
    if event.position <= mark.position && event.created_at <= mark.created_at {
        News::Repeat
    } else if event.position == mark.position + 1 {
        News::Next
    } else {
        News::AfterGap
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(n: u64, position: i64, key: &str, created_at: &str) -> Entry {
        let (key, payload, created_at) = (key.to_owned(), "{}".to_owned(), created_at.to_owned());
        let event = Event { topic: "t".to_owned(), key, payload, created_at, position, ..Event::default() };
        let entry = (0..n).fold(EntryId::START, |entry, _| entry.next());
        Entry { entry, event: Some(event) }
    }

    fn listener(number: u64, key: Option<&str>) -> Listener {
        Listener { number, token: None, key: key.map(Arc::from), mailbox: Arc::default() }
    }

    /// The positions of the events, 0 for a gap.
    fn got(listener: &Listener) -> Vec<i64> {
        listener.mailbox.take(100).unwrap().iter().map(|frame| frame.position.unwrap_or(0)).collect()
    }

    #[test]
    fn what_was_had_is_not_sent_again_and_what_is_missing_is_told() {
        let (hub, topic) = (Hub::default(), Arc::from("t"));
        let (all, one) = (listener(1, None), listener(2, Some("k1")));
        assert_eq!(hub.join(&topic, &all, None), Joined::Unknown);
        assert!(matches!(hub.join(&topic, &all, Some(Mark::default())), Joined::After(_)));
        hub.join(&topic, &one, None);
        for (n, position, key, created_at) in [
            (1, 1, "k1", "a"),
            (2, 2, "k2", "c"),
            (3, 3, "k1", "b"),
            // Appended again, then the next.
            (4, 2, "k2", "c"),
            (5, 3, "k1", "b"),
            (6, 4, "k2", "d"),
            // Cut.
            (7, 9, "k1", "e"),
            // The database was set back.
            (8, 5, "k1", "f"),
        ] {
            hub.deliver("t", &entry(n, position, key, created_at));
        }
        assert_eq!(got(&all), [1, 2, 3, 4, 0, 9, 0, 5]);
        assert_eq!(got(&one), [1, 3, 0, 9, 0, 5]);
        assert_eq!(hub.position("t"), Some(5));
    }

    #[test]
    fn a_stream_that_began_anew_is_read_from_its_beginning() {
        let (hub, topic) = (Hub::default(), Arc::from("t"));
        let all = listener(1, None);
        hub.join(&topic, &all, Some(Mark::default()));
        (1..=3).for_each(|n| _ = hub.deliver("t", &entry(n * 10, n as i64, "k", "a")));
        hub.deliver("t", &entry(4, 4, "k", "b"));
        assert_eq!(got(&all), [1, 2, 3], "its ids are below those seen");
        let seen = hub.cursors()[0].1;
        hub.begin_anew("t", seen);
        (1..=4).for_each(|n| _ = hub.deliver("t", &entry(n, n as i64, "k", if n < 4 { "a" } else { "b" })));
        assert_eq!(got(&all), [4]);
    }

    #[test]
    fn one_token_leaves_topics_to_the_others() {
        let hub = Hub::default();
        let of = |token: Option<&str>, number| Listener { token: token.map(Arc::from), ..listener(number, None) };
        let join = |topic: String, listener: &Listener| hub.join(&Arc::from(topic), listener, Some(Mark::default()));
        let (shop, other) = (of(Some("shop"), 1), of(Some("other"), 2));
        let joined = (0..TOPICS_MAX).filter(|n| join(n.to_string(), &shop) != Joined::Full).count();
        assert_eq!(joined, OF_TOKEN_MAX);
        assert_ne!(join("mine".to_owned(), &other), Joined::Full);
        assert_ne!(join("mine".to_owned(), &shop), Joined::Full, "it is read anyway");
        let open = Hub::default();
        let all = (0..=TOPICS_MAX)
            .filter(|n| open.join(&Arc::from(n.to_string()), &of(None, 1), Some(Mark::default())) != Joined::Full)
            .count();
        assert_eq!(all, TOPICS_MAX, "without tokens there are no others");
    }

    #[test]
    fn a_topic_is_read_as_long_as_somebody_listens() {
        let (hub, topic) = (Hub::default(), Arc::<str>::from("t"));
        let (first, second) = (listener(1, None), listener(2, Some("k")));
        hub.join(&topic, &first, Some(Mark::default()));
        hub.join(&topic, &second, None);
        hub.leave([Arc::clone(&topic)].into_iter(), &first);
        assert_eq!(hub.cursors().len(), 1);
        hub.leave([Arc::clone(&topic)].into_iter(), &second);
        assert!(hub.cursors().is_empty());
    }
}
