//! Reading the streams without a group: what is appended from now on, and what came after a position.
//!
//! **Guarantee.** Entries of a stream come in order, and none between the cursor and the last one returned is left out.
//! **Limit.** Redis keeps nothing of such readers: who reads remembers where it is, and sees by the positions what was
//! cut or appended again.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::super::connection::Link;
use super::{Event, EventStreams};
use crate::queue::Result;

/// KEYS: a stream. ARGV: a position, and how many entries before the end to read. Returns the stream's last entry
/// (id, position, created_at) and, of those after the position, the first that is among so many (id, position). The ids
/// are empty where there is none. Payloads stay in Redis.
const LOCATE: &str = r"
local function field(entry, name)
  for i = 1, #entry[2], 2 do if entry[2][i] == name then return entry[2][i + 1] end end
  return ''
end
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
if not last then return {'', '0', '', '', '0'} end
local after, left, before = tonumber(ARGV[1]), tonumber(ARGV[2]), '+'
local first, position = '', '0'
while left > 0 do
  local page = redis.call('XREVRANGE', KEYS[1], before, '-', 'COUNT', math.min(left, 100))
  for _, entry in ipairs(page) do
    local found = tonumber(field(entry, 'position')) or 0
    if found <= after then left = 0 break end
    first, position = entry[1], found
  end
  left = #page > 0 and left - #page or 0
  before = '(' .. first
end
return {last[1], field(last, 'position'), field(last, 'created_at'), first, tostring(position)}
";

/// KEYS: streams. Returns the highest id that each has given.
const ENDS: &str = r"
local ends = {}
for i, key in ipairs(KEYS) do
  ends[i] = '0-0'
  if redis.call('EXISTS', key) == 1 then
    local stream = redis.call('XINFO', 'STREAM', key)
    for n = 1, #stream, 2 do if stream[n] == 'last-generated-id' then ends[i] = stream[n + 1] end end
  end
end
return ends
";

/// What Redis calls an entry: milliseconds, and a number within them. Rises within a stream as long as Redis keeps it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryId(u64, u64);

impl EntryId {
    /// Before the first entry.
    pub const START: EntryId = EntryId(0, 0);

    /// The next one that there could be.
    pub fn next(self) -> EntryId {
        EntryId(self.0, self.1.saturating_add(1))
    }

    fn parse(text: &str) -> Option<EntryId> {
        let (ms, number) = text.split_once('-')?;
        Some(EntryId(ms.parse().ok()?, number.parse().ok()?))
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.0, self.1)
    }
}

/// An event in its stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What Redis calls it.
    pub entry: EntryId,
    /// What it is; `None`: no event of ours.
    pub event: Option<Event>,
}

/// How far a stream goes, or a reader has come in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mark {
    /// The last entry.
    pub entry: EntryId,
    /// Its position; 0: there is none.
    pub position: i64,
    /// When the newest event up to there was recorded; RFC 3339 in one form, so later is greater.
    pub created_at: String,
}

/// Where to go on after a position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// Where the stream ends.
    pub end: Mark,
    /// The first entry after the position, and its own position; `None`: there is none.
    pub first: Option<(EntryId, i64)>,
}

/// Reads the streams, on connections of its own: XREAD blocks, and pages may be large.
#[derive(Debug)]
pub struct Feed {
    streams: EventStreams,
    blocking: Link,
    pages: Link,
}

type Fields = Vec<(Vec<u8>, Vec<u8>)>;
type Read = Option<Vec<(String, Vec<(String, Fields)>)>>;

impl EventStreams {
    /// A reader of all topics.
    pub fn feed(&self) -> Feed {
        let (blocking, pages) = (self.broker.link.sibling(), self.broker.link.sibling());
        Feed { streams: self.clone(), blocking, pages }
    }
}

impl Feed {
    /// Waits up to `block` for entries after the cursors; at most `max` of each stream. One caller at a time.
    pub async fn read(
        &self,
        cursors: &[(Arc<str>, EntryId)],
        max: usize,
        block: Duration,
    ) -> Result<Vec<(String, Entry)>> {
        let mut pipe = redis::pipe();
        // BLOCK 0 would block for ever.
        pipe.cmd("XREAD").arg("COUNT").arg(max).arg("BLOCK").arg((block.as_millis() as u64).max(1)).arg("STREAMS");
        cursors.iter().for_each(|(topic, _)| _ = pipe.arg(self.streams.key(topic)));
        cursors.iter().for_each(|(_, entry)| _ = pipe.arg(entry.to_string()));
        let (read,): (Read,) = self.blocking.query_blocking(&pipe, block).await?;
        let start = self.streams.key("");
        let stream = |(key, entries): (String, Vec<_>)| {
            let topic = key.strip_prefix(&start).unwrap_or_default();
            self.entries(topic, entries).into_iter().map(|entry| (topic.to_owned(), entry)).collect::<Vec<_>>()
        };
        Ok(read.into_iter().flatten().flat_map(stream).collect())
    }

