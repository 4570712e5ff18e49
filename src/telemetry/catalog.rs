//! Every metric there is. The table drives the descriptions in `/metrics`, the buckets, and `docs/metrics.md`; a test
//! fails when something is emitted that does not stand here.

use Kind::{Counter, Gauge, Histogram};

/// One metric.
#[derive(Debug)]
pub struct Metric {
    /// Its name, with the base unit and `_total` as Prometheus wants them.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// Its labels; each has few values.
    pub labels: &'static [&'static str],
    /// What it says, one sentence.
    pub help: &'static str,
}

/// What a metric is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// Only rises.
    Counter,
    /// Rises and falls.
    Gauge,
    /// A distribution over these buckets.
    Histogram(&'static [f64]),
}

impl Kind {
    /// As the text format spells it.
    pub fn name(self) -> &'static str {
        match self {
            Counter => "counter",
            Gauge => "gauge",
            Histogram(_) => "histogram",
        }
    }
}

/// From notify to SENT: milliseconds when all is well, hours after an outage.
const LATENCY: Kind = Histogram(&[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0, 21600.0,
]);
/// One call of a provider, bounded by the channel's timeout.
const CALL: Kind = Histogram(&[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0]);
/// The wait for a connection: nothing, unless the pool is too small or Postgres away.
const WAIT: Kind = Histogram(&[0.0001, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0]);
/// Rows handled by one statement or round trip.
const ROWS: Kind = Histogram(&[1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0]);

const fn metric(name: &'static str, kind: Kind, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind, labels, help }
}

