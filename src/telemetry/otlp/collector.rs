//! The collector, as the OTLP exporter's HTTP client: our trust store, our headers, our words in the log.
//!
//! The exporter tells neither why a request failed nor how many spans were rejected, so both are read here. A collector
//! that is away or refuses is told of once, and once more when it works again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use http::{Request, Response, StatusCode};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message as _;
use reqwest::{Client, redirect};
use secrecy::ExposeSecret as _;
use tracing::{info, warn};

use super::exporter::{Error, Tally};
use crate::config::TelemetryConfig;
use crate::{telemetry, tls};

/// Bytes of an answer that are read: it says how many spans were not accepted.
const ANSWER_BYTES_MAX: usize = 16 << 10;

/// Sends what the OTLP exporter has encoded.
#[derive(Debug)]
pub(super) struct Collector {
    client: Client,
    headers: HeaderMap,
    tally: Arc<Tally>,
    /// Whether the last request failed.
    is_failing: AtomicBool,
}

impl Collector {
    pub(super) fn new(config: &TelemetryConfig, tally: Arc<Tally>) -> Result<Collector, Error> {
        let tls = tls::client_config().map_err(|error| Error(error.to_string()))?;
        // Follows the environment's proxies, as any client of a collector does.
        let client = Client::builder()
            .tls_backend_preconfigured(tls)
            .timeout(Duration::from_secs(5))
            .redirect(redirect::Policy::none())
            .build()
            .map_err(|error| Error(error.to_string()))?;
        Ok(Collector { client, headers: headers(config)?, tally, is_failing: AtomicBool::new(false) })
    }

    /// With our headers only: the exporter adds those of `OTEL_EXPORTER_OTLP_HEADERS`, a token of another collector.
    fn request(&self, request: Request<Bytes>) -> reqwest::Result<reqwest::Request> {
        let (mut head, body) = request.into_parts();
        let content_type = head.headers.remove(CONTENT_TYPE);
        head.headers = self.headers.clone();
        head.headers.extend(content_type.map(|value| (CONTENT_TYPE, value)));
        reqwest::Request::try_from(Request::from_parts(head, body))
    }

    /// Says once what is wrong.
    fn failed(&self, reason: &str, what: &'static str) {
        if !self.is_failing.swap(true, Ordering::Relaxed) {
            warn!(reason, "{what}");
        }
    }

    fn worked(&self) {
        if self.is_failing.swap(false, Ordering::Relaxed) {
            info!("the collector takes spans again");
        }
    }
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        const WAITS: &str = "spans wait for the collector; deliveries do not";
        let sending = async { self.client.execute(self.request(request)?).await };
        let mut response = sending.await.map_err(|error| {
            let reason = reason(error);
            self.failed(&reason, WAITS);
            reason
        })?;
        let body = body(&mut response).await;
        match response.status() {
            status if status.is_success() => {
                self.tally.reject(rejected(&body));
                self.worked();
            }
            // Those that OTLP says to try again; the exporter does.
            status @ (StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT) => self.failed(&format!("status {status}"), WAITS),
            status => self.failed(&format!("status {status}"), "the collector refuses spans; deliveries go on"),
        }
        let mut answer = Response::new(body);
        *answer.status_mut() = response.status();
        *answer.headers_mut() = std::mem::take(response.headers_mut());
        Ok(answer)
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

/// What could be read of it; nothing if it is too long.
async fn body(response: &mut reqwest::Response) -> Bytes {
    let mut text = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        if text.len() + chunk.len() > ANSWER_BYTES_MAX {
            return Bytes::new();
        }
        text.extend_from_slice(&chunk);
    }
    text.into()
}

/// Spans of an accepted batch that the collector says it did not want.
fn rejected(body: &[u8]) -> usize {
    let answer = ExportTraceServiceResponse::decode(body).unwrap_or_default();
    answer.partial_success.and_then(|partial| usize::try_from(partial.rejected_spans).ok()).unwrap_or(0)
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
