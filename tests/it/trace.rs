//! Spans of calls, at a real collector: an HTTP server that writes down what arrives.

use std::time::Duration;

use serde_json::Value;

use crate::support::instance::Setup;
use crate::support::postgres::{self, Database};
use crate::support::prometheus::Scrape;
use crate::support::provider::{Provider, Reply};
use crate::support::{http, sql, tls};

const SOON: Duration = Duration::from_secs(20);
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const APP_SPAN: &str = "b7ad6b7169203331";

/// A provider, a collector, and an instance between them that drains into the latter.
struct Scene {
    database: Database,
    provider: Provider,
    collector: Provider,
}

impl Scene {
    async fn new() -> Scene {
        Scene { database: postgres::database().await, provider: Provider::start(), collector: Provider::start() }
    }

    /// Without a collector.
    fn untraced(&self) -> Setup {
        Setup::new(&self.database.url()).webhook(&self.provider.url("/hook"))
    }

    /// With the collector, and more of its section.
    fn traced(&self, more: &str) -> Setup {
        self.untraced().toml(&format!("[telemetry]\notlp_endpoint = \"{}\"\n{more}", self.collector.url("")))
    }

    async fn notify(&self, recipient: &str, headers: &str) {
        let app = self.database.connect().await;
        let statement =
            format!("SELECT outboxd.notify('orders', '{recipient}', '{{\"text\": \"hush\"}}', headers => {headers})");
        sql::run(&app, &statement).await;
    }

    async fn all_sent(&self) {
        let app = self.database.connect().await;
        sql::until(&app, "SELECT bool_and(status = 'SENT') FROM outboxd.notifications").await;
    }

    /// Every span that has arrived.
    fn spans(&self) -> Vec<Span> {
        self.collector.ledger().iter().flat_map(|call| spans(&call.json())).collect()
    }

    fn calls(&self) -> Vec<Span> {
        self.spans().into_iter().filter(|span| span.0["name"] == "send webhook").collect()
    }
}

fn headers(flags: &str) -> String {
    format!("'{{\"traceparent\": \"00-{TRACE}-{APP_SPAN}-{flags}\", \"tracestate\": \"vendor=1\"}}'")
}

#[derive(Debug, PartialEq)]
struct Span(Value);

