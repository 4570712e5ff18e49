//! notify_many(): notify() for an array, set-based, ids in the order given.

use tokio_postgres::Client;

use crate::support::postgres;
use crate::support::sql::{Refusal, Sql, pid, until_blocked, values};

async fn ids(client: &Client, items: &str) -> Vec<i64> {
    client.values(&format!("SELECT * FROM outboxd.notify_many('t', '{items}')")).await
}

#[tokio::test]
async fn ids_come_in_the_order_given() {
    let client = postgres::database().await.connect().await;
    let items = "(SELECT jsonb_agg(jsonb_build_object('recipient', 'r' || n, 'payload', n, 'ordering_key', 'k' || n % 3,
                                   'dedup_key', CASE WHEN n % 2 = 0 THEN 'd' || (100 - n) END)) FROM generate_series(1, 50) n)";
    let ids: Vec<i64> = client.values(&format!("SELECT * FROM outboxd.notify_many('t', {items})")).await;
    assert_eq!(ids.len(), 50);
    for (n, id) in (1..).zip(&ids) {
        let row =
            client.query_one("SELECT recipient FROM outboxd.notification_log WHERE id = $1", &[id]).await.unwrap();
        assert_eq!(row.get::<_, String>(0), format!("r{n}"));
    }
    let in_order = "SELECT array_agg(id ORDER BY seq) = array_agg(id ORDER BY id) FROM outboxd.outbox";
    assert!(client.value::<bool>(in_order).await, "the release sequence follows the order given");
}

#[tokio::test]
async fn every_field_arrives_and_later_items_are_pending() {
    let client = postgres::database().await.connect().await;
    let ids = ids(
        &client,
        r#"[{"recipient": "a", "payload": {"x": [1]}, "headers": {"h": "v"}, "ordering_key": "o", "dedup_key": "d",
             "expires_at": "2099-01-01T00:00:00Z"},
            {"recipient": "b", "payload": "text", "send_at": "2027-12-31T00:00:00Z"}]"#,
    )
    .await;
    let rows = client
        .query(
            "SELECT status::text, recipient, payload::text, headers::text, ordering_key, dedup_key, expires_at::text
               FROM outboxd.notification_log ORDER BY id",
            &[],
        )
        .await
        .unwrap();
    assert_eq!(ids.len(), 2);
    let text = |row: usize, column: usize| rows[row].get::<_, Option<String>>(column).unwrap_or_default();
    assert_eq!((text(0, 0), text(0, 1), text(0, 2)), ("QUEUED".into(), "a".into(), "{\"x\": [1]}".into()));
    assert_eq!((text(0, 3), text(0, 4), text(0, 5)), ("{\"h\": \"v\"}".into(), "o".into(), "d".into()));
    assert!(text(0, 6).starts_with("20"), "expires_at is set");
    assert_eq!((text(1, 0), text(1, 2)), ("PENDING".into(), "\"text\"".into()));
    assert_eq!(client.values::<i64>("SELECT id FROM outboxd.outbox").await, ids[..1]);
}

#[tokio::test]
async fn a_key_twice_in_one_call_is_one_notification() {
    let client = postgres::database().await.connect().await;
    let earlier: i64 = client.value("SELECT outboxd.notify('t', 'first', '{}', dedup_key => 'old')").await;
    let ids = ids(
        &client,
        r#"[{"recipient": "a", "payload": 1, "dedup_key": "k"}, {"recipient": "b", "payload": 2},
            {"recipient": "c", "payload": 3, "dedup_key": "k"}, {"recipient": "d", "payload": 4, "dedup_key": "old"}]"#,
    )
    .await;
    assert_eq!(ids[0], ids[2]);
    assert_eq!(ids[3], earlier);
    assert_ne!(ids[0], ids[1]);
    assert_eq!(client.count("notification_log").await, 3);
    assert_eq!(client.count("outbox").await, 3);
    let kept: String = client.value("SELECT recipient FROM outboxd.notification_log WHERE dedup_key = 'k'").await;
    assert_eq!(kept, "a", "the first item with the key");
}

#[tokio::test]
async fn two_calls_with_their_keys_in_opposite_order_do_not_deadlock() {
    let database = postgres::database().await;
    let items = |order: &str| {
        format!(
            "SELECT * FROM outboxd.notify_many('t', (SELECT jsonb_agg(jsonb_build_object('recipient', 'r', 'payload', n,
                    'dedup_key', 'k' || n) ORDER BY n {order}) FROM generate_series(1, 40) n))"
        )
    };
    let (up, down, holder) = (database.connect().await, database.connect().await, database.connect().await);
    let observer = database.connect().await;
    // Whoever went in the order given would stand before this one with half of the keys the other needs.
    holder.run("BEGIN; SELECT outboxd.notify('t', 'r', '{}', dedup_key => 'k20')").await;
    let (ascending, descending) = (items("ASC"), items("DESC"));
    let (up_pid, down_pid) = (pid(&up).await, pid(&down).await);
    let (mut a, b, ()) = tokio::join!(values::<i64>(&up, &ascending), values::<i64>(&down, &descending), async {
        until_blocked(&observer, up_pid).await;
        until_blocked(&observer, down_pid).await;
        holder.run("ROLLBACK").await;
    });
    a.reverse();
    assert_eq!(a, b, "both got the same ids");
    assert_eq!(observer.count("notification_log").await, 40);
}

