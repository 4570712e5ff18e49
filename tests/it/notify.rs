//! notify() and the plain INSERT: what a commit leaves, what a rollback leaves, what is refused and how.

use tokio_postgres::types::Type;

use crate::support::postgres;
use crate::support::sql::{Refusal, refused, run, value};

#[tokio::test]
async fn a_rolled_back_transaction_leaves_no_row() {
    let client = postgres::database().await.connect().await;
    run(&client, "BEGIN").await;
    run(&client, "SELECT outboxd.notify('t', 'r', '{}'), outboxd.notify('t', 'r', '{}', dedup_key => 'k')").await;
    run(&client, "SELECT outboxd.notify_many('t', '[{\"recipient\": \"r\", \"payload\": 1}]')").await;
    run(&client, "INSERT INTO outboxd.notification_log (topic, recipient, payload) VALUES ('t', 'r', '{}')").await;
    run(&client, "ROLLBACK").await;
    let rows = "SELECT (SELECT count(*) FROM outboxd.notification_log) + (SELECT count(*) FROM outboxd.outbox)";
    assert_eq!(value::<i64>(&client, rows).await, 0);
}

#[tokio::test]
async fn a_committed_notification_has_its_record_and_its_live_work() {
    let client = postgres::database().await.connect().await;
    let id: i64 = value(
        &client,
        "SELECT outboxd.notify('t', 'r', '{\"a\": 1}', ordering_key => 'k', headers => '{\"traceparent\": \"00\"}',
                               expires_at => now() + interval '1 hour')",
    )
    .await;
    let row = client
        .query_one(
            "SELECT l.status::text, l.payload::text, l.headers ->> 'traceparent', l.expires_at > now(), o.ordering_key, o.state
               FROM outboxd.notification_log l JOIN outboxd.outbox o USING (id) WHERE id = $1",
            &[&id],
        )
        .await
        .unwrap();
    assert_eq!(row.get::<_, &str>(0), "QUEUED");
    assert_eq!(row.get::<_, &str>(1), "{\"a\": 1}");
    assert_eq!(row.get::<_, &str>(2), "00");
    assert!(row.get::<_, bool>(3));
    assert_eq!(row.get::<_, &str>(4), "k");
    assert_eq!(row.get::<_, i16>(5), 3, "a row with a key waits to be admitted");
}

#[tokio::test]
async fn the_topics_lane_comes_with_the_row_and_an_unknown_topic_gets_none() {
    let client = postgres::database().await.connect().await;
    run(&client, "INSERT INTO outboxd.topic (name) VALUES ('known')").await;
    run(&client, "SELECT outboxd.notify('known', 'r', '{}'), outboxd.notify('unknown', 'r', '{}')").await;
    run(&client, "SELECT outboxd.notify('known', 'r', '{}', dedup_key => 'k')").await;
    run(&client, "SELECT outboxd.notify_many('known', '[{\"recipient\": \"r\", \"payload\": 1}]')").await;
    let wrong = "SELECT count(*) FROM outboxd.outbox o JOIN outboxd.notifications n USING (id)
                   LEFT JOIN outboxd.topic t ON t.name = n.topic WHERE o.lane <> coalesce(t.lane, 0)";
    assert_eq!(value::<i64>(&client, wrong).await, 0);
    assert_eq!(value::<i64>(&client, "SELECT count(*) FROM outboxd.outbox WHERE lane > 0").await, 3);
}

#[tokio::test]
async fn a_later_send_at_and_a_plain_insert_are_pending() {
    let client = postgres::database().await.connect().await;
    run(&client, "SELECT outboxd.notify('t', 'later', '{}', send_at => now() + interval '1 hour')").await;
    run(&client, "INSERT INTO outboxd.notification_log (topic, recipient, payload) VALUES ('t', 'plain', '{}')").await;
    let pending = "SELECT count(*) FROM outboxd.notification_log WHERE status = 'PENDING' AND due_at = send_at";
    assert_eq!(value::<i64>(&client, pending).await, 2);
    assert_eq!(value::<i64>(&client, "SELECT count(*) FROM outboxd.outbox").await, 0);
}

#[tokio::test]
async fn the_present_is_due_also_inside_a_long_transaction() {
    let client = postgres::database().await.connect().await;
    run(&client, "BEGIN").await;
    run(&client, "SELECT outboxd.notify('t', 'r', '{}', send_at => clock_timestamp())").await;
    run(
        &client,
        "SELECT outboxd.notify_many('t', jsonb_build_array(
            jsonb_build_object('recipient', 'r', 'payload', 1, 'send_at', clock_timestamp())))",
    )
    .await;
    run(&client, "COMMIT").await;
    assert_eq!(value::<i64>(&client, "SELECT count(*) FROM outboxd.outbox").await, 2);
}

