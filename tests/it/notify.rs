//! notify() and the plain INSERT: what a commit leaves, what a rollback leaves, what is refused and how.

use serde_json::{Value, json};
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use crate::support::postgres;
use crate::support::sql::{Refusal, Sql};
use crate::support::world::{Carrier, World};

#[tokio::test]
async fn a_rolled_back_transaction_leaves_no_row() {
    let client = postgres::database().await.connect().await;
    client.run("BEGIN").await;
    client.run("SELECT outboxd.notify('t', 'r', '{}'), outboxd.notify('t', 'r', '{}', dedup_key => 'k')").await;
    client.run("SELECT outboxd.notify_many('t', '[{\"recipient\": \"r\", \"payload\": 1}]')").await;
    client.run("INSERT INTO outboxd.notification_log (topic, recipient, payload) VALUES ('t', 'r', '{}')").await;
    client.run("ROLLBACK").await;
    let rows = "SELECT (SELECT count(*) FROM outboxd.notification_log) + (SELECT count(*) FROM outboxd.outbox)";
    assert_eq!(client.value::<i64>(rows).await, 0);
}

#[tokio::test]
async fn both_rows_are_there_right_after_the_commit_and_the_log_says_queued() {
    let database = postgres::database().await;
    let (app, observer) = (database.connect().await, database.connect().await);
    app.run("BEGIN").await;
    let id: i64 = app.value("SELECT outboxd.notify('t', 'r', '{\"a\": 1}')").await;
    let seen = format!(
        "SELECT concat_ws(' ', l.status, l.topic, l.recipient, l.payload, o.topic, o.state, o.epoch, o.attempts)
           FROM outboxd.notification_log l JOIN outboxd.outbox o USING (id) WHERE id = {id}"
    );
    let wanted = ["QUEUED t r {\"a\": 1} t ready 0 0"];
    assert_eq!(app.values::<String>(&seen).await, wanted, "by the transaction itself");
    assert_eq!(observer.values::<String>(&seen).await, [""; 0], "by nobody else before the commit");
    app.run("COMMIT").await;
    assert_eq!(observer.values::<String>(&seen).await, wanted);
}

#[tokio::test]
async fn a_committed_notification_has_all_that_was_given() {
    let client = postgres::database().await.connect().await;
    let id: i64 = client
        .value(
            "SELECT outboxd.notify('t', 'r', '{\"a\": 1}', dedup_key => 'd', ordering_key => 'k',
                               headers => '{\"traceparent\": \"00\"}', expires_at => now() + interval '1 hour')",
        )
        .await;
    let row = client
        .query_one(
            "SELECT l.status::text, l.payload::text, l.headers ->> 'traceparent', l.expires_at > now(), l.dedup_key,
                    l.ordering_key, o.ordering_key, o.state::text, o.has_turn
               FROM outboxd.notification_log l JOIN outboxd.outbox o USING (id) WHERE id = $1",
            &[&id],
        )
        .await
        .unwrap();
    assert_eq!(row.get::<_, &str>(0), "QUEUED");
    assert_eq!(row.get::<_, &str>(1), "{\"a\": 1}");
    assert_eq!(row.get::<_, &str>(2), "00");
    assert!(row.get::<_, bool>(3));
    assert_eq!((row.get::<_, &str>(4), row.get::<_, &str>(5), row.get::<_, &str>(6)), ("d", "k", "k"));
    assert_eq!(
        (row.get::<_, &str>(7), row.get::<_, bool>(8)),
        ("blocked", false),
        "a row with a key waits for its turn"
    );
}

#[tokio::test]
async fn a_later_send_at_and_a_plain_insert_are_pending() {
    let client = postgres::database().await.connect().await;
    client.run("SELECT outboxd.notify('t', 'later', '{}', send_at => now() + interval '1 hour')").await;
    client.run("INSERT INTO outboxd.notification_log (topic, recipient, payload) VALUES ('t', 'plain', '{}')").await;
    assert_eq!(client.count("notification_log WHERE status = 'PENDING' AND due_at = send_at").await, 2);
    assert_eq!(client.count("outbox").await, 0);
}

#[tokio::test]
async fn the_present_is_due_also_inside_a_long_transaction() {
    let client = postgres::database().await.connect().await;
    client.run("BEGIN").await;
    client.run("SELECT outboxd.notify('t', 'r', '{}', send_at => clock_timestamp())").await;
    let called = "SELECT outboxd.notify_many('t', jsonb_build_array(
                  jsonb_build_object('recipient', 'r', 'payload', 1, 'send_at', clock_timestamp())))";
    client.run(called).await;
    client.run("COMMIT").await;
    assert_eq!(client.count("outbox").await, 2);
}