fn spans(request: &Value) -> Vec<Span> {
    request["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().iter().cloned().map(Span).collect()
}

impl Span {
    fn text(&self, field: &str) -> &str {
        self.0[field].as_str().unwrap_or_default()
    }

    fn attribute(&self, key: &str) -> Option<&str> {
        let attribute = self.0["attributes"].as_array()?.iter().find(|attribute| attribute["key"] == key)?;
        attribute["value"].as_object()?.values().next()?.as_str()
    }

    /// Start and end, nanoseconds since 1970.
    fn times(&self) -> (u128, u128) {
        let nanos = |field: &str| self.text(field).parse().unwrap();
        (nanos("startTimeUnixNano"), nanos("endTimeUnixNano"))
    }
}

#[tokio::test]
async fn a_traceparent_goes_from_the_sql_row_by_way_of_our_span_to_the_provider() {
    let scene = Scene::new().await;
    let setup = scene.traced("otlp_headers = [\"authorization=Bearer c0llector\"]\notlp_sample_ratio = 0.0\n");
    let instance = setup.start().await;
    scene.notify("device-1", &headers("01")).await;
    scene.all_sent().await;
    // The drain brings the spans at once, whatever the time between exports.
    assert_eq!(instance.drain().await, 0);

    let (calls, all) = (scene.calls(), scene.spans());
    assert_eq!((calls.len(), all.len()), (1, 2), "{all:?}");
    let call = &calls[0];
    assert_eq!((call.text("traceId"), call.text("parentSpanId")), (TRACE, APP_SPAN));
    let seen = scene.provider.ledger()[0].clone();
    assert_eq!(seen.header("traceparent"), Some(format!("00-{TRACE}-{}-01", call.text("spanId")).as_str()));
    assert_eq!(seen.header("tracestate"), Some("vendor=1"));
    let id = crate::support::verdict::notification_id(&seen.webhook_id).to_string();
    for (key, wanted) in [
        ("outboxd.notification.id", Some(id.as_str())),
        ("outboxd.topic", Some("orders")),
        ("outboxd.channel", Some("webhook")),
        ("outboxd.attempt", Some("1")),
        ("outboxd.outcome", Some("sent")),
        ("http.response.status_code", Some("200")),
        ("error.type", None),
    ] {
        assert_eq!(call.attribute(key), wanted, "{key}");
    }
    assert_eq!((call.0["kind"].as_u64(), &call.0["status"]), (Some(3), &serde_json::json!({})));
    let queued = all.iter().find(|span| span.text("name") == "queued").unwrap();
    assert_eq!((queued.text("traceId"), queued.text("parentSpanId")), (TRACE, APP_SPAN));
    assert_ne!(queued.text("spanId"), call.text("spanId"));
    assert!(queued.times().0 <= queued.times().1 && queued.times().1 == call.times().0, "{all:?}");
    assert!(call.times().0 < call.times().1, "{all:?}");

    let request = &scene.collector.ledger()[0];
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/v1/traces"));
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert_eq!(request.header("authorization"), Some("Bearer c0llector"));
    let resource = request.json()["resourceSpans"][0]["resource"].clone();
    assert_eq!(Span(resource).attribute("service.name"), Some("outboxd"));
    let body = String::from_utf8(request.body.clone()).unwrap();
    for secret in ["device-1", "hush", "c0llector", "vendor=1", "/hook"] {
        assert!(!body.contains(secret), "{secret}: {body}");
    }
}

#[tokio::test]
async fn attempts_of_a_row_without_a_traceparent_share_a_trace_of_their_own() {
    let scene = Scene::new().await;
    scene.provider.script([Reply::status(503), Reply::close()]);
    let instance = scene.traced("service_name = \"shop\"\n").start().await;
    scene.notify("r", "NULL").await;
    scene.all_sent().await;
    assert_eq!(instance.drain().await, 0);

    let calls = scene.calls();
    let facts: Vec<_> = calls
        .iter()
        .map(|call| {
            let [attempt, outcome, error] =
                ["outboxd.attempt", "outboxd.outcome", "error.type"].map(|key| call.attribute(key));
            (attempt.unwrap(), outcome.unwrap(), error, call.0["status"]["code"].as_u64())
        })
        .collect();
    assert_eq!(
        facts,
        [
            ("1", "transient", Some("503"), Some(2)),
            ("2", "unknown", Some("no answer"), Some(2)),
            ("3", "sent", None, None)
        ]
    );
    let seen: Vec<String> =
        scene.provider.ledger().iter().map(|call| call.header("traceparent").unwrap().to_owned()).collect();
    let wanted: Vec<String> =
        calls.iter().map(|call| format!("00-{}-{}-01", calls[0].text("traceId"), call.text("spanId"))).collect();
    assert_eq!(seen, wanted);
    assert!(calls.iter().all(|call| call.0.get("parentSpanId").is_none()), "{calls:?}");
    let resource = scene.collector.ledger()[0].json()["resourceSpans"][0]["resource"].clone();
    assert_eq!(Span(resource).attribute("service.name"), Some("shop"));
}

#[tokio::test]
async fn what_is_not_sampled_is_not_exported_and_its_traceparent_goes_out_as_it_came() {
    let scene = Scene::new().await;
    let instance = scene.traced("otlp_sample_ratio = 0.0\n").start().await;
    scene.notify("unsampled", &headers("00")).await;
    scene.notify("without", "NULL").await;
    scene.notify("sampled", &headers("01")).await;
    scene.all_sent().await;
    assert_eq!(instance.drain().await, 0);
    assert_eq!(scene.calls().len(), 1);
    for call in scene.provider.ledger() {
        let unchanged = format!("00-{TRACE}-{APP_SPAN}-00");
        match call.recipient().as_str() {
            "unsampled" => assert_eq!(call.header("traceparent"), Some(unchanged.as_str())),
            "without" => assert_eq!(call.header("traceparent"), None),
            _ => assert!(call.header("traceparent").unwrap().ends_with("-01")),
        }
    }
}

#[tokio::test]
async fn without_a_collector_nothing_is_traced_and_the_rows_traceparent_goes_out_as_it_came() {
    let scene = Scene::new().await;
    let mut instance = scene.untraced().start().await;
    let addr = instance.http_addr().await;
    scene.notify("r", &headers("01")).await;
    scene.all_sent().await;
    let sent = scene.provider.ledger()[0].clone();
    assert_eq!(sent.header("traceparent"), Some(format!("00-{TRACE}-{APP_SPAN}-01").as_str()));
    let scrape = Scrape::parse(&http::get(addr, "/metrics", &[]).await.body);
    for name in ["outboxd_spans_exported_total", "outboxd_spans_dropped_total"] {
        assert_eq!(scrape.value(name, &[]), Some(0.0), "{name}");
    }
    assert_eq!(instance.drain().await, 0);
    assert_eq!(scene.collector.connections(), 0);
}

#[tokio::test]
async fn a_collector_that_is_away_or_never_answers_does_not_hold_up_deliveries_and_is_told_of_once() {
    let scene = Scene::new().await;
    scene.collector.answer(Reply::hang());
    for endpoint in ["http://127.0.0.1:9", &scene.collector.url("")] {
        let setup = scene.untraced().toml(&format!("[telemetry]\notlp_endpoint = \"{endpoint}\"\n"));
        let mut instance = setup.start().await;
        let calls_before = scene.provider.count();
        let app = scene.database.connect().await;
        for _ in 0..3 {
            sql::run(&app, "SELECT outboxd.notify('orders', 'r' || n, '{}') FROM generate_series(1, 100) n").await;
            scene.all_sent().await;
        }
        assert_eq!(scene.provider.count() - calls_before, 300);
        instance.wait_for_log("spans wait for the collector").await;
        scene.notify("last", "NULL").await;
        scene.all_sent().await;
        let started = std::time::Instant::now();
        instance.signal(nix::sys::signal::Signal::SIGTERM);
        assert_eq!(instance.exit_code().await, 0);
        assert!(started.elapsed() < SOON / 2, "{:?}", started.elapsed());
        let log = instance.log();
        assert_eq!(log.matches("spans wait for the collector").count(), 1, "{log}");
        assert_eq!(log.matches("the last spans did not reach the collector").count(), 1, "{log}");
    }
}

#[tokio::test]
async fn a_collector_that_was_busy_gets_the_same_spans_again_and_one_that_refuses_does_not() {
    let scene = Scene::new().await;
    scene.collector.script([Reply::status(503)]);
    let mut instance = scene.traced("").start().await;
    let addr = instance.http_addr().await;
    scene.notify("r", "NULL").await;
    scene.collector.wait_for(2, SOON).await;
    let ledger = scene.collector.ledger();
    assert_eq!(spans(&ledger[0].json()), spans(&ledger[1].json()));
    until(addr, "outboxd_spans_exported_total", 2.0).await;

    scene.collector.answer(Reply::status(400));
    scene.notify("r", "NULL").await;
    until(addr, "outboxd_spans_dropped_total", 2.0).await;
    let partly = r#"{"partialSuccess": {"rejectedSpans": "1", "errorMessage": "too old"}}"#;
    scene.collector.answer(Reply::ok().body(partly));
    scene.notify("r", "NULL").await;
    until(addr, "outboxd_spans_dropped_total", 3.0).await;
    until(addr, "outboxd_spans_exported_total", 3.0).await;
    let log = instance.log();
    assert_eq!(log.matches("the collector takes spans again").count(), 2, "{log}");
}

async fn until(addr: std::net::SocketAddr, name: &str, wanted: f64) {
    let deadline = std::time::Instant::now() + SOON;
    loop {
        let found = Scrape::parse(&http::get(addr, "/metrics", &[]).await.body).value(name, &[]);
        if found == Some(wanted) {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "{name}: {found:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_collector_behind_tls_is_verified_and_may_be_named_by_opentelemetrys_variable() {
    let scene = Scene::new().await;
    let front = tls::front(scene.collector.addr()).await;
    let endpoint = format!("https://localhost:{}/tenant", front.port);
    let setup = scene.untraced().env("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint);

    let mut stranger = setup.start().await;
    scene.notify("r", "NULL").await;
    stranger.wait_for_log("spans wait for the collector").await;
    assert!(stranger.log().contains("invalid peer certificate"), "{}", stranger.log());
    stranger.kill().await;
    assert_eq!(scene.collector.count(), 0);

    let trusting = setup.env("SSL_CERT_FILE", front.ca.to_str().unwrap()).start().await;
    scene.notify("r", "NULL").await;
    scene.collector.wait_for(1, SOON).await;
    assert_eq!(scene.collector.ledger()[0].path, "/tenant/v1/traces");
    assert_eq!(trusting.drain().await, 0);
}
