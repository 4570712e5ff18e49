//! A collector that is away, busy, strict, behind TLS: what becomes of the spans, and of the deliveries.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use chrono::Utc;
use metrics_exporter_prometheus::PrometheusBuilder;
use outboxd::config::TelemetryConfig;
use outboxd::telemetry::otlp;
use tokio_util::sync::CancellationToken;

use super::Scene;
use crate::support::otlp::{attribute, resource, spans};
use crate::support::prometheus::Scrape;
use crate::support::provider::{Provider, Reply};
use crate::support::sql::Sql;
use crate::support::{http, tls, wait};

const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_collector_that_is_away_holds_nothing_up_and_is_told_of_once() {
    let scene = Scene::new().await;
    scene.collector.answer(Reply::hang());
    for endpoint in ["http://127.0.0.1:9", &scene.collector.url("")] {
        let setup = scene.untraced().toml(&format!("[telemetry]\notlp_endpoint = \"{endpoint}\"\n"));
        let mut instance = setup.start().await;
        let calls_before = scene.provider.count();
        let app = scene.database.connect().await;
        for _ in 0..3 {
            app.run("SELECT outboxd.notify('orders', 'r' || n, '{}') FROM generate_series(1, 100) n").await;
            scene.all_sent().await;
        }
        assert_eq!(scene.provider.count() - calls_before, 300);
        instance.wait_for_log("spans wait for the collector").await;
        scene.notify("last", "NULL").await;
        scene.all_sent().await;
        let started = Instant::now();
        instance.signal(nix::sys::signal::Signal::SIGTERM);
        assert_eq!(instance.exit_code().await, 0);
        assert!(started.elapsed() < SOON / 2, "{:?}", started.elapsed());
        let log = instance.log();
        assert_eq!(log.matches("spans wait for the collector").count(), 1, "{log}");
        assert_eq!(log.matches("the last spans did not reach the collector").count(), 1, "{log}");
    }
}

#[tokio::test]
async fn a_busy_collector_gets_the_same_spans_again_and_one_that_refuses_does_not() {
    let scene = Scene::new().await;
    scene.collector.script([Reply::status(503).header("retry-after", "1")]);
    let mut instance = scene.traced("").start().await;
    let addr = instance.http_addr().await;
    scene.notify("r", "NULL").await;
    scene.collector.wait_for(2, SOON).await;
    let ledger = scene.collector.ledger();
    assert_eq!(spans(&ledger[0]), spans(&ledger[1]));
    assert!(ledger[1].at - ledger[0].at >= Duration::from_secs(1), "when it asked to");
    until(addr, "outboxd_spans_exported_total", 2.0).await;

    scene.collector.answer(Reply::status(400));
    scene.notify("r", "NULL").await;
    until(addr, "outboxd_spans_dropped_total", 2.0).await;
    scene.collector.answer(Reply::ok());
    scene.notify("r", "NULL").await;
    until(addr, "outboxd_spans_exported_total", 4.0).await;
    let log = instance.log();
    assert_eq!(log.matches("spans wait for the collector").count(), 2, "{log}");
}

async fn until(addr: SocketAddr, name: &str, wanted: f64) {
    wait::until_ok(name, async || {
        let found = Scrape::parse(&http::get(addr, "/metrics", &[]).await.body).value(name, &[]);
        if found == Some(wanted) { Ok(()) } else { Err(found) }
    })
    .await;
}

