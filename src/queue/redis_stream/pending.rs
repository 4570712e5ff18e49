//! What is pending in the group: whose it is, taking it over, giving it back, and who may be forgotten.

use std::time::Duration;

use super::super::element;
use super::super::failure::Failure;
use super::super::keys::{FIELD, GROUP};
use super::super::liveness::MOVED_MAX;
use super::Shared;
use super::reply::{ConsumerInfo, Entry, Pending};

/// Pending entries read per consumer and pass.
pub(super) const PENDING_MAX: usize = 10_000;

/// KEYS: stream. ARGV: group, me, min-idle in ms, then entry ids. Claims those that are still pending and
/// idle; an id that is pending without a body is dropped from the group and counted. Redis 7 would drop it
/// silently and 6.2 would keep it for ever.
const CLAIM: &str = r"
local claimed, vanished = {}, 0
for i = 4, #ARGV do
  if #redis.call('XRANGE', KEYS[1], ARGV[i], ARGV[i]) == 0 then
    vanished = vanished + redis.call('XACK', KEYS[1], ARGV[1], ARGV[i])
  else
    local entry = redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[i])
    if entry[1] then claimed[#claimed + 1] = entry[1] end
  end
end
return {vanished, claimed}
";

/// KEYS: stream, alive, consumers. ARGV: group, name. Removes a consumer that shows no life and holds nothing.
const REMOVE: &str = r"
if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
if #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2]) > 0 then return 0 end
redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
redis.call('SREM', KEYS[3], ARGV[2])
return 1
";

/// KEYS: stream. ARGV: group, name, field, how many. Puts pending entries at the end again, for anyone.
/// The acknowledgement comes first: it is a write that Redis permits when it is out of memory.
fn give_back() -> String {
    format!(
        r"{}
local pending = redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', ARGV[4], ARGV[2])
for _, line in ipairs(pending) do
  local entry = redis.call('XRANGE', KEYS[1], line[1], line[1])[1]
  redis.call('XACK', KEYS[1], ARGV[1], line[1])
  redis.call('XDEL', KEYS[1], line[1])
  if entry and entry[2][2] then
    redis.call('XADD', KEYS[1], '*', ARGV[3], given_back(entry[2][2]))
  end
end
return #pending
",
        element::LUA_GIVEN_BACK
    )
}

impl Shared {
    /// The consumers that the group knows, and how much each holds.
    pub(super) async fn group_members(&self) -> Result<Vec<ConsumerInfo>, Failure> {
        let mut pipe = redis::pipe();
        pipe.cmd("XINFO").arg("CONSUMERS").arg(&self.broker.keys.main).arg(GROUP);
        let (infos,) = match self.query(&pipe).await {
            // The stream itself is gone; making the group makes it again.
            Err(failure) if failure.has_code("ERR") => {
                self.create_group().await?;
                self.query(&pipe).await?
            }
            reply => reply?,
        };
        Ok(infos)
    }

    /// What `name` holds and has not been delivered again for `idle`.
    pub(super) async fn pending_of(&self, name: &str, idle: Duration) -> Result<Vec<Pending>, Failure> {
        let mut pipe = redis::pipe();
        pipe.cmd("XPENDING").arg(&self.broker.keys.main).arg(GROUP).arg("IDLE").arg(idle.as_millis() as u64);
        pipe.arg("-").arg("+").arg(PENDING_MAX).arg(name);
        let (pending,) = self.query(&pipe).await?;
        Ok(pending)
    }

    /// Takes entries over for `me`; also tells how many were pending without a body.
    pub(super) async fn claim(
        &self,
        me: &str,
        ids: &[String],
        min_idle: Duration,
    ) -> Result<(u64, Vec<Entry>), Failure> {
        let mut pipe = redis::pipe();
        pipe.cmd("EVAL").arg(CLAIM).arg(1).arg(&self.broker.keys.main);
        pipe.arg(GROUP).arg(me).arg(min_idle.as_millis() as u64).arg(ids);
        let (claimed,) = self.query(&pipe).await?;
        Ok(claimed)
    }

    /// Puts everything `name` holds at the end again and stops its heartbeat.
    pub(super) async fn give_back(&self, name: &str) -> Result<(), Failure> {
        let keys = &self.broker.keys;
        let mut pipe = redis::pipe();
        pipe.cmd("EVAL").arg(give_back()).arg(1).arg(&keys.main).arg(GROUP).arg(name).arg(FIELD).arg(MOVED_MAX);
        while self.query::<(u64,)>(&pipe).await?.0 > 0 {}
        let mut pipe = redis::pipe();
        pipe.cmd("DEL").arg(keys.alive(name)).ignore();
        self.query(&pipe).await
    }

    /// Forgets a consumer that shows no life and holds nothing. Returns how many that were: one or none.
    pub(super) async fn remove_consumer(&self, name: &str) -> Result<u64, Failure> {
        let keys = &self.broker.keys;
        let mut pipe = redis::pipe();
        pipe.cmd("EVAL").arg(REMOVE).arg(3).arg(&keys.main).arg(keys.alive(name)).arg(&keys.consumers);
        pipe.arg(GROUP).arg(name);
        let (removed,) = self.query(&pipe).await?;
        Ok(removed)
    }
}
