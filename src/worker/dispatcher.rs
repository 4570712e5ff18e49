//! Holds messages until they may start, claims those that may, and starts their calls.
//!
//! A message is claimed only with its permits: one of its topic's share of the instance's calls, and one of its
//! channel's and destination's. So no more is claimed than is called at once, a crash leaves few outcomes unknown, and
//! only what changed between claim and call (a pause, an open circuit) is claimed and given back. What cannot start
//! within a second goes back to Postgres unclaimed, with its time: so the buffer always has room for the next topic.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics::{counter, histogram};
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;

use super::arrivals::Arrivals;
use super::buffer::{Buffer, Destination, Level, Line, Taken, Turn};
use super::payloads::Payloads;
use super::put_back::GoesBack;
use super::recorder::{self, Acks, Done, Finished};
use super::taker::Batch;
use super::{Worker, circuits, sender};
use crate::channel::availability::May;
use crate::channel::circuit::Pass;
use crate::channel::limit::{Full, Permit};
use crate::channel::share::{NoShare, Share};
use crate::failpoint;
use crate::queue::{Delivery, Message};
use crate::retry::ErrorWait;
use crate::store;
use crate::store::claim::{Case, Claimed, Key};
use crate::store::locks::ASK_AGAIN_AFTER;

/// Messages that may wait here, for each call there may be.
const ROOM_FACTOR: usize = 8;
/// How often a full buffer is searched for what cannot start within a second any more.
const SHORTEN_EVERY: Duration = Duration::from_millis(100);
/// Messages of a topic that has no route here go back for an instance that has one.
pub(super) const NO_ROUTE_WAIT: Duration = Duration::from_secs(2);

/// What a call holds while it is claimed and made; dropping it lets the next start.
pub(super) struct Permits {
    share: Option<Share>,
    limit: Option<Permit>,
    freed: Arc<Notify>,
}

impl Permits {
    /// Waits for what the call needs beside its limits; others have the start that was kept for it meanwhile.
    pub(super) async fn wait_for<T>(&mut self, what: impl Future<Output = T>) -> T {
        let Some(limit) = &mut self.limit else { return what.await };
        limit.pause();
        self.freed.notify_one();
        let found = what.await;
        while let Err(wait) = limit.resume(Instant::now()) {
            tokio::time::sleep(wait).await;
        }
        found
    }

    /// The call starts now, and takes no longer than `timeout`.
    pub(super) fn start(&mut self, timeout: Duration) {
        let now = Instant::now();
        if let Some(limit) = &mut self.limit {
            limit.start(now);
        }
        if let Some(share) = &mut self.share {
            share.start(now, timeout);
        }
    }
}

impl Drop for Permits {
    fn drop(&mut self) {
        drop((self.limit.take(), self.share.take()));
        self.freed.notify_one();
    }
}

/// A message that may start.
struct Start {
    taken: Taken,
    destination: Destination,
    pass: Pass,
    permits: Permits,
}

pub(super) struct Dispatcher {
    pub(super) worker: Arc<Worker>,
    pub(super) calls: TaskTracker,
    pub(super) finished: mpsc::Sender<Finished>,
    pub(super) shutdown: CancellationToken,
    pub(super) cut_off: CancellationToken,
    /// For messages that come again, behind those that are taken.
    batches: mpsc::Sender<Batch>,
    /// For those whose destinations were read.
    pub(super) arrivals: mpsc::Sender<Arrivals>,
    /// One claim at a time: what may start while it waits for the disk goes into the next, and a big claim is cheap.
    pub(super) claims: Arc<Semaphore>,
    pub(super) freed: Arc<Notify>,
    pub(super) payloads: Arc<Payloads>,
}

/// What the dispatcher waits for.
enum Event {
    Batch(Option<Batch>),
    Arrived(Arrivals),
    Freed,
    Shutdown,
}

impl Dispatcher {
    pub(super) fn new(
        worker: Arc<Worker>,
        batches: mpsc::Sender<Batch>,
        arrivals: mpsc::Sender<Arrivals>,
        finished: mpsc::Sender<Finished>,
        shutdown: CancellationToken,
        cut_off: CancellationToken,
    ) -> Dispatcher {
        Dispatcher {
            claims: Arc::new(Semaphore::new(1)),
            freed: Arc::new(Notify::new()),
            payloads: Payloads::new(worker.config.payload_bytes_max),
            calls: TaskTracker::new(),
            worker,
            batches,
            arrivals,
            finished,
            shutdown,
            cut_off,
        }
    }

