//! Tokens, scopes, sessions, browsers, and what a token without payloads sees.

use super::{Api, OPS, PAGE, SHOP, assert_problem};
use crate::support::http;
use crate::support::sql::Sql;

#[tokio::test]
async fn each_scope_may_do_what_it_is_for_and_nothing_else() {
    let api = Api::guarded().await;
    let draft = r#"{"topic": "order.paid", "recipient": "device-token-1", "payload": {}}"#;
    // path, method, then who may: nobody, page, shop, ops
    for (method, path, allowed) in [
        ("GET", "/v1/notifications", [401, 200, 403, 200]),
        ("GET", "/v1/notifications/999", [401, 404, 404, 404]),
        ("GET", "/v1/health", [401, 200, 403, 200]),
        ("GET", "/v1/audit", [401, 403, 403, 200]),
        ("GET", "/v1/bulk/999", [401, 404, 403, 404]),
        ("GET", "/openapi.json", [401, 200, 200, 200]),
        ("GET", "/metrics", [401, 200, 403, 200]),
        ("POST", "/v1/notifications", [401, 403, 201, 201]),
        ("POST", "/v1/notifications/999/retry", [401, 403, 403, 404]),
        ("POST", "/v1/topics/quiz/pause", [401, 403, 403, 204]),
        ("POST", "/v1/channels/webhook/pause", [401, 403, 403, 204]),
        ("POST", "/v1/schedules/daily/drop", [401, 403, 403, 404]),
        ("POST", "/v1/bulk", [401, 403, 403, 422]),
        ("POST", "/v1/bulk/999/stop", [401, 403, 403, 404]),
    ] {
        for (token, status) in [None, Some(PAGE), Some(SHOP), Some(OPS)].into_iter().zip(allowed) {
            let headers: Vec<&str> = token.into_iter().collect();
            let answer = match method {
                "GET" => api.get(path, &headers).await,
                _ => api.post(path, &headers, draft).await,
            };
            assert_eq!(answer.status, status, "{method} {path} {token:?}: {answer:?}");
        }
    }
}