const REQUIRED: &str = "topic, recipient and payload are required.";
const TOPIC: &str = "A topic has 1 to 200 bytes.";
const RECIPIENT: &str = "A recipient (device token, phone number, URL …) has 1 to 2048 bytes.";
const KEY: &str = "A key has 1 to 512 bytes; hash longer keys, pass NULL for none.";
const TIME: &str = "Leave send_at out to send now, expires_at for a notification that does not expire.";
const HEADERS: &str = "Pass an object of strings: {\"traceparent\": \"00-…\"}.";

/// (what the call is, SQLSTATE, message, hint)
// One line a case reads as the table it is.
#[rustfmt::skip]
const REFUSED: &[(&str, &str, &str, &str)] = &[
    ("NULL, 'r', '{}'", "22004", "notify: topic must not be NULL", REQUIRED),
    ("'t', NULL, '{}'", "22004", "notify: recipient must not be NULL", REQUIRED),
    ("'t', 'r', NULL", "22004", "notify: payload must not be NULL", REQUIRED),
    ("'t', 'r', NULL::jsonb", "22004", "notify: payload must not be NULL", REQUIRED),
    ("'t', 'r', NULL::json", "22004", "notify: payload must not be NULL", REQUIRED),
    ("'', 'r', '{}'", "23514", "notify: topic has 0 bytes", TOPIC),
    ("repeat('x', 201), 'r', '{}'", "23514", "notify: topic has 201 bytes", TOPIC),
    ("repeat('한', 67), 'r', '{}'", "23514", "notify: topic has 201 bytes", TOPIC),
    ("'t', '', '{}'", "23514", "notify: recipient has 0 bytes", RECIPIENT),
    ("'t', repeat('x', 2049), '{}'", "23514", "notify: recipient has 2049 bytes", RECIPIENT),
    ("'t', 'r', '{}', dedup_key => ''", "23514", "notify: dedup_key has 0 bytes", KEY),
    ("'t', 'r', '{}', dedup_key => repeat('x', 513)", "23514", "notify: dedup_key has 513 bytes", KEY),
    ("'t', 'r', '{}', ordering_key => ''", "23514", "notify: ordering_key has 0 bytes", KEY),
    ("'t', 'r', '{}', ordering_key => repeat('x', 513)", "23514", "notify: ordering_key has 513 bytes", KEY),
    ("'t', 'r', '{}', send_at => 'infinity'", "23514", "notify: send_at infinity is not a time in the years 1 to 9999", TIME),
    ("'t', 'r', '{}', send_at => '-infinity'", "23514", "notify: send_at -infinity is not a time in the years 1 to 9999", TIME),
    ("'t', 'r', '{}', send_at => '10000-01-01 00:00Z'", "23514", "notify: send_at 10000-01-01 00:00:00+00 is not a time in the years 1 to 9999", TIME),
    ("'t', 'r', '{}', expires_at => 'infinity'", "23514", "notify: expires_at infinity is not a time in the years 1 to 9999", TIME),
    ("'t', 'r', '{}', headers => '[]'", "23514", "notify: headers is a JSON array, not an object", HEADERS),
    ("'t', 'r', '{}', headers => 'null'", "23514", "notify: headers is a JSON null, not an object", HEADERS),
    ("'t', 'r', '{}', headers => '{\"ok\": \"x\", \"retries\": 3}'", "23514", "notify: header retries is not a string", HEADERS),
    ("'t', 'r', '{}', headers => '{\"list\": [\"x\"]}'", "23514", "notify: header list is not a string", HEADERS),
    // Postgres itself refuses what is no JSON, and NUL, before any of our code sees it.
    ("'t', 'r', 'hello'", "22P02", "invalid input syntax for type json", ""),
    ("'t', 'r', '\"\\u0000\"'", "22P05", "unsupported Unicode escape sequence", ""),
    ("'t', 'r', '{}', dedup_key => chr(0)", "54000", "null character not permitted", ""),
];

