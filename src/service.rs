//! One instance: what it is made of, in which order it starts, and in which it stops.
//!
//! Start: the HTTP port, the schema, the pools, the queue, the first heartbeat, what a queue lost meanwhile, then the
//! loops. A Redis that is away does not stop it: it is as if Redis had gone away at this moment. Stop: not ready, nothing more is taken, calls under way finish and are recorded, the rest goes back, the last
//! heartbeat.
//!
//! **Guarantee.** Every task is joined before [`run`] returns. **Limit.** Calls that outlast `worker.drain` are cut
//! off, and their outcomes are recorded as unknown.
//!
//! Only this module knows all stages. They share [`Presence`], [`Availability`], [`Statistics`] and the calls under
//! way ([`Calls`]), and wake the relay through the store. May change: what an instance is made of. Must not: a task
//! that nobody joins, and the order of the stop.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use secrecy::SecretSlice;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::channel::availability::Availability;
use crate::channel::connections::Connections;
use crate::channel::descriptors::Descriptors;
use crate::channel::failover::Router;
use crate::config::{Config, QueueKind, Role};
use crate::events::{self, Events};
use crate::queue::events::EventStreams;
use crate::queue::fallback::FallbackQueue;
use crate::queue::split::SplitQueue;
use crate::queue::{self, Queue};
use crate::relay::publisher::Publisher;
use crate::relay::repair;
use crate::schedule::{self, Scheduler};
use crate::server::{self, Api, Readiness};
use crate::store::claim::Calls;
use crate::store::instance::{InstanceId, Presence};
use crate::store::repair::Undelivered;
use crate::store::{self, Store, migrate};
use crate::telemetry;
use crate::telemetry::otlp::{self, Exporter, Tracer};
use crate::telemetry::shortages::Shortages;
use crate::telemetry::statistics::{Counts, Statistics};
use crate::upkeep::fallback::{self, Fallback};
use crate::upkeep::heartbeat::{self, Heartbeat};
use crate::upkeep::retention::{self, Retention};
use crate::upkeep::routes::{self, Routes};
use crate::upkeep::statistics as reports;
use crate::upkeep::{bulk, circuits, origin};
use crate::worker::{self, Drain};

mod carrier;
mod parts;
mod schema;
pub mod signals;
pub mod systemd;
mod wakeup;

use carrier::Opened;

