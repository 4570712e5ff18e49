//! Everything that runs, and what is written down about it while it does.

use std::collections::HashSet;
use std::sync::atomic::{AtomicI64, AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use outboxd_throwaway::instance;

use super::carrier::Carriers;
use super::database::{APP, Databases, NAME, Session, open};
use super::evidence::{Micros, Sighting, Span, Subject, Write};
use super::instances::{Instance, Links};
use super::plan::{Fault, Kind, Queue};
use super::providers::Providers;

/// How often it is checked whether an instance has ended by itself, and how long it stays away, as under a supervisor.
const CHECK_EVERY: Duration = Duration::from_millis(500);

/// What runs.
#[derive(Debug)]
pub(super) struct World {
    began: Instant,
    pub(super) queue: Queue,
    pub(super) instances: Vec<tokio::sync::Mutex<Instance>>,
    pub(super) links: Vec<Links>,
    pub(super) providers: Providers,
    pub(super) carriers: Option<tokio::sync::Mutex<Carriers>>,
    pub(super) databases: tokio::sync::Mutex<Databases>,
    /// Where the app finds the primaries, whoever holds the locks above.
    pub(super) database_port: AtomicU16,
    pub(super) carrier_port: AtomicU16,
    numbers: AtomicI64,
    log: Mutex<Log>,
}

/// What is written down.
#[derive(Debug, Default, Clone)]
pub(super) struct Log {
    pub(super) writes: Vec<Write>,
    pub(super) sightings: Vec<Sighting>,
    pub(super) lost_tails: Vec<Span>,
    pub(super) retried: HashSet<Subject>,
    pub(super) happened: Vec<Happened>,
}

/// A fault as it was.
#[derive(Debug, Clone)]
pub(super) struct Happened {
    pub(super) fault: Fault,
    pub(super) began: Micros,
    pub(super) healed: Option<Micros>,
    /// The notification committed after the healing.
    pub(super) probe: Option<i64>,
    /// What could not be done.
    pub(super) error: Option<String>,
}

impl World {
    /// Starts everything that the schedule needs.
    pub(super) async fn build(queue: Queue, instances: usize, seed: u64, schedule: &[Fault]) -> Result<World> {
        let has = |wanted: &[Kind]| schedule.iter().any(|fault| wanted.contains(&fault.kind));
        let mut databases = Databases::start().await?;
        instance::migrate(&databases.primary().url(NAME))?;
        databases.create_app().await?;
        if schedule.iter().any(|fault| fault.kind.loses_tail()) {
            databases.add_standby().await?;
        }
        let carriers = match queue {
            Queue::Memory => None,
            Queue::Stream | Queue::List => Some(Carriers::start(has(&[Kind::RedisFailover])).await?),
        };
        let began = Instant::now();
        let providers = Providers::start(began, seed)?;
        let carrier_ports = carriers.as_ref().map_or(Vec::new(), Carriers::ports);
        let (mut all, mut links) = (Vec::new(), Vec::new());
        for _ in 0..instances {
            let own = Links::open(&databases.ports(), &carrier_ports).await;
            let instance = Instance::new(&own, queue, &providers, has(&[Kind::InstanceClock]))?;
            all.push(tokio::sync::Mutex::new(instance));
            links.push(own);
        }
        Ok(World {
            began,
            queue,
            instances: all,
            links,
            providers,
            database_port: AtomicU16::new(databases.primary_port()),
            carrier_port: AtomicU16::new(carriers.as_ref().map_or(0, Carriers::primary_port)),
            carriers: carriers.map(tokio::sync::Mutex::new),
            databases: tokio::sync::Mutex::new(databases),
            numbers: AtomicI64::new(1),
            log: Mutex::default(),
        })
    }

    /// Starts the instances and waits until each has a heartbeat.
    pub(super) async fn start_instances(&self) -> Result<()> {
        let mut started = Vec::new();
        for instance in &self.instances {
            let mut instance = instance.lock().await;
            instance.process.launch()?;
            started.push(instance);
        }
        let processes: Vec<&instance::Instance> = started.iter().map(|instance| &instance.process).collect();
        instance::until_alive(&self.admin().await?.client, processes.len(), &processes).await
    }

    /// Starts what has ended by itself again, for ever.
    pub(super) async fn supervise(&self) -> Result<()> {
        loop {
            tokio::time::sleep(CHECK_EVERY).await;
            for instance in &self.instances {
                // Whoever holds it is breaking it, and will start it.
                let Ok(mut instance) = instance.try_lock() else { continue };
                if instance.process.has_ended() {
                    instance.note_end()?;
                    instance.process.launch()?;
                }
            }
        }
    }

    /// Microseconds since the start.
    pub(super) fn now(&self) -> Micros {
        Micros::try_from(self.began.elapsed().as_micros()).unwrap_or(Micros::MAX)
    }

    /// Since the start.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// A number that nobody else has.
    pub(super) fn number(&self) -> i64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// What was written down.
    pub(super) fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session of the app with whichever is primary.
    pub(super) async fn app(&self) -> Result<Session> {
        self.session(APP).await
    }

    /// The superuser's.
    pub(super) async fn admin(&self) -> Result<Session> {
        self.session("postgres").await
    }

    /// Anybody's.
    pub(super) async fn session(&self, login: &str) -> Result<Session> {
        open(login, self.database_port.load(Ordering::Relaxed)).await.context("the database")
    }
}
