//! One instance: what it is made of, in which order it starts, and in which it stops.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::bulk;
use crate::channel::failover::Router;
use crate::config::{Config, QueueKind, Role};
use crate::duty::Duty;
use crate::events::{self, Events};
use crate::heartbeat::{self, Heartbeat, Seen};
use crate::holds::{self, Holds};
use crate::http::{self, Api, Parts, Readiness};
use crate::migrate;
use crate::producer::Producer;
use crate::publisher::Publisher;
use crate::queue::events::EventStreams;
use crate::queue::{self, Queue};
use crate::relay::Relay;
use crate::reporter::{self, Reporter};
use crate::retention::{self, Retention};
use crate::rollup::Counts;
use crate::scheduler::{self, Scheduler};
use crate::store::instance::InstanceId;
use crate::store::sweep::Undelivered;
use crate::store::{self, Store};
use crate::sweeper::{self, Sweeper};
use crate::telemetry::otlp::{self, Exporter, Tracer};
use crate::wakeup::{self, Pump, Wake};
use crate::worker::{self, Drain, Progress, Worker};

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
    Http(#[from] http::Error),
}

/// A running instance's parts.
struct Instance {
    config: Config,
    roles: BTreeSet<Role>,
    store: Store,
    queue: Arc<dyn Queue>,
    event_streams: Option<EventStreams>,
    publisher: Publisher,
    router: Arc<Router>,
    holds: Arc<Holds>,
    heartbeat: Arc<Heartbeat>,
    wake: Arc<Wake>,
    install_id: Arc<str>,
    clock_skew_ms: i32,
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
        info!(instance = id, queue = instance.queue.kind(), version = env!("CARGO_PKG_VERSION"), "started");
        readiness.started(instance.parts());
        on_ready(id);
        Ok(Box::pin(instance.live(shutdown)).await)
    };
    api.beside(Box::pin(work)).await
}

