//! Whatever is asked: no panic, and no 5xx for what a request says.

use std::net::SocketAddr;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Api, OPS, PAGE, SHOP};
use crate::support::{golden, http};

/// How many requests are made up; `OUTBOXD_TEST_REQUESTS` says otherwise.
const REQUESTS: usize = 600;

/// A connection that is kept as long as the server keeps it.
struct Connection {
    addr: SocketAddr,
    stream: Option<TcpStream>,
}

impl Connection {
    /// The status of the answer; `None`: the server closed without one, as it may on what is no HTTP.
    async fn ask(&mut self, request: &[u8]) -> Option<u16> {
        let mut answer = None;
        // What was kept may have been closed since.
        if self.stream.is_some() {
            answer = self.exchange(request).await;
        }
        if answer.is_none() {
            self.stream = Some(TcpStream::connect(self.addr).await.expect("somebody listens"));
            answer = self.exchange(request).await;
        }
        if answer.as_ref().is_none_or(|(_, is_kept)| !is_kept) {
            self.stream = None;
        }
        answer.map(|(status, _)| status)
    }

    async fn exchange(&mut self, request: &[u8]) -> Option<(u16, bool)> {
        let stream = self.stream.as_mut().expect("it is open");
        stream.write_all(request).await.ok()?;
        let mut seen = Vec::new();
        let mut buffer = vec![0; 64 << 10];
        loop {
            if let Some(end) = seen.windows(4).position(|window| window == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&seen[..end]).to_ascii_lowercase();
                let status = head.split(' ').nth(1)?.parse().ok()?;
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
                let is_head = request.starts_with(b"HEAD");
                let whole = end + 4 + if is_head || status == 204 { 0 } else { length.unwrap_or(0) };
                if seen.len() >= whole {
                    return Some((
                        status,
                        !head.contains("connection: close") && length.is_some() && seen.len() == whole,
                    ));
                }
            }
            let read = tokio::time::timeout(std::time::Duration::from_secs(20), stream.read(&mut buffer));
            let read = read.await.expect("an answer in time").ok().filter(|read| *read > 0)?;
            seen.extend_from_slice(&buffer[..read]);
        }
    }
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "[a-z0-9.*/%-]{1,12}",
        any::<String>(),
        Just("\0".to_owned()),
        Just("x".repeat(5000)),
        (-3i64..50).prop_map(|n| n.to_string()),
        Just(i64::MAX.to_string()),
        Just("9".repeat(40)),
        Just("2026-01-31T12:00:00Z".to_owned()),
        Just("+262142-12-31T23:59:59Z".to_owned()),
        prop::sample::select(vec!["SENT", "FAILED", "PENDING", "QUEUED", "PROCESSING", "CANCELED"])
            .prop_map(str::to_owned),
        Just("{\"a\":1}".to_owned()),
        Just("{\"a\":\"\\u0000\"}".to_owned()),
        Just("eyJpZCI6MSwidG9waWMiOiJcdTAwMDAiLCJhdCI6bnVsbH0".to_owned()),
        Just("eyJpZCI6LTkyMjMzNzIwMzY4NTQ3NzU4MDgsImF0IjoiKzI2MjE0Mi0xMi0zMVQyMzo1OTo1OVoifQ".to_owned()),
    ]
}

/// Percent-encoded where it must be, and now and then not even UTF-8.
fn encoded() -> impl Strategy<Value = String> {
    let encode = |text: String| {
        let byte = |byte: u8| match byte.is_ascii_alphanumeric() {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        };
        text.bytes().map(byte).collect::<String>()
    };
    prop_oneof![9 => word().prop_map(encode), 1 => Just("%FF%FE".to_owned()), 1 => Just("%".to_owned())]
}

fn path() -> impl Strategy<Value = String> {
    let views = outboxd::store::view::VIEWS.iter().map(|view| format!("/v1/{}", view.name));
    let fixed =
        ["/", "/login", "/logout", "/metrics", "/version", "/openapi.json", "/livez", "/v1", "/v1/bulk", "/v1/nothing"];
    let fixed: Vec<String> = fixed.into_iter().map(str::to_owned).chain(views).collect();
    prop_oneof![
        3 => prop::sample::select(fixed),
        4 => Just("/v1/notifications".to_owned()),
        2 => encoded().prop_map(|id| format!("/v1/notifications/{id}")),
        2 => (encoded(), prop::sample::select(vec!["retry", "cancel", "resend", "discard", "x"]))
            .prop_map(|(id, action)| format!("/v1/notifications/{id}/{action}")),
        1 => (encoded(), prop::sample::select(vec!["pause", "resume", "x"])).prop_map(|(name, action)| format!("/v1/topics/{name}/{action}")),
        1 => (encoded(), prop::sample::select(vec!["pause", "resume", "probe", "close_circuit"]))
            .prop_map(|(name, action)| format!("/v1/channels/{name}/{action}")),
        1 => (encoded(), prop::sample::select(vec!["pause", "resume", "drop", "x"]))
            .prop_map(|(name, action)| format!("/v1/schedules/{name}/{action}")),
        1 => encoded().prop_map(|id| format!("/v1/bulk/{id}")),
        1 => encoded().prop_map(|id| format!("/v1/bulk/{id}/stop")),
        1 => encoded().prop_map(|any| format!("/{any}")),
    ]
}

