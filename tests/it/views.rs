//! The views answer what they promise, at a cost that does not grow with the history.

use std::time::{Duration, Instant};

use serde_json::Value;
use tokio_postgres::Client;

use crate::support::postgres;
use crate::support::provider::Reply;
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World};

/// Public views, and what people ask of them.
const QUESTIONS: &[&str] = &[
    "SELECT * FROM outboxd.queue_state",
    "SELECT * FROM outboxd.outbox_lag",
    "SELECT * FROM outboxd.stuck LIMIT 200",
    "SELECT * FROM outboxd.stuck WHERE id = 310000",
    "SELECT * FROM outboxd.stuck WHERE id = 400000",
    "SELECT * FROM outboxd.waiting",
    "SELECT * FROM outboxd.why(400000)",
    "SELECT * FROM outboxd.throughput",
    "SELECT * FROM outboxd.latency",
    "SELECT * FROM outboxd.channel_health",
    "SELECT * FROM outboxd.workers",
    "SELECT * FROM outboxd.instances",
    "SELECT * FROM outboxd.health",
    "SELECT * FROM outboxd.bulk_actions",
    "SELECT * FROM outboxd.schedules",
    "SELECT * FROM outboxd.schedule_runs",
    "SELECT * FROM outboxd.events_waiting",
    "SELECT * FROM outboxd.event_consumers",
    "SELECT * FROM outboxd.notifications WHERE id = 4711",
    "SELECT * FROM outboxd.notifications ORDER BY id DESC LIMIT 50",
    "SELECT * FROM outboxd.attempts WHERE notification_id = 4711",
    "SELECT * FROM outboxd.attempts ORDER BY id DESC LIMIT 50",
    "SELECT * FROM outboxd.dead_letters ORDER BY failed_at DESC LIMIT 50",
    "SELECT * FROM outboxd.dead_letters WHERE topic = 't3' ORDER BY failed_at DESC LIMIT 50",
    "SELECT topic, error, count(*) FROM outboxd.dead_letters WHERE failed_at > now() - interval '1 hour' GROUP BY 1, 2",
];

/// History, a backlog and dead letters, in the proportions of a busy installation.
async fn fill(client: &Client, history: i32, waiting: i32, dead: i32) {
    let statement = format!(
        "ALTER TABLE outboxd.notification_log SET (autovacuum_enabled = off);
         INSERT INTO outboxd.notification_log (topic, recipient, payload, status, created_at, finished_at, channel, attempts)
         SELECT 't' || n % 10, 'r', '{{}}', 'SENT', now() - interval '1 day', now() - interval '1 day', 'push', 1
           FROM generate_series(1, {history}) n;
         INSERT INTO outboxd.attempt (notification_id, token, outcome, channel) SELECT n, 1, 'failed', 'push' FROM generate_series(1, {history} / 10) n;
         INSERT INTO outboxd.notification_log (topic, recipient, payload, status, created_at, finished_at, failed_at, channel, attempts, error)
         SELECT 't' || n % 10, 'r', '{{}}', 'FAILED', now() - interval '1 day', now() - n * interval '50 s', now() - n * interval '50 s', 'push', 4, 'no'
           FROM generate_series(1, {dead}) n;
         INSERT INTO outboxd.notification_log (topic, recipient, payload, send_at)
         SELECT 't' || n % 10, 'r', '{{}}', now() + n * interval '1 s' FROM generate_series(1, {waiting} / 2) n;
         SELECT count(outboxd.notify('t' || n % 10, 'r', '{{}}')) FROM generate_series(1, {waiting} / 2) n;
         UPDATE outboxd.outbox SET attempts = 1;
         INSERT INTO outboxd.attempt (notification_id, token, outcome, channel) SELECT o.id, 1, 'failed', 'push' FROM outboxd.outbox o;
         INSERT INTO outboxd.event (topic, key, payload) SELECT 't' || n % 10, 'k', '{{}}' FROM generate_series(1, {history}) n;
         INSERT INTO outboxd.event_publication (number, through, since, bytes, topic, event_ids)
         SELECT id, id, created_at, 2, topic, ARRAY[id] FROM outboxd.event;
         INSERT INTO outboxd.event_outbox (event_id, topic) SELECT n, 't' || n % 10 FROM generate_series(1, {waiting} / 2) n;
         UPDATE outboxd.event_progress SET newest = {history}, appended = {history} - 3;
         ANALYZE"
    );
    client.run(&statement).await;
}

