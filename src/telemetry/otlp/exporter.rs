//! Sends spans to the collector: in batches, by size and by time, beside the work and never in its way.
//!
//! A collector that cannot take them is asked again after growing waits while the buffer fills; what it refuses is
//! dropped. Either is said once, and once more when it works again.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use metrics::counter;
use reqwest::{Client, Response, redirect};
use secrecy::ExposeSecret as _;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use url::Url;

use super::encode::{self, Source};
use super::{BATCH_MAX, Buffer, Span, spans_of};
use crate::config::TelemetryConfig;
use crate::tls;

/// Spans wait this long for others to travel with.
const EXPORT_EVERY: Duration = Duration::from_secs(1);
/// The longest wait between tries while the collector is away.
const RETRY_WAIT_MAX: Duration = Duration::from_secs(30);
/// One request, its answer included.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a stop waits for the last spans.
const FLUSH_MAX: Duration = Duration::from_secs(2);
/// Bytes of an answer that are read: it says how many spans were not accepted.
const ANSWER_BYTES_MAX: usize = 16 << 10;

/// Why spans cannot be exported at all.
#[derive(Debug, thiserror::Error)]
#[error("telemetry: {0}")]
pub struct Error(String);

/// The task that sends spans.
#[derive(Debug)]
pub struct Exporter {
    client: Client,
    url: Url,
    headers: HeaderMap,
    source: Source,
    buffer: Arc<Buffer>,
    /// Taken from the buffer and not yet accepted.
    batch: Vec<Span>,
    /// Failures in a row.
    failures: u32,
}

/// Why the collector does not have a batch.
enum Unsent {
    /// It may take it later.
    Unavailable(String),
    /// It never will.
    Refused(String),
}

/// Spans of an accepted batch that the collector says it did not want.
struct Rejected(u64);

impl Exporter {
    pub(super) fn new(
        endpoint: &str,
        config: &TelemetryConfig,
        instance: &str,
        buffer: Arc<Buffer>,
    ) -> Result<Exporter, Error> {
        let tls = tls::client_config().map_err(|error| Error(error.to_string()))?;
        // Follows the environment's proxies, as any client of a collector does.
        let client = Client::builder()
            .tls_backend_preconfigured(tls)
            .timeout(REQUEST_TIMEOUT)
            .redirect(redirect::Policy::none())
            .build()
            .map_err(|error| Error(error.to_string()))?;
        Ok(Exporter {
            client,
            url: traces_url(endpoint)?,
            headers: headers(config)?,
            source: Source { service_name: config.service_name.clone(), instance: instance.to_owned() },
            buffer,
            batch: Vec::new(),
            failures: 0,
        })
    }

    /// Exports until `stop`, and then what is left, as far as that goes quickly.
    pub async fn run(mut self, stop: &CancellationToken) {
        let out_of_time = async {
            stop.cancelled().await;
            tokio::time::sleep(FLUSH_MAX).await;
        };
        tokio::select! {
            () = self.export(stop) => {}
            () = out_of_time => {}
        }
        let spans = spans_of(self.batch.len() + self.buffer.len());
        if spans > 0 {
            counter!("outboxd_spans_dropped_total").increment(spans);
            warn!(spans, "the last spans did not reach the collector");
        }
    }

    async fn export(&mut self, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            stop.run_until_cancelled(self.wait()).await;
            // One batch, and those that are full already; the rest waits for others to travel with.
            while self.send_batch().await && self.buffer.len() >= BATCH_MAX {}
        }
        while self.send_batch().await {}
    }

    /// Until spans have waited long enough or make a batch; longer while the collector is away.
    async fn wait(&self) {
        if self.failures == 0 {
            let _due = tokio::time::timeout(EXPORT_EVERY, self.buffer.full.notified()).await;
        } else {
            let wait = EXPORT_EVERY * 2u32.saturating_pow(self.failures.min(10));
            tokio::time::sleep(wait.min(RETRY_WAIT_MAX).mul_f64(rand::random_range(0.5..1.0))).await;
        }
    }

    /// Sends what waits, a batch at most. False: nothing waits, or the collector takes nothing now.
    async fn send_batch(&mut self) -> bool {
        if self.batch.is_empty() {
            self.batch = self.buffer.take();
        }
        if self.batch.is_empty() {
            return false;
        }
        let spans = spans_of(self.batch.len());
        match self.post().await {
            Ok(Rejected(rejected)) => {
                counter!("outboxd_spans_exported_total").increment(spans.saturating_sub(rejected));
                counter!("outboxd_spans_dropped_total").increment(rejected);
                if self.failures > 0 {
                    info!("the collector takes spans again");
                }
                self.failures = 0;
                self.batch.clear();
                true
            }
            Err(Unsent::Unavailable(reason)) => {
                self.say_once(&reason, "spans wait for the collector; deliveries do not");
                false
            }
            Err(Unsent::Refused(reason)) => {
                counter!("outboxd_spans_dropped_total").increment(spans);
                self.say_once(&reason, "the collector refuses spans; deliveries go on");
                self.batch.clear();
                false
            }
        }
    }

    fn say_once(&mut self, reason: &str, what: &'static str) {
        if self.failures == 0 {
            warn!(reason, "{what}");
        }
        self.failures = self.failures.saturating_add(1);
    }

    async fn post(&self) -> Result<Rejected, Unsent> {
        let body = encode::request(&self.source, &self.batch).map_err(|error| Unsent::Refused(error.to_string()))?;
        let request = self.client.post(self.url.clone()).headers(self.headers.clone()).body(body);
        let response = request.send().await.map_err(|error| Unsent::Unavailable(reason(error)))?;
        match response.status() {
            status if status.is_success() => Ok(rejected(response).await),
            // Those that OTLP says to try again.
            status @ (StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT) => Err(Unsent::Unavailable(format!("status {status}"))),
            status => Err(Unsent::Refused(format!("status {status}"))),
        }
    }
}

/// The collector's address for traces: told as such, or its base.
fn traces_url(endpoint: &str) -> Result<Url, Error> {
    let mut url = Url::parse(endpoint).map_err(|error| Error(format!("otlp_endpoint is no URL: {error}")))?;
    let path = url.path().trim_end_matches('/').to_owned();
    if !path.ends_with("/v1/traces") {
        url.set_path(&format!("{path}/v1/traces"));
    }
    Ok(url)
}

fn headers(config: &TelemetryConfig) -> Result<HeaderMap, Error> {
    let mut map = HeaderMap::new();
    map.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    map.insert(USER_AGENT, HeaderValue::from_static(concat!("outboxd/", env!("CARGO_PKG_VERSION"))));
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

async fn rejected(mut response: Response) -> Rejected {
    let mut text = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        if text.len() + chunk.len() > ANSWER_BYTES_MAX {
            return Rejected(0);
        }
        text.extend_from_slice(&chunk);
    }
    let answer: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
    // A 64-bit number, so text; some write a number all the same.
    let count = &answer["partialSuccess"]["rejectedSpans"];
    Rejected(count.as_u64().or_else(|| count.as_str()?.parse().ok()).unwrap_or(0))
}

/// The innermost cause: the outer ones would only repeat the address.
fn reason(error: reqwest::Error) -> String {
    if error.is_timeout() {
        return "timeout".to_owned();
    }
    let error = error.without_url();
    let mut cause: &dyn std::error::Error = &error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
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
            assert_eq!(traces_url(endpoint).unwrap().as_str(), url);
        }
    }
}
