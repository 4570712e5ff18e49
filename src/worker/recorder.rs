//! Records outcomes in batches of what is ready, then acknowledges their messages.
//!
//! An outcome whose row somebody has locked is kept and tried again; the others are recorded. Its call counts as under
//! way, so our own sweep leaves it alone. What is locked at the end of a drain is left to its lease.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use metrics::{counter, histogram};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::Worker;
use crate::failpoint;
use crate::queue::{Acker, Delivery};
use crate::retry::ErrorWait;
use crate::store::claim::{Key, PutBack};
use crate::store::locks::ASK_AGAIN_AFTER;
use crate::store::publish::OrderingKey;
use crate::store::record::{Failed, Recorder, Sent, SentRecord};
use crate::store::refusal::Unusable;
use crate::store::{self, BATCH_ROWS};

/// What became of one claim.
pub(super) enum Done {
    Sent(Sent),
    Failed(Failed),
    Released(PutBack),
    /// It cannot be worked with: no call was made.
    Unusable(Unusable),
}

impl Done {
    fn key(&self) -> Key {
        match self {
            Done::Sent(sent) => (sent.id, sent.token),
            Done::Failed(failed) => (failed.id, failed.token),
            Done::Released(released) => (released.id, released.epoch),
            Done::Unusable(row) => (row.id, row.epoch),
        }
    }
}

/// A claim that is over, and the message that led to it.
pub(super) struct Finished {
    pub(super) done: Done,
    pub(super) delivery: Delivery,
    pub(super) acks: Acks,
}

/// Acknowledges messages of one consumer, from any task.
#[derive(Clone)]
pub(super) struct Acks(Arc<dyn Acker>);

impl Acks {
    pub(super) fn new(acker: Box<dyn Acker>) -> Acks {
        Acks(Arc::from(acker))
    }

    /// A message that cannot be acknowledged comes again and is dropped at the claim.
    pub(super) async fn ack(&self, deliveries: &[Delivery]) {
        if deliveries.is_empty() {
            return;
        }
        if let Err(error) = self.0.ack(deliveries).await {
            debug!(%error, messages = deliveries.len(), "not acknowledged; they will come again");
        }
    }
}

pub(super) async fn run(worker: Arc<Worker>, mut outcomes: mpsc::Receiver<Finished>, stop: CancellationToken) {
    let mut ready = Vec::with_capacity(BATCH_ROWS as usize);
    let (mut locked, mut again_at) = (Batch::default(), Instant::now());
    while let Some(mut batch) = next(&mut outcomes, &mut ready, &mut locked, again_at, &stop).await {
        failpoint::hit("after_call").await;
        let Some(passed_over) = stop.run_until_cancelled(batch.record_patiently(&worker)).await else { return };
        if !passed_over.is_empty() {
            if locked.messages.is_empty() {
                again_at = Instant::now() + ASK_AGAIN_AFTER;
            }
            batch.move_to(&mut locked, &passed_over);
        }
        failpoint::hit("after_record").await;
        histogram!("outboxd_batch_rows", "step" => "record").record(batch.messages.len() as f64);
        batch.forget(&worker);
        for (acks, deliveries) in by_consumer(batch.messages.into_iter().map(|(_, acks, delivery)| (acks, delivery))) {
            acks.ack(&deliveries).await;
        }
    }
}

/// What is to be recorded next: what is ready, or what was locked once its time has come. `None`: all is recorded, or
/// `stop`.
async fn next(
    outcomes: &mut mpsc::Receiver<Finished>,
    ready: &mut Vec<Finished>,
    locked: &mut Batch,
    again_at: Instant,
    stop: &CancellationToken,
) -> Option<Batch> {
    if locked.messages.is_empty() {
        return (outcomes.recv_many(ready, BATCH_ROWS as usize).await > 0).then(|| Batch::of(ready.drain(..)));
    }
    tokio::select! {
        biased;
        () = stop.cancelled() => return None,
        () = tokio::time::sleep_until(again_at) => return Some(std::mem::take(locked)),
        received = outcomes.recv_many(ready, BATCH_ROWS as usize) => if received > 0 {
            return Some(Batch::of(ready.drain(..)));
        },
    }
    // Every call is over.
    stop.run_until_cancelled(tokio::time::sleep_until(again_at)).await?;
    Some(std::mem::take(locked))
}

