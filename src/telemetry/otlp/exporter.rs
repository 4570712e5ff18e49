//! Spans on their way to the collector, beside the work and never in its way.
//!
//! OpenTelemetry's batch processor and OTLP exporter do the work. Around them stands what they do not do: their numbers
//! become our metrics, an outage is told once, requests run on the service's runtime, and a request carries no header of
//! `OTEL_EXPORTER_OTLP_HEADERS`, which may be a token of another collector.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use http::{Request, Response};
use metrics::counter;
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{Protocol, RetryPolicy, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SdkTracerProvider, Span, SpanData, SpanExporter, SpanProcessor,
};
use reqwest::{Client, redirect};
use secrecy::ExposeSecret as _;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tracing::warn;
use url::Url;

use crate::config::TelemetryConfig;
use crate::telemetry::VERSION;
use crate::telemetry::outage::Outage;
use crate::{telemetry, tls};

/// Spans that wait for the collector at most: two for each of 8,192 calls, some 14 MB, of which the queue takes 6 when made.
const WAITING_MAX: usize = 2 * 8192;
/// The longest wait between tries of a batch.
const RETRY_WAIT_MAX: Duration = Duration::from_secs(1);
/// How long a stop waits for the last spans.
const FLUSH_MAX: Duration = Duration::from_secs(2);

/// Why spans cannot be exported at all.
#[derive(Debug, thiserror::Error)]
#[error("telemetry: {0}")]
pub struct Error(pub(super) String);

/// Takes spans to the collector at `endpoint`, in the name of `instance`.
pub(super) fn processor(
    endpoint: &str,
    config: &TelemetryConfig,
    instance: &str,
) -> Result<impl SpanProcessor + 'static, Error> {
    let mut otlp = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_http_client(Collector::new(config)?)
        .with_endpoint(traces_url(endpoint)?)
        .with_protocol(Protocol::HttpBinary)
        // How long a batch is tried again; what waits behind it is bounded by its number.
        .with_timeout(Duration::from_secs(60))
        .with_retry_policy(RetryPolicy::default().with_max_retries(usize::MAX).with_max_delay(RETRY_WAIT_MAX))
        .build()
        .map_err(|error| Error(error.to_string()))?;
    // Empty, so that nothing is added from the environment, as it is to the provider's.
    let resource = Resource::builder_empty().with_attributes([
        KeyValue::new("service.name", config.service_name.clone()),
        KeyValue::new("service.version", VERSION),
        KeyValue::new("service.instance.id", instance.to_owned()),
    ]);
    otlp.set_resource(&resource.build());
    // All of it said, so that the platform's OTEL_BSP_* variables do not count.
    let batching = BatchConfigBuilder::default()
        .with_max_queue_size(WAITING_MAX)
        .with_max_export_batch_size(1024)
        .with_scheduled_delay(Duration::from_secs(1))
        .build();
    let waiting = Arc::new(AtomicUsize::new(0));
    let exporter = Counted { otlp: Arc::new(otlp), runtime: Handle::current(), waiting: Arc::clone(&waiting) };
    Ok(Bounded { batches: BatchSpanProcessor::new(exporter, batching), waiting })
}

/// Waits for `stop`, and then for the last spans, as far as that goes quickly.
pub(super) async fn run(provider: SdkTracerProvider, stop: &CancellationToken) {
    stop.cancelled().await;
    // Its thread waits for tasks of this runtime, so no thread of the runtime may wait for it.
    match tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(FLUSH_MAX)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => warn!(%error, "the last spans did not reach the collector"),
        Err(error) => warn!(%error, "the span processor did not stop"),
    }
}

/// The batch processor, with a count of what it has no room for, which it keeps to itself.
#[derive(Debug)]
struct Bounded {
    batches: BatchSpanProcessor,
    waiting: Arc<AtomicUsize>,
}

impl SpanProcessor for Bounded {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.batches.on_start(span, context);
    }

    fn on_end(&self, mut span: SpanData) {
        let room = |waiting| (waiting < WAITING_MAX).then_some(waiting + 1);
        if self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_err() {
            counter!("outboxd_spans_dropped_total").increment(1);
            return;
        }
        // A clock that was set back meanwhile makes no span negative.
        span.end_time = span.end_time.max(span.start_time);
        self.batches.on_end(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.batches.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.batches.shutdown_with_timeout(timeout)
    }
}