#[tokio::test]
async fn bad_arguments_are_refused_with_a_code_a_message_and_a_hint() {
    let client = postgres::database().await.connect().await;
    client.run("SET timezone = 'UTC'").await;
    for (arguments, code, message, hint) in REFUSED {
        let refusal = client.refused(&format!("SELECT outboxd.notify({arguments})")).await;
        let wanted = Refusal { code: code.to_string(), message: message.to_string(), hint: hint.to_string() };
        assert_eq!(refusal, wanted, "notify({arguments})");
    }
    let nul = client.query("SELECT outboxd.notify($1, 'r', '{}')", &[&"to\0pic"]).await.expect_err("NUL is refused");
    assert_eq!(Refusal::of(&nul).code, "22021");
    assert_eq!(client.count("notification_log").await, 0);
}

#[tokio::test]
async fn a_payload_has_at_most_256_kib_of_text() {
    let client = postgres::database().await.connect().await;
    let of_bytes = |bytes: usize| format!("SELECT outboxd.notify('t', 'r', to_jsonb(repeat('x', {})))", bytes - 2);
    client.run(&of_bytes(262_144)).await;
    let refusal = client.refused(&of_bytes(262_145)).await;
    assert_eq!(refusal.code, "23514");
    assert_eq!(refusal.message, "notify: payload has 262145 bytes, the limit is 262144");
    assert_eq!(refusal.hint, "Store the document elsewhere and send a reference.");
}

#[tokio::test]
async fn a_payload_that_is_stored_compressed_does_not_slip_under_the_limit() {
    let client = postgres::database().await.connect().await;
    client.run("CREATE TABLE document (body jsonb)").await;
    client.run("INSERT INTO document VALUES (to_jsonb(repeat('x', 1000000)))").await;
    assert!(client.value::<i32>("SELECT pg_column_size(body) FROM document").await < 262_144, "it is compressed");
    let refusal = client.refused("SELECT outboxd.notify('t', 'r', body) FROM document").await;
    assert_eq!(refusal.message, "notify: payload has 1000002 bytes, the limit is 262144");
    // A number of few bytes whose text is long counts as what is sent; here the table itself refuses.
    let refusal = client.refused("SELECT outboxd.notify('t', 'r', '[1e131071, 1e131071]')").await;
    assert_eq!(refusal.code, "23514");
    assert!(refusal.message.contains("\"payload_has_at_most_256_kib\""), "{refusal:?}");
}

/// (constraint, column, value that breaks it)
#[rustfmt::skip]
const BROKEN: &[(&str, &str, &str)] = &[
    ("topic_has_1_to_200_and_recipient_1_to_2048_bytes", "topic", "''"),
    ("topic_has_1_to_200_and_recipient_1_to_2048_bytes", "topic", "repeat('x', 201)"),
    ("topic_has_1_to_200_and_recipient_1_to_2048_bytes", "topic", "repeat('한', 67)"),
    ("topic_has_1_to_200_and_recipient_1_to_2048_bytes", "recipient", "''"),
    ("topic_has_1_to_200_and_recipient_1_to_2048_bytes", "recipient", "repeat('한', 683)"),
    ("keys_have_1_to_512_bytes", "dedup_key", "''"),
    ("keys_have_1_to_512_bytes", "dedup_key", "repeat('x', 513)"),
    ("keys_have_1_to_512_bytes", "ordering_key", "''"),
    ("keys_have_1_to_512_bytes", "ordering_key", "repeat('한', 171)"),
    ("payload_has_at_most_256_kib", "payload", "to_jsonb(repeat('x', 262143))"),
    ("headers_are_an_object_of_strings", "headers", "'[]'"),
    ("headers_are_an_object_of_strings", "headers", "'null'"),
    ("headers_are_an_object_of_strings", "headers", "'\"text\"'"),
    ("headers_are_an_object_of_strings", "headers", "'{\"a\": 1}'"),
    ("headers_are_an_object_of_strings", "headers", "'{\"a\": null}'"),
    ("headers_are_an_object_of_strings", "headers", "'{\"a\": []}'"),
    ("headers_are_an_object_of_strings", "headers", "'{\"a\": [\"x\"]}'"),
    ("headers_are_an_object_of_strings", "headers", "'{\"a\": \"x\", \"b\": {\"c\": \"x\"}}'"),
];

/// The columns a notification needs, one of them, or one more, with this value: names and values.
fn with(column: &str, value: &str) -> (Vec<String>, Vec<String>) {
    let mut columns = vec![("topic", "'t'"), ("recipient", "'r'"), ("payload", "'{}'::jsonb")];
    columns.retain(|(name, _)| *name != column);
    columns.push((column, value));
    columns.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).unzip()
}