/// A consumer that was made anew acknowledges only its own.
pub(super) fn by_consumer(messages: impl Iterator<Item = (Acks, Delivery)>) -> Vec<(Acks, Vec<Delivery>)> {
    let mut groups: Vec<(Acks, Vec<Delivery>)> = Vec::new();
    for (acks, delivery) in messages {
        match groups.iter_mut().find(|(known, _)| Arc::ptr_eq(&known.0, &acks.0)) {
            Some((_, deliveries)) => deliveries.push(delivery),
            None => groups.push((acks, vec![delivery])),
        }
    }
    groups
}

/// What is ready, by what is to be recorded of it.
#[derive(Default)]
struct Batch {
    sent: Vec<Sent>,
    failed: Vec<Failed>,
    released: Vec<PutBack>,
    unusable: Vec<Unusable>,
    messages: Vec<(Key, Acks, Delivery)>,
}

impl Batch {
    fn of(finished: impl ExactSizeIterator<Item = Finished>) -> Batch {
        let mut batch = Batch { messages: Vec::with_capacity(finished.len()), ..Batch::default() };
        for Finished { done, delivery, acks } in finished {
            batch.messages.push((done.key(), acks, delivery));
            match done {
                Done::Sent(sent) => batch.sent.push(sent),
                Done::Failed(failed) => batch.failed.push(failed),
                Done::Released(released) => batch.released.push(released),
                Done::Unusable(row) => batch.unusable.push(row),
            }
        }
        batch
    }

    /// These are to be recorded with that batch.
    fn move_to(&mut self, other: &mut Batch, keys: &HashSet<Key>) {
        other.sent.extend(self.sent.extract_if(.., |sent| keys.contains(&(sent.id, sent.token))));
        other.failed.extend(self.failed.extract_if(.., |failed| keys.contains(&(failed.id, failed.token))));
        other.released.extend(self.released.extract_if(.., |released| keys.contains(&(released.id, released.epoch))));
        other.unusable.extend(self.unusable.extract_if(.., |row| keys.contains(&(row.id, row.epoch))));
        other.messages.extend(self.messages.extract_if(.., |(key, ..)| keys.contains(key)));
    }

    /// Records, waiting out any outage: an outcome that is known is worth more than a free call. Returns those whose
    /// rows are locked.
    async fn record_patiently(&self, worker: &Worker) -> HashSet<Key> {
        let (mut keys, mut unusable, mut passed_over) = (Vec::new(), self.unusable.clone(), HashSet::new());
        for (freed, refused, locked) in [
            patiently("deliveries", || record_sent(worker, &self.sent)).await,
            patiently("failures", || record_failures(worker, &self.failed)).await,
            patiently("releases", || release(worker, &self.released)).await,
        ] {
            keys.extend(freed);
            unusable.extend(refused);
            passed_over.extend(locked);
        }
        let (freed, locked) = patiently("rows that are given up", || give_up(worker, &unusable)).await;
        keys.extend(freed);
        passed_over.extend(locked);
        // The next rows of these keys are due now; what fails here is found by the sweep.
        if !keys.is_empty()
            && let Err(error) = worker.store.admit(&keys).await
        {
            warn!(%error, keys = keys.len(), "the next rows of their keys wait for the sweep");
        }
        if !keys.is_empty() || !self.failed.is_empty() || !self.released.is_empty() {
            worker.store.wake_relay();
        }
        passed_over
    }

    /// Their leases need not be renewed any more.
    fn forget(&self, worker: &Worker) {
        let sent = self.sent.iter().map(|sent| sent.id);
        let failed = self.failed.iter().map(|failed| failed.id);
        let released = self.released.iter().map(|released| released.id);
        worker.calls.end(sent.chain(failed).chain(released));
    }
}

/// Keys that are free for their next row, rows of which this cannot be recorded, and those that are locked.
type Recorded = (Vec<OrderingKey>, Vec<Unusable>, Vec<Key>);

