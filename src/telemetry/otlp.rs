//! Spans of calls, exported over OTLP/HTTP when a collector is configured.
//!
//! A worker that is told to trace holds a [`Tracer`]; without a collector there is none and a call costs nothing more.
//! A call that is over becomes spans in the queue of OpenTelemetry's batch processor, never waited for; its thread gives
//! them to the OTLP exporter in batches, and the [`Exporter`] ends it. What the collector does not take in time is
//! dropped and counted (`outboxd_spans_dropped_total`): tracing never slows a delivery.
//!
//! Neither the SDK's own tracer nor `tracing-opentelemetry` makes the spans: both take no trace id for a trace that begins,
//! and ours is made from the webhook-id; the latter's spans begin when they are made, and `queued` began at the publication.
//!
//! Limit: a call whose worker dies leaves no span.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use chrono::{DateTime, Utc};
use metrics::counter;
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, SpanProcessor as _};
use serde_json::value::RawValue;

use super::trace::SpanContext;
use crate::config::TelemetryConfig;

mod collector;
mod exporter;
mod span;

use exporter::Tally;
pub use exporter::{Error, Exporter};

/// Each call is two spans: its way through the queue, and the call itself.
const SPANS_PER_CALL: usize = 2;
/// Spans that wait for the collector at most: those of 8,192 calls, some 14 MB, of which the queue takes 6 when made.
const WAITING_MAX: usize = 8192 * SPANS_PER_CALL;

/// A tracer and the exporter behind it, if a collector is configured. `instance` is unique to this process. Requests
/// are made on the runtime that calls this.
pub fn open(config: &TelemetryConfig, instance: &str) -> Result<Option<(Tracer, Exporter)>, Error> {
    let Some(endpoint) = &config.otlp_endpoint else { return Ok(None) };
    let tally = Arc::new(Tally::default());
    let batches = exporter::batches(endpoint, config, instance, &tally)?;
    let cut_off = batches.cut_off.clone();
    // Said, so that the platform's OTEL_BSP_* variables do not count.
    let batch_config = BatchConfigBuilder::default()
        .with_max_queue_size(WAITING_MAX)
        .with_max_export_batch_size(512 * SPANS_PER_CALL)
        .with_scheduled_delay(Duration::from_secs(1))
        .build();
    let processor = Arc::new(BatchSpanProcessor::new(batches, batch_config));
    let tracer =
        Tracer { processor: Arc::clone(&processor), tally: Arc::clone(&tally), ratio: config.otlp_sample_ratio };
    Ok(Some((tracer, Exporter { processor, tally, cut_off })))
}

/// Makes spans of calls.
#[derive(Debug)]
pub struct Tracer {
    processor: Arc<BatchSpanProcessor>,
    tally: Arc<Tally>,
    ratio: f64,
}

/// A call under way.
#[derive(Debug, Clone, Copy)]
pub struct Begun {
    /// Its place in its trace.
    pub context: SpanContext,
    at: SystemTime,
    clock: Instant,
}

/// What is told of a call: never its recipient, payload or headers, nor an error's text, which may name a host that is
/// the recipient's.
#[derive(Debug)]
pub struct Call {
    /// The notification.
    pub notification: i64,
    /// What it is about.
    pub topic: Arc<str>,
    /// The channel that was called.
    pub channel: Arc<str>,
    /// 1 for the first attempt.
    pub attempt: u32,
    /// When its message was published.
    pub published_at: DateTime<Utc>,
    /// As in `outboxd_attempts_total`: sent, transient, permanent, unknown, refused.
    pub outcome: &'static str,
    /// The provider's status, if it answered.
    pub http_status: Option<u16>,
    /// Where it went wrong, if it did.
    pub error: Option<&'static str>,
}

impl Tracer {
    /// Begins the span of a call, if it is to be traced.
    pub fn begin(&self, headers: Option<&RawValue>, webhook_id: &str) -> Option<Begun> {
        let context = SpanContext::begin(headers, webhook_id, self.ratio)?;
        Some(Begun { context, at: SystemTime::now(), clock: Instant::now() })
    }

    /// Ends it. Never waits.
    pub fn end(&self, begun: Begun, call: &Call) {
        // Counted here, because the processor keeps to itself what it drops.
        if !self.tally.may_wait(SPANS_PER_CALL) {
            counter!("outboxd_spans_dropped_total").increment(SPANS_PER_CALL as u64);
            return;
        }
        // By the monotonic clock, so that a clock that is set meanwhile makes no span negative.
        let until = begun.at + begun.clock.elapsed();
        self.processor.on_end(span::queued(&begun, call));
        self.processor.on_end(span::called(&begun, until, call));
    }
}