    /// Works until shutdown; what waits then goes back to the queue. Claims and calls under way are left to finish.
    pub(super) async fn run(
        self: Arc<Self>,
        mut batches: mpsc::Receiver<Batch>,
        mut own_batches: mpsc::Receiver<Batch>,
        mut arrivals: mpsc::Receiver<Arrivals>,
    ) {
        let mut buffer = Buffer::new(Arc::clone(self.worker.availability.shares()));
        let mut shortened_at = Instant::now();
        loop {
            let rate_wait = self.start(&mut buffer);
            let is_full = |buffer: &Buffer| buffer.len() >= self.worker.config.concurrency * ROOM_FACTOR;
            if is_full(&buffer) && shortened_at.elapsed() >= SHORTEN_EVERY {
                self.shorten(&mut buffer);
                shortened_at = Instant::now();
            }
            let has_room = !is_full(&buffer);
            match self.next(&mut batches, &mut own_batches, &mut arrivals, has_room, rate_wait).await {
                Event::Batch(Some(batch)) => self.let_in(&mut buffer, batch),
                Event::Arrived(arrivals) => self.let_in_read(&mut buffer, arrivals),
                Event::Batch(None) | Event::Shutdown => break,
                Event::Freed => {}
            }
        }
    }

    async fn next(
        &self,
        batches: &mut mpsc::Receiver<Batch>,
        own_batches: &mut mpsc::Receiver<Batch>,
        arrivals: &mut mpsc::Receiver<Arrivals>,
        has_room: bool,
        rate_wait: Option<Duration>,
    ) -> Event {
        // Whichever has one, by chance. Without a queue of its own that one is closed from the start.
        let batch = async {
            tokio::select! {
                Some(batch) = own_batches.recv() => Some(batch),
                batch = batches.recv() => batch,
            }
        };
        tokio::select! {
            biased;
            () = self.shutdown.cancelled() => Event::Shutdown,
            Some(arrivals) = arrivals.recv() => Event::Arrived(arrivals),
            batch = batch, if has_room => Event::Batch(batch),
            () = self.freed.notified() => Event::Freed,
            () = tokio::time::sleep(SHORTEN_EVERY), if !has_room => Event::Freed,
            () = tokio::time::sleep(rate_wait.unwrap_or_default()), if rate_wait.is_some() => Event::Freed,
        }
    }

    /// Claims as much as may start. Says how long until a rate limit lets more start, if that is what keeps it.
    fn start(self: &Arc<Self>, buffer: &mut Buffer) -> Option<Duration> {
        let Ok(claim) = Arc::clone(&self.claims).try_acquire_owned() else { return None };
        let (mut starts, mut back, mut rate_wait) = (Vec::new(), Vec::new(), None::<Duration>);
        buffer.take_turns(|line| self.turn(line, &mut starts, &mut back, &mut rate_wait));
        self.put_back(back);
        if !starts.is_empty() {
            let dispatcher = Arc::clone(self);
            self.calls.spawn(async move {
                dispatcher.claim(starts).await;
                drop(claim);
                dispatcher.freed.notify_one();
            });
        }
        rate_wait
    }

    /// The first of a line starts if it may. One call a turn, so that many destinations need few connections each.
    fn turn(
        &self,
        line: &mut Line,
        starts: &mut Vec<Start>,
        back: &mut Vec<GoesBack>,
        rate_wait: &mut Option<Duration>,
    ) -> Turn {
        let pass = match &line.destination {
            None => Pass::Normal,
            Some((provider, origin)) => match self.worker.availability.may_call(provider.channel.name(), origin) {
                May::Call(pass) => pass,
                May::Wait(held) => {
                    back.extend(line.messages.drain(..).map(|taken| self.while_held(taken, held, origin)));
                    return Turn::Stop(Level::Line);
                }
            },
        };
        let permits = match self.permits(line, rate_wait) {
            Ok(permits) => permits,
            Err(level) => {
                circuits::give_back_probe(&self.worker, pass, &line.destination);
                return Turn::Stop(level);
            }
        };
        let Some(taken) = line.messages.pop_front() else { return Turn::Stop(Level::Line) };
        starts.push(Start { taken, destination: line.destination.clone(), pass, permits });
        // A probe is one call.
        if pass == Pass::Probe { Turn::StartedLast } else { Turn::Started }
    }

    /// What a call needs, or what is full.
    fn permits(&self, line: &Line, rate_wait: &mut Option<Duration>) -> Result<Permits, Level> {
        let now = Instant::now();
        let share = self.worker.availability.shares().try_acquire(&line.topic, now).map_err(|full| {
            if let Some((provider, _)) = &line.destination {
                provider.limits.stopped_by_concurrency(now);
            }
            match full {
                NoShare::All => Level::Instance,
                NoShare::Topic => Level::Topic,
            }
        })?;
        let limit =
            line.destination.as_ref().map(|(provider, origin)| provider.limits.try_acquire(&line.topic, origin, now));
        let limit = limit.transpose().map_err(|full| match full {
            Full::Rate(wait) => {
                *rate_wait = Some(rate_wait.map_or(wait, |known| known.min(wait)));
                Level::Channel
            }
            Full::Channel => Level::Channel,
            Full::Topic => Level::Topic,
            Full::Origin => Level::Line,
        })?;
        Ok(Permits { share: Some(share), limit, freed: Arc::clone(&self.freed) })
    }

