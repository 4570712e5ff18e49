//! Faults that must be survived, each observed at the provider's ledger and in the rows.

mod chaos;
mod clock;
mod destinations;
mod disk;
mod duties;
mod keys;
mod limits;
mod outcomes;
mod postgres;
mod publish;
mod redis;
mod relays;
mod snapshot;
mod sweep;
mod topics;
mod upgrade;
mod work;

use std::collections::BTreeMap;
use std::sync::Arc;

use outboxd::channel::failover::Router;
use outboxd::holds::Holds;
use outboxd::publisher::Publisher;
use outboxd::queue::{self, Queue};
use outboxd::relay::Relay;
use outboxd::store::Store;
use outboxd::store::instance::InstanceId;

use crate::duty::{config, register};
use crate::support::postgres::Database;

/// A relay in this process that makes a pass when it is told to, with a queue of its own.
struct Stepped {
    store: Store,
    queue: Arc<dyn Queue>,
    holds: Arc<Holds>,
    relay: Relay,
    instance: i32,
}

impl Stepped {
    async fn on(database: &Database) -> Stepped {
        let config = config(database, &[]);
        let store = Store::open(&config).unwrap();
        let queue = queue::open(&config.queue, None).await.unwrap();
        let publisher = Publisher::new(store.clone(), Arc::clone(&queue), config.queue.window);
        let instance = InstanceId::new(register(&database.connect().await).await);
        let router = Arc::new(Router::new(&BTreeMap::new(), &BTreeMap::new()).unwrap());
        let holds = Arc::new(Holds::new(store.clone(), instance.clone(), router, &config));
        let relay = Relay::new(store.clone(), publisher, Arc::clone(&holds), instance.clone(), &config.relay);
        Stepped { store, queue, holds, relay, instance: instance.get() }
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
