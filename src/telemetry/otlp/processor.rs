//! The SDK's batch processor, with a count of what it has no room for, which it keeps to itself.

use std::sync::Arc;
use std::time::Duration;

use metrics::counter;
use opentelemetry::Context;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, Span, SpanData, SpanProcessor};

use super::exporter::{Batches, Tally};

/// Spans that wait for the collector at most: two for each of 8,192 calls, some 14 MB, of which the queue takes 6 when made.
pub(super) const WAITING_MAX: usize = 2 * 8192;

/// Where spans wait for the collector.
#[derive(Debug)]
pub(super) struct Processor {
    batches: BatchSpanProcessor,
    tally: Arc<Tally>,
}

impl Processor {
    pub(super) fn new(batches: Batches, tally: &Arc<Tally>) -> Processor {
        // All of it said, so that the platform's OTEL_BSP_* variables do not count.
        let config = BatchConfigBuilder::default()
            .with_max_queue_size(WAITING_MAX)
            .with_max_export_batch_size(1024)
            .with_scheduled_delay(Duration::from_secs(1))
            .build();
        Processor { batches: BatchSpanProcessor::new(batches, config), tally: Arc::clone(tally) }
    }
}

impl SpanProcessor for Processor {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.batches.on_start(span, context);
    }

    fn on_end(&self, mut span: SpanData) {
        if !self.tally.may_wait() {
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