/// Scans of the history in a plan: a whole table, or an index without a condition.
fn scans_of_history(node: &Value, found: &mut Vec<String>) {
    let text = |field: &str| node[field].as_str().unwrap_or_default();
    let is_history = ["notification_log", "attempt", "event", "event_publication"].contains(&text("Relation Name"));
    let kind = text("Node Type");
    // The partial indexes hold only what waits or is dead; from an end of a primary key a LIMIT stops it.
    let is_small = text("Index Name").ends_with("_due") || text("Index Name").ends_with("_failed");
    let is_bounded = node.get("Index Cond").is_some() || node.get("Recheck Cond").is_some() || is_small;
    if is_history && (kind == "Seq Scan" || !is_bounded) {
        found.push(format!("{kind} of {} by {}", text("Relation Name"), text("Index Name")));
    }
    for child in node["Plans"].as_array().into_iter().flatten() {
        scans_of_history(child, found);
    }
}

async fn plan(client: &Client, question: &str) -> Value {
    let plan: Value = client.value(&format!("EXPLAIN (FORMAT JSON) {question}")).await;
    plan[0]["Plan"].clone()
}

async fn best_of_five(client: &Client, question: &str) -> Duration {
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let started = Instant::now();
        client.query(question, &[]).await.unwrap();
        best = best.min(started.elapsed());
    }
    best
}

/// While no instance runs, whoever asks counts.
const ALIVE: &str = "INSERT INTO outboxd.instance (ttl, pid, roles, queue_kind, host, version)
    VALUES ('1 h', 1, '{relay}', 'memory', 'h', '1')";

#[tokio::test]
async fn no_view_scans_the_history_and_each_answers_within_50_ms() {
    let database = postgres::database().await;
    let client = database.connect().await;
    let reader = database.connect_as_member_of("outboxd_reader").await;
    fill(&client, 300_000, 100_000, 10_000).await;
    client.run(ALIVE).await;
    assert!(client.value::<bool>("SELECT outboxd._take_snapshot()").await);
    client.run("DISCARD PLANS").await;
    // Until then they are all on time, and a list of what is not has read them all to find none.
    let statements =
        "SELECT count(*) = 200 FROM (SELECT FROM outboxd.stuck WHERE reason = 'never published' LIMIT 200) s";
    client.until(statements).await;
    for question in QUESTIONS {
        let plan = plan(&client, question).await;
        let mut found = Vec::new();
        scans_of_history(&plan, &mut found);
        // "The latest 50" walks the primary key backwards as far as its LIMIT.
        let is_latest = question.contains("ORDER BY id DESC LIMIT");
        let wanted: Vec<String> =
            if is_latest { found.iter().filter(|f| f.starts_with("Seq")).cloned().collect() } else { found };
        assert_eq!(wanted, [""; 0], "{question}\n{plan:#}");
        // Above 100,000 the server would compile the query first, which takes longer than the answer may.
        assert!(plan["Total Cost"].as_f64().unwrap() < 50_000.0, "{question}\n{plan:#}");
        for (who, asking) in [("an owner", &client), ("a reader", &reader)] {
            let best = best_of_five(asking, question).await;
            assert!(best < Duration::from_millis(50), "{question} takes {who} {best:?}");
        }
    }
    let all = "SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = 'outboxd'::regnamespace AND c.relkind = 'v' AND left(c.relname, 1) <> '_'";
    for view in client.values::<String>(all).await {
        assert!(QUESTIONS.iter().any(|question| question.contains(&format!("outboxd.{view}"))), "nobody asks {view}");
    }
}

#[tokio::test]
async fn recording_what_was_sent_is_hot_although_recipients_have_an_index() {
    let client = postgres::database().await.connect().await;
    client.run("SELECT outboxd.notify('t', 'user-' || n, '{}') FROM generate_series(1, 100) n").await;
    let begun =
        "BEGIN; UPDATE outboxd.notification_log SET status = 'SENT', finished_at = now() WHERE status = 'QUEUED'";
    client.run(begun).await;
    let hot = "SELECT pg_stat_get_xact_tuples_hot_updated(c) * 100 / pg_stat_get_xact_tuples_updated(c) FROM (SELECT 'outboxd.notification_log'::regclass::oid AS c) t";
    assert!(client.value::<i64>(hot).await > 90);
    client.run("ROLLBACK").await;
}

