//! Faults that must be survived, each observed at the provider's ledger and in the rows.

mod chaos;
mod clock;
mod copies;
mod descriptors;
mod destinations;
mod disk;
mod events;
mod failover;
mod fallback;
mod keys;
mod leases;
mod limits;
mod lookups;
mod many_retries;
mod open_transaction;
mod outage;
mod outcomes;
mod panics;
mod payloads;
mod plans;
mod planted;
mod pooler;
mod postgres;
mod probes;
mod publish;
mod recreated;
mod redis;
mod refusals;
mod relays;
mod routes;
mod sessions;
mod snapshot;
mod start;
mod strangers;
mod sweep;
mod tenants;
mod topics;
mod upgrade;
mod work;

use std::sync::Arc;

use outboxd::channel::availability::Availability;
use outboxd::channel::failover::Router;
use outboxd::queue::{self, Queue};
use outboxd::relay::Relay;
use outboxd::relay::publisher::Publisher;
use outboxd::store::Store;
use outboxd::store::instance::{InstanceId, Presence};
use outboxd::telemetry::statistics::Statistics;
use outboxd::upkeep::circuits;

use crate::leader::{config, register};
use crate::support::postgres::Database;

/// A relay in this process that makes a pass when it is told to, with a queue of its own.
struct Stepped {
    store: Store,
    queue: Arc<dyn Queue>,
    availability: Arc<Availability>,
    relay: Relay,
    instance: i32,
}

impl Stepped {
    async fn on(database: &Database) -> Stepped {
        Stepped::with(database, &[]).await
    }

    /// The same with these keys set. Without any route a relay publishes everything.
    async fn with(database: &Database, set: &[(&str, &str)]) -> Stepped {
        let config = config(database, set);
        let store = Store::open(&config).unwrap();
        let queue = queue::open(&config.queue, None).await.unwrap();
        let publisher = Publisher::new(
            store.clone(),
            Arc::clone(&queue),
            config.queue.window,
            Arc::new(Presence::default()),
            Arc::new(Statistics::default()),
        );
        let instance = InstanceId::new(register(&database.connect().await).await);
        let router = Arc::new(Router::new(&config.channels, &config.routes).unwrap());
        let availability = Arc::new(Availability::new(router, &config.channels, config.worker.concurrency));
        let relay = Relay::new(store.clone(), publisher, Arc::clone(&availability), instance.clone());
        Stepped { store, queue, availability, relay, instance: instance.get() }
    }

    /// Learns what operators paused.
    async fn learn_pauses(&self) {
        circuits::pass(&self.store, &InstanceId::new(self.instance), &self.availability).await.unwrap();
    }

    /// Pass after pass until one finds nothing.
    async fn until_idle(&mut self) -> u64 {
        let mut pushed = 0;
        loop {
            let counts = self.relay.pass().await.unwrap();
            pushed += counts.pushed;
            if counts.pushed + counts.admitted == 0 {
                return pushed;
            }
        }
    }
}
