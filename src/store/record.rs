//! Outcomes: SENT always wins; failures only under the current token.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio_postgres::types::ToSql;

use super::claim::Key;
use super::instance::millis;
use super::publish::OrderingKey;
use super::refusal::{Bisection, Unusable, Values, freed_keys, in_ascii};
use super::{Error, Result, Store, query};

/// A 2xx.
#[derive(Debug, Clone)]
pub struct Sent {
    /// The notification.
    pub id: i64,
    /// The attempt's token.
    pub token: i32,
    /// What it is about.
    pub topic: Arc<str>,
    /// The channel that delivered.
    pub channel: Arc<str>,
    /// The provider's status.
    pub http_status: u16,
    /// The provider's own id of it.
    pub provider_id: Option<String>,
    /// When the app wrote it: after a restore an id may be somebody else's.
    pub created_at: DateTime<Utc>,
    /// When its message was published.
    pub published_at: DateTime<Utc>,
}

/// A delivery that ended its row.
#[derive(Debug, Clone, Copy)]
pub struct Delivered {
    /// The notification.
    pub id: i64,
    /// When it became SENT.
    pub at: DateTime<Utc>,
    /// Seconds since notify(), or since `send_at` if that was later.
    pub since_notify_s: f64,
}

/// What became of recorded deliveries.
#[derive(Debug, Default)]
pub struct SentRecord {
    /// Recorded as SENT now, late ones included.
    pub sent: Vec<i64>,
    /// Those of them that ended their row, with their times by the database's clock.
    pub delivered: Vec<Delivered>,
    /// Recorded as SENT although the lease was over or the row had ended.
    pub late: u64,
    /// They were SENT before: the provider got them twice.
    pub duplicates: Vec<i64>,
    /// Ordering keys that are free for their next row.
    pub released_keys: Vec<OrderingKey>,
    /// Rows of which this cannot be recorded: to be given up.
    pub unusable: Vec<Unusable>,
    /// Deliveries whose rows are locked: to be recorded again.
    pub locked: Vec<Key>,
}

/// An attempt that failed or whose outcome is unknown.
#[derive(Debug, Clone)]
pub struct Failed {
    /// The notification.
    pub id: i64,
    /// The attempt's token.
    pub token: i32,
    /// When the app wrote it: after a restore an id may be somebody else's.
    pub created_at: DateTime<Utc>,
    /// What it is about.
    pub topic: Arc<str>,
    /// `failed` or `unknown`.
    pub outcome: &'static str,
    /// One line for the operator.
    pub error: String,
    /// The provider's status, if it answered.
    pub http_status: Option<u16>,
    /// The channel that was called.
    pub channel: Arc<str>,
    /// How long the call took.
    pub duration: Option<Duration>,
    /// The beginning of the provider's answer.
    pub response: Option<String>,
    /// The provider's own id of it.
    pub provider_id: Option<String>,
    /// What follows.
    pub next: Next,
}

/// What follows a failed attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// The same channel again, after this wait.
    Retry(Duration),
    /// The same channel again, after this wait, for this origin: it was a probe, which uses up no attempt.
    Probe(Duration, Arc<str>),
    /// The route's channel at this position, at once.
    Channel(i16),
    /// FAILED.
    GiveUp,
}

/// What became of recorded failures.
#[derive(Debug, Default)]
pub struct FailureRecord {
    /// Rows that wait for their next attempt.
    pub waiting: Vec<i64>,
    /// Rows that ended FAILED.
    pub failed: Vec<i64>,
    /// Rows that ended CANCELED.
    pub canceled: Vec<i64>,
    /// Failures under an old token: noted, and nothing changed.
    pub late: u64,
    /// Ordering keys that are free for their next row.
    pub released_keys: Vec<OrderingKey>,
    /// Rows of which this cannot be recorded: to be given up.
    pub unusable: Vec<Unusable>,
    /// Attempts whose rows are locked: to be recorded again.
    pub locked: Vec<Key>,
}

/// On whose behalf failures are recorded.
#[derive(Debug, Clone, Copy)]
pub enum Recorder<'a> {
    /// The worker that made the calls.
    Worker,
    /// A sweep: only if the lease is over or its holder is one of these dead instances.
    Sweep(&'a [i32]),
}

impl Store {
    /// Records deliveries.
    pub async fn record_sent(&self, sent: &[Sent], instance: i32) -> Result<SentRecord> {
        let mut sent: Vec<&Sent> = sent.iter().collect();
        sent.sort_unstable_by_key(|sent| sent.id);
        let (mut record, mut late) = (SentRecord::default(), Vec::new());
        let mut bisection = self.parts(ids(&sent)).await?;
        while let Some(part) = bisection.next() {
            let recorded = self.record_sent_at_once(&sent[part.clone()], &mut record, &mut late).await;
            self.tried(&mut bisection, part, recorded).await?;
        }
        record.leave(&sent, bisection);
        if !late.is_empty() {
            // By itself: what is recorded must not be recorded again because one of these is locked.
            let mut bisection = self.parts(ids(&late)).await?;
            while let Some(part) = bisection.next() {
                let recorded = self.record_late_sent(&late[part.clone()], instance, &mut record).await;
                self.tried(&mut bisection, part, recorded).await?;
            }
            record.leave(&late, bisection);
        }
        Ok(record)
    }

