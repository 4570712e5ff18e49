//! Topics share the calls of an instance: one whose destinations all hang keeps no other waiting.

use std::time::Duration;

use tokio_postgres::Client;

use crate::support::instance::{Instance, Setup};
use crate::support::provider::{Provider, Reply};
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World};

const SOON: Duration = Duration::from_secs(30);
const HOSTILE_ROWS: i32 = 8_000;
/// A turn must come before the first call that hangs has ended.
const HANGS_FOR: Duration = Duration::from_secs(20);
/// By the database's clock, from commit to SENT.
const WAIT_MAX_S: f64 = 2.0;

/// A provider on every loopback address, so that each address is a destination of its own, and one that answers.
struct Street {
    app: Client,
    hanging: Provider,
    honest: Provider,
    setup: Setup,
    _world: World,
}

impl Street {
    async fn new(carrier: Carrier, concurrency: i64) -> Street {
        let world = World::new(carrier).await;
        let hanging = Provider::start_at("0.0.0.0:0".parse().unwrap()).unwrap();
        hanging.answer(Reply::hang());
        let honest = Provider::start();
        let timeout = format!("{}s", HANGS_FOR.as_secs());
        let setup = world
            .setup
            .clone()
            .set("worker.concurrency", concurrency)
            .set("worker.lease", "60s")
            .url_from_the_row()
            .set("channels.webhook.timeout", timeout)
            .set("channels.other.url", "{{ recipient }}")
            .set("channels.other.allow_private", true)
            .set("routes.elsewhere.channels", vec!["other"]);
        Street { app: world.database.connect().await, hanging, honest, setup, _world: world }
    }

    /// Rows of these topics, each to a host of its own that never answers, written in turns.
    async fn pile_up(&self, topics: i32) {
        let port = self.hanging.addr().port();
        let notify = format!(
            "SELECT outboxd.notify('hostile-' || n % {topics}, format('http://127.%s.%s.%s:{port}/', 1 + n / 60000, n / 250 % 240, 1 + n % 250), '{{}}')
               FROM generate_series(1, {HOSTILE_ROWS}) n"
        );
        self.app.run(&notify).await;
    }

    /// One row for a host that answers. Seconds until it was SENT.
    async fn single(&self, topic: &str) -> f64 {
        let url = self.honest.url("/hook");
        let id: i64 = self.app.query_one("SELECT outboxd.notify($1, $2, '{}')", &[&topic, &url]).await.unwrap().get(0);
        let row = format!("FROM outboxd.notification_log WHERE id = {id}");
        self.app.until(&format!("SELECT status = 'SENT' {row}")).await;
        self.app.value(&format!("SELECT extract(epoch FROM finished_at - created_at)::float8 {row}")).await
    }
}

/// Five rows of each honest topic, one after the other, while the first calls of the hostile topics hang.
async fn honest_rows_are_sent(carrier: Carrier, concurrency: i64, hostile_topics: i32) {
    let street = Street::new(carrier, concurrency).await;
    let _instance: Instance = street.setup.start().await;
    street.pile_up(hostile_topics).await;
    let calls = usize::try_from(concurrency).unwrap() / 2;
    street.hanging.wait_for(calls, SOON).await;
    let mut waits = Vec::new();
    for _ in 0..5 {
        // The channel of the hostile topics, and another one.
        waits.push(street.single("honest").await);
        waits.push(street.single("elsewhere").await);
    }
    let ended: i64 = street.app.count("attempts").await;
    println!(
        "{carrier:?}, {concurrency} calls, {hostile_topics} hostile topics: waits {waits:.2?}, {ended} calls ended"
    );
    assert_eq!(ended, 0, "no call had to end for theirs to begin: {waits:?}");
    assert!(waits.iter().all(|wait| *wait < WAIT_MAX_S), "{waits:?}");
    assert!(street.hanging.count() <= usize::try_from(concurrency).unwrap());
}

#[tokio::test]
async fn a_topic_with_thousands_of_hanging_hosts_leaves_a_share_of_few_calls() {
    for carrier in [Carrier::Stream, Carrier::Memory] {
        honest_rows_are_sent(carrier, 16, 1).await;
    }
}

#[tokio::test]
async fn a_topic_with_thousands_of_hanging_hosts_leaves_a_share_of_many_calls() {
    honest_rows_are_sent(Carrier::List, 256, 1).await;
}

#[tokio::test]
async fn five_topics_with_thousands_of_hanging_hosts_leave_a_share_to_a_sixth() {
    for concurrency in [16, 256] {
        honest_rows_are_sent(Carrier::Stream, concurrency, 5).await;
    }
}

/// The calls of the hostile topic end all at once, every other second, and its rows come back to be retried.
#[tokio::test]
async fn a_share_is_left_while_calls_time_out_and_are_retried() {
    let street = Street::new(Carrier::Stream, 16).await;
    let _instance = street.setup.clone().set("channels.webhook.timeout", "2s").start().await;
    street.pile_up(1).await;
    let mut waits = Vec::new();
    // Each generation of calls is followed by a few honest rows.
    for generation in 1..=5 {
        street.hanging.wait_for(13 * generation, SOON).await;
        for topic in ["honest", "elsewhere", "honest"] {
            waits.push(street.single(topic).await);
        }
    }
    println!("waits {waits:.2?} beside {} calls that hang", street.hanging.count());
    assert!(waits.iter().all(|wait| *wait < WAIT_MAX_S), "{waits:?}");
}

#[tokio::test]
async fn one_hanging_host_of_many_costs_the_others_of_its_topic_nothing_beyond_its_share() {
    const OTHERS: i32 = 400;
    let street = Street::new(Carrier::Stream, 16).await;
    let _instance = street.setup.start().await;
    let honest = Provider::start_at("0.0.0.0:0".parse().unwrap()).unwrap();
    let (hanging, other) = (street.hanging.addr().port(), honest.addr().port());
    let notify = |rows: i32, host: &str, port: u16| {
        format!(
            "SELECT outboxd.notify('hooks', format('http://127.0.%s.1:{port}/', {host}), '{{}}') FROM generate_series(1, {rows}) n"
        )
    };
    street.app.run(&notify(1_000, "0", hanging)).await;
    street.hanging.wait_for(8, SOON).await;
    street.app.run(&notify(OTHERS, "n % 100", other)).await;
    street.app.until(&format!("SELECT count(*) = {OTHERS} FROM outboxd.notification_log WHERE status = 'SENT'")).await;
    // Half of the instance's calls, as shipped; none of them had to end.
    assert_eq!(street.hanging.count(), 8);
    assert_eq!(street.app.count("attempts").await, 0);
}