fn notify_with(column: &str, value: &str) -> String {
    let (names, values) = with(column, value);
    let arguments: Vec<String> = names.iter().zip(values).map(|(name, value)| format!("{name} => {value}")).collect();
    format!("SELECT outboxd.notify({})", arguments.join(", "))
}

fn insert_with(column: &str, value: &str) -> String {
    let (names, values) = with(column, value);
    format!("INSERT INTO outboxd.notification_log ({}) VALUES ({})", names.join(", "), values.join(", "))
}

/// Both ways refuse it: notify() with a hint, the table by the name of the rule.
async fn assert_refused_by_both(client: &Client, constraint: &str, column: &str, value: &str) {
    let refusal = client.refused(&notify_with(column, value)).await;
    assert_eq!(refusal.code, "23514", "{column} {value}: {refusal:?}");
    assert!(refusal.message.starts_with("notify: ") && !refusal.hint.is_empty(), "{column} {value}: {refusal:?}");
    let refusal = client.refused(&insert_with(column, value)).await;
    assert_eq!(refusal.code, "23514", "{column} {value}: {refusal:?}");
    assert!(refusal.message.contains(&format!("\"{constraint}\"")), "{column} {value}: {refusal:?}");
}

#[tokio::test]
async fn each_rule_of_the_table_holds_for_notify_and_for_a_plain_insert() {
    let client = postgres::database().await.connect().await;
    for (constraint, column, value) in BROKEN {
        assert_refused_by_both(&client, constraint, column, value).await;
    }
    let mut tried: Vec<&str> = BROKEN.iter().map(|(constraint, ..)| *constraint).collect();
    tried.push("times_are_in_the_years_1_to_9999"); // below
    let rules = "SELECT conname::text FROM pg_constraint WHERE contype = 'c' AND conrelid = 'outboxd.notification_log'::regclass";
    for rule in client.values::<String>(rules).await {
        assert!(tried.contains(&rule.as_str()), "nobody tries to break {rule}");
    }
    assert_eq!(client.count("notification_log").await, 0);
}

#[tokio::test]
async fn the_longest_and_the_strangest_legal_values_pass_both_ways() {
    let client = postgres::database().await.connect().await;
    let legal = [
        ("topic", "repeat('x', 200)"),
        // Its index holds it, although nothing of it can be compressed.
        ("recipient", "(SELECT string_agg(md5(n::text), '') FROM generate_series(1, 64) n)"),
        ("recipient", "repeat('한', 682)"),
        ("ordering_key", "repeat('한', 170)"),
        ("payload", "to_jsonb(repeat('x', 262142))"),
        ("payload", "'null'::jsonb"),
        ("headers", "'{}'"),
        ("headers", "'{\"a\": \"\", \"b\": \"[]\"}'"),
        ("send_at", "'0001-01-01 00:00Z'"),
        ("send_at", "'9999-12-31 00:00Z'"),
        ("expires_at", "'0001-01-01 00:00Z'"),
        ("expires_at", "'9999-12-31 00:00Z'"),
    ];
    for (column, value) in legal {
        client.run(&notify_with(column, value)).await;
        client.run(&insert_with(column, value)).await;
    }
    assert_eq!(client.count("notification_log").await, 2 * i64::try_from(legal.len()).unwrap());
}

#[tokio::test]
async fn times_outside_the_years_1_to_9999_are_refused_by_both() {
    let client = postgres::database().await.connect().await;
    for column in ["send_at", "expires_at"] {
        for time in ["infinity", "-infinity", "0001-12-31 23:59Z BC", "10000-01-01 00:00Z", "294276-12-31 00:00Z"] {
            let value = format!("'{time}'");
            assert_refused_by_both(&client, "times_are_in_the_years_1_to_9999", column, &value).await;
            let item =
                format!("jsonb_build_array(jsonb_build_object('recipient', 'r', 'payload', 1, '{column}', '{time}'))");
            let refusal = client.refused(&format!("SELECT outboxd.notify_many('t', {item})")).await;
            assert_eq!(refusal.code, "23514", "{column} {time}: {refusal:?}");
        }
    }
}