#[tokio::test]
async fn what_the_last_attempt_said_is_shown_while_it_is_tried_again() {
    let world = World::new(Carrier::Memory).await;
    world.provider.answer(Reply::status(503));
    let setup = world.setup.clone().set("routes.default.backoff.base", "1h").set("routes.default.backoff.max", "1h");
    let _instance = setup.start().await;
    world.notify(2).await;
    world.until_count(2, "attempts").await;
    let shown =
        "SELECT concat_ws(' ', status, channel, attempts, http_status, error) FROM outboxd.notifications ORDER BY id";
    let waiting = "QUEUED webhook 1 503 status 503 Service Unavailable";
    assert_eq!(world.values::<String>(shown).await, [waiting; 2]);
    world.run("SELECT outboxd.cancel(1)").await;
    assert_eq!(world.values::<String>(shown).await, ["CANCELED webhook 1 503 status 503 Service Unavailable", waiting]);
    world.run("BEGIN; SELECT outboxd.retry(1)").await;
    assert_eq!(world.values::<String>(shown).await, [waiting; 2], "the last attempt is still the last");
    world.provider.answer(Reply::ok());
    world.run("UPDATE outboxd.outbox SET retry_at = now(); COMMIT").await;
    world.until_ended().await;
    assert_eq!(world.values::<String>(shown).await, ["SENT webhook 2 200"; 2], "what went before is in attempts");
}

#[tokio::test]
async fn workers_lists_who_is_at_work_and_instances_the_others_too() {
    let client = postgres::database().await.connect().await;
    let written =
        "INSERT INTO outboxd.instance (ttl, pid, roles, queue_kind, host, version, heartbeat_at, draining, stopped_at)
         SELECT '15 s', n, '{worker}', 'stream', 'web', '0.1.0', now() - age, draining, stopped_at
           FROM (VALUES (1, interval '1 s', false, NULL), (2, '1 s', true, NULL), (3, '1 min', false, NULL),
                        (4, '1 s', false, now()), (5, '2 days', false, NULL)) v(n, age, draining, stopped_at)";
    client.run(written).await;
    let listed = |view: &str| format!("SELECT concat_ws(' ', pid, state) FROM outboxd.{view} ORDER BY pid");
    assert_eq!(client.values::<String>(&listed("workers")).await, ["1 alive", "2 draining"]);
    let all = ["1 alive", "2 draining", "3 dead", "4 stopped"];
    assert_eq!(client.values::<String>(&listed("instances")).await, all);
}

#[tokio::test]
async fn a_small_queue_is_counted_on_the_spot_and_a_big_one_by_the_snapshot() {
    let client = postgres::database().await.connect().await;
    client.run("SELECT outboxd.notify('a', 'r', '{}') FROM generate_series(1, 3)").await;
    client.run("SELECT outboxd.notify('a', 'r', '{}', send_at => now() + interval '1 h')").await;
    client.run("SELECT outboxd.notify('b', 'r', '{}') FROM generate_series(1, 2)").await;
    client.run("UPDATE outboxd.outbox SET state = 'processing', instance = 1 WHERE id = 1").await;
    let counts = "SELECT concat_ws(' ', topic, status, count, oldest_age < interval '1 min', counted_at = now())
                    FROM outboxd.queue_state ORDER BY 1";
    let small = ["a PENDING 1 t t", "a PROCESSING 1 t t", "a QUEUED 2 t t", "b QUEUED 2 t t"];
    assert_eq!(client.values::<String>(counts).await, small);
    assert!(client.value::<bool>("SELECT outboxd._take_snapshot()").await);
    assert_eq!(client.values::<String>(counts).await, small, "a small snapshot is not worth showing");
    assert!(!client.value::<bool>("SELECT outboxd._take_snapshot()").await, "not before 5 s have passed");

    fill(&client, 10, 30_000, 10).await;
    client.run(ALIVE).await;
    client.run("UPDATE outboxd.snapshot SET taken_at = '-infinity'; SELECT outboxd._take_snapshot()").await;
    client.run("SELECT outboxd.notify('after', 'r', '{}')").await;
    assert!(client.count("queue_state WHERE counted_at < now()").await > 20);
    assert_eq!(client.count("queue_state WHERE topic = 'after'").await, 0);
    let total = "SELECT sum(count)::bigint FROM outboxd.queue_state";
    assert_eq!(client.value::<i64>(total).await, 30_016, "as of the snapshot");
    assert_eq!(client.value::<i64>("SELECT ready_unpublished FROM outboxd.outbox_lag").await, 15_004);
    client.run("UPDATE outboxd.snapshot SET taken_at = now() - interval '61 s'").await;
    assert_eq!(client.value::<i64>(total).await, 30_017, "an old snapshot is not believed");
    assert_eq!(client.value::<i64>("SELECT ready_unpublished FROM outboxd.outbox_lag").await, 15_005);
}