/// Why an instance did not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Postgres cannot be used.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The queue cannot be used.
    #[error(transparent)]
    Queue(#[from] queue::Error),
    /// The schema cannot be brought up to date.
    #[error(transparent)]
    Migrate(#[from] migrate::Error),
    /// A channel cannot work as configured.
    #[error(transparent)]
    Channel(#[from] crate::channel::Error),
    /// Spans cannot be exported as configured.
    #[error(transparent)]
    Telemetry(#[from] otlp::Error),
    /// The HTTP endpoints cannot listen.
    #[error(transparent)]
    Http(#[from] server::Error),
}

/// A running instance's parts.
struct Instance {
    config: Config,
    roles: BTreeSet<Role>,
    store: Store,
    queue: Arc<dyn Queue>,
    /// The same, if it can be left.
    fallback: Option<Arc<FallbackQueue>>,
    /// When Redis was asked first.
    redis_asked_at: Instant,
    /// The same, if it is shared with others and this process can keep something to itself.
    split: Option<Arc<SplitQueue>>,
    event_streams: Option<EventStreams>,
    publisher: Publisher,
    router: Arc<Router>,
    availability: Arc<Availability>,
    heartbeat: Heartbeat,
    /// Of the installation: what its HTTP endpoints sign with.
    signing_key: SecretSlice<u8>,
    presence: Arc<Presence>,
    calls: Arc<Calls>,
    statistics: Arc<Statistics>,
    shortages: Arc<Shortages>,
    files: Descriptors,
    /// Where calls are traced.
    spans: Option<(Tracer, Exporter)>,
}

/// Runs an instance until `shutdown`, then drains it. `on_ready` is called once it works.
pub async fn run(
    config: Config,
    roles: BTreeSet<Role>,
    shutdown: CancellationToken,
    on_ready: impl FnOnce(i32),
) -> Result<Drain, Error> {
    // First, so that the process answers for itself from its start until after its drain.
    let readiness = Arc::new(Readiness::new(shutdown.clone()));
    let api = Api::bind(&config, &roles, Arc::clone(&readiness)).await?;
    let work = async {
        let instance = Instance::start(config, roles).await?;
        let id = instance.heartbeat.instance.get();
        info!(instance = id, queue = instance.queue.kind(), version = telemetry::VERSION, "started");
        readiness.started(instance.parts(), instance.signing_key.clone());
        on_ready(id);
        Ok(Box::pin(instance.live(shutdown)).await)
    };
    api.beside(Box::pin(work)).await
}

impl Instance {
    async fn start(mut config: Config, roles: BTreeSet<Role>) -> Result<Instance, Error> {
        let files = Descriptors::raise(&config);
        // More calls could not have a connection each.
        config.lower_concurrency(files.calls_max());
        let live_max = files.live_sessions_max();
        if live_max < config.live.sessions_max {
            info!(live_sessions_max = live_max, "the open files leave room for fewer sessions than live.sessions_max");
            config.live.sessions_max = live_max;
        }
        let connections = Arc::new(Connections::new(files.for_calls(), config.worker.concurrency));
        let router = Arc::new(Router::sharing(&config.channels, &config.routes, &connections)?);
        schema::prepare(&config).await?;
        let store = Store::open(&config)?;
        let redis_asked_at = Instant::now();
        let (presence, statistics) = (Arc::new(Presence::default()), Arc::new(Statistics::default()));
        presence.owner().set(store.identity().await?);
        let Opened { queue, fallback, is_away } = carrier::open(&config, &roles, presence.owner()).await?;
        let (queue, split) = carrier::split(queue, &config, &roles);
        // The relay appends, the API lets clients listen.
        let uses_events = roles.contains(&Role::Relay) || roles.contains(&Role::Api);
        let event_streams = match &config.redis_url {
            Some(url) if config.queue.kind != QueueKind::Memory && uses_events => {
                Some(EventStreams::owned(&config.queue, url, config.events.stream_max, presence.owner())?)
            }
            _ => None,
        };
        let publisher = Publisher::new(
            store.clone(),
            Arc::clone(&queue),
            config.queue.window,
            Arc::clone(&presence),
            Arc::clone(&statistics),
        );
        let heartbeat = Heartbeat {
            store: store.clone(),
            instance: InstanceId::default(),
            roles: roles.iter().map(|role| role.name().to_owned()).collect(),
            queue_kind: queue.kind(),
            host: host_name(),
            topics: (!config.routes.is_empty()).then(|| config.routes.keys().cloned().collect()),
            every: config.worker.heartbeat,
            ttl: config.worker.heartbeat_ttl,
            presence: Arc::clone(&presence),
            turn: Mutex::default(),
        };
        let registered = heartbeat.register().await?;
        heartbeat.beat().await?;
        if let Some(loss) = carrier::lost_meanwhile(&*queue, is_away, &presence).await? {
            let rows = store.republish(Undelivered::All).await?;
            warn!(%loss, rows, "the queue lost messages while nobody ran; they are published again");
        }
        // What is queued from here on counts as queued in this minute.
        store.add_counts(&Counts::default()).await?;
        let availability = Availability::new(Arc::clone(&router), &config.channels, config.worker.concurrency)
            .with_credentials(circuits::credentials(&store, &config.channels, &roles).await?);
        circuits::pass(&store, &heartbeat.instance, &availability).await?;
        if let Some(queue) = &split {
            // Before the first push as well.
            Routes { queue: Arc::clone(queue), availability: &availability, heartbeat: &heartbeat }
                .pass(&mut routes::Done::default())
                .await?;
        }
        let spans = match roles.contains(&Role::Worker) {
            true => {
                let name = format!("{}-{}", registered.install_id, heartbeat.instance.get());
                otlp::open(&config.telemetry, &name)?
            }
            false => None,
        };
        Ok(Instance {
            config,
            roles,
            store,
            queue,
            fallback,
            redis_asked_at,
            split,
            event_streams,
            publisher,
            router,
            availability: Arc::new(availability),
            heartbeat,
            signing_key: registered.signing_key,
            presence,
            calls: Arc::default(),
            statistics,
            shortages: Arc::default(),
            files,
            spans,
        })
    }

    /// Every task is joined before this returns.
    async fn live(mut self, shutdown: CancellationToken) -> Drain {
        let beats_stop = CancellationToken::new();
        let (tracer, exporter) = self.spans.take().unzip();
        let stages = self.stages();
        let carries = stages.producer.is_some() || stages.relay.is_some();
        let repair = self.repair();
        let works = self.roles.contains(&Role::Worker);
        let worker = Arc::new(self.worker(tracer));
        let publish = async {
            if carries {
                wakeup::run(stages, &self.config, &shutdown).await;
            }
        };
        let sweep = async {
            if self.roles.contains(&Role::Relay) {
                tokio::join!(
                    repair::run(&repair, &shutdown),
                    bulk::run(&self.store, &shutdown),
                    origin::run(&self.store, &shutdown)
                );
            }
        };
        let work = async {
            if works {
                return worker::run(worker, shutdown.clone()).await;
            }
            shutdown.cancelled().await;
            Drain::Clean
        };
        let until_drained = async {
            let told = async {
                shutdown.cancelled().await;
                self.presence.is_draining();
            };
            let (drain, ..) = tokio::join!(
                work,
                publish,
                sweep,
                told,
                circuits::run(&self.store, &self.heartbeat.instance, &self.availability, &shutdown),
                self.plan(&shutdown),
                self.outlast_redis(&shutdown),
                self.follow_routes(&shutdown),
                self.append_events(&shutdown)
            );
            beats_stop.cancel();
            drain
        };
        let beats = heartbeat::run(&self.heartbeat, &beats_stop);
        let reporter = self.reporter();
        let export = async {
            if let Some(exporter) = exporter {
                exporter.run(&beats_stop).await;
            }
        };
        let (drain, ..) = tokio::join!(until_drained, beats, reports::run(&reporter, &beats_stop), export);
        self.sign_off().await;
        drain
    }

    /// What one instance does at a time for all.
    async fn plan(&self, shutdown: &CancellationToken) {
        if !self.roles.contains(&Role::Scheduler) {
            return;
        }
        let retention = Retention::new(self.store.clone(), self.lease(retention::LEASE), self.config.retention.clone());
        let scheduler = Scheduler::new(self.store.clone(), self.lease(schedule::LEASE));
        tokio::join!(retention::run(retention, shutdown), schedule::run(scheduler, shutdown));
    }

    /// Goes on without Redis while it is away, if that is wanted and possible.
    async fn outlast_redis(&self, shutdown: &CancellationToken) {
        let (Some(queue), Some(after)) = (&self.fallback, self.config.queue.fallback_after) else { return };
        let fallback = Fallback {
            queue: Arc::clone(queue),
            after,
            answered_at: self.redis_asked_at,
            store: self.store.clone(),
            heartbeat: &self.heartbeat,
        };
        fallback::run(&fallback, shutdown).await;
    }

    /// Keeps to this process what some other worker has no route for.
    async fn follow_routes(&self, shutdown: &CancellationToken) {
        let Some(queue) = self.split.clone() else { return };
        let routes = Routes { queue, availability: &self.availability, heartbeat: &self.heartbeat };
        routes::run(&routes, shutdown).await;
    }

    /// Domain events go to Redis, if there is one.
    async fn append_events(&self, shutdown: &CancellationToken) {
        if let Some(streams) = self.event_streams.clone().filter(|_| self.roles.contains(&Role::Relay)) {
            let events = Events::new(self.store.clone(), streams, self.lease(events::LEASE));
            events::run(events, shutdown).await;
        }
    }

    /// What is left in an in-process queue is given back, and the others need not wait for our heartbeat to run out. If
    /// it cannot be given back they do: whoever signed off holds nothing.
    async fn sign_off(&self) {
        let instance = self.heartbeat.instance.get();
        let is_in_process = self.config.queue.kind == QueueKind::Memory
            || self.presence.is_on_fallback()
            || self.presence.keeps_its_own();
        if is_in_process && let Err(error) = self.store.republish(Undelivered::PublishedBy(&[instance])).await {
            warn!(%error, "rows in the in-process queue wait for another instance's sweep");
            return;
        }
        match self.store.sign_off(instance, self.presence.started_at()).await {
            Ok(()) => info!(instance, "signed off"),
            Err(error) => warn!(%error, instance, "could not sign off; it counts as dead after its TTL"),
        }
    }
}

fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned())
}
