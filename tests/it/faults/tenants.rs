//! Topics share the calls of an instance: one whose destinations all hang keeps no other waiting.

use std::time::Duration;

use tokio_postgres::Client;

use crate::support::instance::{Instance, Setup};
use crate::support::provider::{Provider, Reply};
use crate::support::sql;
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
        self.pile_up_with(topics, HOSTILE_ROWS, "'{}'").await;
    }

    /// So many, with this payload.
    async fn pile_up_with(&self, topics: i32, rows: i32, payload: &str) {
        let host = format!(
            "format('http://127.%s.%s.%s:{}/', 1 + n / 60000, n / 250 % 240, 1 + n % 250)",
            self.hanging.addr().port()
        );
        self.notify(&format!("'hostile-' || n % {topics}"), &host, rows, payload).await;
    }

    /// One row for each `n`, of which topic, host and payload may be made.
    async fn notify(&self, topic: &str, host: &str, rows: i32, payload: &str) {
        let notify = format!("SELECT outboxd.notify({topic}, {host}, {payload}) FROM generate_series(1, {rows}) n");
        sql::run(&self.app, &notify).await;
    }

    /// Waits until so many calls are under way, or wait for what they need.
    async fn until_claimed(&self, rows: i32) {
        let claimed = format!("SELECT count(*) >= {rows} FROM outboxd.outbox WHERE state = 'processing'");
        sql::until(&self.app, &claimed).await;
    }

    /// One row for a host that answers. Seconds until it was SENT.
    async fn single(&self, topic: &str) -> f64 {
        self.single_with(topic, "'{}'").await
    }

    async fn single_with(&self, topic: &str, payload: &str) -> f64 {
        let url = self.honest.url("/hook");
        let id: i64 = sql::value(&self.app, &format!("SELECT outboxd.notify('{topic}', '{url}', {payload})")).await;
        let row = format!("FROM outboxd.notification_log WHERE id = {id}");
        sql::until(&self.app, &format!("SELECT status = 'SENT' {row}")).await;
        sql::value(&self.app, &format!("SELECT extract(epoch FROM finished_at - created_at)::float8 {row}")).await
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
    let ended: i64 = sql::value(&street.app, "SELECT count(*) FROM outboxd.attempts").await;
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
    sql::run(&street.app, &notify(1_000, "0", hanging)).await;
    street.hanging.wait_for(8, SOON).await;
    sql::run(&street.app, &notify(OTHERS, "n % 100", other)).await;
    let sent = format!("SELECT count(*) = {OTHERS} FROM outboxd.notification_log WHERE status = 'SENT'");
    sql::until(&street.app, &sent).await;
    // Half of the instance's calls, as shipped; none of them had to end.
    assert_eq!(street.hanging.count(), 8);
    assert_eq!(sql::value::<i64>(&street.app, "SELECT count(*) FROM outboxd.attempts").await, 0);
}

/// More than comes along with a claim.
const LARGE: &str = "to_jsonb(repeat('x', 20000))";

/// Small rows and a large one of an honest topic, on the hostile topics' channel and on another.
async fn assert_honest_rows_are_sent(street: &Street) {
    let mut waits = Vec::new();
    for _ in 0..3 {
        for topic in ["honest", "elsewhere"] {
            waits.push(street.single(topic).await);
            waits.push(street.single_with(topic, LARGE).await);
        }
    }
    let ended: i64 = sql::value(&street.app, "SELECT count(*) FROM outboxd.attempts").await;
    println!("waits {waits:.2?} beside {} calls that hang", street.hanging.count());
    assert_eq!(ended, 0, "no call had to end for theirs to begin: {waits:?}");
    assert!(waits.iter().all(|wait| *wait < WAIT_MAX_S), "{waits:?}");
}

#[tokio::test]
async fn a_share_of_the_calls_that_a_channel_may_have_is_left_as_well() {
    let street = Street::new(Carrier::Stream, 256).await;
    let _instance = street.setup.clone().set("channels.webhook.max_in_flight", 30).start().await;
    street.pile_up(1).await;
    street.hanging.wait_for(25, SOON).await;
    assert_honest_rows_are_sent(&street).await;
}

#[tokio::test]
async fn a_share_of_the_starts_that_a_channel_may_make_is_left_as_well() {
    let street = Street::new(Carrier::List, 64).await;
    let _instance = street.setup.clone().set("channels.webhook.rate_limit", "100/s").start().await;
    street.pile_up(1).await;
    street.hanging.wait_for(40, SOON).await;
    assert_honest_rows_are_sent(&street).await;
}

/// What waits for its turn in memory must not keep the starts that it was promised.
#[tokio::test]
async fn large_payloads_that_wait_for_memory_hold_no_start_of_their_channel() {
    let street = Street::new(Carrier::Stream, 256).await;
    let setup = street.setup.clone().set("worker.payload_bytes_max", "1MiB");
    let _instance = setup.set("channels.webhook.rate_limit", "50/s").start().await;
    street.pile_up_with(1, 1_000, LARGE).await;
    street.until_claimed(76).await;
    assert_honest_rows_are_sent(&street).await;
}

#[tokio::test]
async fn large_payloads_that_wait_for_memory_hold_no_host_that_answers() {
    let street = Street::new(Carrier::Memory, 256).await;
    let setup = street.setup.clone().set("worker.payload_bytes_max", "1MiB");
    let _instance = setup.set("channels.webhook.max_in_flight_per_origin", 20).start().await;
    street.pile_up_with(1, 60, LARGE).await;
    street.until_claimed(60).await;
    let honest = format!("'{}'", street.honest.url("/hook"));
    street.notify("'hostile-0'", &honest, 400, LARGE).await;
    street.until_claimed(76).await;
    assert_honest_rows_are_sent(&street).await;
}

#[tokio::test]
async fn one_hanging_host_with_large_payloads_leaves_its_topic_memory_and_calls() {
    let street = Street::new(Carrier::Stream, 256).await;
    let _instance = street.setup.clone().set("worker.payload_bytes_max", "2MiB").start().await;
    let hanging = format!("'http://127.0.0.1:{}/'", street.hanging.addr().port());
    street.notify("'honest'", &hanging, 1_000, LARGE).await;
    street.until_claimed(100).await;
    assert_honest_rows_are_sent(&street).await;
}
