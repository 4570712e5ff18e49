//! Who may listen to what: tokens, tickets, pages.

use std::time::Duration;

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::support::http::{Answer, post, post_bytes};
use crate::support::sql::Sql;
use crate::support::wait;

use super::Scene;
use super::client::{Client, positions};

const SHOP: &str = "shop-token-0123456789";
const VIEWER: &str = "viewer-token-0123456789";
const AUDITOR: &str = "auditor-token-0123456789";

const TOKENS: &str = r#"
[tokens.shop]
token = "shop-token-0123456789"
scope = "write"
topics = ["order", "quiz.*"]
[tokens.viewer]
token = "viewer-token-0123456789"
scope = "read"
[tokens.auditor]
token = "auditor-token-0123456789"
scope = "read"
payloads = true
[live]
allowed_origins = ["https://shop.example"]
"#;

async fn guarded() -> Scene {
    Scene::with(|world| world.toml(TOKENS)).await
}

async fn ask_ticket(scene: &Scene, token: &str, body: &Value) -> Answer {
    post(scene.addr, "/v1/live/tickets", &[&format!("Authorization: Bearer {token}")], &body.to_string()).await
}

async fn ticket(scene: &Scene, body: &Value) -> String {
    let answer = ask_ticket(scene, SHOP, body).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.json()["ticket"].as_str().expect("a ticket").to_owned()
}

#[tokio::test]
async fn a_ticket_limits_its_client_to_its_topics_and_its_key() {
    let scene = guarded().await;
    let other = scene.world.setup.start().await;
    let given = ticket(&scene, &json!({ "topics": ["order"], "key": "k1" })).await;
    let mut client = scene.connect(&format!("topic=order&ticket={given}")).await;
    client.ready().await;
    scene.publish_many("order", 6).await;
    let events = client.events(2).await;
    assert!(events.iter().all(|event| event["key"] == "k1"), "{events:?}");
    assert_eq!(positions(&events), [2, 5]);
    let mut same = scene.connect(&format!("topic=order&key=k1&after=2&ticket={given}")).await;
    assert_eq!(positions(&same.events(1).await), [5]);
    for query in ["topic=order&key=k2", "topic=quiz.x", "topic=order&topic=quiz.x"] {
        let refused = scene.refused(&format!("{query}&ticket={given}"), &[]).await;
        assert_eq!(refused.status, 403, "{query}: {refused:?}");
    }
    let mut other = other;
    let elsewhere = other.http_addr().await;
    let query = format!("topic=order&after=4&ticket={given}");
    let mut there = Client::connect(elsewhere, &query, &[]).await.expect("every instance takes it");
    assert_eq!(positions(&there.events(1).await), [5]);
}

#[tokio::test]
async fn a_page_presents_its_ticket_as_a_subprotocol_from_any_origin() {
    let scene = guarded().await;
    let given = ticket(&scene, &json!({ "topics": ["order"] })).await;
    let offered = format!("outboxd.v1, ticket.{given}");
    let headers = [("Origin", "https://anywhere.example"), ("Sec-WebSocket-Protocol", offered.as_str())];
    let mut client = Client::connect(scene.addr, "topic=order", &headers).await.expect("it is let in");
    assert_eq!(client.protocol.as_deref(), Some("outboxd.v1"));
    client.ready().await;
}

#[tokio::test]
async fn a_forged_or_expired_ticket_opens_nothing_and_an_open_session_ends_with_it() {
    let scene = guarded().await;
    let given = ticket(&scene, &json!({ "topics": ["order"], "ttl": 2 })).await;
    let mut client = scene.connect(&format!("topic=order&ticket={given}")).await;
    client.ready().await;
    let (code, reason, _) = client.closed().await;
    assert_eq!(code, 4401, "{reason}");
    let (said, signature) = given.split_once('.').unwrap();
    let more = format!("{said}A.{signature}");
    for wrong in [given.as_str(), "", "x", "a.b", said, &more, "eyJ9.AAAA"] {
        let refused = scene.refused(&format!("topic=order&ticket={wrong}"), &[]).await;
        assert_eq!(refused.status, 401, "{wrong}: {refused:?}");
    }
    let both = scene.refused("topic=order&ticket=x", &[("Authorization", &format!("Bearer {SHOP}"))]).await;
    assert_eq!(both.status, 401, "a wrong ticket is not saved by a token");
}

