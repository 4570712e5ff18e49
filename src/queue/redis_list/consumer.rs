//! A consumer of the list backend.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use super::super::broker::Broker;
use super::super::connection::Link;
use super::super::element::Element;
use super::super::failure::Failure;
use super::super::in_flight::InFlight;
use super::super::liveness::{Liveness, MOVED_MAX};
use super::super::{Acker, Consumer, Delivery, Handle, Maintained, Result, element, metrics};

/// The pause between polls while Redis is out of memory and refuses to block.
const FULL_PAUSE: Duration = Duration::from_millis(100);

/// Redis 6.2 takes 0.001 s for less than a millisecond and that for no limit: it would block for good.
const BLOCK_MIN: Duration = Duration::from_millis(2);

/// KEYS: main, processing. ARGV: how many. Moves that many to the consumer's list. PERSIST changes nothing; it
/// is a write that Redis permits when it is out of memory, after which LMOVE is permitted too.
const MOVE: &str = r"
redis.call('PERSIST', KEYS[2])
local moved = {}
for i = 1, tonumber(ARGV[1]) do
  local element = redis.call('LMOVE', KEYS[1], KEYS[2], 'RIGHT', 'LEFT')
  if not element then break end
  moved[i] = element
end
return moved
";

/// KEYS: main, processing, alive, consumers. ARGV: name, how many, `dead` or `closing`. Moves elements back,
/// newest first, so that the oldest is the next to be taken. A dead consumer's traces go once it holds nothing; one
/// that shows life again keeps everything. One that closes stays registered, without a heartbeat, until others
/// find it dead: a BLMOVE that nobody waits for any more may still move something to it.
fn move_back() -> String {
    format!(
        r"{}
if ARGV[3] == 'dead' and redis.call('EXISTS', KEYS[3]) == 1 then return {{0, 0}} end
redis.call('DEL', KEYS[3])
local moved = 0
while moved < tonumber(ARGV[2]) do
  local element = redis.call('LMOVE', KEYS[2], KEYS[1], 'LEFT', 'RIGHT')
  if not element then break end
  redis.call('LSET', KEYS[1], -1, given_back(element))
  moved = moved + 1
end
local removed = 0
if ARGV[3] == 'dead' and redis.call('EXISTS', KEYS[2]) == 0 then
  removed = redis.call('SREM', KEYS[4], ARGV[1])
end
return {{moved, removed}}
",
        element::LUA_GIVEN_BACK
    )
}

/// Takes and acknowledges under one name.
#[derive(Debug)]
pub(super) struct ListConsumer {
    broker: Arc<Broker>,
    name: String,
    processing: String,
    /// BLMOVE blocks the connection it runs on.
    blocking: Link,
    liveness: Liveness,
    in_flight: InFlight,
    /// Found in the own list, to be returned first.
    ready: VecDeque<Delivery>,
    /// The own list may hold something that was never returned.
    rescan: bool,
    move_back: String,
}

impl ListConsumer {
    pub(super) async fn register(broker: Arc<Broker>, name: &str) -> Result<ListConsumer> {
        let mut liveness = Liveness::new(name, broker.consumer_ttl);
        let mut pipe = redis::pipe();
        liveness.beat(&mut pipe, &broker.keys);
        broker.link.query::<()>(&pipe).await?;
        Ok(ListConsumer {
            name: name.into(),
            processing: broker.keys.processing(name),
            blocking: broker.link.sibling(),
            liveness,
            in_flight: InFlight::default(),
            ready: VecDeque::new(),
            rescan: true,
            move_back: move_back(),
            broker,
        })
    }

    /// Finds what is in the own list and not known to be in flight, oldest first.
    async fn scan(&mut self) -> Result<()> {
        let before = self.in_flight.counts();
        let mut pipe = redis::pipe();
        pipe.cmd("LRANGE").arg(&self.processing).arg(0).arg(-1);
        // On the blocking link: a BLMOVE that nobody waits for any more has ended when this is answered.
        let (elements,): (Vec<Vec<u8>>,) = self.blocking.query_blocking(&pipe, self.liveness.block_max()).await?;
        // What is no text is no message, so it cannot be in flight.
        let (mut names, mut garbage) = (Vec::new(), Vec::new());
        for raw in elements.into_iter().rev() {
            match String::from_utf8(raw) {
                Ok(name) => names.push(name),
                Err(error) => garbage.push(error.into_bytes()),
            }
        }
        let found = self.in_flight.unknown(&before, names);
        let deliveries = self.accept(found.into_iter().map(String::into_bytes).chain(garbage).collect()).await?;
        self.ready.extend(deliveries);
        self.rescan = false;
        Ok(())
    }

    /// Makes deliveries of elements that Redis moved to the own list. Drops what is no message first: nothing may
    /// fail between counting a delivery as in flight and returning it.
    async fn accept(&self, elements: Vec<Vec<u8>>) -> Result<Vec<Delivery>> {
        let mut decoded = Vec::with_capacity(elements.len());
        let mut garbage = redis::pipe();
        for raw in elements {
            match element::decode(&raw) {
                Some(element) => decoded.push((element, String::from_utf8_lossy(&raw).into_owned())),
                None => {
                    garbage.cmd("LREM").arg(&self.processing).arg(-1).arg(raw).ignore();
                }
            }
        }
        if !garbage.is_empty() {
            self.broker.link.query::<()>(&garbage).await?;
            self.broker.dropped_garbage(garbage.len());
        }
        let deliver = |(element, name): (Element, String)| {
            let name = Arc::from(name);
            self.in_flight.add(&name);
            let times_delivered = element.deliveries_before.saturating_add(1);
            Delivery { message: element.message, times_delivered, handle: Handle::Name(name) }
        };
        Ok(decoded.into_iter().map(deliver).collect())
    }