#[tokio::test]
async fn a_notification_that_is_already_expired_is_recorded_and_not_refused() {
    let world = World::new(Carrier::Memory).await;
    let past = "'2001-01-01 00:00Z'";
    world.run(&notify_with("expires_at", past)).await;
    world.run(&insert_with("expires_at", past)).await;
    let item = format!("'[{{\"recipient\": \"r\", \"payload\": 1, \"expires_at\": {}}}]'", past.replace('\'', "\""));
    world.run(&format!("SELECT outboxd.notify_many('t', {item})")).await;
    world.run("SELECT outboxd.notify('t', 'r', '{}', ordering_key => 'k', expires_at => '2001-01-01')").await;
    let recorded = "SELECT string_agg(status::text, ' ' ORDER BY id) FROM outboxd.notification_log";
    assert_eq!(world.value::<String>(recorded).await, "QUEUED PENDING QUEUED QUEUED");
    let _instance = world.setup.start().await;
    world.until_ended().await;
    let ended = "SELECT DISTINCT concat_ws(' ', status, error) FROM outboxd.notifications";
    assert_eq!(world.values::<String>(ended).await, ["FAILED expired"]);
    assert_eq!(world.provider.count(), 0);
}

#[tokio::test]
async fn null_for_an_optional_argument_means_its_default() {
    let client = postgres::database().await.connect().await;
    let optional = ["send_at", "dedup_key", "ordering_key", "expires_at", "headers"];
    for argument in optional {
        client.run(&notify_with(argument, "NULL")).await;
        let item = format!("[{{\"recipient\": \"r\", \"payload\": {{}}, \"{argument}\": null}}]");
        client.run(&format!("SELECT outboxd.notify_many('t', '{item}')")).await;
    }
    client.run("SELECT outboxd.notify('t', 'r', '{}', NULL, NULL, NULL, NULL, NULL)").await;
    client.run("SELECT outboxd.notify('t', 'r', '{}')").await;
    let alike = "SELECT DISTINCT concat_ws(' ', l.status, l.payload, l.send_at BETWEEN l.created_at - interval '1 min' AND clock_timestamp(),
                                 l.dedup_key IS NULL, l.ordering_key IS NULL, l.expires_at IS NULL, l.headers IS NULL, o.state)
                   FROM outboxd.notification_log l JOIN outboxd.outbox o USING (id)";
    assert_eq!(client.values::<String>(alike).await, ["QUEUED {} t t t t t ready"]);
    assert_eq!(client.count("notification_log").await, 2 * i64::try_from(optional.len()).unwrap() + 2);
}

#[tokio::test]
async fn the_longest_topic_and_key_fit_the_index_in_any_script() {
    let client = postgres::database().await.connect().await;
    // Incompressible: an index would otherwise squeeze them.
    let noise = |bytes: usize| {
        format!("(SELECT left(string_agg(md5(random()::text), ''), {bytes}) FROM generate_series(1, 20))")
    };
    let (topic, key) = (noise(200), noise(512));
    let called = format!("SELECT outboxd.notify({topic}, 'r', '{{}}', dedup_key => {key}, ordering_key => {key})");
    client.run(&called).await;
    client.run(&format!("SELECT * FROM outboxd.receive({topic}, {key})")).await;
}

/// Postgres picks one of three functions by the types it is given; whoever calls should not notice.
#[tokio::test]
async fn every_way_to_give_the_arguments_is_understood() {
    let client = postgres::database().await.connect().await;
    let ways = [
        "'t', 'r', '{}'",
        "topic => 't', recipient => 'r', payload => '{}'",
        "payload => jsonb_build_object(), recipient => 'r'::varchar, topic => 't'::varchar",
        "payload => json_build_object(), recipient => 'r', topic => 't'",
        "'t'::text, 'r'::text, '{}'::jsonb",
        "'t'::varchar, 'r'::varchar, '{}'::json",
        "'t'::name, 'r', '{}'::text",
        "'t'::bpchar, 'r'::bpchar, '{}'::varchar",
        "'t', 'r', '{}', now()",
        "'t', 'r', '{}'::json, clock_timestamp()",
        "'t', 'r', '{}', '2020-01-01', NULL, NULL, NULL, NULL",
        "'t', 'r', '{}'::jsonb, '2020-01-01', NULL, NULL, NULL, NULL",
        "'t', 'r', '{}', dedup_key => 'd'",
        "'t'::text, 'r'::text, '{}'::jsonb, ordering_key => 'o'::text",
        "'t'::varchar, 'r', '{}', expires_at => now() + interval '1 hour'",
        "topic => 't'::text, payload => '{}', headers => '{}', recipient => 'r'",
        "topic => 't'::text, payload => '{}'::json, headers => '{}', recipient => 'r'",
    ];
    for way in ways {
        client.run(&format!("SELECT outboxd.notify({way})")).await;
    }
    let written = "notifications WHERE topic = 't' AND recipient = 'r' AND status = 'QUEUED'
                      AND payload = '{}'";
    assert_eq!(client.count(written).await, ways.len() as i64);
}

