//! Keeps the metrics of this process and renders them as Prometheus text.

use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use metrics::{counter, gauge};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use tracing::warn;

use super::catalog::{Kind, METRICS};
use super::{COMMIT, VERSION};

/// The process's metrics. The first call begins to keep them; what is recorded before is not kept.
pub fn handle() -> &'static PrometheusHandle {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    HANDLE.get_or_init(|| {
        let recorder = builder().expect("the catalogue's buckets are not empty").build_recorder();
        let handle = recorder.handle();
        if metrics::set_global_recorder(recorder).is_err() {
            // An app that embeds the crate keeps metrics of its own: ours are among them.
            warn!("this process has a metrics recorder already; /metrics stays empty");
        }
        describe();
        handle
    })
}

fn builder() -> Result<PrometheusBuilder, BuildError> {
    let mut builder = PrometheusBuilder::new();
    for metric in METRICS {
        if let Kind::Histogram(buckets) = metric.kind {
            builder = builder.set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), buckets)?;
        }
    }
    Ok(builder)
}

/// Says what each metric means, and shows counters without labels from the start: a rate needs its 0.
fn describe() {
    for metric in METRICS {
        match metric.kind {
            Kind::Counter => metrics::describe_counter!(metric.name, metric.help),
            Kind::Gauge => metrics::describe_gauge!(metric.name, metric.help),
            Kind::Histogram(_) => metrics::describe_histogram!(metric.name, metric.help),
        }
        if metric.kind == Kind::Counter && metric.labels.is_empty() {
            counter!(metric.name).increment(0);
        }
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    gauge!("process_start_time_seconds").set(now.as_secs_f64());
    gauge!("outboxd_build_info", "version" => VERSION, "commit" => COMMIT).set(1.0);
}
