//! The usual notification travels in its outbox row, letter and all, and is filed in the log when it ends.

use crate::support::postgres;
use crate::support::provider::Reply;
use crate::support::sql::{refused, run, until, value, values};
use crate::support::verdict::assert_rows_are_legal;
use crate::support::world::{Carrier, World};

const LETTERS: &str = "SELECT count(*) FROM outboxd.outbox WHERE topic IS NOT NULL";
const LOGGED: &str = "SELECT count(*) FROM outboxd.notification_log";

#[tokio::test]
async fn the_usual_notification_is_one_row_that_carries_its_letter() {
    let client = postgres::database().await.connect().await;
    let id: i64 = value(&client, r#"SELECT outboxd.notify('t', 'r', '{"a": 1}')"#).await;
    let past: i64 = value(&client, "SELECT outboxd.notify('t', 'r', '{}', send_at => now() - interval '1 hour')").await;
    assert_eq!((value::<i64>(&client, LETTERS).await, value::<i64>(&client, LOGGED).await), (2, 0));
    let seen = "SELECT concat_ws(' ', id, topic, recipient, status, attempts, payload, created_at - send_at >= interval '1 hour')
                  FROM outboxd.notifications ORDER BY id";
    assert_eq!(
        values::<String>(&client, seen).await,
        [format!("{id} t r QUEUED 0 {{\"a\": 1}} f"), format!("{past} t r QUEUED 0 {{}} t")]
    );
    assert_rows_are_legal(&client).await;
}

#[tokio::test]
async fn what_the_log_must_know_from_the_beginning_is_written_there() {
    let client = postgres::database().await.connect().await;
    let unusual = [
        "'r', '{}', dedup_key => 'd'",
        "'r', '{}', ordering_key => 'o'",
        "'r', '{}', headers => '{}'",
        "'r', '{}', expires_at => now() + interval '1 hour'",
        "'r', '{}', send_at => now() + interval '1 hour'",
        "'r', to_jsonb(repeat('x', 1023))",
        "repeat('x', 1023), '{}'",
    ];
    for (count, arguments) in (1..).zip(unusual) {
        run(&client, &format!("SELECT outboxd.notify('t', {arguments})")).await;
        assert_eq!(value::<i64>(&client, LOGGED).await, count, "{arguments}");
    }
    assert_eq!(value::<i64>(&client, LETTERS).await, 0);
    run(&client, "SELECT outboxd.notify('t', repeat('x', 512), to_jsonb(repeat('x', 510)))").await;
    assert_eq!(value::<i64>(&client, LETTERS).await, 1, "as big as a letter may be");
    assert_rows_are_legal(&client).await;
}

#[tokio::test]
async fn a_letter_is_filed_as_it_was_whichever_way_it_ends() {
    let world = World::new(Carrier::Memory).await;
    world.provider.answer_with(|call| Reply::status(if call.recipient() == "bad" { 400 } else { 200 }));
    run(&world.app, "INSERT INTO outboxd.topic (name) VALUES ('held'), ('open'); SELECT outboxd.pause('held')").await;
    let notify = r#"CREATE TABLE given AS SELECT n.topic, n.recipient, outboxd.notify(n.topic, n.recipient, '{"a": [1, "é"]}') AS id
                      FROM (VALUES ('held', 'one'), ('held', 'many'), ('open', 'good'), ('open', 'bad')) n(topic, recipient)"#;
    run(&world.app, notify).await;
    run(&world.app, "CREATE TABLE before AS SELECT * FROM outboxd.notifications").await;
    assert_eq!(value::<i64>(&world.app, LETTERS).await, 4);
    let _instance = world.setup.start().await;
    run(&world.app, "SELECT outboxd.cancel(id) FROM given WHERE recipient = 'one'").await;
    run(&world.app, r#"SELECT * FROM outboxd.cancel_where('{"recipient": "many"}', dry_run => false)"#).await;
    until(&world.app, "SELECT count(*) = 4 FROM outboxd.notification_log").await;
    let ended = "SELECT concat_ws(' ', g.recipient, n.status, n.attempts, n.channel, n.http_status, n.finished_at >= n.created_at)
                   FROM outboxd.notifications n JOIN given g USING (id, topic, recipient)
                   JOIN before b USING (id, topic, recipient, payload, created_at, send_at) ORDER BY 1";
    assert_eq!(
        values::<String>(&world.app, ended).await,
        ["bad FAILED 1 webhook 400 t", "good SENT 1 webhook 200 t", "many CANCELED 0 t", "one CANCELED 0 t"]
    );
    assert_rows_are_legal(&world.app).await;
}

#[tokio::test]
async fn a_letter_on_its_way_is_neither_resent_nor_retried() {
    let client = postgres::database().await.connect().await;
    let id: i64 = value(&client, "SELECT outboxd.notify('t', 'r', '{}')").await;
    let refusal = refused(&client, &format!("SELECT outboxd.resend({id})")).await;
    assert_eq!(refusal.message, format!("resend: notification {id} is QUEUED, not SENT"));
    assert!(!value::<bool>(&client, &format!("SELECT outboxd.retry({id})")).await);
    assert_eq!(value::<i64>(&client, LETTERS).await, 1);
}

#[tokio::test]
async fn a_number_that_the_log_has_already_costs_neither_notification() {
    let world = World::new(Carrier::Stream).await;
    world.provider.answer_with(|call| Reply::status(if call.recipient() == "new 2" { 400 } else { 200 }));
    let _instance = world.setup.start().await;
    world.notify(3).await;
    world.settle().await;
    run(&world.app, "INSERT INTO outboxd.attempt (notification_id, token, outcome) VALUES (1, 1, 'failed')").await;
    // As after a restore that forgot the sequence.
    run(&world.app, "SELECT setval('outboxd.notification_log_id_seq', 1, false)").await;
    run(&world.app, "SELECT outboxd.notify('orders', 'new ' || n, '{}') FROM generate_series(1, 3) n").await;
    world.provider.wait_for(6, std::time::Duration::from_secs(10)).await;
    until(&world.app, "SELECT count(*) = 6 FROM outboxd.notification_log WHERE finished_at IS NOT NULL").await;
    let rows =
        "SELECT concat_ws(' ', id <= 3, recipient, status) FROM outboxd.notification_log ORDER BY id <= 3, recipient";
    let kept = ["f r1 SENT", "f r2 SENT", "f r3 SENT", "t new 1 SENT", "t new 2 FAILED", "t new 3 SENT"];
    assert_eq!(
        values::<String>(&world.app, rows).await,
        kept,
        "who was called just now keeps the number it was called under"
    );
    let attempt = "SELECT l.recipient FROM outboxd.attempt a JOIN outboxd.notification_log l ON l.id = a.notification_id WHERE a.token = 1
                      AND a.ended_at < (SELECT min(created_at) FROM outboxd.notification_log WHERE id <= 3)";
    assert_eq!(value::<String>(&world.app, attempt).await, "r1", "its attempts follow");
    world.notify(1).await;
    until(&world.app, "SELECT count(*) = 7 FROM outboxd.notification_log WHERE finished_at IS NOT NULL").await;
    assert_rows_are_legal(&world.app).await;
}

#[tokio::test]
async fn a_session_remembers_the_lanes_of_its_topics_within_bounds() {
    let client = postgres::database().await.connect().await;
    let topics = "INSERT INTO outboxd.topic (name) SELECT 'topic ' || n || repeat('x', 150) FROM generate_series(1, 40) n
                  UNION ALL SELECT n FROM unnest(ARRAY['a', 'ab', E'a\\x02' || '1' || E'\\x01' || 'b', E'odd\\x01', '7']) n";
    run(&client, topics).await;
    for _ in 0..3 {
        run(&client, "SELECT outboxd.notify(name, 'r', '{}') FROM outboxd.topic ORDER BY lane").await;
        run(&client, "SELECT outboxd.notify(name, 'r', '{}'), outboxd.notify('unknown', 'r', '{}') FROM outboxd.topic ORDER BY lane DESC").await;
        run(&client, "BEGIN; SELECT outboxd.notify('a', 'r', '{}'); ROLLBACK; RESET ALL").await;
    }
    let wrong = "SELECT count(*) FROM outboxd.outbox o LEFT JOIN outboxd.topic t ON t.name = o.topic WHERE o.lane <> coalesce(t.lane, 0)";
    assert_eq!(value::<i64>(&client, wrong).await, 0);
    run(&client, "SELECT outboxd.notify(name, 'r', '{}') FROM outboxd.topic").await;
    let known: String = value(&client, "SELECT current_setting('outboxd.known_lanes')").await;
    assert!(known.len() < 2_500 && known.contains("\u{1}7\u{2}-"), "{known:?}");
}