    /// In the order of ids. What had ended before is `late`.
    async fn record_sent_at_once<'a>(
        &self,
        sent: &[&'a Sent],
        record: &mut SentRecord,
        late: &mut Vec<&'a Sent>,
    ) -> Result<()> {
        let query = query!(
            "worker/record_sent",
            Durable,
            [INT8_ARRAY, INT4_ARRAY, TEXT_ARRAY, INT2_ARRAY, TIMESTAMPTZ_ARRAY, TEXT_ARRAY]
        );
        let (ids, tokens, channels, statuses, created, provider_ids) = columns(sent);
        let rows = self.query(query, &[&ids, &tokens, &channels, &statuses, &created, &provider_ids]).await?;
        let mut recorded = HashSet::with_capacity(rows.len());
        for row in &rows {
            let id: i64 = row.value(0)?;
            recorded.insert(id);
            record.late += u64::from(!row.value::<bool>(1)?);
            record.delivered.push(Delivered { id, at: row.value(3)?, since_notify_s: row.value(4)? });
        }
        record.sent.extend(&recorded);
        record.released_keys.extend(freed_keys(&rows, 2));
        if rows.len() < sent.len() {
            late.extend(sent.iter().copied().filter(|sent| !recorded.contains(&sent.id)));
        }
        Ok(())
    }

    async fn record_late_sent(&self, sent: &[&Sent], instance: i32, record: &mut SentRecord) -> Result<()> {
        let late = query!(
            "worker/record_late_sent",
            Durable,
            [INT8_ARRAY, INT4_ARRAY, TEXT_ARRAY, INT2_ARRAY, TIMESTAMPTZ_ARRAY, INT4, TEXT_ARRAY]
        );
        let drop_work = query!("worker/drop_sent_work", Durable, [INT8_ARRAY]);
        let (ids, tokens, channels, statuses, created, provider_ids) = columns(sent);
        let arguments: [&(dyn ToSql + Sync); 7] =
            [&ids, &tokens, &channels, &statuses, &created, &instance, &provider_ids];
        let (rows, dropped) = self.query_pair((late, &arguments), (drop_work, &[&ids])).await?;
        for row in &rows {
            match row.value::<&str>(1)? {
                "duplicate" => record.duplicates.push(row.value(0)?),
                _ => {
                    record.sent.push(row.value(0)?);
                    record.late += 1;
                }
            }
        }
        record.released_keys.extend(freed_keys(&dropped, 0));
        Ok(())
    }

    /// Records failures and unknown outcomes.
    pub async fn record_failures(
        &self,
        failed: &[Failed],
        instance: i32,
        recorder: Recorder<'_>,
    ) -> Result<FailureRecord> {
        let mut record = FailureRecord::default();
        let mut bisection = self.parts(failed.iter().map(|failed| failed.id).collect()).await?;
        while let Some(part) = bisection.next() {
            let recorded = self.record_failures_at_once(&failed[part.clone()], instance, recorder, &mut record).await;
            self.tried(&mut bisection, part, recorded).await?;
        }
        record.locked = bisection.locked.into_iter().map(|at| (failed[at].id, failed[at].token)).collect();
        for (at, _) in bisection.refused {
            // The provider's words, most likely.
            let plain = in_ascii(&failed[at]);
            let recorded = self.record_failures_at_once(std::slice::from_ref(&plain), instance, recorder, &mut record);
            match recorded.await {
                Err(Error::Value(error)) => record.unusable.push(Unusable {
                    id: plain.id,
                    epoch: plain.token,
                    error: format!("its failure cannot be recorded: {error}"),
                }),
                Err(Error::Locked(reason)) => {
                    self.met(&reason, 1);
                    record.locked.push((plain.id, plain.token));
                }
                recorded => recorded?,
            }
        }
        Ok(record)
    }

