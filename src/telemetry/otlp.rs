//! Spans of calls, exported over OTLP/HTTP when a collector is configured.
//!
//! A worker that is told to trace holds a [`Tracer`]; without a collector there is none and a call costs nothing more.
//! Spans are made by `tracing` and `tracing-opentelemetry`, in a subscriber of their own: the log's filter has no say in
//! them, and they have none in the log. A span that has ended waits in the queue of OpenTelemetry's batch processor, never
//! waited for; its thread gives batches to the OTLP exporter, and the [`Exporter`] ends it. What the collector does not
//! take in time is dropped and counted (`outboxd_spans_dropped_total`): tracing never slows a delivery.
//!
//! Limit: a call whose worker dies leaves no `send` span.

use chrono::{DateTime, Utc};
use opentelemetry::Context;
use opentelemetry::InstrumentationScope;
use opentelemetry::trace::{SpanKind, TraceContextExt as _, TracerProvider as _};
use opentelemetry_sdk::trace::{
    Sampler, SamplingDecision, SdkTracerProvider, ShouldSample as _, SpanLimits, TracerProviderBuilder,
};
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use tracing::field::Empty;
use tracing::level_filters::LevelFilter;
use tracing::{Dispatch, Span, dispatcher, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;

use super::VERSION;
use super::trace::{self, Traceparent};
use crate::config::TelemetryConfig;

mod exporter;
mod given;

pub use exporter::Error;
use given::{GivenIds, GivenStart, GivenTrace, GivenTracer};

/// The spans that are exported.
const TARGET: &str = "outboxd::call";

/// A tracer and the exporter behind it, if a collector is configured. `instance` is unique to this process. Requests
/// are made on the runtime that calls this.
pub fn open(config: &TelemetryConfig, instance: &str) -> Result<Option<(Tracer, Exporter)>, Error> {
    let Some(endpoint) = &config.otlp_endpoint else { return Ok(None) };
    let provider = provider().with_span_processor(exporter::processor(endpoint, config, instance)?).build();
    Ok(Some((Tracer::new(&provider, config.otlp_sample_ratio), Exporter(provider))))
}

/// Brings the last spans to the collector.
#[derive(Debug)]
pub struct Exporter(SdkTracerProvider);

impl Exporter {
    /// Waits for `stop`, and then for what is left, as far as that goes quickly.
    pub async fn run(self, stop: &CancellationToken) {
        exporter::run(self.0, stop).await;
    }
}

/// All of it said, so that the platform's OTEL_* variables do not count. Of what is not sampled no span is made.
fn provider() -> TracerProviderBuilder {
    SdkTracerProvider::builder()
        .with_sampler(Sampler::AlwaysOn)
        .with_span_limits(SpanLimits::default())
        .with_id_generator(GivenIds::default())
}

/// Makes spans of calls.
#[derive(Debug)]
pub struct Tracer {
    subscriber: Dispatch,
    sampler: Sampler,
}

/// What is told of a call: never its recipient, payload or headers, nor an error's text, which may name a host that is
/// the recipient's.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// The notification.
    pub notification: i64,
    /// What it is about.
    pub topic: &'a str,
    /// The channel that is called.
    pub channel: &'a str,
    /// 1 for the first attempt.
    pub attempt: u32,
    /// When its message was published.
    pub published_at: DateTime<Utc>,
}

/// How it ended.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    /// As in `outboxd_attempts_total`: sent, transient, permanent, unknown, refused.
    pub outcome: &'static str,
    /// The provider's status, if it answered.
    pub http_status: Option<u16>,
    /// Where it went wrong, if it did.
    pub error: Option<&'static str>,
}

/// A call under way that is traced.
#[derive(Debug)]
pub struct Traced {
    span: Span,
    /// What its provider is told.
    pub traceparent: Traceparent,
}

/// With what both spans of a call have.
macro_rules! span {
    ($name:literal, $call:expr, $($field:tt)*) => {
        info_span!(
            target: TARGET,
            parent: None,
            $name,
            outboxd.notification.id = $call.notification,
            outboxd.topic = $call.topic,
            outboxd.channel = $call.channel,
            outboxd.attempt = i64::from($call.attempt),
            $($field)*
        )
    };
}