impl Instance {
    async fn start(config: Config, roles: BTreeSet<Role>) -> Result<Instance, Error> {
        let router = Arc::new(Router::new(&config.channels, &config.routes)?);
        prepare_schema(&config).await?;
        let store = Store::open(&config)?;
        let queue = queue::open(&config.queue, config.redis_url.as_ref()).await?;
        let event_streams = match &config.redis_url {
            Some(url) if config.queue.kind != QueueKind::Memory && roles.contains(&Role::Relay) => {
                Some(EventStreams::open(&config.queue, url).await?)
            }
            _ => None,
        };
        let publisher = Publisher::new(store.clone(), Arc::clone(&queue), config.queue.window);
        let instance = InstanceId::default();
        let heartbeat = Heartbeat {
            store: store.clone(),
            instance: instance.clone(),
            roles: roles.iter().map(|role| role.name().to_owned()).collect(),
            queue_kind: queue.kind(),
            host: host_name(),
            ttl: config.worker.heartbeat_ttl,
            publisher: publisher.clone(),
            progress: Arc::new(Progress::default()),
            seen: Arc::new(Seen::default()),
            draining: AtomicBool::new(false),
        };
        let registered = heartbeat.register().await?;
        heartbeat.beat(None).await?;
        // Before the first push: what others pushed and a queue that was emptied since has lost.
        if let Some(loss) = queue.check_loss(heartbeat.seen.queue_counter()).await? {
            let rows = store.republish(Undelivered::All).await?;
            warn!(?loss, rows, "the queue lost messages while nobody ran; they are published again");
        }
        // What is queued from here on counts as queued in this minute.
        store.add_counts(0, &Counts::default()).await?;
        let holds = Arc::new(Holds::new(store.clone(), instance, Arc::clone(&router), &config));
        holds.refresh().await?;
        if let Err(error) = store.warm_up(roles.contains(&Role::Worker), roles.contains(&Role::Relay)).await {
            warn!(%error, "not every connection could be made at once; they are made as they are needed");
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
            event_streams,
            publisher,
            router,
            holds,
            heartbeat: Arc::new(heartbeat),
            wake: Arc::new(Wake::default()),
            install_id: Arc::from(registered.install_id),
            clock_skew_ms: heartbeat::clock_skew_ms(registered.database_time),
            spans,
        })
    }

    /// Every task is joined before this returns.
    async fn live(mut self, shutdown: CancellationToken) -> Drain {
        let beats_stop = CancellationToken::new();
        let (tracer, exporter) = self.spans.take().unzip();
        let pump = self.pump();
        let carries = pump.producer.is_some() || pump.relay.is_some();
        let sweeper = self.sweeper();
        let works = self.roles.contains(&Role::Worker);
        let worker = Arc::new(self.worker(tracer));
        let publish = async {
            if carries {
                wakeup::run(pump, &self.config, &self.wake, &shutdown).await;
            }
        };
        let sweep = async {
            if self.roles.contains(&Role::Relay) {
                tokio::join!(sweeper::run(&sweeper, &shutdown), bulk::run(&self.store, &self.wake, &shutdown));
            }
        };
        let work = async {
            if works {
                let drain = worker::run(worker, shutdown.clone()).await;
                return drain;
            }
            shutdown.cancelled().await;
            Drain::Clean
        };
        let until_drained = async {
            let told = async {
                shutdown.cancelled().await;
                self.heartbeat.draining.store(true, Ordering::Relaxed);
            };
            let (drain, ..) = tokio::join!(
                work,
                publish,
                sweep,
                told,
                holds::run(&self.holds, &shutdown),
                self.plan(&shutdown),
                self.append_events(&shutdown)
            );
            beats_stop.cancel();
            drain
        };
        let beats = heartbeat::run(&self.heartbeat, self.config.worker.heartbeat, self.clock_skew_ms, &beats_stop);
        let reporter = self.reporter();
        let export = async {
            if let Some(exporter) = exporter {
                exporter.run(&beats_stop).await;
            }
        };
        let (drain, ..) = tokio::join!(until_drained, beats, reporter::run(&reporter, &beats_stop), export);
        self.sign_off().await;
        drain
    }

    /// The duties that one instance does at a time for all.
    async fn plan(&self, shutdown: &CancellationToken) {
        if !self.roles.contains(&Role::Scheduler) {
            return;
        }
        let retention = Retention::new(self.store.clone(), self.duty(retention::DUTY), self.config.retention.clone());
        let scheduler = Scheduler::new(self.store.clone(), self.duty(scheduler::DUTY));
        tokio::join!(retention::run(retention, shutdown), scheduler::run(scheduler, shutdown));
    }

    /// Domain events go to Redis, if there is one.
    async fn append_events(&self, shutdown: &CancellationToken) {
        if let Some(streams) = self.event_streams.clone() {
            let events = Events::new(self.store.clone(), streams, self.duty(events::DUTY));
            events::run(events, shutdown).await;
        }
    }

    fn duty(&self, name: &'static str) -> Duty {
        Duty::new(self.store.clone(), self.heartbeat.instance.clone(), name, self.config.worker.heartbeat_ttl)
    }

    fn parts(&self) -> Parts {
        Parts {
            store: self.store.clone(),
            queue: Arc::clone(&self.queue),
            holds: Arc::clone(&self.holds),
            channels: self.config.channels.keys().cloned().collect(),
        }
    }

    fn pump(&self) -> Pump {
        let (store, publisher) = (self.store.clone(), self.publisher.clone());
        let instance = self.heartbeat.instance.clone();
        let has = |role: Role| self.roles.contains(&role);
        Pump {
            producer: has(Role::Producer).then(|| Producer::new(store.clone(), &self.config.producer)),
            relay: has(Role::Relay).then(|| {
                Relay::new(
                    store.clone(),
                    publisher.clone(),
                    Arc::clone(&self.holds),
                    instance.clone(),
                    &self.config.relay,
                )
            }),
            publisher,
            store,
        }
    }

    fn reporter(&self) -> Reporter {
        Reporter {
            store: self.store.clone(),
            queue: Arc::clone(&self.queue),
            publisher: self.publisher.clone(),
            instance: self.heartbeat.instance.clone(),
            routes: reporter::routes(&self.config.routes),
        }
    }

    fn sweeper(&self) -> Sweeper {
        Sweeper {
            store: self.store.clone(),
            queue: Arc::clone(&self.queue),
            publisher: self.publisher.clone(),
            router: Arc::clone(&self.router),
            instance: self.heartbeat.instance.clone(),
            seen: Arc::clone(&self.heartbeat.seen),
            wake: Arc::clone(&self.wake),
            relay: self.config.relay.clone(),
            reconcile: self.config.reconcile.clone(),
        }
    }

    fn worker(&self, tracer: Option<Tracer>) -> Worker {
        Worker {
            store: self.store.clone(),
            queue: Arc::clone(&self.queue),
            publisher: self.publisher.clone(),
            router: Arc::clone(&self.router),
            holds: Arc::clone(&self.holds),
            instance: self.heartbeat.instance.clone(),
            install_id: Arc::clone(&self.install_id),
            config: self.config.worker.clone(),
            deliveries_max: self.config.queue.deliveries_max,
            tend_every: self.config.queue.consumer_ttl / 4,
            wake: Arc::clone(&self.wake),
            progress: Arc::clone(&self.heartbeat.progress),
            tracer,
        }
    }

    /// What is left in an in-process queue is given back, and the others need not wait for our heartbeat to run out.
    async fn sign_off(&self) {
        let instance = self.heartbeat.instance.get();
        if self.config.queue.kind == QueueKind::Memory
            && let Err(error) = self.store.republish(Undelivered::PublishedBy(&[instance])).await
        {
            warn!(%error, "rows in the in-process queue wait for another instance's sweep");
        }
        match self.store.sign_off(instance).await {
            Ok(()) => info!(instance, "signed off"),
            Err(error) => warn!(%error, instance, "could not sign off; the others will notice after the TTL"),
        }
    }
}

/// Brings the schema up to date where this login may; else it must be new enough already. A newer schema is fine: an old
/// and a new binary run side by side during a deploy.
async fn prepare_schema(config: &Config) -> Result<(), Error> {
    let (mut client, connection) = store::dedicated(config).await?;
    let driver = tokio::spawn(connection);
    let outcome = match migrate::schema_version(&client).await {
        Ok(version) if version > migrate::newest() => Ok(()),
        Ok(version) if version == migrate::newest() && config.database.pooler => Ok(()),
        Ok(version) => match migrate::run(&mut client, migrate::Install::IfChanged).await {
            Ok(report) => {
                for name in report.applied {
                    info!(migration = name, "applied");
                }
                Ok(())
            }
            // The daemon need not own the schema, if somebody who does has brought it up to date.
            Err(migrate::Error::MissingRights { .. }) if version == migrate::newest() => Ok(()),
            Err(error) => Err(error.into()),
        },
        Err(error) => Err(error.into()),
    };
    drop(client);
    driver.abort();
    outcome
}

fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned())
}
