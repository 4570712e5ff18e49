//! Configuration: what the rest of the program is told.
//!
//! [`KEYS`] lists every key once; [`load`] reads them from the file, then the environment, then flags, notes every
//! error and goes on, and validates the whole. Later sources win.
//!
//! **Guarantee.** All errors are reported together, each with the line or variable it came from and what to write
//! instead; secrets never print. **Limit.** What only a server can tell (rights, versions, reachability) is `outboxd
//! check`'s.
//!
//! A new key is added to [`KEYS`], to the struct of its table and to `outboxd.example.toml`. A key without its field, or a
//! field without its key, fails every test that loads; others compare the example and `docs/configuration.md`. May change:
//! a default, with a line in the CHANGELOG. Must not: a second source for one value, or a key that is read elsewhere.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use secrecy::SecretString;
use serde::Deserialize;

mod build;
mod channel;
pub mod conninfo;
mod env;
mod error;
mod expand;
mod file;
pub(crate) mod forward;
pub mod key;
mod keys;
mod live;
mod load;
mod mask;
pub(crate) mod redis_url;
mod settings;
mod suggest;
pub(crate) mod template;
mod token;
mod validate;
mod value;

pub use channel::{ChannelConfig, CircuitConfig, Method, RateLimit};
pub use error::{Error, Errors, Origin};
pub use expand::Env;
pub use keys::KEYS;
pub use live::LiveConfig;
pub use load::{DEFAULT_FILES, Database, Loaded, Sources, load, load_database};
pub use mask::{MASK, url as mask_url};
pub use settings::Shown;
pub use token::{HTTP_TOKEN, LOCAL, Scope, TokenConfig};
pub use validate::{validate_roles, warnings};

/// Everything an instance is told at start, validated.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where the record lives (`DATABASE_URL`).
    #[serde(default)]
    pub database_url: SecretString,
    /// Where messages travel (`REDIS_URL`); absent: the in-process queue.
    pub redis_url: Option<SecretString>,
    /// Where the HTTP endpoints listen.
    pub http_addr: SocketAddr,
    /// A token that may do everything over HTTP.
    pub http_token: Option<SecretString>,
    /// Who else may do what over HTTP, by name. Off loopback there is at least one token.
    #[serde(default)]
    pub tokens: BTreeMap<String, TokenConfig>,
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
    /// Providers, by name.
    #[serde(default)]
    pub channels: BTreeMap<String, ChannelConfig>,
    /// Which channels a topic uses, by topic; `default` serves the rest.
    #[serde(default)]
    pub routes: BTreeMap<String, RouteConfig>,
}

/// `[database]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatabaseConfig {
    /// Connections at most, the listener's not counted.
    pub pool_size: usize,
    /// Connections of callers over HTTP at most, made as they are needed: however much they ask, they take none from the work.
    pub api_pool_size: usize,
    /// How long to wait for a connection to be made.
    pub connect_timeout: Duration,
    /// The server-side limit of a statement of ours.
    pub statement_timeout: Duration,
    /// Set when a transaction-mode pooler (PgBouncer) stands in between: no prepared statements, no session
    /// settings, no LISTEN.
    pub pooler: bool,
}

/// Which backend carries messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueueKind {
    /// In process; needs no Redis.
    Memory,
    /// Redis lists.
    List,
    /// Redis streams.
    Stream,
}

/// `[queue]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueConfig {
    /// Default: `stream` with a redis_url, else `memory`.
    pub kind: QueueKind,
    /// The first part, and hash tag, of every Redis key.
    pub prefix: String,
    /// Rows published and unclaimed at most, over all instances.
    pub window: u32,
    /// How long a consumer counts as alive in Redis after its last sign.
    pub consumer_ttl: Duration,
    /// Deliveries of one message before it counts as a failed attempt.
    pub deliveries_max: u32,
    /// An instance that has not reached Redis for so long goes on through its own process; `None`: never.
    pub fallback_after: Option<Duration>,
}

/// How commits are seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wakeup {
    /// Sleep until the doorbell rings; the default.
    Bell,
    /// Poll only; the default with a pooler.
    Poll,
}

