//! Views and actions: the same functions as in SQL, with statuses that say what happened.

use serde_json::json;

use super::{Api, OPS, assert_problem};
use crate::support::sql::Sql;

/// Ended notifications, which nothing touches: their ids.
async fn ended(api: &Api, status: &str, rows: i32) -> i64 {
    let failed_at = if status == "FAILED" { "now()" } else { "NULL" };
    let sql = format!(
        "INSERT INTO outboxd.notification_log (topic, recipient, payload, status, finished_at, failed_at, error)
         SELECT 't', 'recipient-' || n, '{{}}', '{status}', now(), {failed_at}, 'no' FROM generate_series(1, {rows}) n RETURNING id"
    );
    api.client.value(&format!("WITH new AS ({sql}) SELECT min(id) FROM new")).await
}

#[tokio::test]
async fn a_view_of_many_rows_is_read_page_by_page_each_row_once() {
    let api = Api::start(|setup| setup).await;
    let seed = "INSERT INTO outboxd.notification_log (topic, recipient, payload, send_at)
                SELECT 't' || n, 'r', '{}', now() + interval '1 day' FROM generate_series(1, 250) n;
                INSERT INTO outboxd.channel_state (channel, origin, held_until, reason, openings)
                SELECT 'hooks', 'https://' || n || '.example:443', now() + interval '1 h', 'failures', 1 FROM generate_series(1, 120) n;
                SELECT outboxd.pause('t' || n) FROM generate_series(1, 30) n";
    api.client.run(seed).await;
    for (view, names, least) in [
        ("queue_state", ["topic", "status"], 250),
        ("channel_health", ["channel", "origin"], 120),
        ("audit", ["id", "subject"], 30),
    ] {
        let mut seen = std::collections::BTreeSet::new();
        let (mut rows, mut cursor) = (0, String::new());
        loop {
            let page = api.get(&format!("/v1/{view}?limit=40{cursor}"), &[OPS]).await.json();
            let page_rows = page["rows"].as_array().unwrap();
            rows += page_rows.len();
            seen.extend(page_rows.iter().map(|row| format!("{} {}", row[names[0]], row[names[1]])));
            let Some(next) = page["next"].as_str() else { break };
            let next: String = url::form_urlencoded::byte_serialize(next.as_bytes()).collect();
            cursor = format!("&cursor={next}");
        }
        assert!(seen.len() >= least && seen.len() == rows, "{view}: {} of {rows}", seen.len());
    }
    for cursor in ["x", "%5B1%5D", "%5B%22x%22%5D"] {
        assert_problem(&api.get(&format!("/v1/audit?cursor={cursor}"), &[OPS]).await, 400, "bad-request");
    }
}

#[tokio::test]
async fn every_view_is_shown_and_bounded() {
    let api = Api::open().await;
    api.client.run("SELECT outboxd.notify('t', 'r', '{}', send_at => now() + interval '1 h')").await;
    ended(&api, "FAILED", 3).await;
    for view in outboxd::store::view::VIEWS {
        let answer = api.get(&format!("/v1/{}?limit=2", view.name), &[]).await;
        assert_eq!(answer.status, 200, "{}: {answer:?}", view.name);
        assert!(answer.json()["rows"].as_array().unwrap().len() <= 2, "{}: {answer:?}", view.name);
    }
    let dead = api.get("/v1/dead_letters?limit=2", &[]).await.json();
    assert_eq!((dead["rows"].as_array().unwrap().len(), &dead["rows"][0]["error"]), (2, &json!("no")));
    for limit in ["0", "1001", "-1", "x", "99999999999999999999"] {
        assert_problem(&api.get(&format!("/v1/health?limit={limit}"), &[]).await, 400, "bad-request");
    }
    assert_problem(&api.get("/v1/nothing", &[]).await, 404, "not-found");
    let shown = "SELECT string_agg(relname, ' ') FROM pg_class WHERE relnamespace = 'outboxd'::regnamespace AND relkind = 'v' AND left(relname, 1) <> '_'";
    for view in api.client.value::<String>(shown).await.split(' ').filter(|view| *view != "notifications") {
        assert!(outboxd::store::view::VIEWS.iter().any(|known| known.name == view), "{view} is not under /v1");
    }
}

