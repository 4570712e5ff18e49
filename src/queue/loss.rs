//! Noticing that the queue lost what it had accepted.
//!
//! Every push raises a counter in its own transaction. The counter has two parts: a *generation*, which ends
//! when another server process (restart, failover) or an empty Redis (FLUSHALL) takes over, and the number of
//! messages pushed in it. Each new connection makes sure of its generation before anything is pushed on it: if
//! the server process is not the one that counted so far, it writes down where the old generation's count
//! stands *on this server* and opens the next. So a count that was seen in a generation and is above where
//! that generation ended is a lost tail, however many pushes came after; a generation the server has never
//! heard of is a loss of everything.
//!
//! The number of a generation is the seconds since 2024, with a random fraction that tells apart two queues that begin
//! in the same second. Numbers only rise, so the highest counter over all instances always belongs to the newest
//! generation. A fresh process with nothing seen has lost nothing; one that is told of a counter this server does not
//! know (another server, another prefix, a flush while everybody was down) reports a loss. Several processes may report
//! the same loss; each does so once per generation, so two servers used side by side for a while do not make their
//! processes report for ever.
//!
//! Limit: messages removed one by one while the counter stays (XTRIM, LTRIM, DEL by hand) are not seen here.

mod watch;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use redis::Pipeline;

use super::connection::Link;
use super::failure::Failure;
use super::server::Primary;
use super::{Error, Loss};
use watch::{Found, Watch, counter, parts};

/// A generation is ended long before its count could run into the next one's.
const PUSHED_MAX: i64 = 1 << (watch::PUSHED_BITS - 1);

/// No generation has this number.
const NONE: i64 = 0;

/// KEYS: meta. ARGV: server process, a generation to rise above, a generation to end in any case, a byte of chance.
/// Returns the generation that counts now. PERSIST comes first because it is a write that Redis permits when
/// it is out of memory, and a script that has written once may go on.
const OPEN_GENERATION: &str = r"
local meta = redis.call('HMGET', KEYS[1], 'run', 'generation', 'pushed')
local generation, pushed = tonumber(meta[2]), tonumber(meta[3]) or 0
if generation and meta[1] == ARGV[1] and generation ~= tonumber(ARGV[3]) then return generation end
redis.call('PERSIST', KEYS[1])
local now = (tonumber(redis.call('TIME')[1]) - 1704067200) * 256
local opened = math.max(now + tonumber(ARGV[4]), tonumber(ARGV[2]) + 1, (generation or 0) + 1)
if generation then
  redis.call('HSET', KEYS[1], 'ended:' .. generation, pushed)
  pushed = 0
end
redis.call('HSET', KEYS[1], 'run', ARGV[1], 'generation', opened, 'pushed', pushed)
local ended = {}
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  local number = string.match(field, '^ended:(%d+)$')
  if number then ended[#ended + 1] = tonumber(number) end
end
table.sort(ended)
for i = 1, #ended - 100 do redis.call('HDEL', KEYS[1], 'ended:' .. ended[i]) end
return opened
";

/// The push counter of one queue, as this process knows it.
#[derive(Debug)]
pub(super) struct PushCounter {
    meta: String,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    watch: Watch,
    run: String,
}

impl PushCounter {
    pub(super) fn new(meta: &str) -> PushCounter {
        PushCounter { meta: meta.into(), known: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the generation that counts on a new connection.
    pub(super) async fn open_generation(&self, primary: &mut Primary) -> Result<(), Failure> {
        self.lock().run = primary.run();
        let pipe = self.opening(NONE);
        let _generation: (i64,) = pipe.query_async(&mut primary.connection).await?;
        Ok(())
    }

    fn opening(&self, end: i64) -> Pipeline {
        let known = self.lock();
        let mut pipe = redis::pipe();
        pipe.cmd("EVAL").arg(OPEN_GENERATION).arg(1).arg(&self.meta).arg(&known.run).arg(known.watch.newest()).arg(end);
        pipe.arg(rand::random::<u8>());
        pipe
    }

    /// Adds the counting to a push's transaction.
    pub(super) fn count(&self, pipe: &mut Pipeline, pushed: usize) {
        pipe.cmd("HINCRBY").arg(&self.meta).arg("pushed").arg(pushed);
        pipe.cmd("HGET").arg(&self.meta).arg("generation");
    }

    /// The counter after a push whose transaction answered this.
    pub(super) async fn after_push(
        &self,
        link: &Link,
        (pushed, generation): (i64, Option<i64>),
    ) -> Result<i64, Failure> {
        let generation = match generation {
            Some(generation) => generation,
            // Flushed under an open connection: the count started again and belongs to a new generation.
            None => link.query::<(i64,)>(&self.opening(NONE)).await?.0,
        };
        self.lock().watch.note(generation, pushed);
        if pushed > PUSHED_MAX {
            self.end_generation(link, generation).await;
        }
        Ok(counter(generation, pushed))
    }

    /// Opens the next generation. If that fails the next call that finds it due tries again.
    async fn end_generation(&self, link: &Link, generation: i64) {
        if let Err(failure) = link.query::<(i64,)>(&self.opening(generation)).await {
            tracing::warn!(error = %Error::from(failure), generation, "the queue's generation could not be ended");
        }
    }

    /// Compares what is known to have been pushed with what Redis shows.
    pub(super) async fn check(&self, link: &Link, seen: i64) -> Result<Option<Loss>, Failure> {
        let before = {
            let mut known = self.lock();
            let (generation, pushed) = parts(seen);
            known.watch.note(generation, pushed);
            known.watch.seen()
        };
        let found = match self.read(link).await? {
            Some(found) => found,
            None => {
                link.query::<(i64,)>(&self.opening(NONE)).await?;
                let nothing = || Failure::NoPrimary("the queue was flushed again while it was checked".into());
                self.read(link).await?.ok_or_else(nothing)?
            }
        };
        let (loss, fell, newest) = {
            let mut known = self.lock();
            let loss = known.watch.judge(&before, &found);
            (loss, known.watch.has_told(found.generation), known.watch.newest())
        };
        // The count fell within its generation: what is pushed from now on needs one that was not told as lost.
        // Or nothing was pushed here yet and a newer queue came before: the first push must count above it.
        if fell || (found.pushed == 0 && newest > found.generation) {
            self.end_generation(link, found.generation).await;
        }
        Ok(loss)
    }

    async fn read(&self, link: &Link) -> Result<Option<Found>, Failure> {
        let mut pipe = redis::pipe();
        pipe.cmd("HGETALL").arg(&self.meta);
        let (fields,): (HashMap<String, String>,) = link.query(&pipe).await?;
        Ok(Found::read(&fields))
    }
}
