//! After things have calmed down: what the provider's ledger, written before each reply, says beside the rows.

use outboxd_throwaway::evidence::{self, Arrival, Evidence, Subject, row_of};
use outboxd_throwaway::verdict;
pub use outboxd_throwaway::verdict::Verdict;
use tokio_postgres::Client;

use super::provider::Provider;
use super::sql;

/// Waits until every row has ended, then judges.
pub async fn until_ended(client: &Client, provider: &Provider) -> Verdict {
    sql::until(client, "SELECT count(*) = 0 FROM outboxd.notifications WHERE finished_at IS NULL").await;
    judge(client, provider).await
}

/// Fails if a row is in a state that must not be, at any moment.
pub async fn assert_rows_are_legal(client: &Client) {
    assert_eq!(evidence::illegal_rows(client).await.expect("the rows can be read"), []);
}

/// Judges as things are now.
pub async fn judge(client: &Client, provider: &Provider) -> Verdict {
    assert_rows_are_legal(client).await;
    let lines = provider.lines();
    let arrivals = lines.iter().map(|(call, status)| {
        let at = (call.at - lines[0].0.at).as_micros().try_into().expect("a short test");
        Arrival::of(call, at, None, *status).expect("a webhook-id with a row in it")
    });
    let arrivals = arrivals.collect();
    let rows = evidence::rows(client, None).await.expect("the rows can be read");
    verdict::judge(&Evidence { rows, arrivals, ..Evidence::default() })
}

/// The id inside `ntf-<install>-<id>-<created>`.
pub fn notification_id(webhook_id: &str) -> i64 {
    match row_of(webhook_id) {
        Some(Subject::Row(id, _)) => id,
        _ => panic!("no id in {webhook_id:?}"),
    }
}