#[tokio::test]
async fn actions_on_a_notification_say_what_happened_or_why_not() {
    let api = Api::open().await;
    api.client.run("SELECT outboxd.pause('t')").await;
    let (failed, sent) = (ended(&api, "FAILED", 2).await, ended(&api, "SENT", 1).await);
    let waiting: i64 = api.client.value("SELECT outboxd.notify('t', 'r', '{}')").await;
    let act = async |id: i64, action: &str| api.act(&format!("/v1/notifications/{id}/{action}"), &[]).await;
    let done = act(failed, "retry").await;
    assert_eq!((done.status, done.json()), (200, json!({"id": failed, "outcome": "queued"})), "{done:?}");
    assert_problem(&act(sent, "retry").await, 409, "conflict");
    let done = act(failed + 1, "discard").await;
    assert_eq!(done.json()["outcome"], "discarded", "{done:?}");
    assert_problem(&act(sent, "discard").await, 409, "conflict");
    let done = act(sent, "resend").await;
    assert!(done.json()["new_id"].as_i64().unwrap() > waiting, "{done:?}");
    assert_problem(&act(waiting, "resend").await, 409, "conflict");
    let done = act(waiting, "cancel").await;
    assert_eq!(done.json()["outcome"], "canceled", "{done:?}");
    assert_problem(&act(sent, "cancel").await, 409, "conflict");
    for action in ["retry", "cancel", "resend", "discard"] {
        assert_problem(&act(999, action).await, 404, "not-found");
    }
    assert_problem(&act(sent, "explode").await, 404, "not-found");
    assert_problem(&api.act("/v1/notifications/x/retry", &[]).await, 404, "not-found");
}

#[tokio::test]
async fn topics_and_channels_are_held_and_freed() {
    let api = Api::open().await;
    for path in ["/v1/topics/a%2Fb/pause", "/v1/channels/webhok/pause", "/v1/channels/webhok/probe"] {
        assert_problem(&api.act(path, &[]).await, 404, "not-found");
    }
    let traces = "SELECT (SELECT count(*) FROM outboxd.topic) + (SELECT count(*) FROM outboxd.channel_state)";
    assert_eq!(api.client.value::<i64>(traces).await, 0, "a slip of the pen leaves nothing");
    api.client.run("SELECT outboxd.notify('a/b', 'r', '{}', send_at => now() + interval '1 h')").await;
    for (path, count, wanted) in [
        (
            "/v1/topics/a%2Fb/pause",
            "SELECT count(*) FROM outboxd.topic WHERE name = 'a/b' AND paused_at IS NOT NULL",
            1,
        ),
        ("/v1/topics/a%2Fb/resume", "SELECT count(*) FROM outboxd.topic WHERE paused_at IS NOT NULL", 0),
        ("/v1/channels/webhook/pause", "SELECT count(*) FROM outboxd.channel_state WHERE paused_at IS NOT NULL", 1),
        ("/v1/channels/webhook/resume", "SELECT count(*) FROM outboxd.channel_state WHERE paused_at IS NOT NULL", 0),
    ] {
        let answer = api.act(path, &[]).await;
        assert_eq!(answer.status, 204, "{path}: {answer:?}");
        assert_eq!(api.client.value::<i64>(count).await, wanted, "{path}");
    }
    let held = "INSERT INTO outboxd.channel_state (channel, origin, held_until, reason)
                VALUES ('hook', '', now() + interval '1 h', 'failures'), ('hook', 'https://a.example', now() + interval '1 h', 'failures')";
    api.client.run(held).await;
    assert_eq!(api.act("/v1/channels/hook/probe", &[]).await.status, 204);
    assert_eq!(api.act("/v1/channels/hook/close_circuit?origin=https://a.example", &[]).await.status, 204);
    let left = "SELECT string_agg(concat_ws(' ', origin, reason, held_until <= now()), ',' ORDER BY origin) FROM outboxd.channel_state WHERE channel = 'hook'";
    assert_eq!(api.client.value::<String>(left).await, " failures t,https://a.example");
    assert_problem(&api.act("/v1/topics/t/stop", &[]).await, 404, "not-found");
    assert_problem(&api.act(&format!("/v1/topics/{}/pause", "x".repeat(201)), &[]).await, 422, "invalid");
}

