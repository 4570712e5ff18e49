//! What waits says why: by id at any size, in counts, and without an alarm where all is well.

use std::time::{Duration, Instant};

use tokio_postgres::Client;

use crate::support::command::outboxd;
use crate::support::http;
use crate::support::instance::Setup;
use crate::support::provider::Reply;
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World};
use crate::support::{postgres, redis};

mod counts;
mod lines;

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
    client.run(&aged).await;
}

#[tokio::test]
async fn a_row_deep_in_a_backlog_says_at_once_why_it_waits() {
    let client = postgres::database().await.connect().await;
    let written = "INSERT INTO outboxd.route VALUES ('default', 0, 'sms');
        INSERT INTO outboxd.channel_state (channel, held_until, reason) VALUES ('sms', now() + interval '1 min', 'failures');
        SELECT count(outboxd.notify('orders', 'r', '{}')) FROM generate_series(1, 20000);
        INSERT INTO outboxd.notification_log (topic, recipient, payload, send_at)
        SELECT 'later', 'r', '{}', now() - interval '1 min' FROM generate_series(1, 20000)";
    client.run(written).await;
    for id in [1, 2_001, 19_999] {
        assert_eq!(at_once(&client, &reason_of(id)).await.as_deref(), Some("circuit open"), "{id}");
    }
    for id in [20_001, 39_999] {
        assert_eq!(at_once(&client, &reason_of(id)).await.as_deref(), Some("never released"), "{id}");
    }
    let all = "SELECT string_agg(concat_ws(' ', reason, count), ', ') FROM (SELECT reason, count(*) FROM outboxd.stuck GROUP BY 1 ORDER BY 1) s";
    assert_eq!(client.value::<String>(all).await, "circuit open 20000, never released 20000");
}

const RELAY_LAG: &str =
    "SELECT level || ': ' || value || coalesce(' → ' || action, '') FROM outboxd.health WHERE name = 'relay_lag'";

#[tokio::test]
async fn what_waits_for_a_limit_is_no_lag_and_what_nobody_works_on_is() {
    let client = postgres::database().await.connect().await;
    let written = "INSERT INTO outboxd.route VALUES ('default', 0, 'push');
        INSERT INTO outboxd.instance (ttl, pid, roles, queue_kind, host, version) VALUES ('15 s', 1, '{relay,worker}', 'stream', 'web-1', '1');
        INSERT INTO outboxd.instance_report (instance, clock_skew_ms, topics) VALUES (1, 0, '{default}');
        SELECT outboxd.notify('orders', 'r', '{}')";
    client.run(written).await;
    age(&client, "5 min").await;
    let rate = "UPDATE outboxd.instance_report SET reported_at = now(), limits = '{\"push\": [\"rate_limit\", 10]}'";
    let alive = "UPDATE outboxd.instance SET heartbeat_at = now()";
    for (now, told, why) in [
        (String::new(), "critical: 1 row ready", "role relay"),
        (rate.to_owned(), "ok: 0 rows ready", "1 at the rate_limit of push, until about"),
        (rate.replace("now()", "now() - interval '1 min'"), "critical: 1 row ready", "role relay"),
        (rate.replace("rate_limit", "max_in_flight"), "ok: 0 rows ready", "1 at the max_in_flight of push"),
        (rate.replace("rate_limit", "concurrency"), "ok: 0 rows ready", "1 at worker.concurrency, for push, until"),
        (
            format!("{rate}; UPDATE outboxd.instance SET heartbeat_at = now() - interval '20 s'"),
            "critical",
            "role relay",
        ),
        // One that falls due again and again, and a time that has not come.
        (
            format!("{alive}; UPDATE outboxd.outbox SET attempts = 1, retry_at = now() + interval '1 h'"),
            "ok: 0 rows ready",
            "0 s",
        ),
        ("UPDATE outboxd.outbox SET retry_at = now() - interval '2 min'".to_owned(), "ok", "rate_limit"),
        ("UPDATE outboxd.instance_report SET limits = NULL".to_owned(), "critical: 1 row ready", "role relay"),
    ] {
        client.run(&format!("{alive}; {now}")).await;
        let lag: String = client.value(RELAY_LAG).await;
        assert!(lag.starts_with(told) && lag.contains(why), "{now}: {lag}");
        let agrees = "SELECT (l.ready_unpublished = 0) = (h.level = 'ok') FROM outboxd.outbox_lag l, outboxd.health h WHERE h.name = 'relay_lag'";
        assert!(client.value::<bool>(agrees).await, "{now}");
    }
}