#[tokio::test]
async fn a_token_listens_where_it_may_and_nobody_without_one() {
    let scene = guarded().await;
    let bearer = |token: &str| format!("Bearer {token}");
    let connect = async |token: &str, query: &str| {
        let refused = Client::connect(scene.addr, query, &[("Authorization", &bearer(token))]).await.err();
        refused.map_or(101, |refused| refused.status)
    };
    assert_eq!(connect(SHOP, "topic=order").await, 101);
    assert_eq!(connect(SHOP, "topic=quiz.daily").await, 101);
    assert_eq!(connect(SHOP, "topic=secret").await, 403);
    assert_eq!(connect(AUDITOR, "topic=secret").await, 101);
    assert_eq!(connect(VIEWER, "topic=order").await, 403, "it may not see payloads");
    assert_eq!(connect("wrong", "topic=order").await, 401);
    assert_eq!(scene.refused("topic=order", &[]).await.status, 401);
}

#[tokio::test]
async fn a_strangers_page_is_refused_without_a_ticket() {
    let scene = guarded().await;
    let bearer = format!("Bearer {SHOP}");
    let own = format!("http://{}", scene.addr);
    for (origin, status) in [
        (own.as_str(), 101),
        ("https://shop.example", 101),
        ("https://attacker.example", 403),
        ("http://127.0.0.1:1", 403),
        ("null", 403),
    ] {
        let headers = [("Authorization", bearer.as_str()), ("Origin", origin)];
        let refused = Client::connect(scene.addr, "topic=order", &headers).await.err();
        assert_eq!(refused.map_or(101, |refused| refused.status), status, "{origin}");
    }
    let open = Scene::new().await;
    assert_eq!(open.refused("topic=order", &[("Origin", "https://attacker.example")]).await.status, 403);
    assert_eq!(open.refused("topic=order", &[("Host", "attacker.example")]).await.status, 421);
}

#[tokio::test]
async fn tickets_are_for_those_who_may_write_and_for_what_they_may() {
    let scene = guarded().await;
    for (token, body, status) in [
        (VIEWER, json!({ "topics": ["order"] }), 403),
        ("wrong", json!({ "topics": ["order"] }), 401),
        (SHOP, json!({ "topics": ["secret"] }), 403),
        (SHOP, json!({ "topics": ["order", "quiz.a"], "ttl": 86400 }), 201),
        (SHOP, json!({ "topics": [] }), 422),
        (SHOP, json!({ "topics": ["order"], "ttl": 0 }), 422),
        (SHOP, json!({ "topics": ["order"], "ttl": 86401 }), 422),
        (SHOP, json!({ "topics": ["order"], "key": "" }), 422),
        (SHOP, json!({ "topics": ["order"], "kee": "k" }), 422),
        (SHOP, json!({ "topics": [""] }), 422),
        (SHOP, json!("order"), 422),
    ] {
        let answer = ask_ticket(&scene, token, &body).await;
        assert_eq!(answer.status, status, "{token} {body}: {answer:?}");
        if status == 201 {
            assert!(answer.json()["expires_at"].as_str().unwrap().ends_with('Z'), "{answer:?}");
        }
    }
}

#[tokio::test]
async fn a_ticket_and_a_token_have_only_so_many_sessions_and_the_next_is_told_why() {
    let scene = Scene::with(|world| world.toml(TOKENS).set("live.sessions_max", 60)).await;
    let body = json!({ "topics": ["order"] });
    let (first, second) =
        (ticket(&scene, &body).await, ticket(&scene, &json!({ "topics": ["order", "quiz.a"] })).await);
    let bearer = format!("Bearer {SHOP}");
    let headers = [("Authorization", bearer.as_str())];
    let addr = scene.addr;
    let query = format!("topic=order&ticket={first}");
    let by_ticket = async || Client::connect(addr, &query, &[]).await.expect("it is let in");
    let by_token = async || Client::connect(addr, "topic=order", &headers).await.expect("it is let in");
    let mut sessions = Vec::new();
    for _ in 0..16 {
        let mut session = by_ticket().await;
        session.ready().await;
        sessions.push(session);
    }
    for _ in 0..30 {
        let mut session = by_token().await;
        session.ready().await;
        sessions.push(session);
    }
    for mut refused in [by_ticket().await, by_token().await] {
        let (code, reason, messages) = refused.closed().await;
        assert_eq!((code, messages), (4429, 0), "{reason}");
        assert!(reason.contains("as many sessions as it may"), "{reason}");
    }
    scene.connect(&format!("topic=order&ticket={second}")).await.ready().await;
    // Who leaves makes room.
    let mut left = sessions.swap_remove(0);
    left.send(Message::Close(None)).await.expect("it is sent");
    wait::until("its place is free", async || by_ticket().await.is_served().await).await;
}

