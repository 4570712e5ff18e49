//! Outcomes: SENT always wins; failures only under the current token.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio_postgres::types::ToSql;

use super::instance::millis;
use super::{Result, Store, query};

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
    pub released_keys: Vec<String>,
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
    /// What follows.
    pub next: Next,
}

/// What follows a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The same channel again, after this wait.
    Retry(Duration),
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
    pub released_keys: Vec<String>,
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
        let query =
            query!("worker_record_sent", Durable, [INT8_ARRAY, INT4_ARRAY, TEXT_ARRAY, INT2_ARRAY, TIMESTAMPTZ_ARRAY]);
        let mut sent: Vec<&Sent> = sent.iter().collect();
        sent.sort_unstable_by_key(|sent| sent.id);
        let ids: Vec<i64> = sent.iter().map(|sent| sent.id).collect();
        let tokens: Vec<i32> = sent.iter().map(|sent| sent.token).collect();
        let channels: Vec<&str> = sent.iter().map(|sent| &*sent.channel).collect();
        let statuses: Vec<i16> = sent.iter().map(|sent| status(sent.http_status)).collect();
        let created: Vec<DateTime<Utc>> = sent.iter().map(|sent| sent.created_at).collect();
        let rows = self.query(query, &[&ids, &tokens, &channels, &statuses, &created]).await?;
        let mut record = SentRecord::default();
        for row in &rows {
            let id: i64 = row.get(0);
            record.sent.push(id);
            record.late += u64::from(!row.get::<_, bool>(1));
            record.released_keys.extend(row.get::<_, Option<String>>(2));
            record.delivered.push(Delivered { id, at: row.get(3), since_notify_s: row.get(4) });
        }
        if rows.len() < sent.len() {
            let recorded: HashSet<i64> = record.sent.iter().copied().collect();
            let late: Vec<&Sent> = sent.into_iter().filter(|sent| !recorded.contains(&sent.id)).collect();
            self.record_late_sent(&late, instance, &mut record).await?;
        }
        Ok(record)
    }

    async fn record_late_sent(&self, sent: &[&Sent], instance: i32, record: &mut SentRecord) -> Result<()> {
        let late = query!(
            "worker_record_late_sent",
            Durable,
            [INT8_ARRAY, INT4_ARRAY, TEXT_ARRAY, INT2_ARRAY, TIMESTAMPTZ_ARRAY, INT4]
        );
        let drop_work = query!("worker_drop_sent_work", Durable, [INT8_ARRAY]);
        let ids: Vec<i64> = sent.iter().map(|sent| sent.id).collect();
        let tokens: Vec<i32> = sent.iter().map(|sent| sent.token).collect();
        let channels: Vec<&str> = sent.iter().map(|sent| &*sent.channel).collect();
        let statuses: Vec<i16> = sent.iter().map(|sent| status(sent.http_status)).collect();
        let created: Vec<DateTime<Utc>> = sent.iter().map(|sent| sent.created_at).collect();
        let arguments: [&(dyn ToSql + Sync); 6] = [&ids, &tokens, &channels, &statuses, &created, &instance];
        let (rows, dropped) = self.query_pair((late, &arguments), (drop_work, &[&ids])).await?;
        for row in &rows {
            match row.get(1) {
                "duplicate" => record.duplicates.push(row.get(0)),
                _ => {
                    record.sent.push(row.get(0));
                    record.late += 1;
                }
            }
        }
        record.released_keys.extend(dropped.iter().filter_map(|row| row.get::<_, Option<String>>(0)));
        Ok(())
    }

    /// Records failures and unknown outcomes.
    pub async fn record_failures(
        &self,
        failed: &[Failed],
        instance: i32,
        recorder: Recorder<'_>,
    ) -> Result<FailureRecord> {
        let query = query!(
            "worker_record_failures",
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
                TIMESTAMPTZ_ARRAY
            ]
        );
        let column = Columns::of(failed);
        let (is_sweep, dead): (bool, &[i32]) = match recorder {
            Recorder::Worker => (false, &[]),
            Recorder::Sweep(dead) => (true, dead),
        };
        let arguments: [&(dyn ToSql + Sync); 14] = [
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
        ];
        let rows = self.query(query, &arguments).await?;
        let mut record = FailureRecord::default();
        for row in &rows {
            let (id, applied, ended): (i64, bool, bool) = (row.get(0), row.get(1), row.get(2));
            record.released_keys.extend(row.get::<_, Option<String>>(4));
            match (applied, ended, row.get::<_, Option<&str>>(3)) {
                (false, ..) => record.late += 1,
                (true, false, _) => record.waiting.push(id),
                (true, true, Some("CANCELED")) => record.canceled.push(id),
                (true, true, _) => record.failed.push(id),
            }
        }
        Ok(record)
    }
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
        }
    }
}

impl Next {
    fn wait(self) -> Option<Duration> {
        match self {
            Next::Retry(wait) => Some(wait),
            Next::Channel(_) => Some(Duration::ZERO),
            Next::GiveUp => None,
        }
    }

    fn step(self) -> Option<i16> {
        match self {
            Next::Channel(position) => Some(position),
            Next::Retry(_) | Next::GiveUp => None,
        }
    }
}

fn status(code: u16) -> i16 {
    i16::try_from(code).unwrap_or(i16::MAX)
}