#[tokio::test]
async fn a_row_to_an_origin_whose_circuit_is_open_says_so() {
    let mut world = World::new(Carrier::Memory).await;
    world.setup = world
        .setup
        .url_from_the_row()
        .set("channels.webhook.circuit.failures", 3)
        .set("channels.webhook.circuit.open_for", "60s");
    world.provider.answer(Reply::status(503));
    let _instance = world.setup.start().await;
    let url = world.provider.url("/hook");
    world.run(&format!("SELECT count(outboxd.notify('orders', '{url}', '{{}}')) FROM generate_series(1, 100)")).await;
    let held = "SELECT count(*) > 50 FROM outboxd.stuck WHERE reason = 'circuit open' AND channel = 'webhook' AND origin LIKE 'http://127.0.0.1:%'";
    world.until(held).await;
    let told = "stuck s CROSS JOIN outboxd.why(s.id) w
                 WHERE s.reason = 'circuit open' AND w.explanation NOT LIKE 'The circuit of webhook at ' || s.origin || ' is open: %The provider is probed at %'";
    assert_eq!(world.count(told).await, 0);
    assert_eq!(world.value::<i64>("SELECT ready_unpublished FROM outboxd.outbox_lag").await, 0);
}

const ROUTES: &str = "INSERT INTO outboxd.route VALUES ('default', 0, 'push'), ('default', 1, 'sms'), ('hooks', 0, 'hook'), ('paid', 0, 'paid'),
                                                       ('slow', 0, 'slow'), ('late', 0, 'late')";

/// Rows in every state that there is, and what holds them.
const EVERY_REASON: &str = "
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
    SELECT 'orders', 'r', '{}', now() + span FROM unnest('{1 h,-1 min}'::interval[]) span;
    UPDATE outboxd.outbox SET state = 'published', published_at = now() - interval '1 s', instance = 1 WHERE id = 3;
    UPDATE outboxd.outbox SET state = 'published', published_at = now() - interval '2 min', instance = 1 WHERE id = 4;
    UPDATE outboxd.outbox SET state = 'processing', published_at = now(), lease_until = now() + interval '1 min', instance = 1 WHERE id = 5;
    UPDATE outboxd.outbox SET state = 'processing', published_at = now(), lease_until = now() - interval '1 min', instance = 1 WHERE id = 6;
    UPDATE outboxd.outbox SET retry_at = now() + interval '1 min', attempts = 1 WHERE id = 7;
    UPDATE outboxd.outbox SET route_step = 1 WHERE id = 8;
    UPDATE outboxd.outbox SET retry_at = now() - interval '1 min', attempts = 1 WHERE id = 9;
    UPDATE outboxd.outbox SET state = 'ready', has_turn = true, retry_at = now() + interval '1 h' WHERE id = 10;
    UPDATE outboxd.notification_log SET created_at = now() + interval '1 h' WHERE id = 1;
    UPDATE outboxd.outbox SET retry_at = now() + interval '1 min', waits_for = 'https://a.example' WHERE id = 15;
    UPDATE outboxd.outbox SET retry_at = now() + interval '1 min', waits_for = 'https://b.example' WHERE id = 16;
    UPDATE outboxd.outbox SET retry_at = now() + interval '1 min', waits_for = 'https://c.example' WHERE id = 17;
    INSERT INTO outboxd.attempt (notification_id, token, number, outcome, channel, error) VALUES (7, 1, 1, 'failed', 'push', 'status 503 Service Unavailable');
    INSERT INTO outboxd.channel_state (channel, origin, held_until, reason)
    VALUES ('sms', '', now() + interval '1 min', 'unauthorized'), ('hook', 'https://a.example', now() + interval '1 min', 'failures'),
           ('hook', 'https://b.example', now() + interval '1 min', 'retry_after');
    SELECT outboxd.pause('paused'), outboxd.pause_channel('late')";

const REASONS: [(i64, &str); 22] = [
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
    (22, "never released"),
];

async fn of_every_reason() -> (postgres::Database, Client) {
    let database = postgres::database().await;
    let client = database.connect().await;
    client.run(ROUTES).await;
    client.run(EVERY_REASON).await;
    (database, client)
}

