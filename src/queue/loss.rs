//! Noticing that the queue lost what it had accepted.
//!
//! Every push raises a counter in its own transaction. The counter has two parts: a *generation*, which ends
//! when another server process (restart, failover) or an empty Redis (FLUSHALL) takes over, and the number of
//! messages pushed in it. Each new connection settles the generation before anything is pushed on it: if
//! the server process is not the one that counted so far, it writes down where the old generation's count
//! stands *on this server* and opens the next. So a count that was seen in a generation and is above where
//! that generation ended is a lost tail, however many pushes came after; a generation the server has never
//! heard of is a loss of everything.
//!
//! Generations start at the minutes since 2024 and only rise, so the highest counter over all instances
//! always belongs to the newest generation. A fresh process with nothing seen has lost nothing; one that is
//! told of a counter this server does not know (another server, another prefix, a flush while everybody was
//! down) reports a loss. Several processes may report the same loss; each does so once.
//!
//! Limit: messages removed one by one while the counter stays (XTRIM, LTRIM, DEL by hand) are not seen here.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use redis::Pipeline;

use super::connection::Link;
use super::failure::Failure;
use super::server::Primary;
use super::{Error, Loss};

/// Bits of the counter that count pushes; the generation has the rest.
const PUSHED_BITS: u32 = 36;

/// A generation is ended long before its count could run into the next one's.
const PUSHED_MAX: i64 = 1 << (PUSHED_BITS - 1);

/// No generation has this number.
const NONE: i64 = 0;

/// KEYS: meta. ARGV: server process, a generation to rise above, a generation to end in any case.
/// Returns the generation that counts now. PERSIST comes first because it is a write that Redis permits when
/// it is out of memory, and a script that has written once may go on.
const SETTLE: &str = r"
local meta = redis.call('HMGET', KEYS[1], 'run', 'generation', 'pushed')
local generation, pushed = tonumber(meta[2]), tonumber(meta[3]) or 0
if generation and meta[1] == ARGV[1] and generation ~= tonumber(ARGV[3]) then return generation end
redis.call('PERSIST', KEYS[1])
local minutes = math.floor(tonumber(redis.call('TIME')[1]) / 60) - 28401120
local opened = math.max(minutes, tonumber(ARGV[2]) + 1, (generation or 0) + 1)
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
pub(super) struct Lineage {
    meta: String,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    watch: Watch,
    run: String,
}