/// (what the call is, SQLSTATE, message, hint)
const REFUSED: &[(&str, &str, &str, &str)] = &[
    ("NULL, 'r', '{}'", "22004", "notify: topic must not be NULL", "topic, recipient and payload are required."),
    ("'t', NULL, '{}'", "22004", "notify: recipient must not be NULL", "topic, recipient and payload are required."),
    ("'t', 'r', NULL", "22004", "notify: payload must not be NULL", "topic, recipient and payload are required."),
    ("'t', 'r', '{}', NULL", "22004", "notify: send_at must not be NULL", "Leave send_at out to send now."),
    ("'', 'r', '{}'", "22023", "notify: topic has 0 bytes", "A topic has 1 to 200 bytes."),
    ("repeat('x', 201), 'r', '{}'", "22023", "notify: topic has 201 bytes", "A topic has 1 to 200 bytes."),
    ("repeat('한', 67), 'r', '{}'", "22023", "notify: topic has 201 bytes", "A topic has 1 to 200 bytes."),
    (
        "'t', '', '{}'",
        "22023",
        "notify: recipient has 0 characters",
        "A recipient (device token, phone number, URL …) has 1 to 4096 characters.",
    ),
    (
        "'t', repeat('x', 4097), '{}'",
        "22023",
        "notify: recipient has 4097 characters",
        "A recipient (device token, phone number, URL …) has 1 to 4096 characters.",
    ),
    (
        "'t', 'r', '{}', dedup_key => ''",
        "22023",
        "notify: dedup_key has 0 bytes",
        "A key has 1 to 512 bytes; hash longer keys, pass NULL for none.",
    ),
    (
        "'t', 'r', '{}', dedup_key => repeat('x', 513)",
        "22023",
        "notify: dedup_key has 513 bytes",
        "A key has 1 to 512 bytes; hash longer keys, pass NULL for none.",
    ),
    (
        "'t', 'r', '{}', ordering_key => repeat('x', 513)",
        "22023",
        "notify: ordering_key has 513 bytes",
        "A key has 1 to 512 bytes; hash longer keys, pass NULL for none.",
    ),
    (
        "'t', 'r', '{}', send_at => 'infinity'",
        "22023",
        "notify: send_at infinity is not a time",
        "send_at may be at most 5 years ahead; leave it out to send now.",
    ),
    (
        "'t', 'r', '{}', send_at => '-infinity'",
        "22023",
        "notify: send_at -infinity is not a time",
        "send_at may be at most 5 years ahead; leave it out to send now.",
    ),
    (
        "'t', 'r', '{}', send_at => '9999-01-01 00:00Z'",
        "22023",
        "notify: send_at 9999-01-01 00:00:00+00 is too far ahead",
        "send_at may be at most 5 years ahead; leave it out to send now.",
    ),
    (
        "'t', 'r', '{}', expires_at => '2001-01-01 00:00Z'",
        "22023",
        "notify: expires_at 2001-01-01 00:00:00+00 is not after send_at",
        "Past expires_at nothing is sent; leave it out for a notification that does not expire.",
    ),
    (
        "'t', 'r', '{}', send_at => '2001-01-01 00:00Z', expires_at => '2002-01-01 00:00Z'",
        "22023",
        "notify: expires_at 2002-01-01 00:00:00+00 is past",
        "Past expires_at nothing is sent; leave it out for a notification that does not expire.",
    ),
    (
        "'t', 'r', '{}', expires_at => 'infinity'",
        "22023",
        "notify: expires_at infinity is not a time",
        "Past expires_at nothing is sent; leave it out for a notification that does not expire.",
    ),
    (
        "'t', 'r', '{}', headers => '[]'",
        "22023",
        "notify: headers is a JSON array, not an object",
        "Pass an object of strings: {\"traceparent\": \"00-…\"}.",
    ),
    (
        "'t', 'r', '{}', headers => '{\"ok\": \"x\", \"retries\": 3}'",
        "22023",
        "notify: header retries is not a string",
        "Pass an object of strings: {\"traceparent\": \"00-…\"}.",
    ),
    // Postgres itself refuses NUL, before any of our code sees it.
    ("'t', 'r', '\"\\u0000\"'", "22P05", "unsupported Unicode escape sequence", ""),
    ("'t', 'r', '{}', dedup_key => chr(0)", "54000", "null character not permitted", ""),
];

#[tokio::test]
async fn bad_arguments_are_refused_with_a_code_a_message_and_a_hint() {
    let client = postgres::database().await.connect().await;
    run(&client, "SET timezone = 'UTC'").await;
    for (arguments, code, message, hint) in REFUSED {
        let refusal = refused(&client, &format!("SELECT outboxd.notify({arguments})")).await;
        let wanted = Refusal { code: code.to_string(), message: message.to_string(), hint: hint.to_string() };
        assert_eq!(refusal, wanted, "notify({arguments})");
    }
    let nul = client.query("SELECT outboxd.notify($1, 'r', '{}')", &[&"to\0pic"]).await.expect_err("NUL is refused");
    assert_eq!(Refusal::of(&nul).code, "22021");
    assert_eq!(value::<i64>(&client, "SELECT count(*) FROM outboxd.notification_log").await, 0);
}