#[tokio::test]
async fn a_writer_writes_and_asks_in_its_own_topics_alone() {
    let api = Api::guarded().await;
    let other = api.post("/v1/notifications", &[SHOP], r#"{"topic": "quiz", "recipient": "r", "payload": {}}"#).await;
    assert_problem(&other, 403, "forbidden");
    let mixed = r#"[{"topic": "order.a", "recipient": "r", "payload": {}}, {"topic": "quiz", "recipient": "r", "payload": {}}]"#;
    assert_problem(&api.post("/v1/notifications", &[SHOP], mixed).await, 403, "forbidden");
    assert_eq!(api.client.count("notification_log").await, 0);
    let own = api.post("/v1/notifications", &[SHOP], r#"{"topic": "order.a", "recipient": "r", "payload": {}}"#).await;
    let path = own.header("location").unwrap().to_owned();
    assert_eq!(api.get(&path, &[SHOP]).await.json()["topic"], "order.a");
    let quiz: i64 = api.client.value("SELECT outboxd.notify('quiz', 'r', '{}')").await;
    assert_problem(&api.get(&format!("/v1/notifications/{quiz}"), &[SHOP]).await, 404, "not-found");
}

#[tokio::test]
async fn an_action_is_audited_under_its_token_and_nobody_forges_that_in_sql() {
    let api = Api::guarded().await;
    assert_eq!(api.act("/v1/topics/quiz/pause", &[OPS]).await.status, 204);
    api.client.run("SET outboxd.token = 'ops'; SELECT outboxd.resume('quiz'); RESET outboxd.token").await;
    let login = format!("operator_{}", api.database.name);
    api.client.run(&format!("CREATE ROLE {login} LOGIN IN ROLE outboxd_operator")).await;
    let operator = crate::support::postgres::connect(&api.database.url_as(&login)).await;
    operator.run("SET outboxd.token = 'ops'; SELECT outboxd.pause('quiz')").await;
    let audit = "SELECT concat_ws(' ', action, subject, coalesce(token, '-'), (actor = session_user)::text) FROM outboxd.audit ORDER BY id";
    let wanted = ["pause quiz ops true", "resume quiz ops true", "pause quiz - false"];
    assert_eq!(api.client.values::<String>(audit).await, wanted, "the owner is believed, an operator is not");
    let shown = api.get("/v1/audit?limit=1", &[OPS]).await.json();
    assert_eq!((&shown["rows"][0]["actor"], &shown["rows"][0]["token"]), (&login.into(), &serde_json::Value::Null));
}

#[tokio::test]
async fn a_bulk_action_and_its_end_bear_the_name_of_the_token() {
    let api = Api::guarded().await;
    let written =
        "INSERT INTO outboxd.notification_log (topic, recipient, payload, status, finished_at, failed_at, error)
         SELECT 't', 'recipient-' || n, '{}', 'FAILED', now(), now(), 'no' FROM generate_series(1, 1200) n";
    api.client.run(written).await;
    let body = r#"{"action": "retry", "filter": {"topic": "t"}, "dry_run": false}"#;
    let started = api.post("/v1/bulk", &[OPS], body).await;
    let id = started.json()["bulk_id"].as_i64().unwrap_or_else(|| panic!("{started:?}"));
    crate::support::sql::until(&api.client, "SELECT ended_at IS NOT NULL FROM outboxd.bulk_actions").await;
    let shown = api.get(&format!("/v1/bulk/{id}"), &[PAGE]).await.json();
    assert_eq!((&shown["token"], &shown["done"]), (&"ops".into(), &1200.into()));
    let tokens = "SELECT string_agg(action || ' ' || token, ', ' ORDER BY id) FROM outboxd.audit";
    assert_eq!(api.client.value::<String>(tokens).await, "retry_where ops, bulk_retry_finished ops");
}

#[tokio::test]
async fn a_token_without_payloads_sees_masked_recipients_and_no_payload_anywhere() {
    let api = Api::guarded().await;
    let written =
        "INSERT INTO outboxd.notification_log (topic, recipient, payload, headers, status, finished_at, failed_at)
         VALUES ('t', '+821012345678', '{\"secret\": 1}', '{\"secret\": \"1\"}', 'FAILED', now(), now());
         INSERT INTO outboxd.attempt (notification_id, token, outcome, response) VALUES (1, 1, 'failed', 'secret +821012345678')";
    api.client.run(written).await;
    api.client.run(r#"SELECT outboxd.retry_where('{"recipient": "+821099999999"}', false)"#).await;
    for path in ["/v1/notifications/1", "/v1/notifications", "/v1/dead_letters", "/v1/attempts", "/v1/stuck"] {
        let (masked, whole) = (api.get(path, &[PAGE]).await, api.get(path, &[OPS]).await);
        assert_eq!((masked.status, whole.status), (200, 200), "{path}");
        assert!(!masked.body.contains("secret") && !masked.body.contains("1012345678"), "{path}: {masked:?}");
    }
    let (masked, whole) = (api.get("/v1/notifications/1", &[PAGE]).await, api.get("/v1/notifications/1", &[OPS]).await);
    assert_eq!((&masked.json()["recipient"], masked.json().get("payload")), (&"+8****78".into(), None));
    assert_eq!((&whole.json()["recipient"], &whole.json()["payload"]["secret"]), (&"+821012345678".into(), &1.into()));
    assert_eq!(whole.json()["attempt_history"][0]["response"], "secret +821012345678");
    let into = "/v1/notifications?q=%7B%22secret%22%3A1%7D";
    assert_problem(&api.get(into, &[PAGE]).await, 403, "forbidden");
    assert_eq!(super::ids(&api.get(into, &[OPS]).await), [1]);
}

#[tokio::test]
async fn a_login_makes_a_session_with_the_rights_of_its_token() {
    let api = Api::guarded().await;
    let form = ["Content-Type: application/x-www-form-urlencoded"];
    let html = [form[0], "Accept: text/html"];
    let wrong = http::post_bytes(api.addr, "/login", &form, b"token=wrong-wrong-wrong").await;
    assert_problem(&wrong, 401, "unauthorized");
    let unknown = http::post_bytes(api.addr, "/v1/notifications", &["Authorization: Bearer wrong-wrong"], b"{}").await;
    assert_problem(&unknown, 401, "unauthorized");
    assert!(unknown.body.contains("none that is configured here"), "{unknown:?}");
    let wrong = http::post_bytes(api.addr, "/login", &html, b"token=wrong-wrong-wrong").await;
    assert_eq!((wrong.status, wrong.header("location")), (303, Some("/login?failed")));
    let right = http::post_bytes(api.addr, "/login", &html, b"token=read-read-read-read").await;
    assert_eq!((right.status, right.header("location")), (303, Some("/")));
    let set = right.header("set-cookie").unwrap().to_owned();
    assert!(set.starts_with("outboxd=") && set.contains("HttpOnly") && set.contains("SameSite=Strict"), "{set}");
    assert!(!set.contains("Secure"), "plain HTTP on loopback: {set}");
    let cookie = format!("Cookie: {}", set.split(';').next().unwrap());
    assert_eq!(api.get("/v1/health", &[&cookie]).await.status, 200);
    let own = "Sec-Fetch-Site: same-origin";
    assert_problem(&api.act("/v1/topics/quiz/pause", &[&cookie, own]).await, 403, "forbidden");
    let host = "Host: ops.example";
    let secure = http::post_bytes(
        api.addr,
        "/login",
        &[form[0], host, "Origin: https://ops.example"],
        b"token=operate-operate-operate",
    )
    .await;
    let set = secure.header("set-cookie").unwrap().to_owned();
    assert!(secure.status == 204 && set.starts_with("__Host-outboxd=") && set.contains("Secure;"), "{set}");
    let cookie = format!("Cookie: {}", set.split(';').next().unwrap());
    for (more, status) in [
        (own, 204),
        ("Origin: https://ops.example", 204),
        ("Sec-Fetch-Site: same-site", 403),
        ("Origin: https://other.example", 403),
        ("X-Nothing: says where it comes from", 403),
    ] {
        let answer = api.act("/v1/topics/quiz/pause", &[&cookie, host, more]).await;
        assert_eq!(answer.status, status, "{more}: {answer:?}");
    }
    let out = http::post_bytes(api.addr, "/logout", &[&cookie, host, own], b"").await;
    assert!(out.header("set-cookie").unwrap().contains("Max-Age=0"), "{out:?}");
    // A stranger's page sends no cookie, and the answer must not take ours away.
    for path in ["/login", "/logout"] {
        for more in ["Sec-Fetch-Site: cross-site", "Origin: https://other.example"] {
            let stranger = http::post_bytes(api.addr, path, &[form[0], host, more], b"token=read-read-read-read").await;
            assert_problem(&stranger, 403, "cross-origin");
            assert_eq!(stranger.header("set-cookie"), None, "{path} {more}");
        }
    }
}

#[tokio::test]
async fn without_tokens_a_strangers_page_changes_nothing() {
    let api = Api::open().await;
    for (more, status) in [
        ("X-Is: no browser", 204),
        ("Sec-Fetch-Site: same-origin", 204),
        ("Sec-Fetch-Site: cross-site", 403),
        ("Origin: https://attacker.example", 403),
        ("Origin: null", 403),
    ] {
        assert_eq!(api.act("/v1/topics/quiz/pause", &[more]).await.status, status, "{more}");
    }
    let form = http::post_bytes(api.addr, "/v1/notifications", &["Content-Type: text/plain"], b"{}").await;
    assert_problem(&form, 415, "not-json");
    assert_problem(&api.act("/v1/topics/quiz/pause", &["Host: attacker.example"]).await, 421, "misdirected");
    assert_eq!(api.client.value::<String>("SELECT DISTINCT token FROM outboxd.audit").await, "local");
}
