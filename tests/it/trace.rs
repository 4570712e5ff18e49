//! Spans of calls, at an HTTP server that writes down what arrives and is asked in a collector's protocol.

use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;

use crate::support::http;
use crate::support::instance::Setup;
use crate::support::otlp::{attribute, hex, resource, spans};
use crate::support::postgres::{self, Database};
use crate::support::prometheus::Scrape;
use crate::support::provider::{Provider, Reply};
use crate::support::sql::Sql;

mod collector;

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
        app.run(&statement).await;
    }

    async fn all_sent(&self) {
        let app = self.database.connect().await;
        app.until("SELECT bool_and(status = 'SENT') FROM outboxd.notifications").await;
    }

    /// Every span that has arrived.
    fn spans(&self) -> Vec<Span> {
        self.collector.ledger().iter().flat_map(spans).collect()
    }

    fn calls(&self) -> Vec<Span> {
        self.spans().into_iter().filter(|span| span.name == "send webhook").collect()
    }
}

fn headers(flags: &str) -> String {
    format!("'{{\"traceparent\": \"00-{TRACE}-{APP_SPAN}-{flags}\", \"tracestate\": \"vendor=1\"}}'")
}

/// Trace and parent.
fn origin(span: &Span) -> (String, String) {
    (hex(&span.trace_id), hex(&span.parent_span_id))
}

fn status(span: &Span) -> StatusCode {
    span.status.as_ref().unwrap().code()
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
    assert_eq!(origin(call), (TRACE.to_owned(), APP_SPAN.to_owned()));
    let seen = scene.provider.ledger()[0].clone();
    assert_eq!(seen.header("traceparent"), Some(format!("00-{TRACE}-{}-01", hex(&call.span_id)).as_str()));
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
        assert_eq!(attribute(&call.attributes, key).as_deref(), wanted, "{key}");
    }
    assert_eq!((call.kind(), status(call)), (SpanKind::Client, StatusCode::Unset));
    let queued = all.iter().find(|span| span.name == "queued").unwrap();
    assert_eq!((origin(queued), queued.kind()), (origin(call), SpanKind::Internal));
    assert_eq!(attribute(&queued.attributes, "outboxd.notification.id"), Some(id));
    assert_ne!(queued.span_id, call.span_id);
    assert!(queued.start_time_unix_nano <= queued.end_time_unix_nano, "{all:?}");
    assert!(queued.end_time_unix_nano <= call.start_time_unix_nano, "{all:?}");
    assert!(call.start_time_unix_nano < call.end_time_unix_nano, "{all:?}");

    let request = &scene.collector.ledger()[0];
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/v1/traces"));
    assert_eq!(request.header("authorization"), Some("Bearer c0llector"));
    assert_eq!(attribute(&resource(request).attributes, "service.name").as_deref(), Some("outboxd"));
    let body = String::from_utf8_lossy(&request.body);
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
                ["outboxd.attempt", "outboxd.outcome", "error.type"].map(|key| attribute(&call.attributes, key));
            (attempt.unwrap(), outcome.unwrap(), error, status(call))
        })
        .collect();
    let wanted = [
        ("1", "transient", Some("503"), StatusCode::Error),
        ("2", "unknown", Some("no answer"), StatusCode::Error),
        ("3", "sent", None, StatusCode::Unset),
    ];
    let owned = |(attempt, outcome, error, status): (&str, &str, Option<&str>, _)| {
        (attempt.to_owned(), outcome.to_owned(), error.map(str::to_owned), status)
    };
    assert_eq!(facts, wanted.map(owned));
    let seen: Vec<String> =
        scene.provider.ledger().iter().map(|call| call.header("traceparent").unwrap().to_owned()).collect();
    let wanted: Vec<String> =
        calls.iter().map(|call| format!("00-{}-{}-01", hex(&calls[0].trace_id), hex(&call.span_id))).collect();
    assert_eq!(seen, wanted);
    assert!(calls.iter().all(|call| call.parent_span_id.is_empty()), "{calls:?}");
    let resource = resource(&scene.collector.ledger()[0]);
    assert_eq!(attribute(&resource.attributes, "service.name").as_deref(), Some("shop"));
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
async fn without_a_collector_the_rows_traceparent_goes_out_as_it_came() {
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