/// A session of the dashboard: its cookie, and the origin that it comes from.
async fn logged_in(scene: &Scene) -> (String, String) {
    let form = ["Content-Type: application/x-www-form-urlencoded"];
    let login = post_bytes(scene.addr, "/login", &form, format!("token={AUDITOR}").as_bytes()).await;
    let cookie = login.header("set-cookie").expect("a cookie").split(';').next().unwrap().to_owned();
    (cookie, format!("http://{}", scene.addr))
}

async fn log_out(scene: &Scene, cookie: &str, origin: &str) {
    let headers = [format!("Cookie: {cookie}"), format!("Origin: {origin}")];
    let out = post_bytes(scene.addr, "/logout", &[&headers[0], &headers[1]], b"").await;
    assert_eq!(out.status, 204, "{out:?}");
}

#[tokio::test]
async fn a_logout_ends_what_was_opened_by_its_session() {
    let scene = guarded().await;
    let (cookie, origin) = logged_in(&scene).await;
    let headers = [("Cookie", cookie.as_str()), ("Origin", origin.as_str())];
    let mut ours = Client::connect(scene.addr, "topic=order", &headers).await.expect("it is let in");
    ours.ready().await;
    log_out(&scene, &cookie, &origin).await;
    let (code, reason, _) = ours.closed().await;
    assert_eq!(code, 4401, "{reason}");
}

#[tokio::test]
async fn a_logout_ends_a_session_whose_topic_is_never_silent() {
    let scene = Scene::with(|mut world| {
        // Nothing but the logout makes it look up.
        world.setup = world.setup.toml(TOKENS).set("live.heartbeat", "1h");
        world
    })
    .await;
    let (cookie, origin) = logged_in(&scene).await;
    let headers = [("Cookie", cookie.as_str()), ("Origin", origin.as_str())];
    let mut ours = Client::connect(scene.addr, "topic=order", &headers).await.expect("it is let in");
    ours.ready().await;
    log_out(&scene, &cookie, &origin).await;
    let busy = async {
        loop {
            scene.publish("order", "k", "{}").await;
        }
    };
    let (code, reason, messages) = tokio::select! {
        closed = tokio::time::timeout(Duration::from_secs(15), ours.closed()) => closed.expect("within seconds"),
        () = busy => unreachable!("it goes on"),
    };
    assert_eq!(code, 4401, "{reason}");
    assert!(messages > 10, "it was never silent: {messages}");
}

#[tokio::test]
async fn a_ticket_that_is_over_ends_a_session_that_is_still_being_sent_what_it_lacks() {
    let mut scene = guarded().await;
    // More than the kernel's buffers hold, for a client that reads nothing.
    let large = "SELECT outboxd.publish('order', 'k', to_jsonb(repeat('x', 200000))) FROM generate_series(1, 100)";
    scene.world.run(large).await;
    scene.appended().await;
    let given = ticket(&scene, &json!({ "topics": ["order"], "ttl": 3 })).await;
    let _client = scene.connect(&format!("topic=order&after=0&ticket={given}")).await;
    let scrape = format!("Authorization: Bearer {VIEWER}");
    let mut closed = async |reason: &str| {
        scene.instance.metric_with("outboxd_live_closed_total", &[("reason", reason)], &[&scrape]).await > 0.0
    };
    let ends = wait::until_ok("it ends", async || {
        for reason in ["expired", "slow", "gone"] {
            if closed(reason).await {
                return Ok(reason);
            }
        }
        Err("not yet")
    })
    .await;
    assert_eq!(ends, "expired");
}
