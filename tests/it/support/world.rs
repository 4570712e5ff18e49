//! A database, a provider, and how instances between them are set up: what most tests of faults begin with.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use outboxd::config::{QueueConfig, QueueKind};
use outboxd::queue::{self, Message, Queue};
use tokio_postgres::Client;

use super::instance::{Instance, Setup};
use super::postgres::{self, Database};
use super::provider::{Provider, Reply};
use super::redis;
use super::sql::Sql;
use super::verdict::{self, Verdict};

/// Which queue carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    Memory,
    List,
    Stream,
}

/// A message about a row of [`World::notify`] that is on the first channel of its route.
pub fn message(id: i64, epoch: i32) -> Message {
    Message { id, epoch, route_step: 0, topic: Arc::from("orders") }
}

pub struct World {
    pub database: Database,
    pub app: Client,
    pub provider: Provider,
    pub setup: Setup,
    pub prefix: String,
}

impl Sql for World {
    fn session(&self) -> &Client {
        &self.app
    }
}

impl World {
    /// A migrated database, a provider that answers 200, and instances that send everything there.
    pub async fn new(carrier: Carrier) -> World {
        World::on(postgres::database().await, carrier).await
    }

    /// The same on this migrated database.
    pub async fn on(database: Database, carrier: Carrier) -> World {
        let provider = Provider::start();
        let prefix = redis::unique_prefix();
        let setup = Setup::new(&database.url()).webhook(&provider.url("/hook"));
        let setup = match carrier {
            Carrier::Memory => setup,
            Carrier::List => setup.redis(redis::shared().url(), "list", &prefix),
            Carrier::Stream => setup.redis(redis::shared().url(), "stream", &prefix),
        };
        World { app: database.connect().await, database, provider, setup, prefix }
    }

    /// The same with a queue of this kind on a Redis of the test's own.
    pub async fn over(redis_url: &str, kind: &str) -> World {
        let world = World::new(Carrier::Memory).await;
        World { setup: world.setup.redis(redis_url, kind, &world.prefix), ..world }
    }

    /// Its instances have this key of the configuration file too.
    pub fn set(self, path: &str, value: impl Into<toml::Value>) -> World {
        World { setup: self.setup.set(path, value), ..self }
    }

    /// Its instances have this in their configuration file too.
    pub fn toml(self, more: &str) -> World {
        World { setup: self.setup.toml(more), ..self }
    }

    /// An instance in the middle of 300 notifications, of which the provider has begun to see the first 30.
    pub async fn start_in_the_middle(&self, answer_after: Duration) -> Instance {
        self.provider.answer(Reply::ok().after(answer_after));
        let instance = self.setup.start().await;
        self.notify(300).await;
        self.provider.wait_for(30, Duration::from_secs(20)).await;
        instance
    }

    /// Commits `count` notifications, each in the same transaction as the others.
    pub async fn notify(&self, count: i32) {
        let statement = format!("SELECT outboxd.notify('orders', 'r' || n, '{{}}') FROM generate_series(1, {count}) n");
        self.run(&statement).await;
    }

    /// Commits `count` plain INSERTs in one transaction.
    pub async fn insert(&self, count: i32) {
        let statement = format!(
            "INSERT INTO outboxd.notification_log (topic, recipient, payload)
             SELECT 'orders', 'r' || n, '{{}}' FROM generate_series(1, {count}) n"
        );
        self.run(&statement).await;
    }

    /// As the instances are configured, with a stream.
    pub fn queue_config(&self) -> QueueConfig {
        QueueConfig {
            kind: QueueKind::Stream,
            prefix: self.prefix.clone(),
            window: 10_000,
            consumer_ttl: Duration::from_secs(1),
            deliveries_max: 10,
            fallback_after: None,
        }
    }

    /// The instances' own stream, for a test that pushes by hand.
    pub async fn queue(&self) -> Arc<dyn Queue> {
        queue::open(&self.queue_config(), Some(&redis::shared().url().into())).await.expect("Redis answers")
    }

    /// How many messages were ever added to the instances' stream, each as an entry of its own.
    pub async fn pushed(&self) -> i64 {
        let info = redis::shared().run::<::redis::Value>(&format!("XINFO STREAM {{{}}}:v1:stream", self.prefix)).await;
        let info: HashMap<String, ::redis::Value> = ::redis::from_redis_value(info).expect("names and values");
        ::redis::from_redis_value(info["entries-added"].clone()).expect("a count")
    }

    /// The instance with the most rows that are published, confirmed and wait to be claimed; waits until one has some.
    pub async fn holder(&self) -> i32 {
        let confirmed = "SELECT count(*) > 10 AND NOT EXISTS (SELECT FROM outboxd.publication) FROM outboxd.outbox WHERE state = 'published'";
        self.until(confirmed).await;
        let most =
            "SELECT instance FROM outboxd.outbox WHERE state = 'published' GROUP BY 1 ORDER BY count(*) DESC LIMIT 1";
        self.value(most).await
    }

    /// Waits until every row has ended, then judges.
    pub async fn until_ended(&self) -> Verdict {
        verdict::until_ended(&self.app, &self.provider).await
    }
}
