//! What each part of an instance stands on.

use std::sync::Arc;
use std::time::Duration;

use super::Instance;
use super::wakeup::Stages;
use crate::config::Role;
use crate::producer::Producer;
use crate::relay::Relay;
use crate::relay::repair::Repair;
use crate::server::Parts;
use crate::store::leader::LeaderLease;
use crate::telemetry::otlp::Tracer;
use crate::upkeep::circuits;
use crate::upkeep::statistics::{self as reports, Reporter};
use crate::worker::Worker;

impl Instance {
    pub(super) fn lease(&self, name: &'static str) -> LeaderLease {
        LeaderLease::new(self.store.clone(), self.heartbeat.instance.clone(), name, self.config.worker.heartbeat_ttl)
    }

    pub(super) fn parts(&self) -> Parts {
        Parts {
            store: self.store.clone(),
            queue: Arc::clone(&self.queue),
            availability: Arc::clone(&self.availability),
            channels: self.config.channels.keys().cloned().collect(),
            events: self.event_streams.clone(),
        }
    }

    pub(super) fn stages(&self) -> Stages {
        let (store, publisher) = (self.store.clone(), self.publisher.clone());
        let instance = self.heartbeat.instance.clone();
        let has = |role: Role| self.roles.contains(&role);
        Stages {
            producer: has(Role::Producer).then(|| Producer::new(store.clone())),
            relay: has(Role::Relay).then(|| {
                Relay::new(store.clone(), publisher.clone(), Arc::clone(&self.availability), instance.clone())
            }),
            publisher,
            store,
        }
    }

    pub(super) fn reporter(&self) -> Reporter {
        Reporter {
            store: self.store.clone(),
            queue: Arc::clone(&self.queue),
            statistics: Arc::clone(&self.statistics),
            shortages: Arc::clone(&self.shortages),
            files: self.files,
            instance: self.heartbeat.instance.clone(),
            routes: reports::routes(&self.config.routes),
            router: Arc::clone(&self.router),
            shares: Arc::clone(self.availability.shares()),
        }
    }

    pub(super) fn repair(&self) -> Repair {
        Repair {
            store: self.store.clone(),
            queue: Arc::clone(&self.queue),
            statistics: Arc::clone(&self.statistics),
            router: Arc::clone(&self.router),
            instance: self.heartbeat.instance.clone(),
            presence: Arc::clone(&self.presence),
            calls: Arc::clone(&self.calls),
            ttl: self.config.worker.heartbeat_ttl,
            relay: self.config.relay.clone(),
            reconcile: self.config.reconcile.clone(),
        }
    }

    pub(super) fn worker(&self, tracer: Option<Tracer>) -> Worker {
        Worker {
            store: self.store.clone(),
            queue: Arc::clone(&self.queue),
            own_queue: self.split.as_ref().map(|queue| queue.own()),
            first_take_after: self.first_take_after(),
            statistics: Arc::clone(&self.statistics),
            shortages: Arc::clone(&self.shortages),
            router: Arc::clone(&self.router),
            availability: Arc::clone(&self.availability),
            instance: self.heartbeat.instance.clone(),
            config: self.config.worker.clone(),
            deliveries_max: self.config.queue.deliveries_max,
            maintain_every: self.config.queue.consumer_ttl / 4,
            presence: Arc::clone(&self.presence),
            calls: Arc::clone(&self.calls),
            tracer,
        }
    }

    /// Who has no route for some topics and joins others waits until they know of it.
    fn first_take_after(&self) -> Duration {
        let is_last_known =
            self.router.topics().is_none() || self.presence.alive() <= 1 || self.queue.kind() == "memory";
        if is_last_known { Duration::ZERO } else { circuits::KNOWN_AFTER }
    }
}
