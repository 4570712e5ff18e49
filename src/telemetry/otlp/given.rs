//! What OpenTelemetry would choose itself and a notification gives: the id of a trace that begins with a call, and when a
//! span began. Both are told in the span's parent context.

use std::cell::Cell;
use std::time::SystemTime;

use opentelemetry::Context;
use opentelemetry::trace::{SpanBuilder, SpanId, TraceId, Tracer};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator, SdkTracer, Span};

/// The trace that a span without a parent begins.
pub(super) struct GivenTrace(pub(super) TraceId);

/// When a span began, if that is over.
pub(super) struct GivenStart(pub(super) SystemTime);

/// Makes spans as their contexts say.
#[derive(Debug, Clone)]
pub(super) struct GivenTracer(pub(super) SdkTracer);

impl Tracer for GivenTracer {
    type Span = Span;

    fn build_with_context(&self, mut builder: SpanBuilder, parent: &Context) -> Span {
        if let Some(GivenStart(start)) = parent.get() {
            // Two clocks: by ours it may be yet to come.
            builder.start_time = builder.start_time.map(|now| now.min(*start));
        }
        GIVEN.set(parent.get::<GivenTrace>().map(|trace| trace.0));
        self.0.build_with_context(builder, parent)
    }
}

thread_local! {
    /// For the span that this thread is about to build: an id generator is told nothing.
    static GIVEN: Cell<Option<TraceId>> = const { Cell::new(None) };
}

/// The trace's id is the given one, a span's is random.
#[derive(Debug, Default)]
pub(super) struct GivenIds(RandomIdGenerator);

impl IdGenerator for GivenIds {
    fn new_trace_id(&self) -> TraceId {
        GIVEN.take().unwrap_or_else(|| self.0.new_trace_id())
    }

    fn new_span_id(&self) -> SpanId {
        self.0.new_span_id()
    }
}
