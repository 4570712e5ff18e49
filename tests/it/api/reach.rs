//! A token with topics reaches these alone, and a token without payloads sees none of them: asked of every route there is.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use outboxd::store::view::VIEWS;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{Api, OPS, assert_problem, ids};
use crate::support::http::{self, Answer};
use crate::support::sql::Sql;

const OWN: &str = "Authorization: Bearer owner-owner-owner-owner";
const PLAIN: &str = "Authorization: Bearer plain-plain-plain-plain";
const READER: &str = "Authorization: Bearer reader-reader-reader";
const HTML: &str = "Accept: text/html";

/// What each of the routes that take GET is asked, by the text that the source gives it. 1, 3 and so on are the foreign
/// rows, 2 is an own one. A route that is added is asked here too, or this test says so.
const ASKED: &[(&str, &[&str])] = &[
    ("\"/livez\"", &["/livez"]),
    ("\"/readyz\"", &["/readyz"]),
    ("\"/metrics\"", &["/metrics"]),
    ("\"/version\"", &["/version"]),
    ("\"/openapi.json\"", &["/openapi.json"]),
    ("\"/v1/notifications/{id}\"", &["/v1/notifications/1", "/v1/notifications/2", "/v1/notifications/3"]),
    (
        "\"/v1/notifications\"",
        &[
            "/v1/notifications",
            "/v1/notifications?status=PENDING",
            "/v1/notifications?status=QUEUED",
            "/v1/notifications?status=PROCESSING",
            "/v1/notifications?status=FAILED",
            "/v1/notifications?status=SENT",
            "/v1/notifications?recipient=both",
            "/v1/notifications?q=both",
            "/v1/notifications?q=1",
            "/v1/notifications?q=%7B%22both%22%3A1%7D",
            "/v1/notifications?topic=own.a",
        ],
    ),
    ("\"/v1/bulk/{id}\"", &["/v1/bulk/1", "/v1/bulk/2"]),
    // Each of the views; `audit` has a route of its own.
    ("&format!(\"/v1/{}\", view.name)", &[]),
    ("\"/v1/audit\"", &[]),
    // WebSocket: live::rights.
    ("\"/v1/live\"", &["/v1/live?topic=own.a"]),
    // Each entry of the navigation.
    ("path", &[]),
    (
        "\"/notifications/{id}\"",
        &["/notifications/1", "/notifications/2", "/notifications/2?payload", "/notifications/3"],
    ),
    ("\"/bulk/{id}\"", &["/bulk/1", "/bulk/2"]),
    (
        "\"/bulk/new\"",
        &["/bulk/new?action=retry", "/bulk/new?action=cancel&topic=own.a", "/bulk/new?action=discard&cause=x"],
    ),
    ("\"/live\"", &["/live?page=/notifications/1", "/live?page=/notifications/2", "/live?page=/bulk/1"]),
    ("\"/login\"", &["/login"]),
    ("\"/assets/{name}\"", &["/assets/none"]),
];

/// Pages of the navigation.
const PAGES: [&str; 10] =
    ["/", "/notifications", "/dead", "/channels", "/topics", "/schedules", "/events", "/instances", "/bulk", "/audit"];