// Of two threads, so that batches are on their way while the buffer fills.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_beyond_the_buffer_is_dropped_and_the_oldest_go_first() {
    const WAITING_MAX: i64 = 8192;
    const BATCHES: usize = 16;
    let collector = Provider::start();
    collector.answer(Reply::status(503));
    let (tracer, exporter) = open(&collector);
    let recorder = PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || {
        for notification in 0..WAITING_MAX + 10 {
            tracer.begin(&call(notification), None, "ntf-a-1-1").expect("all are traced").end(&SENT);
        }
    });
    let dropped = Scrape::parse(&recorder.handle().render()).value("outboxd_spans_dropped_total", &[]);
    assert_eq!(dropped, Some(20.0));
    collector.wait_for(1, SOON).await;
    let before = collector.count();
    collector.answer(Reply::ok());
    collector.wait_for(before + BATCHES, SOON).await;
    flush(exporter).await;

    let requests: Vec<_> = collector.ledger().iter().map(spans).collect();
    assert!(requests.iter().all(|spans| spans.len() <= 1024));
    let sent = requests.iter().flatten().filter(|span| span.name == "send webhook");
    let ids: Vec<String> = sent.filter_map(|span| attribute(&span.attributes, "outboxd.notification.id")).collect();
    // The first batch came again and again until it was taken.
    let taken = &ids[ids.iter().rposition(|id| id == "0").unwrap()..];
    assert!(taken.iter().map(|id| id.parse::<i64>().unwrap()).eq(0..WAITING_MAX), "{taken:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_way_through_the_queue_begins_at_the_publication_and_is_never_negative() {
    let collector = Provider::start();
    let (tracer, exporter) = open(&collector);
    let hour = chrono::TimeDelta::hours(1);
    let (ago, ahead) = (Utc::now() - hour, Utc::now() + hour);
    for published_at in [ago, ahead] {
        let call = otlp::Call { published_at, ..call(1) };
        tracer.begin(&call, None, "ntf-a-1-1").expect("all are traced").end(&SENT);
    }
    flush(exporter).await;
    let queued: Vec<_> = collector.ledger().iter().flat_map(spans).filter(|span| span.name == "queued").collect();
    let length_ns = |n: usize| queued[n].end_time_unix_nano.checked_sub(queued[n].start_time_unix_nano);
    assert_eq!(i64::try_from(queued[0].start_time_unix_nano).unwrap(), ago.timestamp_nanos_opt().unwrap());
    assert!(length_ns(0) >= Some(3_600_000_000_000), "{queued:?}");
    assert!(length_ns(1).is_some_and(|ns| ns < 1_000_000_000), "{queued:?}");
}

const SENT: otlp::Ended = otlp::Ended { outcome: "sent", http_status: Some(200), error: None };

fn open(collector: &Provider) -> (otlp::Tracer, otlp::Exporter) {
    let config = TelemetryConfig {
        otlp_endpoint: Some(collector.url("")),
        otlp_headers: Vec::new(),
        otlp_sample_ratio: 1.0,
        service_name: "outboxd".to_owned(),
    };
    otlp::open(&config, "i").unwrap().unwrap()
}

async fn flush(exporter: otlp::Exporter) {
    let stop = CancellationToken::new();
    stop.cancel();
    exporter.run(&stop).await;
}

fn call(notification: i64) -> otlp::Call<'static> {
    otlp::Call { notification, topic: "orders", channel: "webhook", attempt: 1, published_at: Utc::now() }
}

#[tokio::test]
async fn neither_the_logs_filter_nor_the_environment_decides_what_is_traced() {
    let scene = Scene::new().await;
    let setup = scene
        .traced("")
        .env("OUTBOXD_LOG", "off")
        .env("OTEL_TRACES_SAMPLER", "always_off")
        .env("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "1");
    let instance = setup.spawn();
    scene.notify("r", "NULL").await;
    scene.collector.wait_for(1, SOON).await;
    assert_eq!(scene.calls().len(), 1);
    assert_eq!(attribute(&scene.calls()[0].attributes, "outboxd.outcome").as_deref(), Some("sent"));
    assert_eq!(instance.log(), "");
    assert_eq!(instance.drain().await, 0);
}

#[tokio::test]
async fn a_collector_behind_tls_is_verified_and_only_its_address_is_opentelemetrys() {
    let scene = Scene::new().await;
    let front = tls::front(scene.collector.addr()).await;
    let endpoint = format!("https://localhost:{}/tenant", front.port);
    let setup = scene
        .untraced()
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)
        .env("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer platform")
        .env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
        .env("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
        .env("OTEL_RESOURCE_ATTRIBUTES", "team=platform");

    let mut stranger = setup.start().await;
    scene.notify("r", "NULL").await;
    stranger.wait_for_log("spans wait for the collector").await;
    assert!(stranger.log().contains("invalid peer certificate"), "{}", stranger.log());
    stranger.kill().await;
    assert_eq!(scene.collector.count(), 0);

    let trusting = setup.env("SSL_CERT_FILE", front.ca.to_str().unwrap()).start().await;
    scene.notify("r", "NULL").await;
    scene.collector.wait_for(1, SOON).await;
    let request = &scene.collector.ledger()[0];
    assert_eq!((request.path.as_str(), request.header("authorization")), ("/tenant/v1/traces", None));
    assert_eq!(request.header("content-encoding"), None);
    let mut keys: Vec<String> = resource(request).attributes.into_iter().map(|attribute| attribute.key).collect();
    keys.sort();
    assert_eq!(keys, ["service.instance.id", "service.name", "service.version"]);
    assert_eq!(trusting.drain().await, 0);
}