async fn patiently<T, F>(what: &'static str, mut record: impl FnMut() -> F) -> T
where
    F: Future<Output = store::Result<T>>,
{
    let mut wait = ErrorWait::default();
    loop {
        match record().await {
            Ok(recorded) => return recorded,
            Err(error) => {
                // A repeat after an unknown commit is harmless: what was recorded is found recorded.
                warn!(%error, what, "recording waits");
                tokio::time::sleep(wait.next(rand::random())).await;
            }
        }
    }
}

async fn record_sent(worker: &Worker, sent: &[Sent]) -> store::Result<Recorded> {
    if sent.is_empty() {
        return Ok(Recorded::default());
    }
    let record = worker.store.record_sent(sent, worker.instance.get()).await?;
    counter!("outboxd_sent_total").increment(record.sent.len() as u64);
    count_sent(worker, sent, &record);
    if record.late > 0 {
        counter!("outboxd_late_successes_total").increment(record.late);
    }
    if !record.duplicates.is_empty() {
        counter!("outboxd_duplicates_total").increment(record.duplicates.len() as u64);
        warn!(ids = ?record.duplicates, "delivered again although they were SENT; see outboxd.attempts");
    }
    Ok((record.released_keys, record.unusable, record.locked))
}

/// A clock that was set back is no reason for a strange figure: no span is negative.
fn count_sent(worker: &Worker, sent: &[Sent], record: &SentRecord) {
    let mut counts = worker.statistics.counts();
    let by_id: HashMap<i64, &Sent> = sent.iter().map(|sent| (sent.id, sent)).collect();
    let (notify_to_sent, seen_to_sent) =
        (histogram!("outboxd_notify_to_sent_seconds"), histogram!("outboxd_seen_to_sent_seconds"));
    for delivered in &record.delivered {
        let Some(sent) = by_id.get(&delivered.id) else { continue };
        let since_notify = Duration::try_from_secs_f64(delivered.since_notify_s).unwrap_or_default();
        let since_seen = (delivered.at - sent.published_at).to_std().unwrap_or_default();
        notify_to_sent.record(since_notify.as_secs_f64());
        seen_to_sent.record(since_seen.as_secs_f64());
        counts.sent(&sent.topic, since_notify, since_seen);
    }
}

async fn record_failures(worker: &Worker, failed: &[Failed]) -> store::Result<Recorded> {
    if failed.is_empty() {
        return Ok(Recorded::default());
    }
    let record = worker.store.record_failures(failed, worker.instance.get(), Recorder::Worker).await?;
    let is_recorded = |failed: &&Failed| !record.locked.contains(&(failed.id, failed.token));
    let unknown = failed.iter().filter(is_recorded).filter(|failed| failed.outcome == "unknown").count();
    counter!("outboxd_unknown_outcomes_total").increment(unknown as u64);
    counter!("outboxd_retries_total").increment(record.waiting.len() as u64);
    counter!("outboxd_dead_letters_total").increment(record.failed.len() as u64);
    counter!("outboxd_late_failures_total").increment(record.late);
    let topics = failed.iter().map(|failed| (failed.id, &*failed.topic));
    worker.statistics.counts().attempted(topics, &record.failed, &record.waiting);
    Ok((record.released_keys, record.unusable, record.locked))
}

async fn release(worker: &Worker, released: &[PutBack]) -> store::Result<Recorded> {
    if released.is_empty() {
        return Ok(Recorded::default());
    }
    let record = worker.store.release(released).await?;
    counter!("outboxd_released_total").increment((released.len() - record.locked.len()) as u64);
    Ok((record.released_keys, record.unusable, record.locked))
}

async fn give_up(worker: &Worker, rows: &[Unusable]) -> store::Result<(Vec<OrderingKey>, Vec<Key>)> {
    for row in rows {
        warn!(id = row.id, error = row.error, "a row cannot be worked with; it is given up");
    }
    let (keys, locked) = worker.store.give_up(rows).await?;
    counter!("outboxd_dead_letters_total").increment((rows.len() - locked.len()) as u64);
    Ok((keys, locked))
}