    async fn record_failures_at_once(
        &self,
        failed: &[Failed],
        instance: i32,
        recorder: Recorder<'_>,
        record: &mut FailureRecord,
    ) -> Result<()> {
        let query = query!(
            "worker/record_failures",
            Durable,
            [
                INT8_ARRAY,
                INT4_ARRAY,
                TEXT_ARRAY,
                TEXT_ARRAY,
                INT2_ARRAY,
                TEXT_ARRAY,
                INT4_ARRAY,
                TEXT_ARRAY,
                INT8_ARRAY,
                INT2_ARRAY,
                INT4,
                BOOL,
                INT4_ARRAY,
                TIMESTAMPTZ_ARRAY,
                TEXT_ARRAY,
                TEXT_ARRAY
            ]
        );
        let column = Columns::of(failed);
        let (is_sweep, dead): (bool, &[i32]) = match recorder {
            Recorder::Worker => (false, &[]),
            Recorder::Sweep(dead) => (true, dead),
        };
        let arguments: [&(dyn ToSql + Sync); 16] = [
            &column.ids,
            &column.tokens,
            &column.outcomes,
            &column.errors,
            &column.statuses,
            &column.channels,
            &column.durations,
            &column.responses,
            &column.waits,
            &column.next_steps,
            &instance,
            &is_sweep,
            &dead,
            &column.created,
            &column.probed,
            &column.provider_ids,
        ];
        let rows = self.query(query, &arguments).await?;
        record.released_keys.extend(freed_keys(&rows, 4));
        for row in &rows {
            let (id, applied, ended): (i64, bool, bool) = (row.value(0)?, row.value(1)?, row.value(2)?);
            match (applied, ended, row.value::<Option<&str>>(3)?) {
                (false, ..) => record.late += 1,
                (true, false, _) => record.waiting.push(id),
                (true, true, Some("CANCELED")) => record.canceled.push(id),
                (true, true, _) => record.failed.push(id),
            }
        }
        Ok(())
    }
}

impl SentRecord {
    /// What is left of a batch that was tried.
    fn leave(&mut self, sent: &[&Sent], tried: Bisection) {
        self.locked.extend(tried.locked.into_iter().map(|at| (sent[at].id, sent[at].token)));
        self.unusable.extend(tried.refused.into_iter().map(|(at, error)| Unusable {
            id: sent[at].id,
            epoch: sent[at].token,
            error: format!("it was delivered, and that cannot be recorded: {error}"),
        }));
    }
}

fn ids(sent: &[&Sent]) -> Vec<i64> {
    sent.iter().map(|sent| sent.id).collect()
}

/// Deliveries as the statements take them: one array per column.
type SentColumns<'a> = (Vec<i64>, Vec<i32>, Vec<&'a str>, Vec<i16>, Vec<DateTime<Utc>>, Vec<Option<&'a str>>);

fn columns<'a>(sent: &[&'a Sent]) -> SentColumns<'a> {
    let column = |sent: &&'a Sent| {
        (sent.id, sent.token, &*sent.channel, status(sent.http_status), sent.created_at, sent.provider_id.as_deref())
    };
    sent.iter().map(column).collect()
}

/// Failures as the statement takes them: one array per column.
struct Columns<'a> {
    ids: Vec<i64>,
    tokens: Vec<i32>,
    outcomes: Vec<&'a str>,
    errors: Vec<&'a str>,
    statuses: Vec<Option<i16>>,
    channels: Vec<&'a str>,
    durations: Vec<Option<i32>>,
    responses: Vec<Option<&'a str>>,
    waits: Vec<Option<i64>>,
    next_steps: Vec<Option<i16>>,
    created: Vec<DateTime<Utc>>,
    probed: Vec<Option<&'a str>>,
    provider_ids: Vec<Option<&'a str>>,
}

impl<'a> Columns<'a> {
    fn of(failed: &'a [Failed]) -> Self {
        let duration_ms = |span: Duration| i32::try_from(span.as_millis()).unwrap_or(i32::MAX);
        Columns {
            ids: failed.iter().map(|f| f.id).collect(),
            tokens: failed.iter().map(|f| f.token).collect(),
            outcomes: failed.iter().map(|f| f.outcome).collect(),
            errors: failed.iter().map(|f| f.error.as_str()).collect(),
            statuses: failed.iter().map(|f| f.http_status.map(status)).collect(),
            channels: failed.iter().map(|f| &*f.channel).collect(),
            durations: failed.iter().map(|f| f.duration.map(duration_ms)).collect(),
            responses: failed.iter().map(|f| f.response.as_deref()).collect(),
            waits: failed.iter().map(|f| f.next.wait().map(millis)).collect(),
            next_steps: failed.iter().map(|f| f.next.step()).collect(),
            created: failed.iter().map(|f| f.created_at).collect(),
            probed: failed.iter().map(|f| f.next.probed()).collect(),
            provider_ids: failed.iter().map(|f| f.provider_id.as_deref()).collect(),
        }
    }
}

impl Next {
    fn wait(&self) -> Option<Duration> {
        match self {
            Next::Retry(wait) | Next::Probe(wait, _) => Some(*wait),
            Next::Channel(_) => Some(Duration::ZERO),
            Next::GiveUp => None,
        }
    }

    fn step(&self) -> Option<i16> {
        if let Next::Channel(position) = self { Some(*position) } else { None }
    }

    fn probed(&self) -> Option<&str> {
        if let Next::Probe(_, origin) = self { Some(origin) } else { None }
    }
}

fn status(code: u16) -> i16 {
    i16::try_from(code).unwrap_or(i16::MAX)
}