fn query() -> impl Strategy<Value = String> {
    let names = vec!["topic", "status", "recipient", "since", "until", "q", "limit", "cursor", "origin", "x"];
    let pair = (prop::sample::select(names), encoded()).prop_map(|(name, value)| format!("{name}={value}"));
    prop::collection::vec(pair, 0..4).prop_map(|pairs| pairs.join("&"))
}

fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("1e400".to_owned()),
        Just("-1e-99999".to_owned()),
        Just("1e999999999".to_owned()),
        Just("9".repeat(400)),
        Just("\"\\ud800\"".to_owned()),
        Just("\"\\u0000\"".to_owned()),
        Just(format!("{}{}", "[".repeat(20_000), "]".repeat(20_000))),
        Just(format!("{}1{}", "{\"a\":".repeat(5_000), "}".repeat(5_000))),
        word().prop_map(|text| serde_json::to_string(&text).unwrap()),
    ];
    let names = vec![
        "topic",
        "recipient",
        "payload",
        "send_at",
        "dedup_key",
        "ordering_key",
        "expires_at",
        "headers",
        "action",
        "filter",
        "dry_run",
        "since",
        "id_max",
        "http_status",
        "x",
    ];
    leaf.prop_recursive(3, 12, 6, move |inner| {
        let pair = (prop::sample::select(names.clone()), inner.clone())
            .prop_map(|(name, value)| format!("\"{name}\":{value}"));
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec(pair, 0..6).prop_map(|pairs| format!("{{{}}}", pairs.join(","))),
        ]
    })
}

/// Mostly what could be meant, with one thing or another in it that could not.
fn draft() -> impl Strategy<Value = String> {
    let value = || prop_oneof![6 => Just("\"order.a\"".to_owned()), 2 => word().prop_map(|text| serde_json::to_string(&text).unwrap()), 1 => json()];
    (value(), value(), json(), proptest::option::of(value()), proptest::option::of(json())).prop_map(
        |(topic, recipient, payload, key, headers)| {
            let key = key.map_or_else(String::new, |key| format!(",\"dedup_key\":{key}"));
            let headers = headers.map_or_else(String::new, |headers| format!(",\"headers\":{headers}"));
            format!("{{\"topic\":{topic},\"recipient\":{recipient},\"payload\":{payload}{key}{headers}}}")
        },
    )
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        2 => Just(Vec::new()),
        6 => draft().prop_map(String::into_bytes),
        1 => prop::collection::vec(draft(), 0..4).prop_map(|all| format!("[{}]", all.join(",")).into_bytes()),
        2 => json().prop_map(String::into_bytes),
        1 => json().prop_map(|filter| format!("{{\"action\":\"retry\",\"filter\":{filter}}}").into_bytes()),
        1 => prop::collection::vec(any::<u8>(), 0..200),
        1 => Just(b"token=\xff%00".to_vec()),
        1 => Just(vec![b' '; (1 << 20) + 1]),
    ]
}

fn headers() -> impl Strategy<Value = Vec<String>> {
    let some = vec![
        OPS.to_owned(),
        OPS.to_owned(),
        PAGE.to_owned(),
        SHOP.to_owned(),
        "Authorization: Bearer \u{ff}".to_owned(),
        "Cookie: outboxd=b3Bz.99999999999.AA; __Host-outboxd=..".to_owned(),
        "Idempotency-Key: a".to_owned(),
        "Idempotency-Key: ".to_owned(),
        "Content-Type: application/json".to_owned(),
        "Content-Type: application/x-www-form-urlencoded".to_owned(),
        "Origin: null".to_owned(),
        "Sec-Fetch-Site: cross-site".to_owned(),
        "Upgrade: websocket".to_owned(),
        "Accept: text/html".to_owned(),
        "Expect: 100-continue-not".to_owned(),
    ];
    (prop::collection::vec(prop::sample::select(some), 0..4), 0..4u8).prop_map(|(mut given, more)| {
        // Most requests are let in, or the rest would hardly be asked.
        if more > 0 && !given.iter().any(|line| line.starts_with("Authorization")) {
            given.push(OPS.to_owned());
        }
        if more > 1 && !given.iter().any(|line| line.starts_with("Content-Type")) {
            given.push("Content-Type: application/json".to_owned());
        }
        given
    })
}