/// The OTLP exporter, on the service's runtime instead of the processor's thread, which has none.
#[derive(Debug)]
struct Counted {
    otlp: Arc<opentelemetry_otlp::SpanExporter>,
    runtime: Handle,
    waiting: Arc<AtomicUsize>,
}

impl SpanExporter for Counted {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let (otlp, spans) = (Arc::clone(&self.otlp), batch.len());
        let sending = self.runtime.spawn(async move { otlp.export(batch).await }).await;
        let result = sending.unwrap_or_else(|error| Err(OTelSdkError::InternalFailure(error.to_string())));
        match result {
            Ok(()) => counter!("outboxd_spans_exported_total").increment(spans as u64),
            Err(_) => counter!("outboxd_spans_dropped_total").increment(spans as u64),
        }
        self.waiting.fetch_sub(spans, Ordering::Relaxed);
        result
    }
}

/// The exporter's HTTP client: our trust store, our headers, one line in the log for an outage.
#[derive(Debug)]
struct Collector {
    client: Client,
    headers: HeaderMap,
    outage: Mutex<Outage>,
}

impl Collector {
    fn new(config: &TelemetryConfig) -> Result<Collector, Error> {
        let tls = tls::client_config().map_err(|error| Error(error.to_string()))?;
        // Follows the environment's proxies, as any client of a collector does.
        let client = Client::builder()
            .tls_backend_preconfigured(tls)
            .timeout(Duration::from_secs(5))
            .redirect(redirect::Policy::none())
            .build()
            .map_err(|error| Error(error.to_string()))?;
        Ok(Collector { client, headers: headers(config)?, outage: Mutex::default() })
    }
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, mut request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let content_type = request.headers_mut().remove(CONTENT_TYPE);
        *request.headers_mut() = self.headers.clone();
        request.headers_mut().extend(content_type.map(|value| (CONTENT_TYPE, value)));
        let answer = self.client.send_bytes(request).await;
        let told = match &answer {
            Ok(response) if response.status().is_success() => Ok(()),
            Ok(response) => Err(format!("status {}", response.status())),
            Err(error) => Err(innermost(&**error)),
        };
        let mut outage = self.outage.lock().unwrap_or_else(PoisonError::into_inner);
        outage.note(told, "spans wait for the collector, or are refused by it; deliveries go on");
        answer
    }
}

fn headers(config: &TelemetryConfig) -> Result<HeaderMap, Error> {
    let mut map = HeaderMap::new();
    map.insert(USER_AGENT, HeaderValue::from_static(telemetry::USER_AGENT));
    for header in &config.otlp_headers {
        // What was written stays unsaid: it is a secret.
        let wrong = || Error("otlp_headers holds what is no header".to_owned());
        let (name, value) = header.expose_secret().split_once('=').ok_or_else(wrong)?;
        let name = HeaderName::try_from(name.trim()).map_err(|_| wrong())?;
        let mut value = HeaderValue::try_from(value.trim()).map_err(|_| wrong())?;
        value.set_sensitive(true);
        map.insert(name, value);
    }
    Ok(map)
}

/// The outer causes would only repeat the address.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    std::iter::successors(Some(error), |error| error.source()).last().map(ToString::to_string).unwrap_or_default()
}

/// The collector's address for traces: told as such, or its base.
fn traces_url(endpoint: &str) -> Result<String, Error> {
    let mut url = Url::parse(endpoint).map_err(|error| Error(format!("otlp_endpoint is no URL: {error}")))?;
    let path = url.path().trim_end_matches('/').to_owned();
    if !path.ends_with("/v1/traces") {
        url.set_path(&format!("{path}/v1/traces"));
    }
    Ok(url.into())
}

#[cfg(test)]
mod tests {
    use super::traces_url;

    #[test]
    fn the_path_for_traces_is_added_unless_it_is_there() {
        for (endpoint, url) in [
            ("http://c:4318", "http://c:4318/v1/traces"),
            ("http://c:4318/", "http://c:4318/v1/traces"),
            ("https://c.example/otlp/", "https://c.example/otlp/v1/traces"),
            ("https://c.example/otlp/v1/traces", "https://c.example/otlp/v1/traces"),
        ] {
            assert_eq!(traces_url(endpoint).unwrap(), url);
        }
    }
}