#[tokio::test]
async fn schedules_are_paused_resumed_and_dropped_under_the_name_of_the_token() {
    let api = Api::guarded().await;
    let audience = "CREATE VIEW public.audience AS SELECT 'r' || n AS recipient, '{}'::jsonb AS payload FROM generate_series(1, 3) n;
                    GRANT SELECT ON public.audience TO outboxd_audience";
    api.client.run(audience).await;
    // Its slot is a day away and already prepared for.
    let create = "SELECT outboxd.create_schedule('daily/a', to_char(now() - interval '2 min', 'MI HH24 * * *'), 'UTC', 't', 'public.audience',
                  lead => '1 day')";
    api.client.run(create).await;
    api.client.until_count(1, "schedule_runs WHERE state = 'prepared'").await;
    let state = "SELECT state FROM outboxd.schedules";
    let paused = api.act("/v1/schedules/daily%2Fa/pause", &[OPS]).await;
    assert_eq!((paused.status, paused.json()), (200, json!({"canceled": 3})), "{paused:?}");
    assert_eq!(api.client.value::<String>(state).await, "paused");
    let resumed = api.act("/v1/schedules/daily%2Fa/resume", &[OPS]).await;
    assert_eq!((resumed.status, resumed.json()), (200, json!({"canceled": 0})), "{resumed:?}");
    assert_ne!(api.client.value::<String>(state).await, "paused");
    assert_problem(&api.act("/v1/schedules/daily%2Fa/explode", &[OPS]).await, 404, "not-found");
    assert_eq!(api.act("/v1/schedules/daily%2Fa/drop", &[OPS]).await.status, 200);
    assert_eq!(api.client.count("schedules").await, 0);
    for action in ["pause", "resume", "drop"] {
        assert_problem(&api.act(&format!("/v1/schedules/daily%2Fa/{action}"), &[OPS]).await, 404, "not-found");
    }
    let audit = "SELECT concat_ws(' ', action, subject, token) FROM outboxd.audit WHERE token IS NOT NULL ORDER BY id";
    let wanted = ["pause_schedule daily/a ops", "resume_schedule daily/a ops", "drop_schedule daily/a ops"];
    assert_eq!(api.client.values::<String>(audit).await, wanted);
}

#[tokio::test]
async fn a_dry_run_counts_exactly_what_the_run_with_its_id_max_changes() {
    let api = Api::open().await;
    api.client.run("SELECT outboxd.pause('t')").await;
    ended(&api, "FAILED", 5).await;
    let bulk = async |body: serde_json::Value| api.post("/v1/bulk", &[], &body.to_string()).await;
    let dry = bulk(json!({"action": "retry", "filter": {"topic": "t"}})).await.json();
    assert_eq!((&dry["matched"], &dry["done"], &dry["bulk_id"]), (&json!(5), &json!(0), &json!(null)), "{dry}");
    ended(&api, "FAILED", 3).await;
    let filter = json!({"topic": "t", "id_max": dry["id_max"]});
    let real = bulk(json!({"action": "retry", "filter": filter, "dry_run": false})).await.json();
    assert_eq!((&real["matched"], &real["done"]), (&json!(5), &json!(5)), "{real}");
    let cancel = json!({"action": "cancel", "filter": {"topic": "t", "id_max": 3}, "dry_run": false});
    assert_eq!(bulk(cancel).await.json()["done"], 3);
    assert_eq!(api.client.count("dead_letters").await, 3);
    let discard = |dry_run: bool| json!({"action": "discard", "filter": {"topic": "t"}, "dry_run": dry_run});
    let dry = bulk(discard(true)).await.json();
    assert_eq!((&dry["matched"], &dry["done"], dry["until"].is_string()), (&json!(3), &json!(0), true), "{dry}");
    assert_eq!(bulk(discard(false)).await.json()["done"], 3);
    assert_eq!(api.client.count("dead_letters").await, 0);
    for (body, status, name) in [
        (json!({"action": "retry", "filter": {"colour": "red"}}), 422, "invalid"),
        (json!({"action": "retry", "filter": []}), 422, "invalid"),
        (json!({"action": "retry", "filter": {"since": "soon"}}), 422, "invalid"),
        (json!({"action": "explode", "filter": {}}), 422, "invalid"),
        (json!({"filter": {}}), 422, "invalid"),
    ] {
        assert_problem(&bulk(body).await, status, name);
    }
    assert_problem(&api.act("/v1/bulk/999/stop", &[]).await, 404, "not-found");
}

#[tokio::test]
async fn a_pause_that_takes_too_long_for_a_request_changes_nothing_and_names_the_command() {
    let api = Api::guarded().await;
    let create = "CREATE VIEW public.audience AS SELECT 'r' AS recipient, '{}'::jsonb AS payload;
                  GRANT SELECT ON public.audience TO outboxd_audience;
                  SELECT outboxd.create_schedule('daily', '@yearly', 'UTC', 't', 'public.audience')";
    api.client.run(create).await;
    // As long as a million prepared rows would take, and longer.
    api.client.run("BEGIN; SELECT FROM outboxd.schedule FOR UPDATE").await;
    let answers = ["pause", "drop"].map(|action| format!("/v1/schedules/daily/{action}"));
    for (path, command) in answers.iter().zip(["outboxd schedule pause daily", "outboxd schedule drop daily"]) {
        let answer = api.act(path, &[OPS]).await;
        assert_problem(&answer, 409, "conflict");
        assert!(answer.body.contains("nothing was changed") && answer.body.contains(command), "{answer:?}");
    }
    api.client.run("COMMIT").await;
    assert_eq!(api.act(&answers[0], &[OPS]).await.status, 200);
    assert_eq!(api.client.count("audit WHERE action IN ('pause_schedule', 'drop_schedule')").await, 1);
}