#[tokio::test]
async fn the_payload_limit_is_a_setting_and_counts_the_text() {
    let client = postgres::database().await.connect().await;
    let of_bytes = |bytes: usize| format!("SELECT outboxd.notify('t', 'r', to_jsonb(repeat('x', {})))", bytes - 2);
    run(&client, &of_bytes(262_144)).await;
    let refusal = refused(&client, &of_bytes(262_145)).await;
    assert_eq!(refusal.code, "54000");
    assert_eq!(refusal.message, "notify: payload has 262145 bytes, the limit is 262144");
    assert!(refusal.hint.contains("UPDATE outboxd.setting SET payload_bytes_max = …"), "{refusal:?}");

    run(&client, "UPDATE outboxd.setting SET payload_bytes_max = 2000").await;
    run(&client, &of_bytes(2000)).await;
    assert_eq!(refused(&client, &of_bytes(2001)).await.message, "notify: payload has 2001 bytes, the limit is 2000");
    run(&client, "UPDATE outboxd.setting SET payload_bytes_max = 300000").await;
    run(&client, &of_bytes(300_000)).await;
    assert_eq!(refused(&client, "UPDATE outboxd.setting SET payload_bytes_max = 1000").await.code, "23514");
}

#[tokio::test]
async fn a_payload_that_is_stored_compressed_does_not_slip_under_the_limit() {
    let client = postgres::database().await.connect().await;
    run(&client, "CREATE TABLE document (body jsonb)").await;
    run(&client, "INSERT INTO document VALUES (to_jsonb(repeat('x', 1000000)))").await;
    assert!(value::<i32>(&client, "SELECT pg_column_size(body) FROM document").await < 262_144, "it is compressed");
    let refusal = refused(&client, "SELECT outboxd.notify('t', 'r', body) FROM document").await;
    assert_eq!(refusal.message, "notify: payload has 1000002 bytes, the limit is 262144");
    // A number of few bytes whose text is long counts as what is sent.
    let refusal = refused(&client, "SELECT outboxd.notify('t', 'r', '[1e131071, 1e131071]')").await;
    assert_eq!(refusal.message, "notify: payload has 262148 bytes, the limit is 262144");
}

#[tokio::test]
async fn the_longest_topic_and_key_fit_the_index_in_any_script() {
    let client = postgres::database().await.connect().await;
    // Incompressible: an index would otherwise squeeze them.
    let noise = |bytes: usize| {
        format!("(SELECT left(string_agg(md5(random()::text), ''), {bytes}) FROM generate_series(1, 20))")
    };
    let (topic, key) = (noise(200), noise(512));
    run(&client, &format!("SELECT outboxd.notify({topic}, 'r', '{{}}', dedup_key => {key}, ordering_key => {key})"))
        .await;
    run(&client, &format!("SELECT * FROM outboxd.receive({topic}, {key})")).await;
}

/// Postgres picks one of two functions by the types it is given; whoever calls should not notice.
#[tokio::test]
async fn every_way_to_give_the_arguments_is_understood() {
    let client = postgres::database().await.connect().await;
    let ways = [
        "'t', 'r', '{}'",
        "topic => 't', recipient => 'r', payload => '{}'",
        "payload => jsonb_build_object(), recipient => 'r'::varchar, topic => 't'::varchar",
        "'t'::text, 'r'::text, '{}'::jsonb",
        "'t'::varchar, 'r'::varchar, '{}'::jsonb",
        "'t'::name, 'r', '{}'",
        "'t'::bpchar, 'r'::bpchar, '{}'",
        "'t', 'r', '{}', now()",
        "'t', 'r', '{}', clock_timestamp()",
        "'t', 'r', '{}', '2020-01-01', NULL, NULL, NULL, NULL",
        "'t', 'r', '{}', dedup_key => 'd'",
        "'t'::text, 'r'::text, '{}'::jsonb, ordering_key => 'o'::text",
        "'t'::varchar, 'r', '{}', expires_at => now() + interval '1 hour'",
        "topic => 't'::text, payload => '{}', headers => '{}', recipient => 'r'",
    ];
    for way in ways {
        run(&client, &format!("SELECT outboxd.notify({way})")).await;
    }
    let written =
        "SELECT count(*) FROM outboxd.notifications WHERE topic = 't' AND recipient = 'r' AND status = 'QUEUED'";
    assert_eq!(value::<i64>(&client, written).await, ways.len() as i64);
    // What a driver is told to send.
    let usual = client.prepare("SELECT outboxd.notify($1, $2, $3)").await.unwrap();
    assert_eq!(usual.params(), [Type::TEXT, Type::TEXT, Type::JSONB]);
    let keyed = client.prepare("SELECT outboxd.notify($1, $2, $3, dedup_key => $4)").await.unwrap();
    assert_eq!(keyed.params(), [Type::VARCHAR, Type::TEXT, Type::JSONB, Type::TEXT]);
}