    /// The highest ids that these streams have given. One below a cursor's: the stream began anew.
    pub async fn ends(&self, topics: &[(Arc<str>, EntryId)]) -> Result<Vec<EntryId>> {
        let mut pipe = redis::pipe();
        pipe.cmd("EVAL").arg(ENDS).arg(topics.len());
        topics.iter().for_each(|(topic, _)| _ = pipe.arg(self.streams.key(topic)));
        let (ends,): (Vec<String>,) = self.pages.query(&pipe).await?;
        Ok(ends.iter().map(|id| EntryId::parse(id).unwrap_or_default()).collect())
    }

    /// Where a stream ends, and its first entry after `position` among the last `max`.
    pub async fn locate(&self, topic: &str, position: i64, max: usize) -> Result<Located> {
        let mut pipe = redis::pipe();
        pipe.cmd("EVAL").arg(LOCATE).arg(1).arg(self.streams.key(topic)).arg(position).arg(max);
        let (found,): ((String, String, String, String, String),) = self.pages.query(&pipe).await?;
        let (last, position, created_at, first, first_position) = found;
        let number = |text: &str| text.parse().unwrap_or(0);
        let end = Mark { entry: EntryId::parse(&last).unwrap_or_default(), position: number(&position), created_at };
        Ok(Located { end, first: EntryId::parse(&first).map(|entry| (entry, number(&first_position))) })
    }

    /// Up to `max` entries from this one on.
    pub async fn page(&self, topic: &str, from: EntryId, max: usize) -> Result<Vec<Entry>> {
        let mut pipe = redis::pipe();
        pipe.cmd("XRANGE").arg(self.streams.key(topic)).arg(from.to_string()).arg("+").arg("COUNT").arg(max);
        let (entries,): (Vec<(String, Fields)>,) = self.pages.query(&pipe).await?;
        Ok(self.entries(topic, entries))
    }

    fn entries(&self, topic: &str, entries: Vec<(String, Fields)>) -> Vec<Entry> {
        let entry = |(id, fields): (String, Fields)| Entry {
            entry: EntryId::parse(&id).unwrap_or_default(),
            event: event(topic, fields),
        };
        let entries: Vec<Entry> = entries.into_iter().map(entry).collect();
        let garbage = entries.iter().filter(|entry| entry.event.is_none()).count();
        if garbage > 0 {
            self.streams.broker.dropped_garbage(garbage);
        }
        entries
    }
}

/// `None`: something of somebody else's.
fn event(topic: &str, fields: Fields) -> Option<Event> {
    let mut event = Event { topic: topic.to_owned(), ..Event::default() };
    let mut found = 0;
    for (name, value) in fields {
        let value = String::from_utf8(value).ok()?;
        match name.as_slice() {
            b"id" => event.id = value.parse().ok()?,
            b"key" => event.key = value,
            b"payload" => event.payload = value,
            b"headers" => event.headers = Some(value),
            b"created_at" => event.created_at = value,
            b"position" => event.position = value.parse().ok()?,
            _ => continue,
        }
        found += 1;
    }
    (found == 6).then_some(event)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_ordered_by_number_and_not_by_text() {
        let ids = ["0-0", "9-0", "9-2", "9-10", "10-0"].map(|id| EntryId::parse(id).expect("an id"));
        assert!(ids.is_sorted(), "{ids:?}");
        assert_eq!(ids[2].next().to_string(), "9-3");
        assert_eq!(["", "9", "a-b", "-"].map(EntryId::parse), [None; 4]);
    }

    #[test]
    fn only_an_entry_with_every_field_is_an_event() {
        let fields =
            |names: &[&str]| -> Fields { names.iter().map(|name| (name.as_bytes().to_vec(), b"7".to_vec())).collect() };
        let all = ["id", "key", "payload", "headers", "created_at", "position"];
        let found = event("t", fields(&all)).expect("an event");
        assert_eq!((found.id, found.position, found.topic.as_str(), found.key.as_str()), (7, 7, "t", "7"));
        assert_eq!(event("t", fields(&all[1..])), None);
        assert_eq!(event("t", vec![(b"id".to_vec(), b"x".to_vec())]), None);
    }
}
