//! Every setting: a field, what it takes, what happens without it, and what it means.
//!
//! `name: type = kind, fallback;`, with a check where the kind says too little, is all there is to a setting. Its path
//! in the file, its environment variable, its row in `docs/configuration.md` and its lines in `outboxd.example.toml`
//! follow: of its comment the page has the first paragraph, the example all.
//!
//! **Guarantee.** Every default is within its bounds and stands in both pages; tests compare. **Limit.** What is
//! [`Derived`] is said here in words and worked out in `settings.rs`; how two settings stand to each other is in
//! `validate`.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use ipnet::IpNet;
use secrecy::SecretString;
use serde::Deserialize;

use super::choice::{Method, QueueKind, RateLimit, Scope, Wakeup, WhileHeld};

use super::key::Fallback::{Absent, Derived, Required, Value};
use super::key::Kind::{
    Addr, Bytes, Choice, Flag, Integer, Networks, Rate, Ratio, Secret, SecretUrl, Secrets, Span, SpanOrNever, Text,
    Texts,
};
use super::key::{DAY, HOUR, KEPT, Key, MINUTE, PAUSE, SECOND, settings};
use super::legal;

settings! {
    /// Everything an instance is told at start, validated.
    #[derive(Debug)]
    Config "" {
        /// Where the record lives; also DATABASE_URL.
        ///
        /// A URL, or libpq's form: "host=db user=app dbname=app". TLS: ?sslmode=disable | prefer (default) | require
        /// (encrypted, not verified) | verify-ca | verify-full, and &sslrootcert=/path/ca.pem, or sslrootcert=system
        /// with verify-full.
        database_url: SecretString = SecretUrl, Required("set it, or the environment variable DATABASE_URL"), legal::database_url;
        /// Where messages travel; also REDIS_URL.
        ///
        /// Without it, messages stay in this process, which then holds all roles. Several hosts:
        /// "redis://a:6379,b:6379" (a cluster is recognised); "redis+sentinel://a:26379,b:26379/name"; "rediss://" for
        /// TLS, verified against the system's CAs (SSL_CERT_FILE names others).
        redis_url: Option<SecretString> = SecretUrl, Absent("none: the in-process queue"), legal::redis_url;
        /// Where the HTTP endpoints listen; off loopback needs a token.
        http_addr: SocketAddr = Addr, Value("127.0.0.1:8080");
        /// A bearer token that may do everything over HTTP, 16 characters or more.
        ///
        /// It is presented as "Authorization: Bearer …" or typed into the dashboard's login; make one with: openssl rand
        /// -hex 32. [tokens.NAME] below are for those who may do less. Without any token everybody on loopback may do
        /// everything.
        http_token: Option<SecretString> = Secret, Absent("none"), legal::token;
    } + {
        /// The Postgres pool.
        pub database: DatabaseConfig,
        /// The queue.
        pub queue: QueueConfig,
        /// The relay.
        pub relay: RelayConfig,
        /// The workers.
        pub worker: WorkerConfig,
        /// The sweeps of last resort.
        pub reconcile: ReconcileConfig,
        /// Domain events.
        pub events: EventsConfig,
        /// The live feed.
        pub live: LiveConfig,
        /// How long ended rows are kept.
        pub retention: RetentionConfig,
        /// Where spans go.
        pub telemetry: TelemetryConfig,
        /// Who else may do what over HTTP, by name. Off loopback there is at least one token.
        #[serde(default)]
        pub tokens: BTreeMap<String, TokenConfig>,
        /// Providers, by name.
        #[serde(default)]
        pub channels: BTreeMap<String, ChannelConfig>,
        /// Which channels a topic uses, by topic; `default` serves the rest.
        #[serde(default)]
        pub routes: BTreeMap<String, RouteConfig>,
    }

    /// `[database]`
    #[derive(Debug)]
    DatabaseConfig "database." {
        /// Connections for claims and outcomes at most; 3 more publish, and 1 listens.
        pool_size: usize = Integer(2, 500), Value("10");
        /// Connections of callers over HTTP at most, beside those and made as they are needed.
        api_pool_size: usize = Integer(1, 500), Value("16");
        /// How long to wait for a connection to be made.
        connect_timeout: Duration = Span(100, MINUTE), Value("5s");
        /// The server-side limit of one of our statements.
        statement_timeout: Duration = Span(SECOND, HOUR), Value("30s");
        /// A transaction-mode pooler (PgBouncer) stands in between.
        ///
        /// Then there are no prepared statements, no session settings, and no LISTEN.
        pooler: bool = Flag, Value("false");
    }

    /// `[queue]`
    #[derive(Debug)]
    QueueConfig "queue." {
        /// Which backend carries messages: "stream" or "list" (both Redis), or "memory" (this process alone).
        kind: QueueKind = Choice(QueueKind::WORDS), Derived("stream with a redis_url, else memory");
        /// The first part, and hash tag, of every Redis key.
        prefix: String = Text, Value("outboxd"), legal::prefix;
        /// Rows that wait in the queue at most, over all instances; the rest wait in Postgres.
        window: u32 = Integer(1, 1_000_000), Value("10000");
        /// How long a consumer counts as alive in Redis after its last sign.
        consumer_ttl: Duration = Span(SECOND, HOUR), Value("15s");
        /// Deliveries of one message before it counts as a failed attempt.
        deliveries_max: u32 = Integer(1, 1_000), Value("10");
        /// An instance that has not reached Redis for so long goes on through a queue in its own process, and back
        /// through Redis when that answers; it needs the roles relay and worker.
        ///
        /// "never": deliveries wait for Redis.
        fallback_after: Option<Duration> = SpanOrNever(SECOND, DAY), Value("10s");
    }

    /// `[relay]`
    #[derive(Debug)]
    RelayConfig "relay." {
        /// What was reserved and is not confirmed as published within this time is published again.
        republish_after: Duration = Span(100, HOUR), Value("5s");
        /// How commits are seen: "bell" sleeps until Postgres rings, "poll" only polls.
        wakeup: Wakeup = Choice(Wakeup::WORDS), Derived("bell; poll with database.pooler");
        /// The longest pause between polls while awake, and always with wakeup = "poll".
        poll: Duration = Span(1, MINUTE), Value("50ms");
        /// The slow poll of a sleeping instance; it also keeps the doorbell fresh, so 4s at most.
        idle_poll: Duration = Span(100, 4_000), Value("2s");
    }

    /// `[worker]`
    #[derive(Debug)]
    WorkerConfig "worker." {
        /// Calls under way at most, per instance.
        concurrency: usize = Integer(1, 10_000), Value("256");
        /// Bytes of payloads and bodies over 16 KiB at most that are being sent, per instance; a larger one goes alone.
        ///
        /// A topic may have half of what others leave.
        payload_bytes_max: usize = Bytes(64 << 10, 64 << 30), Value("64MiB");
        /// How long a claim holds without renewal; more than the longest channel timeout.
        lease: Duration = Span(SECOND, DAY), Value("60s");
        /// How often an instance says that it is alive.
        heartbeat: Duration = Span(100, HOUR), Value("5s");
        /// How long after its last heartbeat an instance counts as dead; more than twice the heartbeat.
        heartbeat_ttl: Duration = Span(SECOND, DAY), Value("15s");
        /// How long a stop waits for calls under way.
        drain: Duration = PAUSE, Value("25s");
    }

    /// `[reconcile]`
    #[derive(Debug)]
    ReconcileConfig "reconcile." {
        /// The last net: what was published this long ago without progress is published again.
        published_after: Duration = Span(SECOND, DAY), Value("10m");
        /// How often to check for it.
        every: Duration = Span(SECOND, DAY), Value("2m");
    }

    /// `[events]`
    #[derive(Debug)]
    EventsConfig "events." {
        /// Events of publish() that the Redis stream of a topic keeps, about; a consumer group further behind is cut.
        ///
        /// outboxd.health tells before.
        stream_max: u32 = Integer(100, 10_000_000), Value("100000");
    }

    /// `[live]`: the feed for an app's own clients.
    #[derive(Debug)]
    LiveConfig "live." {
        /// WebSockets of the live feed at most, per instance; each takes an open file.
        ///
        /// Mind LimitNOFILE, ulimit -n.
        sessions_max: usize = Integer(1, 200_000), Value("5000");
        /// How often a client of the live feed is pinged; one that is silent for twice as long is closed.
        heartbeat: Duration = Span(100, HOUR), Value("20s");
        /// Origins whose pages may listen without a ticket, such as https://shop.example; our own always may.
        allowed_origins: Vec<String> = Texts, Value(""), legal::origin;
    }

    /// `[retention]`
    #[derive(Debug)]
    RetentionConfig "retention." {
        /// How long SENT notifications are kept.
        sent: Duration = KEPT, Value("7d");
        /// How long FAILED notifications are kept.
        failed: Duration = KEPT, Value("30d");
        /// How long CANCELED notifications are kept.
        canceled: Duration = KEPT, Value("7d");
        /// How long attempts are kept that failed, stayed unknown or were duplicates.
        attempts: Duration = KEPT, Value("30d");
        /// How long events of publish() are kept; also how far back a Redis that lost them gets them again.
        events: Duration = KEPT, Value("7d");
        /// How long inbox entries of receive() are kept; at least as long as events, or one that is appended again
        /// would take effect again.
        inbox: Duration = KEPT, Value("7d");
        /// How long a repeat of POST /v1/notifications under the same Idempotency-Key gets the first answer.
        idempotency: Duration = KEPT, Value("1d");
        /// How long operators' actions are kept.
        audit: Duration = KEPT, Value("90d");
    }

    /// `[telemetry]`
    #[derive(Debug)]
    TelemetryConfig "telemetry." {
        /// Where spans of calls go, an OTLP/HTTP collector such as http://127.0.0.1:4318, to which /v1/traces is added;
        /// also OTEL_EXPORTER_OTLP_ENDPOINT, which counts only if the key is not given.
        otlp_endpoint: Option<String> = Text, Absent("none: no spans"), legal::otlp_endpoint;
        /// Headers for the collector, each as name=value.
        otlp_headers: Vec<SecretString> = Secrets, Absent("none"), legal::otlp_header;
        /// The share of notifications without a traceparent that is traced, 0 to 1; one with a traceparent is traced if
        /// that says so.
        otlp_sample_ratio: f64 = Ratio, Value("1.0");
        /// What the spans say they come from (service.name); also OTEL_SERVICE_NAME.
        service_name: String = Text, Value("outboxd"), legal::service_name;
    }

    /// `[tokens.NAME]`: who may do what over HTTP.
    #[derive(Debug)]
    TokenConfig "tokens.*." {
        /// What callers of the HTTP endpoints present as a bearer token, 16 characters or more; their actions bear its
        /// name.
        token: SecretString = Secret, Required("say what its callers present, such as \"${VAR}\""), legal::token;
        /// What it may do: "read" reads everything; "write" writes notifications and asks what became of one; "operate"
        /// does everything.
        scope: Scope = Choice(Scope::WORDS), Required("say what it may do: \"read\", \"write\" or \"operate\"");
        /// The topics that it may read, write to, listen to and act on: names, or beginnings as order.*.
        topics: Option<Vec<String>> = Texts, Absent("all"), legal::topics;
        /// Whether it sees payloads, headers and whole recipients.
        payloads: bool = Flag, Derived("true with operate, else false");
    }

    /// `[channels.NAME]`: one provider, called over HTTP.
    ChannelConfig "channels.*." {
        /// The request's method: "POST" or "PUT".
        method: Method = Choice(Method::WORDS), Value("POST");
        /// Where requests go, a template; where it names data, the SSRF guard stands at connect.
        url: String = Text, Required("say where the channel sends to"), legal::url;
        /// Connect, first byte and body together.
        timeout: Duration = Span(10, HOUR), Value("5s");
        /// Connecting alone, TLS included.
        connect_timeout: Duration = PAUSE, Derived("2s, or the timeout if that is less");
        /// From the request sent to the response's head.
        first_byte_timeout: Duration = PAUSE, Derived("the timeout");
        /// A header's value, a template; its name is the key.
        headers.*: BTreeMap<String, SecretString> [serde(default)] = Secret, Absent("none"), legal::header_value;
        /// A constant of the channel, which templates read as with.NAME.
        ///
        /// Such as the parts of a signature. See docs/channels.md.
        with.*: BTreeMap<String, SecretString> [serde(default)] = Secret, Absent("none");
        /// Headers of a row that are sent on: names, or beginnings as x-*. traceparent and tracestate always are; one
        /// that neither this names nor a template reads fails the attempt.
        ///
        /// A row's headers are those of notify(…, headers => '{"x-request-id": "…"}').
        forward_headers: Vec<String> = Texts, Value(""), legal::forwarded;
        /// The request's body, a template.
        ///
        /// The standard envelope is {"id", "topic", "recipient", "payload", "created_at"}.
        body: Option<String> = Text, Absent("the standard envelope");
        /// The body's content type.
        content_type: String = Text, Value("application/json"), legal::content_type;
        /// A template over the `response` of a 2xx, for providers that say no inside one: gives true, transient (tried
        /// again), permanent or false (the next channel), with what the error is to say as in `permanent: why`.
        ///
        /// `response` is the JSON of the answer; also response.status, response.headers["name"], response.text and
        /// response.body, the JSON as a whole. See docs/channels.md.
        accepted_when: Option<String> = Text, Absent("none: every 2xx is a delivery");
        /// A template over the `response` of a 2xx: the provider's own id, kept and shown.
        provider_id: Option<String> = Text, Absent("none");
        /// Standard Webhooks secret (whsec_…); a list during rotation, the first signs first.
        ///
        /// One is made by: echo "whsec_$(openssl rand -base64 32)".
        secret: Vec<SecretString> = Secrets, Absent("none: unsigned"), legal::webhook_secret;
        /// Calls started at most, per instance: 100/s, 1000/m.
        rate_limit: Option<RateLimit> = Rate, Absent("none");
        /// Calls under way at most, per instance.
        max_in_flight: Option<usize> = Integer(1, 10_000), Absent("none");
        /// Calls under way at most to one origin, where the URL comes from data.
        max_in_flight_per_origin: usize = Integer(1, 10_000), Derived("half of worker.concurrency");
        /// Permits private, loopback and link-local addresses for URLs that come from data.
        allow_private: bool = Flag, Value("false");
        /// Networks that a URL from data may reach although the guard would refuse, such as 10.1.0.0/16.
        allow: Vec<IpNet> = Networks, Value("");
        /// Networks that no URL of this channel may reach.
        deny: Vec<IpNet> = Networks, Value("");
        /// The forward proxy that requests go through, such as http://egress:4750; it resolves names itself, so the
        /// guard checks only IP addresses in URLs and the proxy must refuse private destinations.
        // The environment's proxies serve channels whose host the operator wrote and that have no `deny` list: a
        // variable of the whole machine must not replace the guard.
        proxy: Option<SecretString> = SecretUrl, Absent("as HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY say; none where \
            data names the host or with deny"), legal::proxy;
        /// Response bytes read at most.
        response_bytes_max: usize = Bytes(1_024, 16 << 20), Value("16KiB");
        /// The longest Retry-After that is honoured.
        retry_after_max: Duration = Span(SECOND, 7 * DAY), Value("1h");
    } + {
        /// When the circuit opens and for how long.
        pub circuit: CircuitConfig,
    }

    /// `[channels.NAME.circuit]`
    #[derive(Debug)]
    CircuitConfig "channels.*.circuit." {
        /// Failures in a row that open the circuit.
        failures: u32 = Integer(1, 100_000), Value("10");
        /// 401 and 403 in a row that open the circuit, as a revoked token gives.
        unauthorized: u32 = Integer(1, 100_000), Value("5");
        /// How long the circuit stays open before a single probe; each probe that fails doubles it.
        open_for: Duration = Span(100, DAY), Value("30s");
        /// The longest that the circuit stays open before the next probe; never less than open_for.
        open_max: Duration = Span(100, DAY), Value("5m");
    }

    /// `[routes.TOPIC]`
    #[derive(Debug)]
    RouteConfig "routes.*." {
        /// The channels in failover order.
        channels: Vec<String> = Texts, Required("list the channels in failover order");
        /// Attempts per channel: the first and its retries. With the default waits ten take 43 minutes.
        max_attempts: u32 = Integer(1, 100), Value("10");
        /// Attempts on every channel but the last before moving on.
        attempts_before_failover: u32 = Integer(1, 100), Derived("3, or max_attempts if that is less");
        /// While a channel's circuit is open because calls fail: "failover" to the next channel at once, or "wait". For
        /// a pause, 401/403 or Retry-After it always waits.
        while_held: WhileHeld = Choice(WhileHeld::WORDS), Value("failover");
    } + {
        /// Waits between attempts.
        pub backoff: Backoff,
    }

    /// `[routes.TOPIC.backoff]`: `base · 2ⁿ`, at most `max`, spread by ± `jitter`.
    #[derive(Debug, Copy, PartialEq)]
    Backoff "routes.*.backoff." {
        /// The wait after the first failure; it doubles each time.
        base: Duration = Span(10, DAY), Value("5s");
        /// The longest wait.
        max: Duration = Span(10, 7 * DAY), Value("1h");
        /// The share of the wait that is random, 0 to 1.
        jitter: f64 = Ratio, Value("0.2");
    }
}

/// Leaves out the templates, into which `${VAR}` may have put a token.
impl fmt::Debug for ChannelConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<&String> = self.headers.keys().collect();
        f.debug_struct("ChannelConfig").field("method", &self.method).field("headers", &headers).finish_non_exhaustive()
    }
}
