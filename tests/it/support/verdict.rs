//! After things have calmed down: what the provider's ledger, written before each reply, says beside the rows.

use std::collections::HashMap;

use tokio_postgres::Client;

use super::provider::Provider;
use super::sql;

/// What happened, by notification id.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Rows that have not ended.
    pub unfinished: Vec<i64>,
    /// SENT rows the provider never saw.
    pub lost: Vec<i64>,
    /// Calls for ids that nobody committed.
    pub phantoms: Vec<i64>,
    /// Called more than once.
    pub repeated: Vec<i64>,
    /// Called more often than recorded attempts explain.
    pub unexplained: Vec<i64>,
}

impl Verdict {
    /// L and P: nothing lost, no phantom.
    pub fn assert_nothing_lost(&self) -> &Verdict {
        assert!(self.unfinished.is_empty() && self.lost.is_empty() && self.phantoms.is_empty(), "{self:?}");
        self
    }

    /// D0: no duplicate.
    pub fn assert_no_duplicate(&self) -> &Verdict {
        assert!(self.repeated.is_empty(), "{self:?}");
        self
    }

    /// DA: every duplicate has an attempt with no recorded success.
    pub fn assert_duplicates_explained(&self) -> &Verdict {
        assert!(self.unexplained.is_empty(), "{self:?}");
        self
    }
}

/// Waits until every row has ended, then judges.
pub async fn until_ended(client: &Client, provider: &Provider) -> Verdict {
    sql::until(client, "SELECT count(*) = 0 FROM outboxd.notifications WHERE finished_at IS NULL").await;
    judge(client, provider).await
}

/// Rows that our own statements must never write, with the rule each breaks.
const ILLEGAL_ROWS: &str = "
    SELECT format('notification %s: %s', l.id, r.rule) FROM outboxd.notification_log l CROSS JOIN LATERAL (SELECT CASE
        WHEN (l.status > 'QUEUED') <> (l.finished_at IS NOT NULL) THEN 'ended rows and only they have finished_at'
        WHEN l.failed_at IS DISTINCT FROM CASE WHEN l.status = 'FAILED' THEN l.finished_at END THEN 'failed rows and only they have failed_at, their end'
        WHEN l.status = 'FAILED' AND l.error IS NULL THEN 'failed rows have an error'
        WHEN (l.status = 'QUEUED') <> EXISTS (SELECT FROM outboxd.outbox o WHERE o.id = l.id) THEN 'QUEUED rows and only they have work'
    END AS rule) r WHERE r.rule IS NOT NULL
    UNION ALL
    SELECT format('work %s: %s', o.id, r.rule) FROM outboxd.outbox o CROSS JOIN LATERAL (SELECT CASE
        WHEN NOT EXISTS (SELECT FROM outboxd.notification_log l WHERE l.id = o.id AND l.topic = o.topic) THEN 'work has its record'
        WHEN o.state = 'processing' AND (o.instance IS NULL OR o.lease_until IS NULL) THEN 'processing rows have a worker and a lease'
        WHEN o.state = 'published' AND o.published_at IS NULL THEN 'published rows tell since when'
        WHEN o.state <> 'ready' AND o.retry_at IS NOT NULL THEN 'only ready rows wait for a time'
        WHEN o.state = 'blocked' AND o.ordering_key IS NULL THEN 'only rows with a key wait behind it'
        WHEN o.has_turn <> (o.ordering_key IS NOT NULL AND o.state <> 'blocked') THEN 'rows with a key that are not blocked have its turn'
        WHEN o.state = 'ready' AND o.ordering_key IS NOT NULL AND o.retry_at IS NULL THEN 'heads of keys are found by their time'
    END AS rule) r WHERE r.rule IS NOT NULL";

/// Fails if a row is in a state that must not be, at any moment.
pub async fn assert_rows_are_legal(client: &Client) {
    assert_eq!(sql::values::<String>(client, ILLEGAL_ROWS).await, [""; 0]);
}

/// Judges as things are now.
pub async fn judge(client: &Client, provider: &Provider) -> Verdict {
    assert_rows_are_legal(client).await;
    let mut calls: HashMap<i64, i64> = HashMap::new();
    for call in provider.ledger() {
        *calls.entry(notification_id(&call.webhook_id)).or_default() += 1;
    }
    let rows = client
        .query(
            "SELECT n.id, n.status, (SELECT count(*) FROM outboxd.attempt a WHERE a.notification_id = n.id)
               FROM outboxd.notifications n",
            &[],
        )
        .await
        .expect("the rows can be read");
    let mut verdict = Verdict::default();
    for row in &rows {
        let (id, status, attempts): (i64, String, i64) = (row.get(0), row.get(1), row.get(2));
        let called = calls.remove(&id).unwrap_or(0);
        match status.as_str() {
            "PENDING" | "QUEUED" | "PROCESSING" => verdict.unfinished.push(id),
            "SENT" if called == 0 => verdict.lost.push(id),
            _ => {}
        }
        if called > 1 {
            verdict.repeated.push(id);
        }
        if called > attempts + i64::from(status == "SENT") {
            verdict.unexplained.push(id);
        }
    }
    verdict.phantoms = calls.into_keys().collect();
    verdict
}

/// The id inside `ntf-<install>-<id>-<created>`.
pub fn notification_id(webhook_id: &str) -> i64 {
    webhook_id.split('-').nth(2).and_then(|id| id.parse().ok()).expect("a webhook-id with an id in it")
}