/// `[relay]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelayConfig {
    /// A row not confirmed as published this long after it became ready is published again.
    pub republish_after: Duration,
    /// How commits are seen.
    pub wakeup: Wakeup,
    /// The pause between polls while awake, and always with `wakeup = "poll"`.
    pub poll: Duration,
    /// The slow poll of a sleeper.
    pub idle_poll: Duration,
}

/// `[worker]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerConfig {
    /// Calls under way at most.
    pub concurrency: usize,
    /// Bytes of large payloads that are being sent at most.
    pub payload_bytes_max: usize,
    /// How long a claim holds without renewal.
    pub lease: Duration,
    /// How often the instance says that it is alive.
    pub heartbeat: Duration,
    /// How long after its last heartbeat an instance counts as dead.
    pub heartbeat_ttl: Duration,
    /// How long a drain waits for calls under way.
    pub drain: Duration,
}

/// `[reconcile]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReconcileConfig {
    /// Published without progress for this long: published again, as the last net.
    pub published_after: Duration,
    /// How often to check.
    pub every: Duration,
}

/// `[events]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventsConfig {
    /// Events that the Redis stream of a topic keeps, about.
    pub stream_max: u32,
}

/// `[retention]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetentionConfig {
    /// SENT rows.
    pub sent: Duration,
    /// FAILED rows.
    pub failed: Duration,
    /// CANCELED rows.
    pub canceled: Duration,
    /// Attempts of rows that are still kept.
    pub attempts: Duration,
    /// Events of `publish()`.
    pub events: Duration,
    /// Inbox entries of `receive()`.
    pub inbox: Duration,
    /// Answers under an Idempotency-Key.
    pub idempotency: Duration,
    /// Operators' actions.
    pub audit: Duration,
}

/// `[telemetry]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TelemetryConfig {
    /// The collector that spans go to; absent: none are made.
    pub otlp_endpoint: Option<String>,
    /// Headers for the collector, each as `name=value`.
    #[serde(default)]
    pub otlp_headers: Vec<SecretString>,
    /// The share of notifications without a trace of their own that is traced.
    pub otlp_sample_ratio: f64,
    /// What the spans say they come from.
    pub service_name: String,
}

/// What happens to work whose channel's circuit is open because calls fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WhileHeld {
    /// It waits, burning no attempt.
    Wait,
    /// It moves to the next channel at once, if there is one. A channel that was paused, refuses our credentials or asked us to
    /// come back later is waited for all the same: it is not down, and nothing turns into paid SMS by accident.
    Failover,
}

/// Bytes of a topic at most, as `notify()` and `publish()` have it; at least one.
pub const TOPIC_BYTES_MAX: usize = 200;
/// The route of topics that have none of their own.
pub const DEFAULT_ROUTE: &str = "default";

/// `[routes.TOPIC]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteConfig {
    /// Failover order.
    #[serde(default)]
    pub channels: Vec<String>,
    /// Attempts per channel: the first and its retries.
    pub max_attempts: u32,
    /// Attempts on every channel but the last before moving on.
    pub attempts_before_failover: u32,
    /// Waits between attempts.
    pub backoff: Backoff,
    /// What happens while the channel fails.
    pub while_held: WhileHeld,
}

/// Exponential waits: `base · 2ⁿ`, at most `max`, spread by ± `jitter`.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backoff {
    /// After the first failure.
    pub base: Duration,
    /// At most.
    pub max: Duration,
    /// 0 to 1: the share of the wait that is random.
    pub jitter: f64,
}

/// A part of the work that an instance takes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Role {
    /// Releases what is due.
    Producer,
    /// Publishes what is unpublished.
    Relay,
    /// Calls the providers.
    Worker,
    /// Prepares campaigns, keeps retention.
    Scheduler,
    /// Serves HTTP.
    Api,
}

impl Role {
    /// Every role; what an instance takes on unless told otherwise.
    pub const ALL: [Role; 5] = [Role::Producer, Role::Relay, Role::Worker, Role::Scheduler, Role::Api];
    /// Those that push to or take from the queue.
    pub const CARRIERS: [Role; 3] = [Role::Producer, Role::Relay, Role::Worker];

    /// As `--role` spells it.
    pub fn name(self) -> &'static str {
        match self {
            Role::Producer => "producer",
            Role::Relay => "relay",
            Role::Worker => "worker",
            Role::Scheduler => "scheduler",
            Role::Api => "api",
        }
    }
}
