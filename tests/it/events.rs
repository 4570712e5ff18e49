//! publish(): domain events, kept in Postgres and waiting for their stream.

use outboxd::store::Store;
use outboxd::store::event::BatchMax;

use crate::leader::{config, held};
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
async fn headers_count_as_bytes_of_what_is_appended_at_a_time() {
    let database = postgres::database().await;
    let client = database.connect().await;
    let store = Store::open(&config(&database, &[])).unwrap();
    let publish = "SELECT outboxd.publish('t', 'k', '{}', jsonb_build_object('x', repeat('x', 10000))) FROM generate_series(1, 10)";
    run(&client, publish).await;
    let (_lease, owner) = held(&store, &client, "events").await;
    assert!(store.reserve_events("events", owner, 0, BatchMax { events: 500, bytes: 25_000 }).await.unwrap());
    let reserved = "SELECT cardinality(event_ids) || ' events, ' || bytes || ' bytes' FROM outboxd.event_publication";
    assert_eq!(value::<String>(&client, reserved).await, "3 events, 30033 bytes");
}

#[tokio::test]
async fn without_redis_an_event_commits_waits_and_is_seen_waiting() {
    let client = postgres::database().await.connect().await;
    let memory = "INSERT INTO outboxd.instance (ttl, pid, roles, queue_kind, host, version)
                  VALUES ('15 s', 1, '{relay,worker}', 'memory', 'h', '0')";
    run(&client, memory).await;
    run(&client, "SELECT outboxd.publish('order', 'k', '{}')").await;
    let waiting = "SELECT topic || ' ' || count FROM outboxd.events_waiting";
    assert_eq!(value::<String>(&client, waiting).await, "order 1");
    // (how long the oldest has waited, what health says)
    for (waits, level) in [("1 s", "ok"), ("40 s", "warn"), ("4 min", "warn"), ("6 min", "critical")] {
        run(&client, &format!("UPDATE outboxd.event_outbox SET since = now() - interval '{waits}'")).await;
        let said = "SELECT concat_ws('|', level, value, action) FROM outboxd.health WHERE name = 'events'";
        let said: String = value(&client, said).await;
        let (found, rest) = said.split_once('|').unwrap();
        assert_eq!(found, level, "{said}");
        assert!(rest.contains("no running instance has Redis"), "{said}");
        assert_eq!(level == "ok", !rest.contains("Set redis_url (REDIS_URL)"), "{said}");
    }
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
        "'t', 'k', '{}', jsonb_build_object('x', repeat('x', 16376))",
        "23514",
        "publish: headers have 16385 bytes, the limit is 16384",
        "Headers are for a trace and a few names; put the rest into the payload.",
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

/// What waits stands before later events of every topic, and what a stream cannot keep is lost on its readers again.
#[tokio::test]
async fn a_long_replay_comes_in_portions_and_a_cut_group_says_where_to_go_on() {
    let client = postgres::database().await.connect().await;
    let events = "INSERT INTO outboxd.event (topic, key, payload, created_at)
                  SELECT 'order', 'k', '{}', timestamptz '2026-01-01 00:00+00' + n * interval '1 ms' FROM generate_series(1, 120000) n";
    run(&client, events).await;
    let groups = "INSERT INTO outboxd.event_group (topic, name, delivered_id, gone, behind, stream_max, cut_at, cut_from, cut_events)
                  VALUES ('order', 'old', '0-0', 0, 0, 100000, now(), '2026-01-01 00:00+00', 120000),
                         ('order', 'new', '0-0', 0, 0, 100000, now(), '2026-01-01 00:01:50+00', 10000)";
    run(&client, groups).await;
    let cut = "SELECT string_agg(concat_ws(' ', name, cut_events, cut_from AT TIME ZONE 'UTC'), ', ' ORDER BY name)
                 FROM outboxd.event_group WHERE cut_at IS NOT NULL";
    let replay = "SELECT outboxd.replay_events('order', (SELECT min(cut_from) FROM outboxd.event_group))";
    assert_eq!(value::<i64>(&client, replay).await, 100_000);
    assert_eq!(
        value::<String>(&client, cut).await,
        "new 10000 2026-01-01 00:01:50, old 20000 2026-01-01 00:01:40.001",
        "the one that needs nothing of this is left as it was"
    );
    assert_eq!(value::<i64>(&client, replay).await, 20_000);
    assert_eq!(value::<Option<String>>(&client, cut).await, None);
    let order = "SELECT count(*) FROM (SELECT event_id, lag(event_id, 1, 0::bigint) OVER (ORDER BY seq) AS before FROM outboxd.event_outbox) o
                  WHERE event_id = before + 1";
    assert_eq!(value::<i64>(&client, order).await, 120_000, "each once, in order");
}