#[tokio::test]
async fn a_payload_is_the_same_as_jsonb_json_text_or_an_untyped_literal() {
    let client = postgres::database().await.connect().await;
    let document = r#"{"b": 1.50, "a": ["x", null], "한": "\"quoted\""}"#;
    for form in ["::jsonb", "::json", "::text", "::varchar", ""] {
        client.run(&format!("SELECT outboxd.notify('t', 'r', '{document}'{form})")).await;
    }
    let payloads: Vec<Value> = client.values("SELECT payload FROM outboxd.notification_log").await;
    let wanted: Value = serde_json::from_str(document).unwrap();
    assert_eq!(payloads, vec![wanted; 5]);
    assert_eq!(client.count("outbox WHERE state = 'ready'").await, 5);
}

#[tokio::test]
async fn a_driver_can_bind_the_payload_in_each_form() {
    let client = postgres::database().await.connect().await;
    let document = json!({"text": "hello", "n": [1, 2]});
    let text = document.to_string();
    let forms: [(&str, Type, &(dyn ToSql + Sync)); 4] = [
        ("$3::jsonb", Type::JSONB, &document),
        ("$3::json", Type::JSON, &document),
        ("$3::text", Type::TEXT, &text),
        // Not said: text.
        ("$3", Type::TEXT, &text),
    ];
    for (form, kind, payload) in &forms {
        let usual = client.prepare(&format!("SELECT outboxd.notify($1, $2, {form})")).await.unwrap();
        assert_eq!(usual.params(), [Type::TEXT, Type::TEXT, kind.clone()], "{form}");
        client.query_one(&usual, &[&"t", &"r", *payload]).await.unwrap();
        let keyed = client.prepare(&format!("SELECT outboxd.notify($1, $2, {form}, dedup_key => $4)")).await.unwrap();
        assert_eq!(keyed.params(), [Type::TEXT, Type::TEXT, kind.clone(), Type::TEXT], "{form}");
        client.query_one(&keyed, &[&"t", &"r", *payload, &Some(*form)]).await.unwrap();
        client.query_one(&keyed, &[&"t", &"r", *payload, &None::<&str>]).await.unwrap();
    }
    let payloads: Vec<Value> = client.values("SELECT payload FROM outboxd.notification_log").await;
    assert_eq!(payloads, vec![document.clone(); 3 * forms.len()]);
}

#[tokio::test]
async fn an_app_can_ask_for_the_status_of_what_it_wrote() {
    let database = postgres::database().await;
    let admin = database.connect().await;
    let app = database.connect_as_member_of("outboxd_app").await;
    let status = app.prepare("SELECT outboxd.status($1)").await.unwrap();
    assert_eq!(status.params(), [Type::INT8]);
    let of = async |id: i64| -> Option<String> { app.query_one(&status, &[&id]).await.unwrap().get(0) };
    assert_eq!(of(4711).await, None, "nobody's id");
    let id: i64 = app.value("SELECT outboxd.notify('t', 'r', '{}')").await;
    let views = format!("SELECT status FROM outboxd.notifications WHERE id = {id}");
    for (wanted, how) in [
        ("QUEUED", ""),
        ("QUEUED", "UPDATE outboxd.outbox SET state = 'published'"),
        ("PROCESSING", "UPDATE outboxd.outbox SET state = 'processing'"),
        (
            "SENT",
            "DELETE FROM outboxd.outbox; UPDATE outboxd.notification_log SET status = 'SENT', finished_at = now()",
        ),
        ("FAILED", "UPDATE outboxd.notification_log SET status = 'FAILED'"),
        ("CANCELED", "UPDATE outboxd.notification_log SET status = 'CANCELED'"),
    ] {
        admin.run(how).await;
        assert_eq!(of(id).await.as_deref(), Some(wanted));
        assert_eq!(admin.value::<String>(&views).await, wanted, "the view says the same");
    }
    let later: i64 = app.value("SELECT outboxd.notify('t', 'r', '{}', send_at => now() + interval '1 day')").await;
    assert_eq!(of(later).await.as_deref(), Some("PENDING"));
}