#[tokio::test]
async fn the_oldest_is_the_one_that_was_queued_first_and_not_the_one_with_the_lowest_id() {
    let client = postgres::database().await.connect().await;
    let called =
        "SELECT outboxd.notify('a', 'r', '{}', send_at => now() + interval '1 h'), outboxd.notify('a', 'r', '{}');
         UPDATE outboxd.notification_log SET created_at = now() - interval '2 h', send_at = now() - interval '1 min' * id;
         UPDATE outboxd.notification_log SET status = 'QUEUED' WHERE id = 1;
         UPDATE outboxd.notification_log SET created_at = send_at - interval '1 h';
         INSERT INTO outboxd.outbox (id, topic, retry_at) VALUES (1, 'a', now())";
    client.run(called).await;
    let age = "SELECT round(extract(epoch FROM oldest_age) / 60)::int FROM outboxd.queue_state WHERE status = 'QUEUED'";
    assert_eq!(client.value::<i32>(age).await, 2);
    assert_eq!(client.value::<i32>("SELECT max(extract(epoch FROM stuck_for) / 60)::int FROM outboxd.stuck").await, 2);
    // What an operator queues again goes last, and is as old as it was.
    client.run("UPDATE outboxd.notification_log SET send_at = now() - interval '3 min' WHERE id = 1").await;
    assert_eq!(client.value::<i32>(age).await, 3);
}

#[tokio::test]
async fn an_empty_installation_has_no_lag() {
    let client = postgres::database().await.connect().await;
    let lag = "SELECT concat_ws(' ', ready_unpublished, oldest_age, published_last_minute) FROM outboxd.outbox_lag";
    assert_eq!(client.value::<String>(lag).await, "0 00:00:00 0");
    client.run("SELECT outboxd.notify('a', 'r', '{}')").await;
    assert!(client.value::<bool>("SELECT ready_unpublished = 1 AND oldest_age > '0' FROM outboxd.outbox_lag").await);
    client.run("SELECT outboxd.pause('a')").await;
    assert_eq!(client.value::<String>(lag).await, "0 00:00:00 0", "a paused topic is not late");
}

