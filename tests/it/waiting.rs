//! What waits says why: by id at any size, in counts, and without an alarm where all is well.

use std::time::{Duration, Instant};

use tokio_postgres::Client;

use crate::support::postgres;
use crate::support::sql::{run, until, value, values};
use crate::support::world::{Carrier, World};

/// The answer to a question that must take less than 100 ms at its best.
async fn at_once(client: &Client, question: &str) -> Option<String> {
    let mut best = Duration::MAX;
    let mut answer = None;
    for _ in 0..5 {
        let started = Instant::now();
        answer = client.query_opt(question, &[]).await.unwrap().map(|row| row.get(0));
        best = best.min(started.elapsed());
    }
    assert!(best < Duration::from_millis(100), "{question} takes {best:?}");
    answer
}

fn reason_of(id: i64) -> String {
    format!("SELECT reason FROM outboxd.stuck WHERE id = {id}")
}

/// Everything was written so long ago.
async fn age(client: &Client, span: &str) {
    let aged = format!(
        "UPDATE outboxd.notification_log SET created_at = now() - interval '{span}', send_at = now() - interval '{span}'"
    );
    run(client, &aged).await;
}

#[tokio::test]
async fn a_row_deep_in_a_backlog_says_at_once_why_it_waits() {
    let client = postgres::database().await.connect().await;
    run(
        &client,
        "INSERT INTO outboxd.route VALUES ('default', 0, 'sms');
         INSERT INTO outboxd.channel_state (channel, held_until, reason) VALUES ('sms', now() + interval '1 min', 'failures');
         SELECT count(outboxd.notify('orders', 'r', '{}')) FROM generate_series(1, 20000);
         INSERT INTO outboxd.notification_log (topic, recipient, payload, send_at)
         SELECT 'later', 'r', '{}', now() - interval '1 min' FROM generate_series(1, 20000)",
    )
    .await;
    for id in [1, 2_001, 19_999] {
        assert_eq!(at_once(&client, &reason_of(id)).await.as_deref(), Some("circuit open"), "{id}");
    }
    for id in [20_001, 39_999] {
        assert_eq!(at_once(&client, &reason_of(id)).await.as_deref(), Some("never released"), "{id}");
    }
    let all = "SELECT string_agg(concat_ws(' ', reason, count), ', ') FROM (SELECT reason, count(*) FROM outboxd.stuck GROUP BY 1 ORDER BY 1) s";
    assert_eq!(value::<String>(&client, all).await, "circuit open 20000, never released 20000");
}

#[tokio::test]
async fn a_campaign_at_its_rate_limit_is_well() {
    let world = World::new(Carrier::Memory).await;
    let _instance = world.setup.clone().set("channels.webhook.rate_limit", "50/s").start().await;
    world.notify(3_000).await;
    age(&world.app, "5 min").await;
    until(&world.app, "SELECT count(*) BETWEEN 1000 AND 2800 FROM outboxd.outbox").await;
    let level = "SELECT level FROM outboxd.health WHERE name = 'relay_lag'";
    assert_eq!(value::<String>(&world.app, level).await, "ok");
}

