//! receive() and respond(): a consuming service handles a message once, whatever is repeated.

use tokio_postgres::Client;

use crate::support::postgres;
use crate::support::sql::{Refusal, pid, refused, run, until_blocked, value};

const RECEIVE: &str = "SELECT first, response::text FROM outboxd.receive('billing', 'm1')";

async fn receive(client: &Client) -> (bool, Option<String>) {
    let row = client.query_one(RECEIVE, &[]).await.unwrap();
    (row.get(0), row.get(1))
}

#[tokio::test]
async fn the_first_caller_is_first_and_a_repeat_gets_the_response() {
    let client = postgres::database().await.connect().await;
    assert_eq!(receive(&client).await, (true, None));
    assert_eq!(receive(&client).await, (false, None), "received, not yet answered");
    run(&client, "SELECT outboxd.respond('billing', 'm1', '{\"paid\": true}')").await;
    assert_eq!(receive(&client).await, (false, Some("{\"paid\": true}".into())));
    let other = "SELECT first FROM outboxd.receive('shipping', 'm1')";
    assert!(value::<bool>(&client, other).await, "consumers do not share an inbox");
}

#[tokio::test]
async fn a_second_receive_waits_for_the_firsts_transaction() {
    let database = postgres::database().await;
    let (first, second, observer) = (database.connect().await, database.connect().await, database.connect().await);
    let waiter = pid(&second).await;
    for (end, expected) in [("ROLLBACK", (true, None)), ("COMMIT", (false, Some("\"done\"".to_string())))] {
        run(&observer, "DELETE FROM outboxd.inbox").await;
        run(&first, "BEGIN").await;
        assert!(receive(&first).await.0);
        run(&first, "SELECT outboxd.respond('billing', 'm1', '\"done\"')").await;
        let (got, ()) = tokio::join!(receive(&second), async {
            until_blocked(&observer, waiter).await;
            run(&first, end).await;
        });
        assert_eq!(got, expected, "{end}");
    }
}

#[tokio::test]
async fn the_first_response_stands() {
    let client = postgres::database().await.connect().await;
    receive(&client).await;
    run(&client, "SELECT outboxd.respond('billing', 'm1', '1')").await;
    run(&client, "SELECT outboxd.respond('billing', 'm1', '1')").await;
    let refusal = refused(&client, "SELECT outboxd.respond('billing', 'm1', '2')").await;
    assert_eq!(refusal.code, "23505");
    assert_eq!(refusal.message, "respond: another response is stored for message 'm1'");
    assert_eq!(refusal.hint, "The first response stands; a repeat must return it.");
    assert_eq!(receive(&client).await, (false, Some("1".into())));
}

#[tokio::test]
async fn no_response_is_a_response_too() {
    let client = postgres::database().await.connect().await;
    receive(&client).await;
    run(&client, "SELECT outboxd.respond('billing', 'm1', NULL)").await;
    assert_eq!(receive(&client).await, (false, Some("null".into())));
}

#[tokio::test]
async fn bad_calls_are_refused_with_a_code_a_message_and_a_hint() {
    let client = postgres::database().await.connect().await;
    let name_both = "Pass the consuming service's name and the message's id (webhook-id).";
    let lengths = "A consumer has 1 to 200 bytes, a message_id 1 to 512; hash longer ids.";
    let cases = [
        ("receive(NULL, 'm')", "22004", "receive: consumer must not be NULL", name_both),
        ("receive('c', NULL)", "22004", "receive: message_id must not be NULL", name_both),
        ("receive('', 'm')", "22023", "receive: consumer has 0 bytes, message_id has 1", lengths),
        ("receive('c', repeat('m', 513))", "22023", "receive: consumer has 1 bytes, message_id has 513", lengths),
        (
            "respond('c', 'unheard of', '1')",
            "P0002",
            "respond: 'c' never received message 'unheard of'",
            "Call outboxd.receive(consumer, message_id) first, in the same transaction.",
        ),
        (
            "respond(NULL, 'm', '1')",
            "P0002",
            "respond: NULL never received message 'm'",
            "Call outboxd.receive(consumer, message_id) first, in the same transaction.",
        ),
    ];
    for (call, code, message, hint) in cases {
        let refusal = refused(&client, &format!("SELECT outboxd.{call}")).await;
        let wanted = Refusal { code: code.into(), message: message.into(), hint: hint.into() };
        assert_eq!(refusal, wanted, "{call}");
    }
}
