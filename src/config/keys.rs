//! The table of all keys: what each takes, what happens without it, what it means.
//!
//! **Guarantee.** Every default is within its bounds and stands in the example file and in `docs/configuration.md`;
//! tests compare. **Limit.** What is `Derived` is said here in words and worked out in `build`.

use super::key::{Fallback, Key, Kind};
use Fallback::{Absent, Derived, Required, Value};
use Kind::{
    Addr, Bytes, Choice, Duration, DurationOrNever, Flag, Integer, Networks, Rate, Ratio, Secret, SecretUrl, Secrets,
    Text, Texts,
};

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Spans that pass while something waits: at least a hundredth of a second, at most an hour.
const PAUSE: Kind = Duration(10, HOUR);
/// How long ended rows are kept.
const KEPT: Kind = Duration(MINUTE, 3650 * DAY);

const fn key(path: &'static str, kind: Kind, fallback: Fallback, doc: &'static str) -> Key {
    Key { path, kind, fallback, doc }
}

/// Every key there is, in the order of the example file.
// One line a key reads as the table it is.
#[rustfmt::skip]
pub const KEYS: &[Key] = &[
    key("database_url", SecretUrl, Required("set it, or the environment variable DATABASE_URL"), "Where the record lives; also DATABASE_URL."),
    key("redis_url", SecretUrl, Absent("none: the in-process queue"), "Where messages travel; also REDIS_URL."),
    key("http_addr", Addr, Value("127.0.0.1:8080"), "Where the HTTP endpoints listen; off loopback needs a token."),
    key("http_token", Secret, Absent("none"), "A bearer token that may do everything over HTTP, 16 characters or more."),
    key("database.pool_size", Integer(2, 500), Value("10"), "Connections for claims and outcomes at most; 3 more publish, and 1 listens."),
    key("database.api_pool_size", Integer(1, 500), Value("16"), "Connections of callers over HTTP at most, made as they are needed."),
    key("database.connect_timeout", Duration(100, MINUTE), Value("5s"), "How long to wait for a connection to be made."),
    key("database.statement_timeout", Duration(SECOND, HOUR), Value("30s"), "The server-side limit of one of our statements."),
    key("database.pooler", Flag, Value("false"), "A transaction-mode pooler (PgBouncer) stands in between."),
    key("queue.kind", Choice(&["stream", "list", "memory"]), Derived("stream with a redis_url, else memory"), "Which backend carries messages."),
    key("queue.prefix", Text, Value("outboxd"), "The first part, and hash tag, of every Redis key."),
    key("queue.window", Integer(1, 1_000_000), Value("10000"), "Rows that wait in the queue at most, over all instances."),
    key("queue.consumer_ttl", Duration(SECOND, HOUR), Value("15s"), "How long a consumer counts as alive in Redis after its last sign."),
    key("queue.deliveries_max", Integer(1, 1_000), Value("10"), "Deliveries of one message before it counts as a failed attempt."),
    key("queue.fallback_after", DurationOrNever(SECOND, DAY), Value("10s"), "An instance that has not reached Redis for so long goes on through a queue in its own process; it needs the roles relay and worker."),
    key("relay.republish_after", Duration(100, HOUR), Value("5s"), "What was reserved and is not confirmed as published within this time is published again."),
    key("relay.wakeup", Choice(&["bell", "poll"]), Derived("bell; poll with database.pooler"), "How commits are seen: sleep until the doorbell rings, or poll only."),
    key("relay.poll", Duration(1, MINUTE), Value("50ms"), "The longest pause between polls while awake."),
    key("relay.idle_poll", Duration(100, 4_000), Value("2s"), "The slow poll of a sleeping instance; it also keeps the doorbell fresh, so 4s at most."),
    key("worker.concurrency", Integer(1, 10_000), Value("256"), "Calls under way at most, per instance."),
    key("worker.payload_bytes_max", Bytes(64 << 10, 64 << 30), Value("64MiB"), "Bytes of payloads and bodies over 16 KiB at most that are being sent, per instance; a larger one goes alone."),
    key("worker.lease", Duration(SECOND, DAY), Value("60s"), "How long a claim holds without renewal; more than the longest channel timeout."),
    key("worker.heartbeat", Duration(100, HOUR), Value("5s"), "How often an instance says that it is alive."),
    key("worker.heartbeat_ttl", Duration(SECOND, DAY), Value("15s"), "How long after its last heartbeat an instance counts as dead; more than twice the heartbeat."),
    key("worker.drain", PAUSE, Value("25s"), "How long a stop waits for calls under way."),
    key("reconcile.published_after", Duration(SECOND, DAY), Value("10m"), "What was published this long ago without progress is published again."),
    key("reconcile.every", Duration(SECOND, DAY), Value("2m"), "How often to check for it."),
    key("events.stream_max", Integer(100, 10_000_000), Value("100000"), "Events that the Redis stream of a topic keeps, about; a consumer group further behind than this is cut."),
    key("live.sessions_max", Integer(1, 200_000), Value("5000"), "WebSockets of the live feed at most, per instance; each takes an open file."),
    key("live.heartbeat", Duration(100, HOUR), Value("20s"), "How often a client of the live feed is pinged; one that is silent for twice as long is closed."),
    key("live.allowed_origins", Texts, Value(""), "Origins whose pages may listen without a ticket, such as https://shop.example; our own always may."),
    key("retention.sent", KEPT, Value("7d"), "How long SENT notifications are kept."),
    key("retention.failed", KEPT, Value("30d"), "How long FAILED notifications are kept."),
    key("retention.canceled", KEPT, Value("7d"), "How long CANCELED notifications are kept."),
    key("retention.attempts", KEPT, Value("30d"), "How long attempts are kept."),
    key("retention.events", KEPT, Value("7d"), "How long events of publish() are kept."),
    key("retention.inbox", KEPT, Value("7d"), "How long inbox entries of receive() are kept; at least as long as events."),
    key("retention.idempotency", KEPT, Value("1d"), "How long a repeat under an Idempotency-Key gets the first answer."),
    key("retention.audit", KEPT, Value("90d"), "How long operators' actions are kept."),
    key("telemetry.otlp_endpoint", Text, Absent("none: no spans"), "Where spans of calls go, an OTLP/HTTP collector such as http://127.0.0.1:4318, to which /v1/traces is added; also OTEL_EXPORTER_OTLP_ENDPOINT."),
    key("telemetry.otlp_headers", Secrets, Absent("none"), "Headers for the collector, each as name=value."),
    key("telemetry.otlp_sample_ratio", Ratio, Value("1.0"), "The share of notifications without a traceparent that is traced, 0 to 1; one with a traceparent is traced if that says so."),
    key("telemetry.service_name", Text, Value("outboxd"), "What the spans say they come from (service.name); also OTEL_SERVICE_NAME."),
    key("tokens.*.token", Secret, Required("say what its callers present, such as \"${VAR}\""), "What callers of the HTTP endpoints present as a bearer token, 16 characters or more; their actions bear its name."),
    key("tokens.*.scope", Choice(&["read", "write", "operate"]), Required("say what it may do: \"read\", \"write\" or \"operate\""), "What it may do: read everything; write notifications and ask what became of one; everything."),
    key("tokens.*.topics", Texts, Absent("all"), "The topics that it may read, write to, listen to and act on: names, or beginnings as order.*."),
    key("tokens.*.payloads", Flag, Derived("true with operate, else false"), "Whether it sees payloads, headers and whole recipients, keys and origins."),
    key("channels.*.method", Choice(&["POST", "PUT"]), Value("POST"), "The request's method."),
    key("channels.*.url", Text, Required("say where the channel sends to"), "A template; where it names data, the SSRF guard stands at connect."),
    key("channels.*.timeout", Duration(10, HOUR), Value("5s"), "Connect, first byte and body together."),
    key("channels.*.connect_timeout", PAUSE, Derived("2s, or the timeout if that is less"), "Connecting alone, TLS included."),
    key("channels.*.first_byte_timeout", PAUSE, Derived("the timeout"), "From the request sent to the response's head."),
    key("channels.*.headers.*", Secret, Absent("none"), "A header's value, a template; its name is the key."),
    key("channels.*.with.*", Secret, Absent("none"), "A constant of the channel, which templates read as with.NAME."),
    key("channels.*.forward_headers", Texts, Value(""), "Headers of a row that are sent on: names, or beginnings as x-*. traceparent and tracestate always are; one that neither this names nor a template reads fails the attempt."),
    key("channels.*.body", Text, Absent("the standard envelope"), "A template."),
    key("channels.*.content_type", Text, Value("application/json"), "The body's content type."),
    key("channels.*.accepted_when", Text, Absent("none: every 2xx is a delivery"), "A template over the `response` of a 2xx, for providers that say no inside one: gives true, transient (tried again) or permanent (the next channel), with what the error is to say as in `permanent: why`."),
    key("channels.*.provider_id", Text, Absent("none"), "A template over the `response` of a 2xx: the provider's own id, kept and shown."),
    key("channels.*.secret", Secrets, Absent("none: unsigned"), "Standard Webhooks secret (whsec_…); a list during rotation, the first signs first."),
    key("channels.*.rate_limit", Rate, Absent("none"), "Calls started at most, per instance: 100/s, 1000/m."),
    key("channels.*.max_in_flight", Integer(1, 10_000), Absent("none"), "Calls under way at most, per instance."),
    key("channels.*.max_in_flight_per_origin", Integer(1, 10_000), Derived("half of worker.concurrency"), "Calls under way at most to one origin, where the URL comes from data."),
    key("channels.*.allow_private", Flag, Value("false"), "Permits private, loopback and link-local addresses for URLs that come from data."),
    key("channels.*.allow", Networks, Value(""), "Networks that a URL from data may reach although the guard would refuse."),
    key("channels.*.deny", Networks, Value(""), "Networks that no URL of this channel may reach."),
    key("channels.*.proxy", SecretUrl, Absent("as HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY say; none where data names the host or deny is set"), "The forward proxy that requests go through, such as http://egress:4750; it resolves names itself, so the guard checks only IP addresses in URLs and the proxy must refuse private destinations."),
    key("channels.*.response_bytes_max", Bytes(1_024, 16 << 20), Value("16KiB"), "Response bytes read at most."),
    key("channels.*.retry_after_max", Duration(SECOND, 7 * DAY), Value("1h"), "The longest Retry-After that is honoured."),
    key("channels.*.circuit.failures", Integer(1, 100_000), Value("10"), "Failures in a row that open the circuit."),
    key("channels.*.circuit.unauthorized", Integer(1, 100_000), Value("5"), "401 and 403 in a row, over all instances, that open the circuit."),
    key("channels.*.circuit.open_for", Duration(100, DAY), Value("30s"), "How long the circuit stays open before a single probe; each probe that fails doubles it."),
    key("channels.*.circuit.open_max", Duration(100, DAY), Value("5m"), "The longest that the circuit stays open before the next probe, unless the provider asks for more (retry_after_max); never less than open_for."),
    key("routes.*.channels", Texts, Required("list the channels in failover order"), "The channels in failover order."),
    key("routes.*.max_attempts", Integer(1, 100), Value("10"), "Attempts per channel: the first and its retries. With the default waits ten take 43 minutes."),
    key("routes.*.attempts_before_failover", Integer(1, 100), Derived("3, or max_attempts if that is less"), "Attempts on every channel but the last before moving on."),
    key("routes.*.backoff.base", Duration(10, DAY), Value("5s"), "The wait after the first failure; it doubles each time."),
    key("routes.*.backoff.max", Duration(10, 7 * DAY), Value("1h"), "The longest wait."),
    key("routes.*.backoff.jitter", Ratio, Value("0.2"), "The share of the wait that is random, 0 to 1."),
    key("routes.*.while_held", Choice(&["failover", "wait"]), Value("failover"), "While a channel's circuit is open because calls fail: use the next channel at once, or wait. For a pause, 401/403 or Retry-After it always waits."),
];
