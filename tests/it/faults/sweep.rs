//! What a sweep sees of all that is live, in one pass.

use std::time::Duration;

use outboxd::store::Store;
use outboxd::store::publish::FreshScan;

use crate::duty::{config, register};
use crate::support::{postgres, sql};

const ONE: FreshScan<'_> = FreshScan { last_id: i64::MAX, overlap: 500, skip: &[], take: 1 };
const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn one_look_tells_the_claims_to_be_ended_and_how_long_what_is_published_has_waited() {
    let database = postgres::database().await;
    let client = database.connect().await;
    let store = Store::open(&config(&database, &[])).unwrap();
    let instance = register(&client).await;
    sql::run(&client, "SELECT outboxd.notify('orders', 'r', '{}') FROM generate_series(1, 5)").await;
    let look = store.look_over(&[], 10).await.unwrap();
    assert_eq!((look.expired.len(), look.published_for), (0, None), "ready rows wait for nobody's claim");

    store.reserve_fresh(ONE, instance, &[]).await.unwrap();
    let waited = store.look_over(&[], 10).await.unwrap().published_for.expect("one is published");
    assert!(waited < MINUTE, "{waited:?}");
    sql::run(&client, "UPDATE outboxd.outbox SET published_at = now() - interval '1 min' WHERE state = 'published'")
        .await;
    let waited = store.look_over(&[], 10).await.unwrap().published_for.expect("it still is");
    assert!(waited >= MINUTE && waited < 2 * MINUTE, "{waited:?}");

    // Claimed: one under a lease that is over, one by an instance that is dead, one by one that lives.
    sql::run(
        &client,
        "UPDATE outboxd.outbox SET state = 'processing', epoch = 1, instance = id, lease_until = now() + (id - 1.5) * interval '1 h' WHERE id <= 3",
    )
    .await;
    let look = store.look_over(&[2], 10).await.unwrap();
    let mut ids: Vec<i64> = look.expired.iter().map(|claim| claim.id).collect();
    ids.sort_unstable();
    assert_eq!((ids, look.published_for), (vec![1, 2], None));
    assert_eq!(store.look_over(&[2], 1).await.unwrap().expired.len(), 1, "no more than asked for");
}