fn request() -> impl Strategy<Value = Vec<u8>> {
    let methods = prop::sample::select(vec!["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "BREW"]);
    (proptest::option::weighted(0.2, methods), path(), query(), headers(), body()).prop_map(
        |(method, path, query, headers, body)| {
            // Mostly the one that the path takes.
            let acts = path.matches('/').count() > 3 || path == "/v1/bulk" || path.starts_with("/log");
            let posts = acts || (path == "/v1/notifications" && body.len() > 2);
            let method = method.unwrap_or(if posts { "POST" } else { "GET" });
            let query = if method == "POST" { String::new() } else { query };
            let mut bytes = format!("{method} {path}?{query} HTTP/1.1\r\nHost: localhost\r\n").into_bytes();
            for line in headers {
                bytes.extend(line.chars().map(|c| u8::try_from(c).unwrap_or(b'?')));
                bytes.extend(b"\r\n");
            }
            bytes.extend(format!("Content-Length: {}\r\n\r\n", body.len()).bytes());
            bytes.extend(body);
            bytes
        },
    )
}

#[tokio::test]
async fn whatever_is_asked_nothing_breaks() {
    let api = Api::guarded().await;
    let requests = std::env::var("OUTBOXD_TEST_REQUESTS").map_or(REQUESTS, |count| count.parse().expect("a number"));
    let mut runner = TestRunner::new(Config::default());
    let mut connection = Connection { addr: api.addr, stream: None };
    let mut statuses = std::collections::BTreeMap::<u16, usize>::new();
    let strategy = request();
    for _ in 0..requests {
        let bytes = strategy.new_tree(&mut runner).expect("a request").current();
        let status = connection.ask(&bytes).await;
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(3000)]);
        assert!(status.is_none_or(|status| status < 500), "{status:?} for\n{shown}");
        *statuses.entry(status.unwrap_or(0)).or_default() += 1;
    }
    println!("{requests} requests: {statuses:?}");
    assert!(statuses.contains_key(&204) && statuses.contains_key(&200), "some are taken: {statuses:?}");
    let good = api.post("/v1/notifications", &[OPS], r#"{"topic": "order.a", "recipient": "r", "payload": {}}"#).await;
    assert_eq!(good.status, 201, "{good:?}");
    assert_eq!(http::get(api.addr, "/livez", &[]).await.status, 200);
    let log = api.instance.log();
    assert!(!log.contains("panicked") && !log.contains("\"ERROR\""), "{log}");
}

#[test]
fn the_description_of_the_api_is_current() {
    golden::assert_is_current("docs/openapi.json", &outboxd::server::openapi());
}

#[test]
fn every_view_that_can_be_asked_for_is_named_in_the_apis_pages() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/api.md");
    let page = std::fs::read_to_string(page).unwrap();
    let described: serde_json::Value = serde_json::from_str(&outboxd::server::openapi()).unwrap();
    let named = described["paths"]["/v1/{view}"]["get"]["parameters"][0]["schema"]["enum"].as_array().unwrap();
    for view in outboxd::store::view::VIEWS {
        assert!(named.iter().any(|name| name == view.name), "the API's description does not name {}", view.name);
        assert!(page.contains(&format!("`{}`", view.name)), "docs/api.md does not name {}", view.name);
    }
}

#[test]
fn whatever_says_no_and_each_action_is_described() {
    let described: serde_json::Value = serde_json::from_str(&outboxd::server::openapi()).unwrap();
    let mut actions = 0;
    for (path, methods) in described["paths"].as_object().unwrap() {
        for operation in methods.as_object().unwrap().values() {
            let other = &operation["responses"]["default"]["content"]["application/problem+json"]["schema"]["$ref"];
            assert_eq!(other, "#/components/schemas/Problem", "{path}");
            let named =
                operation["parameters"].as_array().into_iter().flatten().find(|given| given["name"] == "action");
            actions += named.map_or(0, |action| action["schema"]["enum"].as_array().map_or(0, Vec::len));
        }
    }
    assert_eq!(actions, 13, "four on notifications, two on topics, four on channels, three on schedules");
}

#[tokio::test]
async fn what_the_description_rules_out_the_api_refuses() {
    let described: serde_json::Value = serde_json::from_str(&outboxd::server::openapi()).unwrap();
    let schemas = &described["components"]["schemas"];
    let payload = &schemas["Draft"]["properties"]["payload"]["type"];
    assert_eq!(*payload, serde_json::json!(["object", "array", "string", "number", "boolean"]));
    let topic = &schemas["TicketRequest"]["properties"]["topics"]["items"];
    assert_eq!((&topic["minLength"], &topic["maxLength"]), (&1.into(), &200.into()));
    let api = Api::guarded().await;
    for (path, body) in [
        ("/v1/notifications", r#"{"topic": "order.a", "recipient": "r", "payload": null}"#),
        ("/v1/live/tickets", r#"{"topics": ["order.a", ""]}"#),
        ("/v1/live/tickets", r#"{"topics": []}"#),
        ("/v1/live/tickets", r#"{"topics": ["order.a"], "key": ""}"#),
    ] {
        let answer = api.post(path, &[OPS], body).await;
        assert_eq!(answer.status, 422, "{body}: {answer:?}");
    }
}
