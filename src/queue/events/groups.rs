//! How far the consumer groups of the streams have come.

use super::EventStreams;
use crate::queue::Result;

/// KEYS: a stream. Returns its last position and, of each group, its name, the id of the entry it was given last, the
/// position of the next one, the position of the oldest one it has not acknowledged, and how many such the stream no
/// longer holds (up to 1,000). Positions are 0 where there is no entry. Payloads stay in Redis.
const READ_GROUPS: &str = r"
local function named(flat)
  local fields = {}
  for i = 1, #flat, 2 do fields[flat[i]] = flat[i + 1] end
  return fields
end
local function position(entry) return entry and tonumber(named(entry[2]).position) or 0 end
if redis.call('EXISTS', KEYS[1]) == 0 then return {0, {}} end
local stream = named(redis.call('XINFO', 'STREAM', KEYS[1]))
local first, last = stream['first-entry'], position(stream['last-entry'])
local groups = {}
for _, flat in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  local group = named(flat)
  local delivered, next, pending, gone = group['last-delivered-id'], 0, 0, 0
  if first then
    local after = redis.call('XRANGE', KEYS[1], '(' .. delivered, '+', 'COUNT', 1)[1]
    next = after and position(after) or last + 1
    if group.pending > 0 then
      gone = #redis.call('XPENDING', KEYS[1], group.name, '-', '(' .. first[1], 1000)
      local oldest = redis.call('XPENDING', KEYS[1], group.name, first[1], '+', 1)[1]
      if oldest then pending = position(redis.call('XRANGE', KEYS[1], oldest[1], '+', 'COUNT', 1)[1]) end
    end
  end
  groups[#groups + 1] = {group.name, delivered, next, pending, gone}
end
return {last, groups}
";

/// A stream and its groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamFacts {
    /// Its topic.
    pub topic: String,
    /// The position of its last entry.
    pub last: i64,
    /// Its consumer groups.
    pub groups: Vec<Group>,
}

/// A consumer group of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Its name, as far as it is text.
    pub name: String,
    /// The id of the entry it was given last.
    pub delivered_id: String,
    /// The position of the next entry it is given; `None`: the stream is empty.
    pub next: Option<i64>,
    /// The position of the oldest entry that it was given, has not acknowledged, and that is still there.
    pub pending: Option<i64>,
    /// Entries that it was given, has not acknowledged, and that are no longer there; 1,000 stands for more.
    pub gone: i64,
}

type Row = (Vec<u8>, String, i64, i64, i64);

impl EventStreams {
    /// The consumer groups of these topics, in one round trip.
    pub async fn groups(&self, topics: &[String]) -> Result<Vec<StreamFacts>> {
        if topics.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipe = redis::pipe();
        for topic in topics {
            pipe.cmd("EVAL").arg(READ_GROUPS).arg(1).arg(self.key(topic));
        }
        let rows: Vec<(i64, Vec<Row>)> = self.broker.link.query(&pipe).await?;
        let stream = |(topic, (last, groups)): (&String, (i64, Vec<Row>))| StreamFacts {
            topic: topic.clone(),
            last,
            groups: groups.into_iter().map(group).collect(),
        };
        Ok(topics.iter().zip(rows).map(stream).collect())
    }
}

fn group((name, delivered_id, next, pending, gone): Row) -> Group {
    let known = |position: i64| (position > 0).then_some(position);
    // Postgres holds no NUL in text.
    let name = String::from_utf8_lossy(&name).replace('\0', "\u{fffd}");
    Group { name, delivered_id, next: known(next), pending: known(pending), gone }
}