    async fn claim(&self, starts: Vec<Start>) {
        failpoint::hit("after_take").await;
        // Copies of a message that is here as well need no claim of their own.
        let (mut done, mut locked) = (Vec::new(), Vec::new());
        let mut first: HashMap<(i64, i32), Start> = HashMap::with_capacity(starts.len());
        for start in starts {
            let message = &start.taken.delivery.message;
            if let Some(copy) = first.insert((message.id, message.epoch), start) {
                done.push(self.not_called(copy));
            }
        }
        let messages: Vec<Message> = first.values().map(|start| start.taken.delivery.message.clone()).collect();
        let claimed_at = Instant::now();
        let Some(cases) = self.claim_patiently(&messages).await else { return };
        histogram!("outboxd_batch_rows", "step" => "claim").record(cases.len() as f64);
        count_cases(&cases);
        if cases.iter().any(|(_, case)| matches!(case, Case::Claimed(_))) {
            failpoint::hit("after_claim").await;
        }
        for (key, case) in cases {
            let Some(start) = first.remove(&key) else { continue };
            match case {
                Case::Claimed(claimed) => {
                    self.worker.presence.saw_claimed(claimed.published_at);
                    self.call(claimed, start, claimed_at);
                }
                Case::Held | Case::Sent | Case::Stale => done.push(self.not_called(start)),
                Case::Locked => locked.push(self.not_called(start)),
                Case::Unusable(row) => {
                    let (acks, delivery) = self.not_called(start);
                    let finished = Finished { done: Done::Unusable(row), delivery, acks };
                    // As for a call: without a recorder the process is ending.
                    let _ = self.finished.send(finished).await;
                }
            }
        }
        for (acks, deliveries) in recorder::by_consumer(done.into_iter()) {
            acks.ack(&deliveries).await;
        }
        for (acks, deliveries) in recorder::by_consumer(locked.into_iter()) {
            self.come_again(Batch { deliveries, acks });
        }
    }

    /// Messages whose rows are locked come again as if they were taken then. At shutdown they go back to the queue with
    /// their consumer.
    fn come_again(&self, batch: Batch) {
        let (batches, shutdown) = (self.batches.clone(), self.shutdown.clone());
        self.calls.spawn(async move {
            let again = async {
                tokio::time::sleep(ASK_AGAIN_AFTER).await;
                // Without a dispatcher the process is ending.
                let _ = batches.send(batch).await;
            };
            shutdown.run_until_cancelled(again).await
        });
    }

    fn call(&self, claimed: Box<Claimed>, start: Start, claimed_at: Instant) {
        let Start { taken: Taken { delivery, acks }, destination, pass, permits } = start;
        let payloads = Arc::clone(&self.payloads);
        let call = sender::Call { claimed, delivery, acks, destination, pass, claimed_at, payloads };
        let (worker, finished, cut_off) = (Arc::clone(&self.worker), self.finished.clone(), self.cut_off.clone());
        self.calls.spawn(async move {
            let outcome = sender::run(&worker, call, permits, &cut_off).await;
            // The recorder outlives every call; if it is gone the process is ending and the lease speaks for the row.
            let _ = finished.send(outcome).await;
        });
    }

    /// It needs no call: its permits are free, and so is the probe it may have been granted.
    fn not_called(&self, start: Start) -> (Acks, Delivery) {
        circuits::give_back_probe(&self.worker, start.pass, &start.destination);
        (start.taken.acks, start.taken.delivery)
    }

    /// Claims, waiting out any outage. `None`: shutdown; the messages stay ours in the queue and go back with the
    /// consumer.
    async fn claim_patiently(&self, messages: &[Message]) -> Option<Vec<(Key, Case)>> {
        let worker = &self.worker;
        let mut wait = ErrorWait::default();
        loop {
            match worker.store.claim(messages, worker.instance.get(), worker.config.lease).await {
                Ok(cases) => return Some(cases),
                Err(error) => {
                    // Whether the claim was made is unknown after an outage: then the second try finds it PROCESSING
                    // and leaves it to its lease.
                    if !matches!(error, store::Error::Contention(_) | store::Error::Locked(_)) {
                        warn!(%error, messages = messages.len(), "claiming waits");
                    }
                    self.shutdown.run_until_cancelled(tokio::time::sleep(wait.next(rand::random()))).await?;
                }
            }
        }
    }
}

/// Mostly they are all of one kind.
fn count_cases(cases: &[(Key, Case)]) {
    for same in cases.chunk_by(|(_, one), (_, next)| one.name() == next.name()) {
        counter!("outboxd_claims_total", "case" => same[0].1.name()).increment(same.len() as u64);
    }
}