/// Every metric, in the order of a notification's life.
// One line a metric reads as the table it is.
#[rustfmt::skip]
pub const METRICS: &[Metric] = &[
    metric("outboxd_rows", Gauge, &["topic", "status"], "Rows by topic and status, of all instances together: PENDING, QUEUED, PROCESSING, FAILED. Sampled; the same on every instance."),
    metric("outboxd_oldest_unpublished_age_seconds", Gauge, &[], "How long the oldest row that could be published has waited for it; 0 when none waits. What is paused, has no route, or waits for a circuit, a limit of its channel or its time does not count. Sampled; the same on every instance."),
    metric("outboxd_sampled_timestamp_seconds", Gauge, &[], "When the sampled gauges were last brought up to date, in seconds since 1970."),
    metric("outboxd_postgres_up", Gauge, &[], "1 while Postgres answers this instance, else 0, also until it has started. The sampled gauges keep their last values while it is 0."),
    metric("outboxd_health_level", Gauge, &["check"], "How each check of the view outboxd.health stands: 0 ok, 1 warn, 2 critical. Sampled every 30 s; the same on every instance."),
    metric("outboxd_published_total", Counter, &[], "Notifications pushed to the queue, copies included."),
    metric("outboxd_batch_rows", ROWS, &["step"], "Rows handled at a time, by step: publish, claim, record."),
    metric("outboxd_queue_depth", Gauge, &["backend"], "Messages pushed and not yet taken. The same on every instance that shares the queue."),
    metric("outboxd_queue_in_flight", Gauge, &["backend"], "Messages taken and not yet acknowledged. The same on every instance that shares the queue."),
    metric("outboxd_queue_reclaimed_total", Counter, &["backend"], "Messages taken over from dead or idle consumers."),
    metric("outboxd_queue_losses_total", Counter, &["backend"], "Times the queue was found to have lost messages."),
    metric("outboxd_queue_garbage_total", Counter, &["backend"], "Elements of the queue that were no message of ours and were dropped."),
    metric("outboxd_queue_fallback", Gauge, &[], "1 while this instance goes on through its own process because Redis is away (queue.fallback_after)."),
    metric("outboxd_lost_messages_republished_total", Counter, &[], "Rows published again because the queue had lost their messages."),
    metric("outboxd_claims_total", Counter, &["case"], "Messages by what their claim found: claimed; copies and stale messages dropped as held (PROCESSING), sent or stale; locked: another's open transaction has the row, the message comes again; unusable: the row cannot be read and is given up."),
    metric("outboxd_put_back_total", Counter, &[], "Messages that could not start within a second and went back unclaimed: their destination was busy or held, or their topic paused."),
    metric("outboxd_attempts_total", Counter, &["channel", "outcome"], "Attempts by channel and outcome. Calls of the provider: sent, transient, permanent, unknown. refused: nobody was called, because of a template or the guard against internal addresses."),
    metric("outboxd_attempt_duration_seconds", CALL, &["channel", "outcome"], "How long calls of providers took, by channel and outcome."),
    metric("outboxd_sent_total", Counter, &[], "Notifications that became SENT."),
    metric("outboxd_notify_to_sent_seconds", LATENCY, &[], "From notify(), or send_at if that is later, until SENT was recorded, by the database's clock."),
    metric("outboxd_seen_to_sent_seconds", LATENCY, &[], "From the last publication until SENT was recorded, by the database's clock."),
    metric("outboxd_retries_total", Counter, &[], "Attempts that failed and were followed by another."),
    metric("outboxd_dead_letters_total", Counter, &[], "Notifications that became FAILED."),
    metric("outboxd_unknown_outcomes_total", Counter, &[], "Attempts whose outcome nobody knows: timeouts after the request went out, workers that died."),
    metric("outboxd_duplicates_total", Counter, &[], "Deliveries of notifications that were SENT already: the provider has them twice, under one webhook-id."),
    metric("outboxd_late_successes_total", Counter, &[], "Deliveries recorded after their lease was over or their row had ended."),
    metric("outboxd_late_failures_total", Counter, &[], "Failures reported after their lease was over, which changed nothing."),
    metric("outboxd_released_total", Counter, &[], "Claims given back without a call: rate limits, an open circuit, a drain."),
    metric("outboxd_own_errors_total", Counter, &["error"], "Calls that could not be made because this process or its machine lacked something, by the system's name of it: EMFILE, ENFILE, ENOBUFS, ENOMEM, EADDRNOTAVAIL; LOOKUPS: as many names were being looked up as may be. They went back; none used up an attempt."),
    metric("outboxd_leases_ended_total", Counter, &[], "Claims ended because their lease was over or their worker dead."),
    metric("outboxd_retention_deleted_total", Counter, &["table"], "Rows deleted because their retention was over, by table."),
    metric("outboxd_channel_held_origins", Gauge, &["channel", "reason"], "Origins that are held. retry_after: the provider asked for it; failures, unauthorized: the circuit is open, or half-open until the next notification probes the origin."),
    metric("outboxd_channel_paused", Gauge, &["channel"], "1 while an operator's pause stops the channel."),
    metric("outboxd_database_pool_wait_seconds", WAIT, &["pool"], "The wait for a connection to Postgres, by pool: durable, relaxed, and request for callers over HTTP."),
    metric("outboxd_database_pool_connections_in_use", Gauge, &[], "Connections of the durable pool in use."),
    metric("outboxd_database_pool_connections_max", Gauge, &[], "Connections of the durable pool at most (database.pool_size)."),
    metric("outboxd_spans_exported_total", Counter, &[], "Spans that the collector has taken, two for each traced call."),
    metric("outboxd_spans_dropped_total", Counter, &[], "Spans that never reached the collector: it was away for too long, or refused them."),
    metric("outboxd_build_info", Gauge, &["version", "commit"], "1; its labels say what runs."),
    metric("process_start_time_seconds", Gauge, &[], "When this process began to keep metrics, in seconds since 1970."),
    metric("outboxd_schedule_prepared_total", Counter, &[], "Notifications prepared by schedules."),
    metric("outboxd_schedule_runs_failed_total", Counter, &[], "Runs of schedules that failed; see outboxd.schedule_runs."),
    metric("outboxd_schedule_runs_missed_total", Counter, &[], "Slots of schedules that were missed."),
    metric("outboxd_events_appended_total", Counter, &[], "Domain events appended to their streams, repeats included."),
    metric("outboxd_http_wrong_tokens_total", Counter, &["by"], "Tokens presented over HTTP that are none of the configured ones: bearer, login."),
    metric("outboxd_live_sessions", Gauge, &[], "Clients that listen to the live feed of this instance."),
    metric("outboxd_live_events_sent_total", Counter, &[], "Events written to clients of the live feed, each client counted."),
    metric("outboxd_live_refused_total", Counter, &[], "Clients of the live feed that were turned away because this instance has no room (live.sessions_max)."),
    metric("outboxd_live_closed_total", Counter, &["reason"], "Sessions of the live feed that ended: client, gone, slow, silent, noisy, expired, too_many, crowded, shutdown, unavailable."),
];