/// Rows in every state that there is, and what holds them.
const EVERY_REASON: &str = "
    INSERT INTO outboxd.route VALUES ('default', 0, 'push'), ('default', 1, 'sms'), ('hooks', 0, 'hook'), ('paid', 0, 'paid'),
                                     ('slow', 0, 'slow'), ('late', 0, 'late');
    INSERT INTO outboxd.instance (ttl, pid, roles, queue_kind, host, version) VALUES ('1 h', 1, '{producer,relay,worker}', 'stream', 'web-1', '1');
    INSERT INTO outboxd.instance_report (instance, clock_skew_ms, topics, limits)
    VALUES (1, 0, '{orders,paused,hooks,paid,slow,late}', '{\"paid\": [\"rate_limit\", 10], \"slow\": [\"concurrency\", 5]}');
    SELECT outboxd.notify('orders', 'r', '{}') FROM generate_series(1, 9);
    SELECT outboxd.notify('orders', 'r', '{}', ordering_key => 'k') FROM generate_series(1, 2);
    SELECT outboxd.notify('lost', 'r', '{}'), outboxd.notify('paused', 'r', '{}'), outboxd.notify('late', 'r', '{}');
    SELECT outboxd.notify('hooks', 'r', '{}') FROM generate_series(1, 3);
    SELECT outboxd.notify('paid', 'r', '{}'), outboxd.notify('paid', 'r', '{}'), outboxd.notify('slow', 'r', '{}');
    UPDATE outboxd.notification_log SET created_at = now() - interval '2 min', send_at = now() - interval '2 min' WHERE id <> 1;
    INSERT INTO outboxd.notification_log (topic, recipient, payload, send_at)
    SELECT 'orders', 'r', '{}', now() + span FROM unnest('{1 h,-1 s,-1 min}'::interval[]) span;
    UPDATE outboxd.outbox SET state = 'published', published_at = now() - interval '1 s', instance = 1 WHERE id = 3;
    UPDATE outboxd.outbox SET state = 'published', published_at = now() - interval '2 min', instance = 1 WHERE id = 4;
    UPDATE outboxd.outbox SET state = 'processing', published_at = now(), lease_until = now() + interval '1 min', instance = 1 WHERE id = 5;
    UPDATE outboxd.outbox SET state = 'processing', published_at = now(), lease_until = now() - interval '1 min', instance = 1 WHERE id = 6;
    UPDATE outboxd.outbox SET retry_at = now() + interval '1 min', attempts = 1 WHERE id = 7;
    UPDATE outboxd.outbox SET route_step = 1 WHERE id = 8;
    UPDATE outboxd.outbox SET retry_at = now() - interval '1 min', attempts = 1 WHERE id = 9;
    UPDATE outboxd.outbox SET state = 'ready', has_turn = true, retry_at = now() WHERE id = 10;
    UPDATE outboxd.outbox SET retry_at = now() + interval '1 min', waits_for = 'https://a.example' WHERE id = 15;
    UPDATE outboxd.outbox SET retry_at = now() + interval '1 min', waits_for = 'https://b.example' WHERE id = 16;
    UPDATE outboxd.outbox SET retry_at = now() + interval '1 min', waits_for = 'https://c.example' WHERE id = 17;
    INSERT INTO outboxd.attempt (notification_id, token, number, outcome, channel, error) VALUES (7, 1, 1, 'failed', 'push', 'status 503 Service Unavailable');
    INSERT INTO outboxd.channel_state (channel, origin, held_until, reason)
    VALUES ('sms', '', now() + interval '1 min', 'unauthorized'), ('hook', 'https://a.example', now() + interval '1 min', 'failures'),
           ('hook', 'https://b.example', now() + interval '1 min', 'retry_after');
    SELECT outboxd.pause('paused'), outboxd.pause_channel('late')";

const REASONS: [(i64, &str); 23] = [
    (1, "waiting for the relay"),
    (2, "never published"),
    (3, "in the queue"),
    (4, "published without progress"),
    (5, "being sent"),
    (6, "lease expired"),
    (7, "waiting for retry"),
    (8, "circuit open"),
    (9, "never published"),
    (10, "waiting for the relay"),
    (11, "waiting behind key"),
    (12, "no route"),
    (13, "topic paused"),
    (14, "channel paused"),
    (15, "circuit open"),
    (16, "provider asked to wait"),
    (17, "at its limit"),
    (18, "at its limit"),
    (19, "at its limit"),
    (20, "at its limit"),
    (21, "not due yet"),
    (22, "waiting for a producer"),
    (23, "never released"),
];

async fn of_every_reason() -> (postgres::Database, Client) {
    let database = postgres::database().await;
    let client = database.connect().await;
    run(&client, EVERY_REASON).await;
    (database, client)
}

