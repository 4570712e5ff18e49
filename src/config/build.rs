//! From settings to the [`Config`] that the program is told.
//!
//! A value that was wrong or is missing has its error noted already, so a neutral one stands in: the result is
//! thrown away in the end, but the other parts can still be checked.

use std::collections::BTreeMap;
use std::time::Duration;

use super::key::KeyPath;
use super::live;
use super::section::{Section, named, section};
use super::settings::Settings;
use super::token;
use super::value::Value;
use super::{
    Backoff, ChannelConfig, CircuitConfig, Config, DatabaseConfig, EventsConfig, Method, QueueConfig, QueueKind,
    ReconcileConfig, RelayConfig, RetentionConfig, RouteConfig, TelemetryConfig, Wakeup, WhileHeld, WorkerConfig,
};

/// Builds the whole configuration.
pub(super) fn config(settings: &Settings) -> Config {
    let top = section(settings, "");
    let database = database(&section(settings, "database"));
    let redis_url = top.secret("redis_url");
    let worker = worker(&section(settings, "worker"));
    Config {
        queue: queue(&section(settings, "queue"), redis_url.is_some()),
        relay: relay(&section(settings, "relay"), database.pooler),
        reconcile: reconcile(&section(settings, "reconcile")),
        events: EventsConfig { stream_max: section(settings, "events").number("stream_max") },
        live: live::build(&section(settings, "live")),
        retention: retention(&section(settings, "retention")),
        telemetry: telemetry(&section(settings, "telemetry")),
        channels: named(settings, "channels", |s| channel(s, worker.concurrency)),
        routes: named(settings, "routes", route),
        database_url: top.secret("database_url").unwrap_or_default(),
        redis_url,
        http_addr: top.addr("http_addr"),
        http_token: top.secret("http_token"),
        tokens: named(settings, "tokens", token::build),
        database,
        worker,
    }
}

/// What was worked out from other keys, fit to print.
pub(super) fn derived(config: &Config) -> BTreeMap<KeyPath, String> {
    let kind = match config.queue.kind {
        QueueKind::Memory => "memory",
        QueueKind::List => "list",
        QueueKind::Stream => "stream",
    };
    let wakeup = match config.relay.wakeup {
        Wakeup::Bell => "bell",
        Wakeup::Poll => "poll",
    };
    let mut derived = BTreeMap::from([
        (KeyPath::dotted("queue.kind"), kind.to_owned()),
        (KeyPath::dotted("relay.wakeup"), wakeup.to_owned()),
    ]);
    let span = |span: Duration| humantime::format_duration(span).to_string();
    for (name, channel) in &config.channels {
        let at = KeyPath(vec!["channels".into(), name.clone()]);
        derived.insert(at.child("connect_timeout"), span(channel.connect_timeout));
        derived.insert(at.child("first_byte_timeout"), span(channel.first_byte_timeout));
        derived.insert(at.child("max_in_flight_per_origin"), channel.max_in_flight_per_origin.to_string());
    }
    for (name, token) in &config.tokens {
        let at = KeyPath(vec!["tokens".into(), name.clone()]);
        derived.insert(at.child("payloads"), token.payloads.to_string());
    }
    for (name, route) in &config.routes {
        let at = KeyPath(vec!["routes".into(), name.clone()]);
        derived.insert(at.child("attempts_before_failover"), route.attempts_before_failover.to_string());
    }
    derived
}

fn database(s: &Section<'_>) -> DatabaseConfig {
    DatabaseConfig {
        pool_size: s.number("pool_size"),
        api_pool_size: s.number("api_pool_size"),
        connect_timeout: s.duration("connect_timeout"),
        statement_timeout: s.duration("statement_timeout"),
        pooler: s.flag("pooler"),
    }
}

fn queue(s: &Section<'_>, has_redis: bool) -> QueueConfig {
    let kind = match s.text("kind").as_deref() {
        Some("memory") => QueueKind::Memory,
        Some("list") => QueueKind::List,
        Some("stream") => QueueKind::Stream,
        _ if has_redis => QueueKind::Stream,
        _ => QueueKind::Memory,
    };
    QueueConfig {
        kind,
        prefix: s.text("prefix").unwrap_or_default(),
        window: s.number("window"),
        consumer_ttl: s.duration("consumer_ttl"),
        deliveries_max: s.number("deliveries_max"),
        fallback_after: s.duration_or_never("fallback_after"),
    }
}

fn relay(s: &Section<'_>, pooler: bool) -> RelayConfig {
    let wakeup = match s.text("wakeup").as_deref() {
        Some("bell") => Wakeup::Bell,
        Some("poll") => Wakeup::Poll,
        _ if pooler => Wakeup::Poll,
        _ => Wakeup::Bell,
    };
    RelayConfig {
        republish_after: s.duration("republish_after"),
        wakeup,
        poll: s.duration("poll"),
        idle_poll: s.duration("idle_poll"),
    }
}