/// Rows of a foreign topic and of an own one wherever a topic, a recipient or a payload can stand. What is foreign says
/// FOREIGN, what a token without payloads may not see says SECRET, and both have a key, a recipient and a payload alike.
const SCENE: &str = r#"
    CREATE VIEW public.people AS SELECT ''::text AS recipient, '{}'::jsonb AS payload;
    GRANT SELECT ON public.people TO outboxd_audience;
    CREATE FUNCTION pg_temp.letter(topic text, what text, n int) RETURNS void LANGUAGE sql AS $$
        INSERT INTO outboxd.notification_log (topic, recipient, payload, headers, status, finished_at, failed_at, error, channel, dedup_key, ordering_key)
        VALUES (topic, 'to SECRET ' || what || ' x', '{"both": 1, "SECRET": 1}'::jsonb || jsonb_build_object(what, 1), jsonb_build_object('SECRET', what), 'FAILED', now(), now(),
                'not accepted: SECRET ' || what, 'webhook', 'key ' || what || n, 'order ' || what) $$;
    SELECT pg_temp.letter('FOREIGN.x', 'FOREIGN', 1); SELECT pg_temp.letter('own.a', 'mine', 2);
    SELECT outboxd.notify(t, 'both', '{"both": 1}', dedup_key => 'both') FROM unnest(ARRAY['FOREIGN.x', 'own.a']) t;
    INSERT INTO outboxd.notification_log (topic, recipient, payload, send_at) SELECT t, 'both', '{}', now() + interval '1 h' FROM unnest(ARRAY['FOREIGN.x', 'own.a']) t;
    INSERT INTO outboxd.notification_log (topic, recipient, payload, status, finished_at) SELECT t, 'both', '{}', 'SENT', now() FROM unnest(ARRAY['FOREIGN.x', 'own.a']) t;
    INSERT INTO outboxd.attempt (notification_id, token, outcome, response, error, channel)
    SELECT id, 1, 'failed', 'SECRET' || topic, 'not accepted: SECRET ' || topic, 'webhook' FROM outboxd.notification_log WHERE status = 'FAILED';
    INSERT INTO outboxd.bulk_action (action, filter, actor, matched)
    VALUES ('retry', '{"topic": "FOREIGN.x", "recipient": "to SECRET FOREIGN x"}', 'FOREIGN', 1), ('retry', '{"topic": "own.a", "recipient": "to SECRET mine x", "error_like": "SECRET%"}', 'me', 1),
           ('cancel', '{"recipient": "to SECRET FOREIGN x"}', 'FOREIGN', 1);
    UPDATE outboxd.bulk_action SET ended_at = now();
    SELECT outboxd.create_schedule(s, '0 9 * * *', 'UTC', t, 'public.people') FROM (VALUES ('FOREIGN', 'FOREIGN.x'), ('mine', 'own.a')) v(s, t);
    INSERT INTO outboxd.schedule_run (schedule_id, version, schedule, topic, audience, spread, slot, release_at, state, error, ended_at)
    SELECT id, 1, name, topic, audience, '0', now(), now(), 'failed', 'invalid input: SECRET ' || topic, now() FROM outboxd.schedule;
    INSERT INTO outboxd.event (topic, key, payload) VALUES ('FOREIGN.x', 'SECRET', '{"SECRET": 1}'), ('own.a', 'SECRET', '{"SECRET": 1}');
    INSERT INTO outboxd.event_outbox (event_id, topic) SELECT id, topic FROM outboxd.event;
    INSERT INTO outboxd.event_stream SELECT topic, 1 FROM outboxd.event;
    INSERT INTO outboxd.event_group (topic, name, delivered_id, gone, behind, stream_max) SELECT topic, 'of ' || topic, '0-0', 0, 1, 1 FROM outboxd.event;
    INSERT INTO outboxd.statistics_topic (minute, topic, sent) SELECT date_trunc('minute', now()), topic, 1 FROM outboxd.event;
    INSERT INTO outboxd.statistics_span (minute, measure, subject, bucket, count) SELECT date_trunc('minute', now()), 'notify', topic, 1, 1 FROM outboxd.event;
    INSERT INTO outboxd.statistics_channel (minute, channel, origin, failed, last_error, last_error_at) VALUES (date_trunc('minute', now()), 'webhook', 'https://FOREIGN.example', 1, 'not accepted: SECRET FOREIGN', now());
    SELECT outboxd.pause('FOREIGN.x'), outboxd.pause('own.a');
    SELECT outboxd.retry_where('{"recipient": "SECRET FOREIGN of nobody"}', false)"#;

async fn scene() -> Api {
    let api = Api::start(|setup| {
        setup
            .set("tokens.ops.token", "operate-operate-operate")
            .set("tokens.ops.scope", "operate")
            .set("tokens.own.token", "owner-owner-owner-owner")
            .set("tokens.own.scope", "operate")
            .set("tokens.own.topics", vec!["own.*"])
            .set("tokens.plain.token", "plain-plain-plain-plain")
            .set("tokens.plain.scope", "operate")
            .set("tokens.plain.payloads", false)
            .set("tokens.reader.token", "reader-reader-reader")
            .set("tokens.reader.scope", "read")
            .set("tokens.reader.payloads", true)
    })
    .await;
    // No instance works it off meanwhile, and nothing is new for a page that was opened before.
    api.client.run(SCENE).await;
    api
}

