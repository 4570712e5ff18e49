//! A consumer of the stream backend.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use super::super::connection::Link;
use super::super::element::Element;
use super::super::failure::Failure;
use super::super::fairness;
use super::super::in_flight::InFlight;
use super::super::keys::{FIELD, GROUP};
use super::super::liveness::{Liveness, MOVED_MAX, Others};
use super::super::{Acker, Consumer, Delivery, Handle, Maintained, Result, element, metrics};
use super::Shared;
use super::pending::PENDING_MAX;
use super::reply::{Entry, Pending, Read};

/// Takes and acknowledges under one name.
#[derive(Debug)]
pub(super) struct StreamConsumer {
    shared: Arc<Shared>,
    name: String,
    /// XREADGROUP blocks the connection it runs on.
    blocking: Link,
    liveness: Liveness,
    in_flight: InFlight,
    /// Pending for this consumer and known to be in flight, to be returned first.
    ready: VecDeque<Delivery>,
    /// Entries may be pending for this consumer that were never returned.
    rescan: bool,
}

impl StreamConsumer {
    pub(super) async fn register(shared: Arc<Shared>, name: &str) -> Result<StreamConsumer> {
        let mut liveness = Liveness::new(name, shared.broker.consumer_ttl);
        let mut pipe = redis::pipe();
        liveness.beat(&mut pipe, &shared.broker.keys);
        shared.broker.link.query::<()>(&pipe).await?;
        Ok(StreamConsumer {
            name: name.into(),
            blocking: shared.broker.link.sibling(),
            liveness,
            in_flight: InFlight::default(),
            ready: VecDeque::new(),
            rescan: true,
            shared,
        })
    }

    /// Finds what is pending for this consumer and not known to be in flight: an earlier run's, or of a lost reply.
    async fn scan(&mut self) -> Result<()> {
        let before = self.in_flight.counts();
        // On the blocking link: an XREADGROUP that nobody waits for any more has ended when this is answered.
        let mut pipe = redis::pipe();
        pipe.cmd("XPENDING").arg(&self.shared.broker.keys.main).arg(GROUP).arg("-").arg("+").arg(PENDING_MAX);
        pipe.arg(&self.name);
        let reply = self.blocking.query_blocking(&pipe, self.liveness.block_max()).await;
        let pending: Vec<Pending> = match reply {
            Err(failure) if failure.has_code("NOGROUP") => Vec::new(),
            reply => reply.map(|(pending,)| pending)?,
        };
        let deliveries: HashMap<String, u32> = pending.iter().map(|line| (line.0.clone(), line.3)).collect();
        let mut ids = self.in_flight.unknown(&before, pending.into_iter().map(|line| line.0).collect());
        let more = ids.len() > MOVED_MAX;
        ids.truncate(MOVED_MAX);
        self.claim(&ids, Duration::ZERO, &deliveries).await?;
        self.rescan = more;
        Ok(())
    }

    /// Takes entries over and puts them first in line. Returns how many.
    async fn claim(&mut self, ids: &[String], min_idle: Duration, delivered: &HashMap<String, u32>) -> Result<u64> {
        if ids.is_empty() {
            return Ok(0);
        }
        let (vanished, entries) = self.shared.claim(&self.name, ids, min_idle).await?;
        self.shared.vanished.fetch_add(vanished, Ordering::Relaxed);
        let claimed = self.accept(entries, delivered).await?;
        let count = claimed.len() as u64;
        self.ready.extend(claimed);
        Ok(count)
    }

    /// Makes deliveries of entries that are now pending for this consumer. Drops what is no message first: nothing
    /// may fail between counting a delivery as in flight and returning it.
    async fn accept(&self, entries: Vec<Entry>, delivered: &HashMap<String, u32>) -> Result<Vec<Delivery>> {
        let mut decoded = Vec::with_capacity(entries.len());
        let mut garbage = Vec::new();
        for (id, fields) in entries {
            let raw = fields.iter().flatten().find(|(name, _)| name == FIELD.as_bytes());
            match raw.and_then(|(_, raw)| element::decode(raw)) {
                Some(element) => decoded.push((element, id)),
                None => garbage.push(id),
            }
        }
        if !garbage.is_empty() {
            self.shared.remove(&garbage).await?;
            self.shared.broker.dropped_garbage(garbage.len());
        }
        let deliver = |(element, id): (Element, String)| {
            let before = delivered.get(&id).copied().unwrap_or(0);
            let id = Arc::from(id);
            self.in_flight.add(&id);
            let times_delivered = element.deliveries_before.saturating_add(before).saturating_add(1);
            Delivery { message: element.message, times_delivered, handle: Handle::Name(id) }
        };
        Ok(decoded.into_iter().map(deliver).collect())
    }

