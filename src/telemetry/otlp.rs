//! Spans of calls, exported over OTLP/HTTP when a collector is configured.
//!
//! A worker that is told to trace holds a [`Tracer`]; without a collector there is none and a call costs nothing more. A
//! span that is over is put into a bounded buffer, never waited for; the [`Exporter`] takes it from there. What the
//! collector does not take in time is dropped and counted (`outboxd_spans_dropped_total`): tracing never slows a delivery.
//!
//! Limit: a call whose worker dies leaves no span.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use chrono::{DateTime, Utc};
use metrics::counter;
use serde_json::value::RawValue;
use tokio::sync::Notify;

use super::trace::SpanContext;
use crate::config::TelemetryConfig;

mod encode;
mod exporter;

pub use exporter::{Error, Exporter};

/// Calls that wait for the collector at most; some 2 MB.
const WAITING_MAX: usize = 8192;
/// Calls told of in one request at most.
const BATCH_MAX: usize = 512;

/// A tracer and the exporter behind it, if a collector is configured. `instance` is unique to this process.
pub fn open(config: &TelemetryConfig, instance: &str) -> Result<Option<(Tracer, Exporter)>, Error> {
    let Some(endpoint) = &config.otlp_endpoint else { return Ok(None) };
    let buffer = Arc::new(Buffer::default());
    let exporter = Exporter::new(endpoint, config, instance, Arc::clone(&buffer))?;
    Ok(Some((Tracer { buffer, ratio: config.otlp_sample_ratio }, exporter)))
}

/// Makes spans of calls.
#[derive(Debug)]
pub struct Tracer {
    buffer: Arc<Buffer>,
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
    /// As in `outboxd_attempts_total`: sent, transient, permanent, unknown.
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
    pub fn end(&self, begun: Begun, call: Call) {
        // By the monotonic clock, so that a clock that is set meanwhile makes no span negative.
        let until = begun.at + begun.clock.elapsed();
        self.buffer.put(Span { context: begun.context, since: begun.at, until, call });
    }
}

/// Each call is two spans: its way through the queue, and the call itself.
fn spans_of(calls: usize) -> u64 {
    2 * calls as u64
}

/// A call that is over.
#[derive(Debug)]
struct Span {
    context: SpanContext,
    since: SystemTime,
    until: SystemTime,
    call: Call,
}

/// Spans between the calls and the exporter, which is woken by a full batch, not by each span.
#[derive(Debug, Default)]
struct Buffer {
    spans: Mutex<VecDeque<Span>>,
    full: Notify,
}

impl Buffer {
    fn put(&self, span: Span) {
        let mut spans = self.spans();
        if spans.len() >= WAITING_MAX {
            drop(spans);
            counter!("outboxd_spans_dropped_total").increment(spans_of(1));
            return;
        }
        spans.push_back(span);
        if spans.len() == BATCH_MAX {
            self.full.notify_one();
        }
    }

    /// The oldest, a batch at most.
    fn take(&self) -> Vec<Span> {
        let mut spans = self.spans();
        let count = spans.len().min(BATCH_MAX);
        spans.drain(..count).collect()
    }

    fn len(&self) -> usize {
        self.spans().len()
    }

    fn spans(&self) -> MutexGuard<'_, VecDeque<Span>> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_that_is_full_takes_nothing_more_and_gives_the_oldest_first() {
        let buffer = Arc::new(Buffer::default());
        let tracer = Tracer { buffer: Arc::clone(&buffer), ratio: 1.0 };
        for notification in 0..WAITING_MAX as i64 + 10 {
            let begun = tracer.begin(None, "ntf-a-1-1").expect("all are traced");
            let call = Call {
                notification,
                topic: Arc::from("orders"),
                channel: Arc::from("push"),
                attempt: 1,
                published_at: Utc::now(),
                outcome: "sent",
                http_status: Some(200),
                error: None,
            };
            tracer.end(begun, call);
        }
        assert_eq!(buffer.len(), WAITING_MAX);
        let batch: Vec<i64> = buffer.take().iter().map(|span| span.call.notification).collect();
        assert_eq!(batch, (0..BATCH_MAX as i64).collect::<Vec<_>>());
        assert_eq!(buffer.len(), WAITING_MAX - BATCH_MAX);
    }
}