#[tokio::test]
async fn every_waiting_row_says_the_one_reason_that_holds_it() {
    let (_database, client) = of_every_reason().await;
    let all = "SELECT concat_ws(' ', x.id, w.reason) FROM generate_series(1, 23) x(id) CROSS JOIN outboxd.why(x.id) w ORDER BY x.id";
    let wanted: Vec<String> = REASONS.iter().map(|(id, reason)| format!("{id} {reason}")).collect();
    assert_eq!(values::<String>(&client, all).await, wanted);
    for (id, text) in [
        (1, "is published next"),
        (2, "no instance has published it"),
        (5, "Instance 1 on web-1 calls push"),
        (7, "the last attempt on push failed: status 503 Service Unavailable"),
        (8, "The circuit of sms is open: the provider refuses our credentials"),
        (11, "behind notification 10 of its ordering key"),
        (12, "lost anywhere: it is missing on 1 on web-1"),
        (15, "The circuit of hook at https://a.example is open"),
        (16, "The provider of hook at https://b.example asked to wait"),
        (17, "hook at https://c.example has as many calls under way as max_in_flight_per_origin allows"),
        (19, "paid is at its rate_limit (10 calls a second); 1 of its topic stands before it"),
        (20, "worker.concurrency"),
    ] {
        let told: String = value(&client, &format!("SELECT explanation FROM outboxd.why({id})")).await;
        assert!(told.contains(text), "{id}: {told}");
    }
    let next = "SELECT string_agg(x.id::text, ' ') FROM generate_series(1, 23) x(id), outboxd.why(x.id) w WHERE w.explanation LIKE '%published next%'";
    assert_eq!(value::<String>(&client, next).await, "1 10");
    let behind =
        "SELECT concat_ws(' ', w.behind, p.paused_by = session_user) FROM outboxd.why(11) w, outboxd.why(13) p";
    assert_eq!(value::<String>(&client, behind).await, "10 t");
}

#[tokio::test]
async fn lists_counts_and_single_rows_say_the_same_reason() {
    let (database, client) = of_every_reason().await;
    let differ = "SELECT count(*) FROM outboxd.stuck s LEFT JOIN LATERAL outboxd.why(s.id) w ON true WHERE w.reason IS DISTINCT FROM s.reason";
    assert_eq!(value::<i64>(&client, differ).await, 0);
    let stuck = "SELECT string_agg(id::text, ' ' ORDER BY id) FROM outboxd.stuck";
    assert_eq!(value::<String>(&client, stuck).await, "2 4 6 8 9 11 12 13 14 15 16 17 18 19 20 23");
    let differ = "SELECT count(*) FROM
        (SELECT w.reason, x.topic, w.channel, count(*) FROM generate_series(1, 23) x(id) JOIN outboxd.notifications n USING (id)
          CROSS JOIN LATERAL (SELECT n.topic) x2(topic) CROSS JOIN outboxd.why(x.id) w CROSS JOIN LATERAL (SELECT x2.topic) x(topic) GROUP BY 1, 2, 3) a
        FULL JOIN outboxd.waiting b USING (reason, topic, channel, count) WHERE a.reason IS NULL OR b.reason IS NULL";
    let differ = differ
        .replace("x.topic, w.channel", "n.topic, coalesce(w.channel, '') AS channel")
        .replace(" CROSS JOIN LATERAL (SELECT n.topic) x2(topic)", "")
        .replace(" CROSS JOIN LATERAL (SELECT x2.topic) x(topic)", "")
        .replace(
            "FULL JOIN outboxd.waiting b",
            "FULL JOIN (SELECT reason, topic, coalesce(channel, '') AS channel, count FROM outboxd.waiting) b",
        );
    assert_eq!(value::<i64>(&client, &differ).await, 0);
    let found = crate::support::command::succeeds(&database.url(), &["find", "r", "--limit", "30", "--json"]).await;
    let found: serde_json::Value = serde_json::from_str(&found).unwrap();
    let mut told: Vec<(i64, &str)> = found
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["id"].as_i64().unwrap(), row["waits"].as_str().unwrap()))
        .collect();
    told.sort_unstable();
    assert_eq!(told, REASONS);
}