#[tokio::test]
async fn every_waiting_row_says_the_one_reason_that_holds_it() {
    let (_database, client) = of_every_reason().await;
    let all = "SELECT concat_ws(' ', x.id, w.reason) FROM generate_series(1, 22) x(id) CROSS JOIN outboxd.why(x.id) w ORDER BY x.id";
    let wanted: Vec<String> = REASONS.iter().map(|(id, reason)| format!("{id} {reason}")).collect();
    assert_eq!(client.values::<String>(all).await, wanted);
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
        (17, "It waits for its turn at hook at https://c.example"),
        (19, "paid is at its rate_limit (10 calls a second); 1 of its topic stands before it"),
        (20, "worker.concurrency"),
    ] {
        let told: String = client.value(&format!("SELECT explanation FROM outboxd.why({id})")).await;
        assert!(told.contains(text), "{id}: {told}");
    }
    let next = "SELECT string_agg(x.id::text, ' ') FROM generate_series(1, 22) x(id), outboxd.why(x.id) w WHERE w.explanation LIKE '%published next%'";
    assert_eq!(client.value::<String>(next).await, "1");
    let behind =
        "SELECT concat_ws(' ', w.behind, p.paused_by = session_user) FROM outboxd.why(11) w, outboxd.why(13) p";
    assert_eq!(client.value::<String>(behind).await, "10 t");
}

#[tokio::test]
async fn lists_counts_and_single_rows_say_the_same_reason() {
    let (database, client) = of_every_reason().await;
    let differ = "stuck s LEFT JOIN LATERAL outboxd.why(s.id) w ON true WHERE w.reason IS DISTINCT FROM s.reason";
    assert_eq!(client.count(differ).await, 0);
    let stuck = "SELECT string_agg(id::text, ' ' ORDER BY id) FROM outboxd.stuck";
    assert_eq!(client.value::<String>(stuck).await, "2 4 6 8 9 11 12 13 14 15 16 17 18 19 20 22");
    let differ = "SELECT count(*) FROM
        (SELECT w.reason, n.topic, coalesce(w.channel, '') AS channel, count(*) FROM outboxd.notifications n CROSS JOIN outboxd.why(n.id) w GROUP BY 1, 2, 3) a
        FULL JOIN (SELECT reason, topic, coalesce(channel, '') AS channel, count FROM outboxd.waiting) b USING (reason, topic, channel, count)
        WHERE a.reason IS NULL OR b.reason IS NULL OR a IS NULL OR b IS NULL";
    assert_eq!(client.value::<i64>(differ).await, 0);
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
    let shown = outboxd(&database.url(), &["find", "r", "--limit", "30"], &[]).await.out;
    for action in found.as_array().unwrap().iter().filter_map(|row| row["action"].as_str()) {
        assert!(shown.contains(action), "what to do is not cut: {action}\n{shown}");
    }
    let one = outboxd(&database.url(), &["dead", "show", "15"], &[]).await.out;
    let why =
        "The circuit of hook at https://a.example is open: too many calls failed in a row. The provider is probed at 2";
    assert!(shown.contains(why) && one.contains(why), "{shown}{one}");
    assert!(one.contains("SELECT outboxd.probe_channel('hook', 'https://a.example')"), "{one}");
}

#[tokio::test]
async fn page_and_api_say_the_same_and_link_to_the_head_of_the_key() {
    let (database, client) = of_every_reason().await;
    let setup = Setup::new(&database.url())
        .webhook("http://127.0.0.1:9/")
        .redis(redis::shared().url(), "stream", &redis::unique_prefix())
        .roles("api")
        .set("tokens.reader.token", "read-read-read-read")
        .set("tokens.reader.scope", "read")
        .set("tokens.ops.token", "operate-operate-operate")
        .set("tokens.ops.scope", "operate");
    let mut instance = setup.start().await;
    let addr = instance.http_addr().await;
    // It tells of its own routes once.
    client.until("SELECT bool_or(channel = 'webhook') FROM outboxd.route").await;
    client.run("DELETE FROM outboxd.route").await;
    client.run(ROUTES).await;
    let (reader, ops) = ("Authorization: Bearer read-read-read-read", "Authorization: Bearer operate-operate-operate");
    for (id, reason) in REASONS {
        let told = http::get(addr, &format!("/v1/notifications/{id}"), &[reader]).await.json();
        assert_eq!(told["waits"]["reason"], reason, "{id}: {told:#}");
        let page = http::get(addr, &format!("/notifications/{id}"), &[ops]).await.body;
        let said = told["waits"]["explanation"].as_str().unwrap();
        // Times are told by each session's clock and zone, and escaped.
        assert!(page.contains(said.split([':', ';', '\'']).next().unwrap()), "{id}: {said}\n{page}");
        assert_eq!(page.contains("published next"), said.contains("published next"), "{id}");
    }
    let page = http::get(addr, "/notifications/11", &[ops]).await.body;
    assert!(page.contains("<a href=\"/notifications/10\">10</a>"), "{page}");
    let paused = |token: &'static str| async move { http::get(addr, "/v1/notifications/13", &[token]).await.json() };
    assert_eq!(paused(reader).await["waits"].get("paused_by"), None);
    let who: String = client.value("SELECT session_user::text").await;
    assert_eq!(paused(ops).await["waits"]["paused_by"], who);
}

