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
pub async fn settle(client: &Client, provider: &Provider) -> Verdict {
    sql::until(client, "SELECT count(*) = 0 FROM outboxd.notification_log WHERE status IN ('PENDING', 'QUEUED')").await;
    judge(client, provider).await
}

/// Judges as things are now.
pub async fn judge(client: &Client, provider: &Provider) -> Verdict {
    let mut calls: HashMap<i64, i64> = HashMap::new();
    for call in provider.ledger() {
        *calls.entry(notification_id(&call.webhook_id)).or_default() += 1;
    }
    let rows = client
        .query(
            "SELECT l.id, l.status::text, (SELECT count(*) FROM outboxd.attempt a WHERE a.notification_id = l.id)
               FROM outboxd.notification_log l",
            &[],
        )
        .await
        .expect("the rows can be read");
    let mut verdict = Verdict::default();
    for row in &rows {
        let (id, status, attempts): (i64, String, i64) = (row.get(0), row.get(1), row.get(2));
        let called = calls.remove(&id).unwrap_or(0);
        match status.as_str() {
            "PENDING" | "QUEUED" => verdict.unfinished.push(id),
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
