//! Several messages in one entry.
//!
//! For an entry of eight messages Redis does about as much work as for an entry of one: it is added, listed as pending,
//! acknowledged and deleted. So what is pushed in large numbers is packed. What comes alone or by the dozen is not, and can
//! be taken by as many workers.
//!
//! An entry is removed when the last of its messages is acknowledged. If its consumer dies before, all of them are
//! delivered again, the acknowledged ones too; the claim drops those.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::Message;
use super::super::element::{self, Element};

/// Messages in one entry at most.
pub(super) const PACK_MAX: usize = 8;

/// Messages in an entry that can be told apart; more of them we never wrote.
const PARTS_MAX: usize = u64::BITS as usize;

/// A push is packed as tightly as this many entries allow.
const ENTRIES_MIN: usize = 8;

/// What stands between the messages of an entry.
const SEPARATOR: u8 = b',';

/// The bodies of the entries that carry `messages`, in their order.
pub(super) fn pack(messages: &[Message]) -> impl Iterator<Item = String> {
    let size = (messages.len() / ENTRIES_MIN).clamp(1, PACK_MAX);
    messages.chunks(size).map(|chunk| {
        let mut body = String::with_capacity(chunk.len() * 16);
        for message in chunk {
            if !body.is_empty() {
                body.push(char::from(SEPARATOR));
            }
            body.push_str(&element::encode(message));
        }
        body
    })
}

/// What an entry carries; `None` if any of it is nothing we wrote.
pub(super) fn unpack(body: &[u8]) -> Option<Vec<Element>> {
    let elements: Vec<Element> = body.split(|byte| *byte == SEPARATOR).map(element::decode).collect::<Option<_>>()?;
    (elements.len() <= PARTS_MAX).then_some(elements)
}

/// An entry in a consumer's hands.
#[derive(Debug)]
struct Entry {
    id: Arc<str>,
    size: usize,
    /// One bit for each message that is not acknowledged.
    left: AtomicU64,
}

/// One message of an entry in a consumer's hands.
#[derive(Debug, Clone)]
pub struct Part {
    entry: Arc<Entry>,
    place: u32,
}

impl Part {
    /// All `size` messages of the entry `id`.
    pub(super) fn all(id: Arc<str>, size: usize) -> impl Iterator<Item = Part> {
        let left = AtomicU64::new(u64::MAX >> (PARTS_MAX - size.clamp(1, PARTS_MAX)));
        let entry = Arc::new(Entry { id, size, left });
        (0..size as u32).map(move |place| Part { entry: Arc::clone(&entry), place })
    }

    /// Acknowledges this message. The entry and its size, if it was the last one.
    pub(super) fn acknowledge(&self) -> Option<(Arc<str>, usize)> {
        let this = 1 << self.place;
        let before = self.entry.left.fetch_and(!this, Ordering::Relaxed);
        (before == this).then(|| (Arc::clone(&self.entry.id), self.entry.size))
    }

    pub(super) fn is_with(&self, other: &Part) -> bool {
        Arc::ptr_eq(&self.entry, &other.entry)
    }
}

impl PartialEq for Part {
    fn eq(&self, other: &Part) -> bool {
        self.entry.id == other.entry.id && self.place == other.place
    }
}

impl Eq for Part {}

impl Hash for Part {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.entry.id.hash(state);
        self.place.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(count: i64) -> Vec<Message> {
        (0..count).map(|id| Message { id, epoch: 1 }).collect()
    }

    #[test]
    fn few_messages_get_an_entry_each_and_many_share_one() {
        let sizes =
            |count| pack(&messages(count)).map(|body| unpack(body.as_bytes()).unwrap().len()).collect::<Vec<_>>();
        assert!(sizes(0).is_empty());
        assert_eq!(sizes(15), [1; 15]);
        assert_eq!(sizes(17), [2, 2, 2, 2, 2, 2, 2, 2, 1]);
        assert_eq!(sizes(1_000), [8; 125]);
    }

    #[test]
    fn what_is_packed_is_unpacked_in_its_order() {
        let unpacked: Vec<Message> = pack(&messages(999))
            .flat_map(|body| unpack(body.as_bytes()).unwrap())
            .map(|element| element.message)
            .collect();
        assert_eq!(unpacked, messages(999));
    }

    #[test]
    fn an_entry_with_anything_strange_in_it_is_garbage() {
        for body in ["", ",", "1:1,", ",1:1", "1:1,,2:1", "1:1,x"] {
            assert_eq!(unpack(body.as_bytes()), None, "{body:?}");
        }
        assert_eq!(unpack(vec!["1:1"; 64].join(",").as_bytes()).unwrap().len(), 64);
        assert_eq!(unpack(vec!["1:1"; 65].join(",").as_bytes()), None);
    }

    #[test]
    fn an_entry_is_done_with_its_last_message_and_only_once() {
        let parts: Vec<Part> = Part::all(Arc::from("1-0"), 3).collect();
        assert_eq!(parts[0].acknowledge(), None);
        assert_eq!(parts[0].acknowledge(), None);
        assert_eq!(parts[2].acknowledge(), None);
        assert_eq!(parts[1].acknowledge(), Some((Arc::from("1-0"), 3)));
        assert_eq!(parts[1].acknowledge(), None);
        assert!(Part::all(Arc::from("1-0"), 64).take(63).all(|part| part.acknowledge().is_none()));
    }
}