fn worker(s: &Section<'_>) -> WorkerConfig {
    WorkerConfig {
        concurrency: s.number("concurrency"),
        lease: s.duration("lease"),
        heartbeat: s.duration("heartbeat"),
        heartbeat_ttl: s.duration("heartbeat_ttl"),
        drain: s.duration("drain"),
    }
}

fn reconcile(s: &Section<'_>) -> ReconcileConfig {
    ReconcileConfig { published_after: s.duration("published_after"), every: s.duration("every") }
}

fn retention(s: &Section<'_>) -> RetentionConfig {
    RetentionConfig {
        sent: s.duration("sent"),
        failed: s.duration("failed"),
        canceled: s.duration("canceled"),
        attempts: s.duration("attempts"),
        events: s.duration("events"),
        inbox: s.duration("inbox"),
        idempotency: s.duration("idempotency"),
        audit: s.duration("audit"),
    }
}

fn telemetry(s: &Section<'_>) -> TelemetryConfig {
    TelemetryConfig {
        otlp_endpoint: s.text("otlp_endpoint"),
        otlp_headers: s.secrets("otlp_headers"),
        otlp_sample_ratio: s.ratio("otlp_sample_ratio"),
        service_name: s.text("service_name").unwrap_or_default(),
    }
}

fn channel(s: &Section<'_>, concurrency: usize) -> ChannelConfig {
    let timeout = s.duration("timeout");
    let connect = s.value("connect_timeout").map(|_| s.duration("connect_timeout"));
    let first_byte = s.value("first_byte_timeout").map(|_| s.duration("first_byte_timeout"));
    ChannelConfig {
        method: match s.text("method").as_deref() {
            Some("PUT") => Method::Put,
            _ => Method::Post,
        },
        url: s.text("url").unwrap_or_default(),
        timeout,
        connect_timeout: connect.unwrap_or(timeout.min(Duration::from_secs(2))),
        first_byte_timeout: first_byte.unwrap_or(timeout),
        headers: s.secrets_below("headers"),
        forward_headers: s.texts("forward_headers"),
        body: s.text("body"),
        content_type: s.text("content_type").unwrap_or_default(),
        accepted_when: s.text("accepted_when"),
        provider_id: s.text("provider_id"),
        secrets: s.secrets("secret"),
        rate_limit: match s.value("rate_limit") {
            Some(Value::Rate(rate)) => Some(rate),
            _ => None,
        },
        max_in_flight: s.value("max_in_flight").map(|_| s.number("max_in_flight")),
        max_in_flight_per_origin: match s.value("max_in_flight_per_origin") {
            Some(_) => s.number("max_in_flight_per_origin"),
            None => concurrency.div_ceil(2),
        },
        allow_private: s.flag("allow_private"),
        allow: s.networks("allow"),
        deny: s.networks("deny"),
        proxy: s.secret("proxy"),
        response_bytes_max: s.number("response_bytes_max"),
        retry_after_max: s.duration("retry_after_max"),
        circuit: CircuitConfig {
            failures: s.number("circuit.failures"),
            unauthorized: s.number("circuit.unauthorized"),
            open_for: s.duration("circuit.open_for"),
        },
    }
}

fn route(s: &Section<'_>) -> RouteConfig {
    let max_attempts = s.number("max_attempts");
    let before_failover = s.value("attempts_before_failover").map(|_| s.number("attempts_before_failover"));
    RouteConfig {
        channels: s.texts("channels"),
        max_attempts,
        attempts_before_failover: before_failover.unwrap_or(max_attempts.min(3)),
        backoff: Backoff {
            base: s.duration("backoff.base"),
            max: s.duration("backoff.max"),
            jitter: s.ratio("backoff.jitter"),
        },
        while_held: match s.text("while_held").as_deref() {
            Some("wait") => WhileHeld::Wait,
            _ => WhileHeld::Failover,
        },
    }
}

/// Notes the required keys that nobody gave.
pub(super) fn note_missing(settings: &mut Settings) {
    let mut required = vec![(KeyPath::dotted("database_url"), "set it, or the environment variable DATABASE_URL")];
    for name in settings.names("tokens") {
        let at = KeyPath(vec!["tokens".into(), name]);
        required.push((at.child("token"), "say what its callers present, such as \"${VAR}\""));
        required.push((at.child("scope"), "say what it may do: \"read\", \"write\" or \"operate\""));
    }
    for name in settings.names("channels") {
        required.push((KeyPath(vec!["channels".into(), name, "url".into()]), "say where the channel sends to"));
    }
    for name in settings.names("routes") {
        required.push((KeyPath(vec!["routes".into(), name, "channels".into()]), "list the channels in failover order"));
    }
    for (path, what) in required {
        if !settings.is_given(&path) && !settings.is_wrong(&path) {
            settings.error(&path, format!("is missing; {what}"));
        }
    }
}
