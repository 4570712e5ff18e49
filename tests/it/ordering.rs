//! Ordering keys: one at a time, in the order of release, whatever happens to the head.

use std::time::Duration;

use tokio_postgres::Client;

use crate::support::instance::{Instance, Setup};
use crate::support::postgres::{self, Database};
use crate::support::provider::{Provider, Reply};
use crate::support::sql;

const SOON: Duration = Duration::from_secs(20);

async fn start() -> (Database, Client, Provider, Instance) {
    let database = postgres::database().await;
    let client = database.connect().await;
    let provider = Provider::start();
    let instance = Setup::new(&database.url()).webhook(&provider.url("/hook")).start().await;
    (database, client, provider, instance)
}

async fn notify(client: &Client, recipient: &str) -> i64 {
    sql::value(client, &format!("SELECT outboxd.notify('t', '{recipient}', '{{}}', ordering_key => 'k')")).await
}

/// Who was called, in order.
fn calls(provider: &Provider) -> Vec<String> {
    provider.ledger().iter().map(|call| call.recipient()).collect()
}

async fn all_ended(client: &Client) {
    sql::until(
        client,
        "SELECT count(*) = 0 FROM outboxd.notifications WHERE status IN ('PENDING', 'QUEUED', 'PROCESSING')",
    )
    .await;
}

#[tokio::test]
async fn two_writers_at_once_on_one_key_are_each_kept_in_order_and_never_called_at_once() {
    let (database, client, provider, _instance) = start().await;
    provider.answer(Reply::ok().after(Duration::from_millis(10)));
    let write = async |name: &str| {
        let writer = database.connect().await;
        for n in 0..20 {
            notify(&writer, &format!("{name} {n:02}")).await;
        }
    };
    tokio::join!(write("a"), write("b"));
    provider.wait_for(40, SOON).await;
    all_ended(&client).await;
    let calls = calls(&provider);
    for name in ["a", "b"] {
        let own: Vec<&String> = calls.iter().filter(|call| call.starts_with(name)).collect();
        assert!(own.is_sorted() && own.len() == 20, "{own:?}");
    }
    let at: Vec<_> = provider.ledger().iter().map(|call| call.at).collect();
    assert!(at.windows(2).all(|pair| pair[1] - pair[0] >= Duration::from_millis(10)), "one after the other's answer");
}

#[tokio::test]
async fn a_head_that_fails_for_now_is_retried_before_those_behind_it() {
    let (_database, client, provider, _instance) = start().await;
    provider.script([Reply::status(503), Reply::status(503)]);
    for recipient in ["1", "2", "3"] {
        notify(&client, recipient).await;
    }
    provider.wait_for(5, SOON).await;
    all_ended(&client).await;
    assert_eq!(calls(&provider), ["1", "1", "1", "2", "3"]);
}

#[tokio::test]
async fn a_head_that_fails_for_good_lets_the_next_one_go() {
    let (_database, client, provider, _instance) = start().await;
    provider.script([Reply::status(400)]);
    for recipient in ["1", "2", "3"] {
        notify(&client, recipient).await;
    }
    provider.wait_for(3, SOON).await;
    all_ended(&client).await;
    assert_eq!(calls(&provider), ["1", "2", "3"]);
    let outcomes: Vec<String> = sql::values(&client, "SELECT status FROM outboxd.notifications ORDER BY id").await;
    assert_eq!(outcomes, ["FAILED", "SENT", "SENT"]);
}

#[tokio::test]
async fn a_head_that_is_canceled_while_it_waits_lets_the_next_one_go() {
    let database = postgres::database().await;
    let client = database.connect().await;
    let provider = Provider::start();
    provider.script([Reply::status(503)]);
    let setup = Setup::new(&database.url())
        .webhook(&provider.url("/hook"))
        .set("routes.default.backoff.base", "60s")
        .set("routes.default.backoff.max", "60s");
    let _instance = setup.start().await;
    let head = notify(&client, "1").await;
    for recipient in ["2", "3"] {
        notify(&client, recipient).await;
    }
    sql::until(&client, "SELECT count(*) = 1 FROM outboxd.attempts").await;
    assert_eq!(sql::value::<String>(&client, &format!("SELECT outboxd.cancel({head})")).await, "canceled");
    provider.wait_for(3, SOON).await;
    all_ended(&client).await;
    assert_eq!(calls(&provider), ["1", "2", "3"]);
    let outcomes: Vec<String> = sql::values(&client, "SELECT status FROM outboxd.notifications ORDER BY id").await;
    assert_eq!(outcomes, ["CANCELED", "SENT", "SENT"]);
}

#[tokio::test]
async fn a_head_that_fails_holds_its_key_in_its_own_topic_alone() {
    let database = postgres::database().await;
    let client = database.connect().await;
    let provider = Provider::start();
    provider.script([Reply::status(503)]);
    let setup = Setup::new(&database.url())
        .webhook(&provider.url("/hook"))
        .set("routes.default.backoff.base", "60s")
        .set("routes.default.backoff.max", "60s");
    let _instance = setup.start().await;
    let notify = async |topic: &str, recipient: &str| {
        let notify = format!("SELECT outboxd.notify('{topic}', '{recipient}', '{{}}', ordering_key => 'k')");
        sql::run(&client, &notify).await;
    };
    notify("failing", "head").await;
    sql::until(&client, "SELECT count(*) = 1 FROM outboxd.attempts").await;
    notify("failing", "behind").await;
    notify("honest", "1").await;
    sql::run(
        &client,
        "INSERT INTO outboxd.notification_log (topic, recipient, payload, ordering_key) VALUES ('honest', '2', '{}', 'k')",
    )
    .await;
    provider.wait_for(3, SOON).await;
    assert_eq!(calls(&provider), ["head", "1", "2"]);
    sql::until(&client, "SELECT count(*) = 2 FROM outboxd.notifications WHERE status = 'SENT'").await;
    let waiting = "SELECT string_agg(o.state::text, ' ' ORDER BY o.seq) FROM outboxd.outbox o";
    assert_eq!(sql::value::<String>(&client, waiting).await, "ready blocked");
}

#[tokio::test]
async fn a_head_that_is_retried_by_hand_goes_behind_those_that_wait() {
    let (_database, client, provider, _instance) = start().await;
    provider.script([Reply::status(400), Reply::ok().after(Duration::from_millis(700))]);
    let head = notify(&client, "1").await;
    for recipient in ["2", "3", "4"] {
        notify(&client, recipient).await;
    }
    // The second is being called, the others wait.
    provider.wait_for(2, SOON).await;
    sql::until(&client, &format!("SELECT status = 'FAILED' FROM outboxd.notifications WHERE id = {head}")).await;
    assert!(sql::value::<bool>(&client, &format!("SELECT outboxd.retry({head})")).await);
    provider.wait_for(5, SOON).await;
    all_ended(&client).await;
    assert_eq!(calls(&provider), ["1", "2", "3", "4", "1"]);
}

#[tokio::test]
async fn rows_that_fall_due_go_in_the_order_they_are_due() {
    let (_database, client, provider, _instance) = start().await;
    sql::run(
        &client,
        "INSERT INTO outboxd.notification_log (topic, recipient, payload, ordering_key, send_at)
         SELECT 't', n::text, '{}', 'k', now() + interval '500 ms' - n * interval '1 ms' FROM generate_series(1, 9) n",
    )
    .await;
    provider.wait_for(9, SOON).await;
    assert_eq!(calls(&provider), ["9", "8", "7", "6", "5", "4", "3", "2", "1"]);
}
