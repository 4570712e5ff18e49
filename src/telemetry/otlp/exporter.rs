//! Batches of spans on their way to the collector, beside the work and never in its way.
//!
//! The OTLP exporter encodes a batch and sends it, again and again while the collector is away; what the collector
//! refuses is dropped. It runs on the service's runtime, so that the end of a stop's time cuts it off at once, waits
//! included.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use metrics::counter;
use opentelemetry::KeyValue;
use opentelemetry_otlp::{Protocol, RetryPolicy, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tracing::warn;
use url::Url;

use super::collector::Collector;
use super::processor::WAITING_MAX;
use crate::config::TelemetryConfig;
use crate::telemetry::VERSION;

/// The longest wait between tries while the collector is away; shorter than a stop's time, so that it tries once more.
const RETRY_WAIT_MAX: Duration = Duration::from_secs(1);
/// How long a stop waits for the last spans.
const FLUSH_MAX: Duration = Duration::from_secs(2);

/// Why spans cannot be exported at all.
#[derive(Debug, thiserror::Error)]
#[error("telemetry: {0}")]
pub struct Error(pub(super) String);

/// Spans between the calls and the collector, by number.
#[derive(Debug, Default)]
pub(super) struct Tally {
    waiting: AtomicUsize,
    /// Of the batch under way, those that the collector did not want.
    rejected: AtomicUsize,
    /// Those that the end of a stop's time left behind.
    left: AtomicU64,
}

impl Tally {
    /// Counts a span as waiting, if there is room.
    pub(super) fn may_wait(&self) -> bool {
        let room = |waiting| (waiting < WAITING_MAX).then_some(waiting + 1);
        self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_ok()
    }

    pub(super) fn reject(&self, spans: usize) {
        self.rejected.store(spans, Ordering::Relaxed);
    }

    fn ended(&self, spans: usize, result: &OTelSdkResult) {
        let rejected = match result {
            Ok(()) => self.rejected.swap(0, Ordering::Relaxed).min(spans),
            Err(_) => spans,
        };
        counter!("outboxd_spans_exported_total").increment((spans - rejected) as u64);
        counter!("outboxd_spans_dropped_total").increment(rejected as u64);
        self.waiting.fetch_sub(spans, Ordering::Relaxed);
    }
}

/// Takes batches from the processor's thread to the runtime.
#[derive(Debug)]
pub(super) struct Batches {
    otlp: Arc<opentelemetry_otlp::SpanExporter>,
    runtime: Handle,
    tally: Arc<Tally>,
    /// Whatever is under way ends.
    pub(super) cut_off: CancellationToken,
}

/// To the collector at `endpoint`, in the name of `instance`.
pub(super) fn batches(
    endpoint: &str,
    config: &TelemetryConfig,
    instance: &str,
    tally: &Arc<Tally>,
) -> Result<Batches, Error> {
    let mut otlp = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_http_client(Collector::new(config, Arc::clone(tally))?)
        .with_endpoint(traces_url(endpoint)?)
        .with_protocol(Protocol::HttpBinary)
        // A batch waits as long as it takes: the bound is the number of spans that wait, not their age.
        .with_timeout(Duration::MAX)
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
    Ok(Batches {
        otlp: Arc::new(otlp),
        runtime: Handle::current(),
        tally: Arc::clone(tally),
        cut_off: CancellationToken::new(),
    })
}

impl SpanExporter for Batches {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let (otlp, cut_off) = (Arc::clone(&self.otlp), self.cut_off.clone());
        let sending = self.runtime.spawn(async move {
            if cut_off.is_cancelled() {
                return None;
            }
            cut_off.run_until_cancelled(otlp.export(batch)).await
        });
        let result = match sending.await {
            Ok(Some(result)) => result,
            Ok(None) => {
                self.tally.left.fetch_add(spans as u64, Ordering::Relaxed);
                Err(OTelSdkError::Timeout(FLUSH_MAX))
            }
            Err(error) => Err(OTelSdkError::InternalFailure(error.to_string())),
        };
        self.tally.ended(spans, &result);
        result
    }
}

/// Brings the last spans to the collector.
#[derive(Debug)]
pub struct Exporter {
    pub(super) provider: SdkTracerProvider,
    pub(super) tally: Arc<Tally>,
    pub(super) cut_off: CancellationToken,
}

impl Exporter {
    /// Waits for `stop`, and then for what is left, as far as that goes quickly. The processor's thread has ended then.
    pub async fn run(self, stop: &CancellationToken) {
        stop.cancelled().await;
        let provider = self.provider;
        // Its thread waits for tasks of this runtime, so no thread of the runtime may wait for it.
        let mut flush = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(Duration::MAX));
        let flushed = match tokio::time::timeout(FLUSH_MAX, &mut flush).await {
            Ok(flushed) => flushed,
            Err(_) => {
                self.cut_off.cancel();
                flush.await
            }
        };
        match flushed {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!(%error, "the span processor did not stop"),
            Err(error) => warn!(%error, "the span processor did not stop"),
        }
        let spans = self.tally.left.load(Ordering::Relaxed);
        if spans > 0 {
            warn!(spans, "the last spans did not reach the collector");
        }
    }
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