impl Tracer {
    fn new(provider: &SdkTracerProvider, sample_ratio: f64) -> Tracer {
        let scope = InstrumentationScope::builder("outboxd").with_version(VERSION).build();
        let spans = tracing_opentelemetry::layer()
            .with_tracer(GivenTracer(provider.tracer_with_scope(scope)))
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            .with_context_activation(false);
        let only_calls = Targets::new().with_target(TARGET, LevelFilter::INFO);
        let subscriber = Dispatch::new(tracing_subscriber::registry().with(only_calls).with(spans));
        let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(sample_ratio)));
        Tracer { subscriber, sampler }
    }

    /// Begins the span of a call, if it is to be traced: as the row's `traceparent` says, else for the ratio of all rows.
    /// Before it, a span of its way through the queue.
    pub fn begin(&self, call: &Call<'_>, headers: Option<&RawValue>, webhook_id: &str) -> Option<Traced> {
        let parent = headers.and_then(trace::parent);
        let is_continued = parent.is_some();
        let (trace_id, context) = match parent {
            Some(parent) => (parent.trace_id(), Context::new().with_remote_span_context(parent)),
            None => {
                let trace_id = trace::trace_id_of(webhook_id);
                (trace_id, Context::new().with_value(GivenTrace(trace_id)))
            }
        };
        let sampled = self.sampler.should_sample(Some(&context), trace_id, "send", &SpanKind::Client, &[], &[]);
        if sampled.decision != SamplingDecision::RecordAndSample {
            return None;
        }
        // From the publication, by the database's clock, to now, by ours.
        drop(self.span(queued, call, context.with_value(GivenStart(call.published_at.into()))));
        let span = self.span(called, call, context)?;
        let begun = span.context().span().span_context().clone();
        let traceparent = Traceparent { text: trace::traceparent(&begun), is_continued };
        // None any more once the exporter has stopped.
        begun.is_valid().then_some(Traced { span, traceparent })
    }

    fn span(&self, make: fn(&Call<'_>) -> Span, call: &Call<'_>, parent: Context) -> Option<Span> {
        let span = dispatcher::with_default(&self.subscriber, || make(call));
        span.set_parent(parent).ok()?;
        Some(span)
    }
}

impl Traced {
    /// Ends it. Never waits.
    pub fn end(self, ended: &Ended) {
        self.span.record("outboxd.outcome", ended.outcome);
        if let Some(status) = ended.http_status {
            self.span.record("http.response.status_code", i64::from(status));
        }
        if let Some(error) = ended.error {
            self.span.record("otel.status_code", "error");
            // As the conventions for HTTP want it: the status where there is one.
            let status = ended.http_status.map(|status| status.to_string());
            self.span.record("error.type", status.as_deref().unwrap_or(error));
        }
    }
}

fn queued(call: &Call<'_>) -> Span {
    span!("queued", call, otel.kind = "internal")
}

fn called(call: &Call<'_>) -> Span {
    span!(
        "send",
        call,
        otel.name = format!("send {}", call.channel),
        otel.kind = "client",
        otel.status_code = Empty,
        outboxd.outcome = Empty,
        http.response.status_code = Empty,
        "error.type" = Empty,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";

    /// The traceparent of a call of this row, if it is traced.
    fn begin(tracer: &Tracer, traceparent: Option<&str>, webhook_id: &str) -> Option<Traceparent> {
        let call = Call { notification: 1, topic: "t", channel: "c", attempt: 1, published_at: Utc::now() };
        let headers = serde_json::json!({ "traceparent": traceparent }).to_string();
        let headers = RawValue::from_string(headers).unwrap();
        Some(tracer.begin(&call, traceparent.is_some().then_some(&headers), webhook_id)?.traceparent)
    }

    #[test]
    fn a_call_is_a_child_of_the_apps_span_and_follows_its_decision() {
        let [none, all] = [0.0, 1.0].map(|ratio| Tracer::new(&provider().build(), ratio));
        for flags in ["01", "03"] {
            let child = begin(&none, Some(&format!("00-{TRACE}-{SPAN}-{flags}")), "ntf-a-1-1").expect("sampled");
            assert!(child.is_continued && child.text.starts_with(&format!("00-{TRACE}-")), "{child:?}");
            assert!(child.text.ends_with(flags) && !child.text.contains(SPAN), "{child:?}");
        }
        assert!(begin(&all, Some(&format!("00-{TRACE}-{SPAN}-00")), "ntf-a-1-1").is_none());
        let root = begin(&all, Some("no traceparent"), "ntf-a-1-1").expect("a trace of its own");
        assert!(!root.is_continued && root.text.ends_with("-01"), "{root:?}");
        assert!(begin(&none, Some("no traceparent"), "ntf-a-1-1").is_none());
    }

    #[test]
    fn all_attempts_of_a_notification_share_a_trace_and_their_fate() {
        let instances = [(); 3].map(|()| Tracer::new(&provider().build(), 0.3));
        let mut sampled = 0;
        for n in 0..1000 {
            let webhook_id = format!("ntf-a-{n}-1");
            let attempts = instances.each_ref().map(|tracer| begin(tracer, None, &webhook_id));
            let traces: Vec<_> = attempts.iter().flatten().map(|attempt| &attempt.text[3..35]).collect();
            assert!(traces.is_empty() || traces == [traces[0]; 3], "all or none");
            sampled += usize::from(!traces.is_empty());
        }
        assert!((250..350).contains(&sampled), "{sampled} of 1000");
    }
}