#[tokio::test]
async fn stuck_says_why_each_row_is_late() {
    let client = postgres::database().await.connect().await;
    let written = "INSERT INTO outboxd.route VALUES ('own', 0, 'push'), ('own', 1, 'sms'), ('default', 0, 'hook');
        SELECT outboxd.notify('own', 'r', '{}') FROM generate_series(1, 8);
        SELECT outboxd.notify('own', 'r', '{}', ordering_key => 'k');
        UPDATE outboxd.notification_log SET created_at = now() - interval '2 min', send_at = now() - interval '2 min' WHERE id <> 7;
        UPDATE outboxd.outbox SET state = 'processing', instance = 7, lease_until = now() - interval '10 s' WHERE id = 1;
        UPDATE outboxd.outbox SET state = 'published', instance = 7, published_at = now() - interval '2 min' WHERE id = 2;
        UPDATE outboxd.outbox SET route_step = 1 WHERE id = 4;
        UPDATE outboxd.outbox SET retry_at = now() + interval '1 min' WHERE id = 5;
        UPDATE outboxd.outbox SET state = 'processing', instance = 7, lease_until = now() + interval '10 s' WHERE id = 6;
        UPDATE outboxd.outbox SET retry_at = now() - interval '20 s' WHERE id = 8;
        SELECT outboxd.notify('other', 'r', '{}'), outboxd.notify('third', 'r', '{}'), outboxd.pause('other'), outboxd.pause_channel('hook');
        INSERT INTO outboxd.channel_state (channel, held_until, reason) VALUES ('sms', now() - interval '1 s', 'failures');
        INSERT INTO outboxd.notification_log (topic, recipient, payload, send_at) VALUES ('own', 'r', '{}', now() - interval '20 s');
        INSERT INTO outboxd.notification_log (topic, recipient, payload, send_at) VALUES ('own', 'r', '{}', now() - interval '2 s')";
    client.run(written).await;
    let why = "SELECT concat_ws(' | ', id, reason, channel, worker) FROM outboxd.stuck ORDER BY id";
    assert_eq!(
        client.values::<String>(why).await,
        [
            "1 | lease expired | push | 7",
            "2 | published without progress | push | 7",
            "3 | never published | push",
            "4 | circuit open | sms",
            "8 | never published | push",
            "9 | never published | push",
            "10 | topic paused | hook",
            "11 | channel paused | hook",
            "12 | never released",
        ]
    );
    let since = "stuck WHERE since NOT BETWEEN now() - interval '3 min' AND now() OR stuck_for < '0'";
    assert_eq!(client.count(since).await, 0);
}

#[tokio::test]
async fn what_was_queued_is_told_by_release_numbers_also_after_a_gap_or_a_restore() {
    let client = postgres::database().await.connect().await;
    let minutes = "INSERT INTO outboxd.statistics_minute (minute, seq_first, seq_last)
                   SELECT date_trunc('minute', now()) - n * interval '1 min', first, last
                     FROM (VALUES (6, 900, 1000), (5, 1000, 1040), (3, 1050, 1060), (2, 7, 12), (1, 12, 20)) m(n, first, last)";
    client.run(minutes).await;
    let queued: Vec<i64> = client.values("SELECT queued FROM outboxd.throughput ORDER BY minute").await;
    assert_eq!(queued, [100, 40, 20, 5, 8]);
}

#[tokio::test]
async fn what_an_instance_does_is_seen_by_the_minute() {
    let world = World::new(Carrier::Stream).await;
    world.provider.answer_with(|call| match call.recipient().as_str() {
        "r1" => Reply::status(400),
        "r2" if call.header("outboxd-attempt") == Some("1") => Reply::status(503),
        _ => Reply::ok(),
    });
    let _instance = world.setup.start().await;
    world.notify(50).await;
    world.until_ended().await;
    world.until("SELECT coalesce(sum(sent), 0) = 49 FROM outboxd.throughput").await;
    let counts = "SELECT concat_ws(' ', sum(queued), sum(sent), sum(failed), sum(retried)) FROM outboxd.throughput";
    world.until("SELECT sum(queued) >= 50 FROM outboxd.throughput").await;
    assert_eq!(world.value::<String>(counts).await, "50 49 1 1");
    let latency = "SELECT topic = 'orders' AND sent = 49 AND notify_to_sent_p50_ms > 0 AND notify_to_sent_p99_ms >= notify_to_sent_p50_ms
                          AND seen_to_sent_p50_ms <= notify_to_sent_p50_ms * 1.1 FROM outboxd.latency";
    assert!(world.value::<bool>(latency).await);
    let health = "SELECT concat_ws(' ', channel, origin, circuit, paused, calls, success_percent, p95_ms > 0, last_error LIKE '%400%' OR last_error LIKE '%503%')
                    FROM outboxd.channel_health";
    assert_eq!(world.value::<String>(health).await, "webhook closed f 51 96.1 t t");
    world.until("SELECT published_last_minute > 0 FROM outboxd.outbox_lag").await;
    let queue =
        "SELECT value LIKE 'Redis answers, maxmemory-policy noeviction%' FROM outboxd.health WHERE name = 'queue'";
    world.until(queue).await;
    assert_eq!(world.value::<String>("SELECT string_agg(channel, ',') FROM outboxd.route").await, "webhook");
}
