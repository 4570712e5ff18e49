//! publish(): domain events, kept in Postgres and waiting for their stream.

use crate::support::postgres;
use crate::support::sql::{Refusal, refused, run, value, values};

#[tokio::test]
async fn an_event_is_kept_and_waits_in_the_order_of_its_key() {
    let client = postgres::database().await.connect().await;
    let mut ids = Vec::new();
    for n in 1..=3 {
        let sql = format!("SELECT outboxd.publish('order', 'k', '{{\"n\": {n}}}', '{{\"traceparent\": \"00\"}}')");
        ids.push(value::<i64>(&client, &sql).await);
    }
    assert_eq!(values::<i64>(&client, "SELECT event_id FROM outboxd.event_outbox ORDER BY seq").await, ids);
    let kept = "SELECT array_agg((payload ->> 'n') || key || topic || (headers ->> 'traceparent') ORDER BY id)::text
                  FROM outboxd.event";
    assert_eq!(value::<String>(&client, kept).await, "{1korder00,2korder00,3korder00}");
}

#[tokio::test]
async fn a_rolled_back_event_never_was() {
    let client = postgres::database().await.connect().await;
    run(&client, "BEGIN; SELECT outboxd.publish('t', 'k', '{}'); ROLLBACK").await;
    let rows = "SELECT (SELECT count(*) FROM outboxd.event) + (SELECT count(*) FROM outboxd.event_outbox)";
    assert_eq!(value::<i64>(&client, rows).await, 0);
}

#[tokio::test]
async fn events_are_refused_while_every_running_instance_is_without_redis() {
    let client = postgres::database().await.connect().await;
    let start = |queue: &str| {
        format!(
            "INSERT INTO outboxd.instance (ttl, pid, roles, queue_kind, host, version)
             VALUES ('15 s', 1, '{{relay}}', '{queue}', 'h', '0')"
        )
    };
    run(&client, "SELECT outboxd.publish('t', 'k', '{}')").await;
    run(&client, &start("memory")).await;
    let refusal = refused(&client, "SELECT outboxd.publish('t', 'k', '{}')").await;
    assert_eq!(refusal.code, "0A000");
    assert_eq!(refusal.message, "publish: events need Redis, and no running outboxd has one");
    assert_eq!(refusal.hint, "Set redis_url (REDIS_URL) for outboxd, or use notify() for notifications.");
    run(&client, &start("stream")).await;
    run(&client, "SELECT outboxd.publish('t', 'k', '{}')").await;
    run(&client, "UPDATE outboxd.instance SET heartbeat_at = heartbeat_at - interval '1 hour'").await;
    run(&client, "SELECT outboxd.publish('t', 'k', '{}')").await;
}

/// (arguments, SQLSTATE, message, hint)
const REFUSED: &[(&str, &str, &str, &str)] = &[
    ("NULL, 'k', '{}'", "22004", "publish: topic must not be NULL", "topic, key and payload are required."),
    ("'t', NULL, '{}'", "22004", "publish: key must not be NULL", "topic, key and payload are required."),
    ("'t', 'k', NULL", "22004", "publish: payload must not be NULL", "topic, key and payload are required."),
    ("'', 'k', '{}'", "23514", "publish: topic has 0 bytes", "A topic has 1 to 200 bytes."),
    (
        "'t', repeat('x', 513), '{}'",
        "23514",
        "publish: key has 513 bytes",
        "A key has 1 to 512 bytes; hash longer keys.",
    ),
    (
        "'t', 'k', '{}', '{\"a\": []}'",
        "23514",
        "publish: header a is not a string",
        "Pass an object of strings: {\"traceparent\": \"00-…\"}.",
    ),
    (
        "'t', 'k', to_jsonb(repeat('x', 262143))",
        "23514",
        "publish: payload has 262145 bytes, the limit is 262144",
        "Store the document elsewhere and send a reference.",
    ),
];

#[tokio::test]
async fn bad_events_are_refused_with_a_code_a_message_and_a_hint() {
    let client = postgres::database().await.connect().await;
    for (arguments, code, message, hint) in REFUSED {
        let refusal = refused(&client, &format!("SELECT outboxd.publish({arguments})")).await;
        let wanted = Refusal { code: code.to_string(), message: message.to_string(), hint: hint.to_string() };
        assert_eq!(refusal, wanted, "publish({arguments})");
    }
    assert_eq!(value::<i64>(&client, "SELECT count(*) FROM outboxd.event").await, 0);
}