#[tokio::test]
async fn a_race_that_the_other_loses_leaves_each_key_once() {
    let database = postgres::database().await;
    let (first, second, observer) = (database.connect().await, database.connect().await, database.connect().await);
    let items = r#"[{"recipient": "plain", "payload": 1}, {"recipient": "keyed", "payload": 1, "dedup_key": "k"}]"#;
    for (end, rows) in [("COMMIT", 3), ("ROLLBACK", 2)] {
        first.run("BEGIN").await;
        let firsts = ids(&first, items).await;
        let waiter = pid(&second).await;
        let (seconds, ()) = tokio::join!(ids(&second, items), async {
            until_blocked(&observer, waiter).await;
            first.run(end).await;
        });
        assert_eq!(seconds[1] == firsts[1], end == "COMMIT");
        assert_eq!(observer.count("notification_log").await, rows, "{end}");
        assert_eq!(observer.count("outbox").await, rows, "{end}");
        observer.run("DELETE FROM outboxd.outbox; DELETE FROM outboxd.notification_log").await;
    }
}

#[tokio::test]
async fn a_clash_of_ids_is_an_error_not_a_lost_notification() {
    let client = postgres::database().await.connect().await;
    client.run("SELECT outboxd.notify('t', 'r', '{}', dedup_key => 'k')").await;
    // As after a restore that forgot the sequence.
    client.run("SELECT setval('outboxd.notification_log_id_seq', 1, false)").await;
    let refusal = client.refused(r#"SELECT outboxd.notify_many('t', '[{"recipient": "r", "payload": 1}]')"#).await;
    assert_eq!(refusal.code, "23505");
    assert!(refusal.message.contains("notification_log_pkey"), "{refusal:?}");
}

const ITEM_HINT: &str = "An item is an object with recipient, payload and, where wanted, send_at, dedup_key, \
                         ordering_key, expires_at, headers.";

/// (arguments, SQLSTATE, message, hint)
const REFUSED: &[(&str, &str, &str, &str)] = &[
    ("NULL, '[]'", "22004", "notify_many: topic must not be NULL", "Pass a topic and a JSON array of objects."),
    ("'t', NULL", "22004", "notify_many: items must not be NULL", "Pass a topic and a JSON array of objects."),
    (
        "'t', '{}'",
        "22023",
        "notify_many: items is a JSON object, not an array",
        "Pass [{\"recipient\": \"…\", \"payload\": {…}}, …].",
    ),
    (
        r#"'t', '[{"recipient": "r", "payload": 1}, {"recipeint": "r", "payload": 1}]'"#,
        "22023",
        "notify_many: item 2: there is no field recipeint",
        ITEM_HINT,
    ),
    ("'t', '[\"r\"]'", "22023", "notify_many: item 1 is a JSON string, not an object", ITEM_HINT),
    (
        r#"'t', '[{"recipient": "r", "payload": 1}, {"recipient": "r"}]'"#,
        "22004",
        "notify_many: item 2: payload must not be NULL",
        "topic, recipient and payload are required.",
    ),
    (
        r#"'t', '[{"recipient": "", "payload": 1}]'"#,
        "23514",
        "notify_many: item 1: recipient has 0 bytes",
        "A recipient (device token, phone number, URL …) has 1 to 2048 bytes.",
    ),
    (
        r#"'', '[{"recipient": "r", "payload": 1}]'"#,
        "23514",
        "notify_many: item 1: topic has 0 bytes",
        "A topic has 1 to 200 bytes.",
    ),
    (
        r#"'t', '[{"recipient": "r", "payload": 1, "headers": {"n": 1}}]'"#,
        "23514",
        "notify_many: item 1: header n is not a string",
        "Pass an object of strings: {\"traceparent\": \"00-…\"}.",
    ),
    (
        r#"'t', '[{"recipient": "r", "payload": 1, "send_at": "infinity"}]'"#,
        "23514",
        "notify_many: item 1: send_at infinity is not a time in the years 1 to 9999",
        "Leave send_at out to send now, expires_at for a notification that does not expire.",
    ),
    (
        r#"'t', '[{"recipient": "r", "payload": 1}, {"recipient": "r", "payload": 1, "expires_at": "soon"}]'"#,
        "22007",
        "notify_many: item 2: invalid input syntax for type timestamp with time zone: \"soon\"",
        "send_at and expires_at are times, such as \"2026-01-31T12:00:00Z\".",
    ),
    (
        r#"'t', '[{"recipient": "r", "payload": 1, "ordering_key": ""}]'"#,
        "23514",
        "notify_many: item 1: ordering_key has 0 bytes",
        "A key has 1 to 512 bytes; hash longer keys, pass NULL for none.",
    ),
];

#[tokio::test]
async fn bad_items_are_refused_by_number_and_nothing_is_enqueued() {
    let client = postgres::database().await.connect().await;
    for (arguments, code, message, hint) in REFUSED {
        let refusal = client.refused(&format!("SELECT outboxd.notify_many({arguments})")).await;
        let wanted = Refusal { code: code.to_string(), message: message.to_string(), hint: hint.to_string() };
        assert_eq!(refusal, wanted, "notify_many({arguments})");
    }
    let large = "jsonb_build_array(jsonb_build_object('recipient', 'r', 'payload', repeat('x', 262143)))";
    let refusal = client.refused(&format!("SELECT outboxd.notify_many('t', {large})")).await;
    assert_eq!(refusal.message, "notify_many: item 1: payload has 262145 bytes, the limit is 262144");
    assert_eq!(client.count("notification_log").await, 0);
}

#[tokio::test]
async fn an_empty_array_is_nothing_to_do() {
    let client = postgres::database().await.connect().await;
    assert_eq!(ids(&client, "[]").await, [0_i64; 0]);
}
