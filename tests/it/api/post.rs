//! `POST /v1/notifications`: what it writes, and an Idempotency-Key under repeats, races and rollbacks.

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::{Api, OPS, SHOP, assert_problem};
use crate::support::sql::Sql;
use crate::support::{http, wait};

const DRAFT: &str = r#"{"topic": "order.paid", "recipient": "device-1", "payload": {"n": 1}}"#;

#[tokio::test]
async fn one_notification_is_written_with_every_field_and_found_under_its_location() {
    let api = Api::open().await;
    let draft = r#"{"topic": "t", "recipient": "r", "payload": {"a": [1, 2.50, "é"]}, "send_at": "2030-01-31T12:00:00+09:00",
        "dedup_key": "d", "ordering_key": "o", "expires_at": "2031-01-01T00:00:00Z", "headers": {"x-a": "b"}}"#;
    let answer = api.post("/v1/notifications", &[], draft).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let id = answer.json()["id"].as_i64().unwrap();
    assert_eq!(answer.header("location"), Some(format!("/v1/notifications/{id}").as_str()));
    let row = "SELECT concat_ws(' ', topic, recipient, payload, send_at AT TIME ZONE 'UTC', dedup_key, ordering_key, expires_at AT TIME ZONE 'UTC', headers, status)
                 FROM outboxd.notification_log";
    let wanted = r#"t r {"a": [1, 2.50, "é"]} 2030-01-31 03:00:00 d o 2031-01-01 00:00:00 {"x-a": "b"} PENDING"#;
    assert_eq!(api.client.value::<String>(row).await, wanted);
    let shown = api.get(answer.header("location").unwrap(), &[]).await;
    assert!(shown.body.contains(r#""payload":{"a": [1, 2.50, "é"]}"#), "as it was written: {shown:?}");
    assert_eq!(api.post("/v1/notifications", &[], draft).await.json()["id"], id, "the dedup_key is taken");
}

#[tokio::test]
async fn an_array_is_one_transaction_and_its_ids_are_in_its_order() {
    let api = Api::open().await;
    let item = |topic: &str, n: i32| format!(r#"{{"topic": "{topic}", "recipient": "r{n}", "payload": {n}}}"#);
    let all = [item("a", 1), item("b", 2), item("a", 3), item("c", 4), item("b", 5)].join(",");
    let answer = api.post("/v1/notifications", &[], &format!("[{all}]")).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let mut found = Vec::new();
    for id in answer.json()["ids"].as_array().unwrap() {
        let row = format!("SELECT topic || ' ' || recipient FROM outboxd.notification_log WHERE id = {id}");
        found.push(api.client.value::<String>(&row).await);
    }
    assert_eq!(found, ["a r1", "b r2", "a r3", "c r4", "b r5"]);
    let broken = format!("[{}, {}]", item("a", 6), item("", 7));
    assert_problem(&api.post("/v1/notifications", &[], &broken).await, 422, "invalid");
    assert_problem(&api.post("/v1/notifications", &[], "[]").await, 422, "invalid");
    let many = vec![item("a", 8); 1001].join(",");
    assert_problem(&api.post("/v1/notifications", &[], &format!("[{many}]")).await, 422, "invalid");
    assert_eq!(api.client.count("notification_log").await, 5);
}

#[tokio::test]
async fn a_repeat_under_the_same_key_gets_the_first_answer_and_writes_nothing() {
    let api = Api::guarded().await;
    let key = "Idempotency-Key: order-4711";
    let many = format!("[{DRAFT}, {DRAFT}]");
    for (key, body) in [(key, DRAFT), ("Idempotency-Key: many", many.as_str())] {
        let first = api.post("/v1/notifications", &[SHOP, key], body).await;
        let again = api.post("/v1/notifications", &[SHOP, key], body).await;
        assert_eq!((first.status, again.status, &first.body), (201, 201, &again.body), "{first:?} {again:?}");
        assert_eq!(first.header("location"), again.header("location"));
        assert_eq!((first.header("idempotency-replayed"), again.header("idempotency-replayed")), (None, Some("true")));
    }
    assert_eq!(api.client.count("notification_log").await, 3);
    let other = DRAFT.replace("device-1", "device-2");
    assert_problem(&api.post("/v1/notifications", &[SHOP, key], &other).await, 422, "idempotency-key-reused");
    let others_key = api.post("/v1/notifications", &[OPS, key], &other).await;
    assert_eq!(others_key.status, 201, "keys are each token's own: {others_key:?}");
    for bad in ["Idempotency-Key: ", "Idempotency-Key: a b", &format!("Idempotency-Key: {}", "x".repeat(256))] {
        assert_problem(&api.post("/v1/notifications", &[SHOP, bad], DRAFT).await, 400, "bad-request");
    }
}

#[tokio::test]
async fn what_was_refused_leaves_its_key_free() {
    let api = Api::open().await;
    let key = "Idempotency-Key: k";
    let bad = DRAFT.replace("order.paid", "");
    assert_problem(&api.post("/v1/notifications", &[key], &bad).await, 422, "invalid");
    assert_eq!(api.post("/v1/notifications", &[key], DRAFT).await.status, 201);
}

#[tokio::test]
async fn a_field_that_does_not_fit_is_named_with_what_it_takes() {
    let api = Api::open().await;
    for (body, said) in [
        (
            r#"{"topic": "t", "recipient": "r", "payload": {}, "send_at": "tomorrow"}"#,
            r#"send_at does not fit: "tomorrow" is no time such as "2030-01-01T09:00:00+09:00""#,
        ),
        (
            r#"{"topic": "t", "recipient": 42, "payload": {}}"#,
            "recipient does not fit: invalid type: integer `42`, expected a string",
        ),
        (r#"[{"topic": "t", "recipient": "r", "payload": {}}, {"topic": 1}]"#, "[1].topic does not fit"),
        (r#"{"topic": "t", "recipient": "r"}"#, "the body does not fit: missing field `payload`"),
        (r#"{"topic": "t", "recipient": "r", "payload": null}"#, "payload must not be null"),
        (r#"[{"topic": "t", "recipient": "r", "payload": null}]"#, "payload must not be null"),
    ] {
        let answer = api.post("/v1/notifications", &[], body).await;
        assert_problem(&answer, 422, "invalid");
        let problem = answer.json();
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.starts_with(said), "{body}: {detail}");
    }
    let good =
        DRAFT.strip_suffix('}').unwrap().to_owned() + r#", "send_at": null, "expires_at": "2030-01-01T00:00:00Z"}"#;
    assert_eq!(api.post("/v1/notifications", &[], &good).await.status, 201);
}

#[tokio::test]
async fn a_repeat_while_the_first_is_under_way_is_told_so() {
    let api = Api::open().await;
    // The first waits for a dedup_key that another transaction is writing.
    api.client.run("BEGIN; SELECT outboxd.notify('order.paid', 'r', '{}', dedup_key => 'd')").await;
    let body = r#"{"topic": "order.paid", "recipient": "r", "payload": {}, "dedup_key": "d"}"#;
    let addr = api.addr;
    let post = move || http::post(addr, "/v1/notifications", &["Idempotency-Key: k"], body);
    let first = tokio::spawn(post());
    let watcher = api.database.connect().await;
    let waits = "SELECT count(*) = 1 FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT l.granted AND a.datname = current_database()";
    crate::support::sql::until(&watcher, waits).await;
    let second = post().await;
    assert_problem(&second, 409, "idempotency-key-under-way");
    assert_eq!(second.header("retry-after"), Some("1"));
    api.client.run("COMMIT").await;
    let first = first.await.unwrap();
    assert_eq!((first.status, &first.json()["id"]), (201, &1.into()), "{first:?}");
    assert_eq!(post().await.header("idempotency-replayed"), Some("true"));
}

#[tokio::test]
async fn of_many_at_once_under_one_key_one_writes() {
    let api = Api::open().await;
    let addr = api.addr;
    let posts = (0..40).map(|_| tokio::spawn(http::post(addr, "/v1/notifications", &["Idempotency-Key: k"], DRAFT)));
    let mut bodies = std::collections::BTreeSet::new();
    for post in posts.collect::<Vec<_>>() {
        let answer = post.await.unwrap();
        match answer.status {
            201 => drop(bodies.insert(answer.body)),
            _ => assert_problem(&answer, 409, "idempotency-key-under-way"),
        }
    }
    assert_eq!(bodies.len(), 1);
    assert_eq!(api.client.count("notification_log").await, 1);
}

#[tokio::test]
async fn more_requests_than_there_is_room_for_are_told_to_come_again() {
    let api = Api::open().await;
    let addr = api.addr;
    // Everybody waits for a dedup_key that another transaction is writing.
    api.client.run("BEGIN; SELECT outboxd.notify('order.paid', 'r', '{}', dedup_key => 'd')").await;
    let body = r#"{"topic": "order.paid", "recipient": "r", "payload": {}, "dedup_key": "d"}"#;
    let mut posts: tokio::task::JoinSet<_> =
        (0..140).map(|_| http::post(addr, "/v1/notifications", &[], body)).collect();
    for _ in 0..140 - 128 {
        let answer = posts.join_next().await.unwrap().unwrap();
        assert_problem(&answer, 503, "overloaded");
        assert_eq!(answer.header("retry-after"), Some("1"));
    }
    api.client.run("COMMIT").await;
    for answer in posts.join_all().await {
        assert_eq!(answer.status, 201, "{answer:?}");
    }
}

#[tokio::test]
async fn a_token_whose_bodies_crawl_leaves_requests_to_the_others() {
    let api = Api::guarded().await;
    let head = format!(
        "POST /v1/notifications HTTP/1.1\r\nHost: localhost\r\n{SHOP}\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{{"
    );
    let (crowded, other) = wait::until_ok("the token has its share", async || {
        let mut crawling = Vec::new();
        for _ in 0..120 {
            let mut connection = TcpStream::connect(api.addr).await.unwrap();
            connection.write_all(head.as_bytes()).await.unwrap();
            crawling.push(connection);
        }
        let crowded = api.post("/v1/notifications", &[SHOP], DRAFT).await;
        let other = api.post("/v1/notifications", &[OPS], DRAFT).await;
        if crowded.status == 503 { Ok((crowded, other.status)) } else { Err(crowded.status) }
    })
    .await;
    assert!(crowded.body.contains("96 requests of this token"), "{crowded:?}");
    assert_eq!(other, 201);
}

#[tokio::test]
async fn a_body_that_does_not_come_is_the_callers_fault() {
    let api = Api::open().await;
    let head =
        "POST /v1/notifications HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n";
    let answer = http::send(api.addr, format!("{head}Content-Length: 10\r\n\r\n{{").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("urn:outboxd:problem:timeout"), "{answer}");
}

#[tokio::test]
async fn without_postgres_callers_are_told_to_come_again() {
    use crate::support::proxy::{Fault, Proxy};
    let database = crate::support::postgres::database().await;
    let proxy = Proxy::start(database.port).await;
    let setup = crate::support::instance::Setup::new(&database.url_at(proxy.port())).webhook("http://127.0.0.1:9/");
    let mut instance = setup.start().await;
    let addr = instance.http_addr().await;
    assert_eq!(http::post(addr, "/v1/notifications", &[], DRAFT).await.status, 201);
    proxy.set(Fault::Reset);
    let answer = wait::until_ok("it is refused", async || {
        let answer = http::post(addr, "/v1/notifications", &[], DRAFT).await;
        if answer.status == 201 { Err(answer) } else { Ok(answer) }
    })
    .await;
    assert_problem(&answer, 503, "unavailable");
    assert_eq!(answer.header("retry-after"), Some("1"));
    proxy.heal();
    let topics = "SELECT DISTINCT topic FROM outboxd.notification_log";
    assert_eq!(database.connect().await.values::<String>(topics).await, ["order.paid"]);
}

#[tokio::test]
async fn a_stranger_who_holds_the_lock_of_an_idempotency_key_delays_no_request() {
    let api = Api::guarded().await;
    let stranger = api.database.connect_as_stranger().await;
    stranger.run("SELECT pg_advisory_lock(hashtextextended('outboxd shop order-4711', 0))").await;
    let key = "Idempotency-Key: order-4711";
    let (first, again) = (
        api.post("/v1/notifications", &[SHOP, key], DRAFT).await,
        api.post("/v1/notifications", &[SHOP, key], DRAFT).await,
    );
    assert_eq!((first.status, again.status, &first.body), (201, 201, &again.body), "{first:?} {again:?}");
    // Not even of many at once is more than one written.
    let key = "Idempotency-Key: order-4712";
    stranger.run("SELECT pg_advisory_lock(hashtextextended('outboxd shop order-4712', 0))").await;
    let headers = [SHOP, key];
    let many = futures_util::future::join_all((0..8).map(|_| api.post("/v1/notifications", &headers, DRAFT))).await;
    assert!(many.iter().all(|answer| [201, 409].contains(&answer.status)), "{many:?}");
    assert_eq!(api.client.count("notification_log").await, 2);
}