/// The arguments of `.route(…, get(` in the sources of the server, as they stand there.
fn routes_of_get() -> BTreeSet<String> {
    fn sources(path: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                sources(&entry, found);
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                found.push(std::fs::read_to_string(entry).unwrap());
            }
        }
    }
    let server = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/server");
    let mut texts = vec![std::fs::read_to_string(server.with_extension("rs")).unwrap()];
    sources(&server, &mut texts);
    let mut routes = BTreeSet::new();
    for text in &texts {
        for call in text.split(".route(").skip(1) {
            let [before, method] =
                ["get(", "any("].map(|method| call.find(&format!(", {method}")).unwrap_or(usize::MAX));
            let at = before.min(method);
            // The method stands right behind the path: another route's is not taken for it.
            if let Some(argument) =
                call.get(..at).filter(|argument| !argument.contains(", post(") && !argument.contains(';'))
            {
                routes.insert(argument.trim().to_owned());
            }
        }
    }
    routes
}

/// Every address to ask.
fn addresses() -> Vec<String> {
    let asked: BTreeSet<String> = ASKED.iter().map(|(route, _)| (*route).to_owned()).collect();
    assert_eq!(routes_of_get(), asked, "a route that takes GET is asked with a token of some topics: say here how");
    let of_routes = ASKED.iter().flat_map(|(_, paths)| paths.iter().map(|path| (*path).to_owned()));
    let views = VIEWS.iter().map(|view| format!("/v1/{}", view.name));
    let live = PAGES.iter().map(|page| format!("/live?page={page}"));
    of_routes.chain(views).chain(PAGES.map(String::from)).chain(live).collect()
}