    /// Waits for new entries, up to `max`, in one round trip.
    async fn read(&mut self, max: usize, block: Duration) -> std::result::Result<Vec<Entry>, Failure> {
        let mut pipe = redis::pipe();
        self.liveness.beat_if_due(&mut pipe, &self.shared.broker.keys);
        pipe.cmd("XREADGROUP").arg("GROUP").arg(GROUP).arg(&self.name).arg("COUNT");
        pipe.arg(max);
        // BLOCK 0 would block for ever.
        pipe.arg("BLOCK").arg((block.as_millis() as u64).max(1));
        pipe.arg("STREAMS").arg(&self.shared.broker.keys.main).arg(">");
        let (read,): (Read,) = self.blocking.query_blocking(&pipe, block).await?;
        Ok(read.into_iter().flatten().flat_map(|(_, entries)| entries).collect())
    }

    /// Shares out what `dead` holds among the alive and takes this consumer's share.
    async fn reclaim(&mut self, dead: &str, others: &Others, room: usize) -> Result<u64> {
        // A consumer showed life at most a third of its TTL before its last entry came, and has shown none for
        // a whole TTL: its entries have been idle for longer than this. One just claimed by another has not.
        let min_idle = self.shared.broker.consumer_ttl / 2;
        let pending = self.shared.pending_of(dead, min_idle).await?;
        let mine = pending.into_iter().filter(|line| fairness::is_mine(&line.0, &self.name, &others.alive));
        let delivered: HashMap<String, u32> = mine.take(room).map(|line| (line.0, line.3)).collect();
        let mut ids: Vec<String> = delivered.keys().cloned().collect();
        ids.sort_by_key(|id| entry_order(id));
        self.claim(&ids, min_idle, &delivered).await
    }

    fn stream_acker(&self) -> StreamAcker {
        StreamAcker { shared: self.shared.clone(), in_flight: self.in_flight.clone() }
    }
}

/// `ms-seq` as numbers: as text 10-0 would come before 9-0.
fn entry_order(id: &str) -> (u64, u64) {
    let (ms, seq) = id.split_once('-').unwrap_or((id, "0"));
    (ms.parse().unwrap_or(0), seq.parse().unwrap_or(0))
}

#[async_trait]
impl Consumer for StreamConsumer {
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
            // Cleared only when every entry has arrived: whoever stops waiting before that finds it set.
            self.rescan = true;
            let entries = match self.read(max, left.min(self.liveness.block_max())).await {
                Err(failure) if failure.has_code("NOGROUP") || failure.has_code("UNBLOCKED") => {
                    self.shared.create_group().await?;
                    continue;
                }
                Err(failure) => {
                    self.liveness.forget_heartbeat();
                    return Err(failure.into());
                }
                Ok(entries) => entries,
            };
            let deliveries = self.accept(entries, &HashMap::new()).await?;
            self.rescan = false;
            if !deliveries.is_empty() {
                return Ok(deliveries);
            }
            if Instant::now() >= deadline {
                return Ok(Vec::new());
            }
        }
    }

    fn acker(&self) -> Box<dyn Acker> {
        Box::new(self.stream_acker())
    }

    async fn maintain(&mut self) -> Result<Maintained> {
        // A read that Redis carried out long after we gave up on the connection is found by reading again.
        self.rescan = true;
        self.stream_acker().ack(&[]).await?;
        let infos = self.shared.group_members().await?;
        let names = infos.iter().map(|info| info.name.clone()).collect();
        let others = self.liveness.check(&self.shared.broker.link, &self.shared.broker.keys, names).await?;
        let mut maintained = Maintained::default();
        for dead in &others.dead {
            let holds = infos.iter().any(|info| info.name == *dead && info.pending > 0);
            let room = MOVED_MAX.saturating_sub(maintained.reclaimed as usize);
            if holds && room > 0 {
                maintained.reclaimed += self.reclaim(dead, &others, room).await?;
            }
            maintained.consumers_removed += self.shared.remove_consumer(dead).await?;
        }
        metrics::reclaimed(self.shared.broker.kind).increment(maintained.reclaimed);
        Ok(maintained)
    }

    async fn close(self: Box<Self>) -> Result<()> {
        self.stream_acker().ack(&[]).await?;
        self.shared.give_back(&self.name).await?;
        self.in_flight.clear();
        self.shared.remove_consumer(&self.name).await?;
        Ok(())
    }
}

/// Acknowledges from any task.
#[derive(Debug)]
struct StreamAcker {
    shared: Arc<Shared>,
    in_flight: InFlight,
}

#[async_trait]
impl Acker for StreamAcker {
    async fn ack(&self, deliveries: &[Delivery]) -> Result<()> {
        let acknowledging = self.in_flight.start_ack(deliveries);
        if !acknowledging.names.is_empty() {
            self.shared.remove(&acknowledging.names).await?;
        }
        acknowledging.confirmed();
        Ok(())
    }
}
