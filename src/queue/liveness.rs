//! Which consumers are alive, as far as the queue knows. That decides only who takes over messages. Whose lease ends is
//! decided in Postgres, so a FLUSHALL makes nobody look dead.
//!
//! A consumer is alive while its key exists. One that registered and has no key is *suspect*, and *dead* only
//! when it has been suspect for a third of the TTL: after Redis was away everybody's key has run out, and
//! everybody alive needs a little time to show it. A consumer that just started likewise sees the others
//! that start with it before it shares out what a dead one left.

use std::collections::HashMap;
use std::time::Duration;

use redis::Pipeline;
use tokio::time::Instant;

use super::connection::Link;
use super::failure::Failure;
use super::keys::Keys;

/// KEYS: alive, consumers. ARGV: name, TTL in ms. PEXPIRE is a write that Redis permits when it is out of
/// memory, and a script that has written once may go on: nobody looks dead because Redis is full.
const BEAT: &str = r"
if redis.call('PEXPIRE', KEYS[1], ARGV[2]) == 0 then
  redis.call('SET', KEYS[1], '1', 'PX', ARGV[2])
end
redis.call('SADD', KEYS[2], ARGV[1])
";

/// Messages of others that are taken over or given back at a time: the rest is for the next pass, or for whoever is
/// quicker.
pub(super) const MOVED_MAX: usize = 1_000;

/// One consumer's view of itself and the others.
#[derive(Debug)]
pub(super) struct Liveness {
    name: String,
    ttl: Duration,
    beaten: Option<Instant>,
    suspects: HashMap<String, Instant>,
}

/// The others, as of now.
#[derive(Debug, Default)]
pub(super) struct Others {
    pub alive: Vec<String>,
    pub dead: Vec<String>,
}

impl Liveness {
    pub(super) fn new(name: &str, ttl: Duration) -> Liveness {
        Liveness { name: name.into(), ttl, beaten: None, suspects: HashMap::new() }
    }

    /// The longest a blocking call may go without a heartbeat: with the pause between heartbeats it leaves
    /// half of the TTL.
    pub(super) fn block_max(&self) -> Duration {
        (self.ttl / 3).min(Duration::from_secs(2))
    }

    /// Adds a heartbeat to `pipe` if one is due.
    pub(super) fn beat_if_due(&mut self, pipe: &mut Pipeline, keys: &Keys) {
        if self.beaten.is_none_or(|beaten| beaten.elapsed() >= self.ttl / 6) {
            self.beat(pipe, keys);
        }
    }

    /// Adds a heartbeat to `pipe`.
    pub(super) fn beat(&mut self, pipe: &mut Pipeline, keys: &Keys) {
        let alive = keys.alive(&self.name);
        let ttl_ms = self.ttl.as_millis() as u64;
        pipe.cmd("EVAL").arg(BEAT).arg(2).arg(alive).arg(&keys.consumers).arg(&self.name).arg(ttl_ms).ignore();
        self.beaten = Some(Instant::now());
    }

    /// The last heartbeat may not have arrived.
    pub(super) fn forget_heartbeat(&mut self) {
        self.beaten = None;
    }

    /// Sends a heartbeat and checks `names` (others that may hold something) and all that registered.
    pub(super) async fn check(&mut self, link: &Link, keys: &Keys, names: Vec<String>) -> Result<Others, Failure> {
        let mut pipe = redis::pipe();
        self.beat(&mut pipe, keys);
        pipe.cmd("SMEMBERS").arg(&keys.consumers);
        let (registered,): (Vec<String>,) = link.query(&pipe).await.inspect_err(|_| self.beaten = None)?;
        let mut others: Vec<String> = registered.into_iter().chain(names).filter(|name| *name != self.name).collect();
        others.sort();
        others.dedup();
        if others.is_empty() {
            self.suspects.clear();
            return Ok(Others::default());
        }
        let mut pipe = redis::pipe();
        pipe.cmd("MGET").arg(others.iter().map(|name| keys.alive(name)).collect::<Vec<_>>());
        let (signs,): (Vec<Option<String>>,) = link.query(&pipe).await?;
        Ok(self.sort(others.into_iter().zip(signs.iter().map(Option::is_some)), Instant::now()))
    }

    fn sort(&mut self, others: impl Iterator<Item = (String, bool)>, now: Instant) -> Others {
        let mut sorted = Others::default();
        let before = std::mem::take(&mut self.suspects);
        for (name, shows_life) in others {
            if shows_life {
                sorted.alive.push(name);
                continue;
            }
            let since = before.get(&name).copied().unwrap_or(now);
            self.suspects.insert(name.clone(), since);
            if now - since >= self.ttl / 3 {
                sorted.dead.push(name);
            }
        }
        sorted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_consumer_is_dead_only_after_a_third_of_the_ttl_without_a_key() {
        let mut liveness = Liveness::new("me", Duration::from_secs(3));
        let start = Instant::now();
        let mut check = |after_ms: u64, shows_life: bool| {
            let now = start + Duration::from_millis(after_ms);
            let others = liveness.sort([("other".to_string(), shows_life)].into_iter(), now);
            (others.alive.len(), others.dead.len())
        };
        assert_eq!(check(0, false), (0, 0));
        assert_eq!(check(900, false), (0, 0));
        assert_eq!(check(950, true), (1, 0));
        assert_eq!(check(1_000, false), (0, 0));
        assert_eq!(check(2_000, false), (0, 1));
    }
}