/// All of an answer, or what an endless one says at first.
async fn ask(addr: SocketAddr, path: &str, token: &str) -> String {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let accept = if path.starts_with("/v1") { "Accept: */*" } else { HTML };
    let request = format!("GET {path} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n{token}\r\n{accept}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut heard = Vec::new();
    let read = async {
        let mut buffer = [0; 4096];
        loop {
            let read = stream.read(&mut buffer).await.unwrap();
            heard.extend_from_slice(&buffer[..read]);
            // The first event with the page's parts ends with an empty line.
            let text = String::from_utf8_lossy(&heard);
            let is_told = text.find("event: parts").is_some_and(|at| text[at..].contains("\n\n"));
            if read == 0 || is_told {
                return text.into_owned();
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), read).await.unwrap_or_else(|_| panic!("{path} does not answer"))
}

#[tokio::test]
async fn a_token_with_topics_is_shown_nothing_of_another_topic_by_any_route() {
    let api = scene().await;
    let mut seen_by_ops = BTreeSet::new();
    for path in addresses() {
        let own = ask(api.addr, &path, OWN).await;
        assert!(!own.contains("FOREIGN"), "{path}: {own}");
        if ask(api.addr, &path, OPS).await.contains("FOREIGN") {
            seen_by_ops.insert(path);
        }
    }
    // It would be found where it stood: these say it to those who may read all.
    for path in [
        "/v1/stuck",
        "/v1/queue_state",
        "/v1/health",
        "/topics",
        "/dead",
        "/live?page=/dead",
        "/metrics",
        "/audit",
        "/",
    ] {
        let is_known_late = ["/metrics", "/v1/health", "/v1/stuck", "/"].contains(&path);
        assert!(is_known_late || seen_by_ops.contains(path), "{path} in {seen_by_ops:?}");
    }
    assert!(seen_by_ops.len() > 25, "{seen_by_ops:?}");
}

#[tokio::test]
async fn a_token_without_payloads_is_shown_no_recipient_or_payload_by_any_route() {
    let api = scene().await;
    let mut seen_by_ops = 0;
    for path in addresses().iter().filter(|path| !path.contains("q=%7B")) {
        let plain = ask(api.addr, path, PLAIN).await;
        assert!(!plain.contains("SECRET"), "{path}: {plain}");
        seen_by_ops += i32::from(ask(api.addr, path, OPS).await.contains("SECRET"));
    }
    assert!(seen_by_ops > 10, "{seen_by_ops}");
}

/// Who acted stands in the audit and beside what waits for it; both are for those who act.
#[tokio::test]
async fn a_reader_is_shown_who_acted_by_no_route_whoever_opened_it_before() {
    let api = scene().await;
    let act = "SET outboxd.token = 'ACTOR'; SELECT outboxd.pause('quiz'); RESET outboxd.token";
    api.client.run(&format!("{act}; SELECT outboxd.notify('quiz', 'r', '{{}}')")).await;
    let id: i64 = api.client.value("SELECT max(id) FROM outboxd.notification_log").await;
    let paused = [format!("/notifications/{id}"), format!("/live?page=/notifications/{id}")];
    assert!(!ask(api.addr, &paused[0], READER).await.contains("ACTOR"));
    assert!(ask(api.addr, &paused[0], OPS).await.contains("ACTOR"), "nor does a reader keep it from an operator");
    let mut seen_by_ops = BTreeSet::new();
    for path in addresses().into_iter().chain(paused.clone()).chain([format!("/v1/notifications/{id}")]) {
        if ask(api.addr, &path, OPS).await.contains("ACTOR") {
            seen_by_ops.insert(path.clone());
        }
        let reader = ask(api.addr, &path, READER).await;
        assert!(!reader.contains("ACTOR") && !reader.contains("action=\"/act/"), "{path}: {reader}");
    }
    let wanted = ["/audit", "/v1/audit", &paused[0], &paused[1]];
    assert!(wanted.iter().all(|path| seen_by_ops.contains(*path)), "{seen_by_ops:?}");
    assert_eq!(api.get("/audit", &[READER, HTML]).await.status, 403);
}

#[tokio::test]
async fn a_token_with_topics_finds_its_own_rows_and_what_is_about_all_is_refused() {
    let api = scene().await;
    for (path, found) in [
        ("/v1/notifications", vec![8, 6, 4, 2]),
        ("/v1/notifications?status=FAILED", vec![2]),
        ("/v1/notifications?status=QUEUED", vec![4]),
        ("/v1/notifications?status=PENDING&topic=own.a", vec![6]),
        ("/v1/notifications?recipient=both", vec![8, 6, 4]),
        ("/v1/notifications?q=both", vec![4]),
        ("/v1/notifications?q=3", vec![]),
        ("/v1/notifications?q=%7B%22both%22%3A1%7D", vec![4, 2]),
    ] {
        assert_eq!(ids(&api.get(path, &[OWN]).await), found, "{path}");
    }
    for view in
        ["queue_state", "dead_letters", "latency", "schedules", "schedule_runs", "events_waiting", "event_consumers"]
    {
        let rows = api.get(&format!("/v1/{view}?limit=1"), &[OWN]).await;
        let topic = &rows.json()["rows"][0]["topic"];
        assert_eq!(*topic, "own.a", "the limit counts what is its own: {view} {rows:?}");
    }
    for view in ["queue_state", "latency", "schedules", "schedule_runs", "events_waiting", "event_consumers"] {
        let mut path = format!("/v1/{view}?limit=1");
        let mut pages = 0;
        loop {
            let page = api.get(&path, &[OWN]).await.json();
            assert!(page["rows"].as_array().unwrap().iter().all(|row| row["topic"] == "own.a"), "{view}: {page}");
            let Some(next) = page["next"].as_str() else { break };
            let next: String = url::form_urlencoded::byte_serialize(next.as_bytes()).collect();
            (path, pages) = (format!("/v1/{view}?limit=1&cursor={next}"), pages + 1);
            assert!(pages < 10, "the pages end: {view}");
        }
    }
    for (page, total) in [
        ("/topics", "1 topic, 1 paused"),
        ("/topics?name=.", "1 of 1 topic with"),
        ("/topics?name=foreign", "0 of 1 topic with"),
        ("/dead", "1 group,"),
        ("/dead?name=foreign", "0 of 1 group with"),
        ("/schedules", "1 schedule"),
        ("/schedules?name=foreign", "0 of 1 schedule"),
        ("/events", "1 group"),
    ] {
        let shown = api.get(page, &[OWN, HTML]).await;
        assert!(shown.body.contains(total) && !shown.body.contains("FOREIGN"), "{page}: {}", shown.body);
    }
    for view in VIEWS.iter().filter(|view| !view.is_by_topic) {
        assert_problem(&api.get(&format!("/v1/{}", view.name), &[OWN]).await, 403, "forbidden");
    }
    assert_problem(&api.get("/metrics", &[OWN]).await, 403, "forbidden");
    assert_problem(&api.get("/v1/notifications?topic=FOREIGN.x", &[OWN]).await, 403, "forbidden");
    assert_problem(&api.get("/v1/notifications?status=PENDING", &[OWN]).await, 400, "bad-request");
    let first = api.get("/", &[OWN, HTML]).await;
    assert_eq!((first.status, first.header("location")), (303, Some("/notifications")));
    for (page, status) in [
        ("/channels", 403),
        ("/instances", 403),
        ("/audit", 403),
        ("/topics", 200),
        ("/bulk", 200),
        ("/bulk/1", 404),
        ("/bulk/2", 200),
    ] {
        assert_eq!(api.get(page, &[OWN, HTML]).await.status, status, "{page}");
    }
}

async fn act(api: &Api, verb: &str, fields: &str) -> Answer {
    let headers = [OWN, "Content-Type: application/x-www-form-urlencoded"];
    http::post_bytes(api.addr, &format!("/act/{verb}"), &headers, fields.as_bytes()).await
}

#[tokio::test]
async fn a_token_with_topics_acts_on_these_and_is_not_told_what_else_there_is() {
    let api = scene().await;
    let audited = "audit";
    let before: i64 = api.client.count(audited).await;
    for (foreign, nothing) in [
        ("/v1/notifications/1/retry", "/v1/notifications/999/retry"),
        ("/v1/notifications/3/cancel", "/v1/notifications/999/cancel"),
        ("/v1/notifications/7/resend", "/v1/notifications/999/resend"),
        ("/v1/notifications/1/discard", "/v1/notifications/999/discard"),
        ("/v1/schedules/FOREIGN/drop", "/v1/schedules/NOTHING/drop"),
        ("/v1/bulk/1/stop", "/v1/bulk/999/stop"),
    ] {
        let (foreign, nothing) = (api.act(foreign, &[OWN]).await, api.act(nothing, &[OWN]).await);
        assert_problem(&foreign, 404, "not-found");
        let named = |answer: &Answer| answer.body.replace("FOREIGN", "NOTHING").replace(char::is_numeric, "");
        assert_eq!(named(&foreign), named(&nothing));
    }
    for path in ["/v1/topics/FOREIGN.x/resume", "/v1/topics/nowhere/pause", "/v1/channels/webhook/pause"] {
        assert_problem(&api.act(path, &[OWN]).await, 403, "forbidden");
    }
    for filter in
        ["{}", r#"{"topic": "FOREIGN.x"}"#, r#"{"topic": "own.a", "topic": "FOREIGN.x"}"#, r#"{"recipient": "both"}"#]
    {
        for dry in [true, false] {
            let body = format!(r#"{{"action": "retry", "filter": {filter}, "dry_run": {dry}}}"#);
            assert_problem(&api.post("/v1/bulk", &[OWN], &body).await, 403, "forbidden");
        }
    }
    for (verb, fields, status) in [
        ("retry", "id=1", 404),
        ("cancel", "id=3", 404),
        ("pause_topic", "name=FOREIGN.x", 403),
        ("replay_events", "name=FOREIGN.x&since=2020-01-01", 403),
        ("close_circuit", "name=webhook", 403),
        ("pause_schedule", "name=FOREIGN", 404),
        ("stop_bulk", "id=3", 404),
    ] {
        assert_eq!(act(&api, verb, fields).await.status, status, "{verb}");
    }
    assert_eq!(api.client.count(audited).await, before, "nothing was done");
    for (path, status) in
        [("/v1/topics/own.a/resume", 204), ("/v1/schedules/mine/pause", 200), ("/v1/notifications/2/retry", 200)]
    {
        assert_eq!(api.act(path, &[OWN]).await.status, status, "{path}");
    }
    let own = r#"{"action": "retry", "filter": {"topic": "own.a"}, "dry_run": true}"#;
    assert_eq!(api.post("/v1/bulk", &[OWN], own).await.status, 200);
    assert_eq!(act(&api, "pause_topic", "name=own.a").await.status, 303);
}