#[tokio::test]
async fn what_a_provider_says_inside_a_200_is_shown_in_every_list() {
    let mut world = World::new(Carrier::Memory).await;
    world.setup = world
        .setup
        .set("channels.webhook.accepted_when", "{{ response.code == '0000' or 'permanent: code ' ~ response.code }}")
        .set("tokens.ops.token", "operate-operate-operate")
        .set("tokens.ops.scope", "operate")
        .set("tokens.ops.payloads", true)
        .set("tokens.reader.token", "read-read-read-read")
        .set("tokens.reader.scope", "read");
    world.provider.answer(Reply::ok().body(r#"{"code": "3018", "message": "blocked by +821012345678"}"#));
    let mut instance = world.setup.start().await;
    world.notify(1).await;
    world.until_count(1, "dead_letters").await;
    let shown = "SELECT error || ' | ' || response FROM outboxd.dead_letters";
    let wanted = r#"status 200 OK, not accepted: code 3018 | {"code": "3018", "message": "blocked by +821012345678"}"#;
    assert_eq!(world.value::<String>(shown).await, wanted);
    let listed = outboxd(&world.database.url(), &["dead", "list"], &[]).await.out;
    assert!(listed.contains("not accepted: code 3018") && listed.contains("blocked by"), "{listed}");
    let counted = outboxd(&world.database.url(), &["dead", "retry", "--dry-run"], &[]).await.out;
    assert_eq!(counted, "1 dead letter matches\n");
    let addr = instance.http_addr().await;
    let (reader, ops) = ("Authorization: Bearer read-read-read-read", "Authorization: Bearer operate-operate-operate");
    for (path, said) in [("/v1/dead_letters", "blocked by"), ("/dead", "blocked by"), ("/notifications/1", "code 3018")]
    {
        let whole = http::get(addr, path, &[ops]).await.body;
        assert!(whole.contains(said) && whole.contains("not accepted: code 3018"), "{path}: {whole}");
        let masked = http::get(addr, path, &[reader]).await.body;
        let shows_the_words = masked.contains("code 3018") || masked.contains("blocked by");
        assert!(masked.contains("not accepted") && !shows_the_words, "{path}: {masked}");
    }
    let bulk = http::get(addr, "/bulk/new?action=retry&topic=orders", &[ops]).await.body;
    assert!(bulk.contains("dead letter matches"), "{bulk}");
}

/// The template says no and not why.
#[tokio::test]
async fn lists_quote_what_a_provider_said_with_its_no_and_readers_do_not_see_it() {
    let mut world = World::new(Carrier::Memory).await;
    world.setup = world
        .setup
        .set("channels.webhook.accepted_when", "{{ response.header.isSuccessful }}")
        .set("tokens.ops.token", "operate-operate-operate")
        .set("tokens.ops.scope", "operate")
        .set("tokens.reader.token", "read-read-read-read")
        .set("tokens.reader.scope", "read");
    let no = r#"{"header": {"isSuccessful": false, "resultCode": -1000, "resultMessage": "unknown key"}}"#;
    world.provider.answer(Reply::ok().body(no));
    let mut instance = world.setup.start().await;
    world.notify(1).await;
    world.until_count(1, "dead_letters").await;
    for command in [["find", "r1"], ["dead", "list"]] {
        let listed = outboxd(&world.database.url(), &command, &[]).await.out;
        assert!(listed.contains("-1000"), "{command:?}: {listed}");
    }
    let addr = instance.http_addr().await;
    let (reader, ops) = ("Authorization: Bearer read-read-read-read", "Authorization: Bearer operate-operate-operate");
    for path in ["/v1/notifications", "/notifications", "/notifications/1", "/dead", "/v1/dead_letters"] {
        let whole = http::get(addr, path, &[ops]).await.body;
        assert!(whole.contains("-1000") && whole.contains("unknown key"), "{path}: {whole}");
        let masked = http::get(addr, path, &[reader]).await.body;
        assert!(masked.contains("not accepted") && !masked.contains("-1000"), "{path}: {masked}");
    }
    let reader = world.database.connect_as_member_of("outboxd_reader").await;
    let told = "SELECT string_agg(DISTINCT error, ', ') FROM (SELECT error FROM outboxd.notifications UNION SELECT error FROM outboxd.dead_letters
                UNION SELECT error FROM outboxd.attempts UNION SELECT last_error FROM outboxd.channel_health WHERE last_error IS NOT NULL) e";
    assert_eq!(reader.value::<String>(told).await, "status 200 OK, not accepted");
}