impl Lineage {
    pub(super) fn new(meta: &str) -> Lineage {
        Lineage { meta: meta.into(), known: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Settles the generation on a new connection.
    pub(super) async fn settle(&self, primary: &mut Primary) -> Result<(), Failure> {
        self.lock().run.clone_from(&primary.run);
        let pipe = self.settling(NONE);
        let _generation: (i64,) = pipe.query_async(&mut primary.connection).await?;
        Ok(())
    }

    fn settling(&self, end: i64) -> Pipeline {
        let known = self.lock();
        let mut pipe = redis::pipe();
        pipe.cmd("EVAL").arg(SETTLE).arg(1).arg(&self.meta).arg(&known.run).arg(known.watch.newest()).arg(end);
        pipe
    }

    /// Adds the counting to a push's transaction.
    pub(super) fn count(&self, pipe: &mut Pipeline, pushed: usize) {
        pipe.cmd("HINCRBY").arg(&self.meta).arg("pushed").arg(pushed);
        pipe.cmd("HGET").arg(&self.meta).arg("generation");
    }

    /// The counter after a push whose transaction answered this.
    pub(super) async fn counted(&self, link: &Link, (pushed, generation): (i64, Option<i64>)) -> Result<i64, Failure> {
        let generation = match generation {
            Some(generation) => generation,
            // Flushed under an open connection: the count started again and belongs to a new generation.
            None => link.query::<(i64,)>(&self.settling(NONE)).await?.0,
        };
        self.lock().watch.note(generation, pushed);
        Ok(counter(generation, pushed))
    }

    /// Compares what is known to have been pushed with what Redis shows.
    pub(super) async fn check(&self, link: &Link, seen: i64) -> Result<Option<Loss>, Failure> {
        let found = match self.read(link).await? {
            Some(found) => found,
            None => {
                link.query::<(i64,)>(&self.settling(NONE)).await?;
                let nothing = || Failure::NoPrimary("the queue was flushed again while it was checked".into());
                self.read(link).await?.ok_or_else(nothing)?
            }
        };
        let (loss, told) = {
            let mut known = self.lock();
            known.watch.note(seen >> PUSHED_BITS, seen & ((1 << PUSHED_BITS) - 1));
            (known.watch.judge(&found), known.watch.told)
        };
        // A count that fell within its generation, or one about to run out: later pushes need a new one. The
        // loss is told even if that fails; the next check tries again.
        if told >= found.generation || found.pushed > PUSHED_MAX {
            if let Err(failure) = link.query::<(i64,)>(&self.settling(found.generation)).await {
                tracing::warn!(error = %Error::from(failure), "the queue's generation could not be ended");
            }
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

fn counter(generation: i64, pushed: i64) -> i64 {
    (generation << PUSHED_BITS) + pushed
}

/// What the server remembers.
#[derive(Debug)]
struct Found {
    generation: i64,
    pushed: i64,
    ended: HashMap<i64, i64>,
}

impl Found {
    fn read(fields: &HashMap<String, String>) -> Option<Found> {
        let number = |name: &str| fields.get(name).and_then(|value| value.parse().ok());
        let ended = fields
            .iter()
            .filter_map(|(name, value)| Some((name.strip_prefix("ended:")?.parse().ok()?, value.parse().ok()?)));
        Some(Found { generation: number("generation")?, pushed: number("pushed").unwrap_or(0), ended: ended.collect() })
    }

    /// Where the count of a generation stands; `None`: never heard of it.
    fn reached(&self, generation: i64) -> Option<i64> {
        if generation == self.generation { Some(self.pushed) } else { self.ended.get(&generation).copied() }
    }
}

/// What this side knows was pushed, by generation. Pure.
#[derive(Debug, Default)]
struct Watch {
    seen: BTreeMap<i64, i64>,
    /// Losses of generations up to this one have been told.
    told: i64,
}

impl Watch {
    fn newest(&self) -> i64 {
        self.seen.last_key_value().map_or(self.told, |(generation, _)| *generation)
    }

    fn note(&mut self, generation: i64, pushed: i64) {
        if generation > self.told {
            let seen = self.seen.entry(generation).or_default();
            *seen = pushed.max(*seen);
        }
    }

    /// The worst loss not yet told.
    fn judge(&mut self, found: &Found) -> Option<Loss> {
        let mut worst = None;
        for (&generation, &pushed) in &self.seen {
            let loss = match found.reached(generation) {
                Some(reached) if reached >= pushed => continue,
                Some(reached) => Loss::Tail { seen: counter(generation, pushed), found: counter(generation, reached) },
                None => Loss::All,
            };
            self.told = generation;
            if worst != Some(Loss::All) {
                worst = Some(loss);
            }
        }
        let (told, current) = (self.told, found.generation);
        self.seen.retain(|generation, _| *generation > told && *generation >= current);
        worst
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(generation: i64, pushed: i64, ended: &[(i64, i64)]) -> Found {
        Found { generation, pushed, ended: ended.iter().copied().collect() }
    }

    fn watch(seen: &[(i64, i64)]) -> Watch {
        let mut watch = Watch::default();
        seen.iter().for_each(|(generation, pushed)| watch.note(*generation, *pushed));
        watch
    }

    fn tail(generation: i64, seen: i64, found: i64) -> Option<Loss> {
        Some(Loss::Tail { seen: counter(generation, seen), found: counter(generation, found) })
    }

    #[test]
    fn nothing_seen_is_nothing_lost() {
        assert_eq!(watch(&[(0, 0)]).judge(&found(5, 0, &[])), None);
    }

    #[test]
    fn a_count_that_goes_on_is_no_loss_even_across_a_failover() {
        assert_eq!(watch(&[(5, 10)]).judge(&found(5, 12, &[])), None);
        assert_eq!(watch(&[(5, 10)]).judge(&found(6, 3, &[(5, 10)])), None);
    }

    #[test]
    fn a_tail_lost_in_a_failover_is_told_although_the_count_has_long_passed_it() {
        assert_eq!(watch(&[(5, 10)]).judge(&found(6, 900, &[(5, 8)])), tail(5, 10, 8));
        assert_eq!(watch(&[(5, 10), (6, 900)]).judge(&found(6, 900, &[(5, 8)])), tail(5, 10, 8));
    }

    #[test]
    fn a_generation_the_server_never_heard_of_means_all_is_gone() {
        assert_eq!(watch(&[(5, 10)]).judge(&found(6, 0, &[])), Some(Loss::All));
        assert_eq!(watch(&[(5, 10)]).judge(&found(4, 0, &[])), Some(Loss::All));
    }

    #[test]
    fn a_loss_is_told_once_and_the_next_one_again() {
        let mut watch = watch(&[(5, 10)]);
        assert!(watch.judge(&found(6, 0, &[])).is_some());
        watch.note(5, 11);
        assert_eq!(watch.judge(&found(6, 0, &[])), None);
        watch.note(6, 4);
        assert_eq!(watch.judge(&found(6, 4, &[])), None);
        assert_eq!(watch.judge(&found(7, 0, &[(6, 3)])), tail(6, 4, 3));
    }

    #[test]
    fn a_count_that_fell_within_its_generation_is_a_tail() {
        assert_eq!(watch(&[(5, 10)]).judge(&found(5, 9, &[])), tail(5, 10, 9));
    }
}