    /// Waits for the first element and moves up to `max`, in one round trip.
    async fn take_waiting(&mut self, max: usize, block: Duration) -> std::result::Result<Vec<Vec<u8>>, Failure> {
        let keys = &self.broker.keys;
        let mut pipe = redis::pipe();
        self.liveness.beat_if_due(&mut pipe, keys);
        pipe.cmd("BLMOVE").arg(&keys.main).arg(&self.processing).arg("RIGHT").arg("LEFT");
        pipe.arg(block.max(BLOCK_MIN).as_secs_f64());
        if max == 1 {
            let (first,): (Option<Vec<u8>>,) = self.blocking.query_blocking(&pipe, block).await?;
            return Ok(first.into_iter().collect());
        }
        pipe.cmd("EVAL").arg(MOVE).arg(2).arg(&keys.main).arg(&self.processing).arg(max - 1);
        let (first, more): (Option<Vec<u8>>, Vec<Vec<u8>>) = self.blocking.query_blocking(&pipe, block).await?;
        Ok(first.into_iter().chain(more).collect())
    }

    /// What is there, without waiting: Redis is out of memory and refuses BLMOVE.
    async fn take_now(&mut self, max: usize) -> std::result::Result<Vec<Vec<u8>>, Failure> {
        let keys = &self.broker.keys;
        let mut pipe = redis::pipe();
        self.liveness.beat_if_due(&mut pipe, keys);
        pipe.cmd("EVAL").arg(MOVE).arg(2).arg(&keys.main).arg(&self.processing).arg(max);
        let (moved,): (Vec<Vec<u8>>,) = self.blocking.query(&pipe).await?;
        Ok(moved)
    }

    async fn move_back_from(&self, name: &str, why: &str) -> Result<(u64, u64)> {
        let keys = &self.broker.keys;
        let mut pipe = redis::pipe();
        pipe.cmd("EVAL").arg(&self.move_back).arg(4);
        pipe.arg(&keys.main).arg(keys.processing(name)).arg(keys.alive(name)).arg(&keys.consumers);
        pipe.arg(name).arg(MOVED_MAX).arg(why);
        let (counts,): ((u64, u64),) = self.broker.link.query(&pipe).await?;
        Ok(counts)
    }

    fn list_acker(&self) -> ListAcker {
        ListAcker {
            broker: self.broker.clone(),
            processing: self.processing.clone(),
            in_flight: self.in_flight.clone(),
        }
    }
}

#[async_trait]
impl Consumer for ListConsumer {
    async fn take(&mut self, max: usize, wait: Duration) -> Result<Vec<Delivery>> {
        if max == 0 {
            return Ok(Vec::new());
        }
        let deadline = Instant::now() + wait;
        loop {
            if self.rescan {
                self.scan().await?;
            }
            if !self.ready.is_empty() {
                return Ok(self.ready.drain(..max.min(self.ready.len())).collect());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            // Cleared only when every element has arrived: whoever stops waiting before that finds it set.
            self.rescan = true;
            let taken = match self.take_waiting(max, left.min(self.liveness.block_max())).await {
                Err(failure) if failure.has_code("OOM") => {
                    self.scan().await?;
                    self.rescan = true;
                    let taken = if self.ready.is_empty() { self.take_now(max).await? } else { Vec::new() };
                    if taken.is_empty() && self.ready.is_empty() {
                        tokio::time::sleep(left.min(FULL_PAUSE)).await;
                    }
                    taken
                }
                Err(failure) => {
                    self.liveness.forget_heartbeat();
                    return Err(failure.into());
                }
                Ok(taken) => taken,
            };
            let deliveries = self.accept(taken).await?;
            self.rescan = false;
            if !deliveries.is_empty() || (self.ready.is_empty() && Instant::now() >= deadline) {
                return Ok(deliveries);
            }
        }
    }

    fn acker(&self) -> Box<dyn Acker> {
        Box::new(self.list_acker())
    }

    async fn maintain(&mut self) -> Result<Maintained> {
        // A move that Redis carried out long after we gave up on the connection is found by reading again.
        self.rescan = true;
        self.list_acker().ack(&[]).await?;
        let others = self.liveness.check(&self.broker.link, &self.broker.keys, Vec::new()).await?;
        let mut maintained = Maintained::default();
        for dead in others.dead {
            let (moved, removed) = self.move_back_from(&dead, "dead").await?;
            maintained.reclaimed += moved;
            maintained.consumers_removed += removed;
        }
        metrics::reclaimed(self.broker.kind).increment(maintained.reclaimed);
        Ok(maintained)
    }

    async fn close(self: Box<Self>) -> Result<()> {
        self.list_acker().ack(&[]).await?;
        while self.move_back_from(&self.name, "closing").await?.0 > 0 {}
        self.in_flight.clear();
        Ok(())
    }
}

/// Acknowledges from any task.
#[derive(Debug)]
struct ListAcker {
    broker: Arc<Broker>,
    processing: String,
    in_flight: InFlight,
}

#[async_trait]
impl Acker for ListAcker {
    async fn ack(&self, deliveries: &[Delivery]) -> Result<()> {
        let acknowledging = self.in_flight.start_ack(deliveries);
        let mut pipe = redis::pipe();
        for element in &acknowledging.names {
            pipe.cmd("LREM").arg(&self.processing).arg(-1).arg(&**element).ignore();
        }
        if !pipe.is_empty() {
            self.broker.link.query::<()>(&pipe).await?;
        }
        acknowledging.confirmed();
        Ok(())
    }
}
