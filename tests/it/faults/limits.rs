//! Limits under a backlog: messages wait unclaimed, and whoever is not concerned does not wait.

use std::time::Duration;

use crate::support::instance::{Instance, Setup};
use crate::support::provider::{Call, Reply};
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World};

const SOON: Duration = Duration::from_secs(60);

/// The world's channel with these lines beside its URL.
fn limited(world: &World, limits: &str) -> Setup {
    world.setup.clone().toml(&format!("[channels.webhook]\n{limits}\n"))
}

/// The same with the URL from the row.
fn from_the_row(world: &World, limits: &str) -> Setup {
    limited(world, limits).url_from_the_row()
}

/// Commits so many rows for the world's provider, whether or not the URL comes from the row.
async fn notify(world: &World, topic: &str, rows: i32) {
    let notify = "SELECT outboxd.notify($1, $2, '{}') FROM generate_series(1, $3)";
    world.app.execute(notify, &[&topic, &world.provider.url("/hook"), &rows]).await.unwrap();
}

/// Works off a backlog and says how many seconds that took. At most five claims in a hundred may be given back.
async fn work_off(world: &World, setup: &Setup, rows: i32) -> f64 {
    notify(world, "orders", rows).await;
    let mut instance = setup.start().await;
    world.until_count(rows, "notification_log WHERE status = 'SENT'").await;
    world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
    let claimed = instance.metric("outboxd_claims_total", &[("case", "claimed")]).await;
    let given_back = instance.metric("outboxd_released_total", &[]).await;
    let put_back = instance.metric("outboxd_put_back_total", &[]).await;
    let took = "SELECT extract(epoch FROM max(l.finished_at) - min(i.started_at))::float8 FROM outboxd.notification_log l, outboxd.instance i";
    let took: f64 = world.value(took).await;
    println!("{rows} rows in {took:.1} s: {claimed} claims, {given_back} given back, {put_back} put back unclaimed");
    assert!(given_back <= claimed * 0.05, "{given_back} of {claimed} claims were given back");
    took
}

#[tokio::test]
async fn a_backlog_for_one_destination_of_many_is_worked_off_within_its_limit() {
    let world = World::new(Carrier::Stream).await;
    world.provider.answer(Reply::ok().after(Duration::from_millis(10)));
    work_off(&world, &from_the_row(&world, "max_in_flight_per_origin = 4"), 2_000).await;
    assert_eq!(world.provider.most_at_once(), 4);
}

#[tokio::test]
async fn a_backlog_for_a_channel_with_few_calls_at_once_is_worked_off_within_its_limit() {
    let world = World::new(Carrier::Stream).await;
    world.provider.answer(Reply::ok().after(Duration::from_millis(10)));
    work_off(&world, &limited(&world, "max_in_flight = 4"), 2_000).await;
    assert_eq!(world.provider.most_at_once(), 4);
}

/// Before the first call has ended nobody knows how many a second a destination takes. What was assumed until then must
/// not keep rows waiting while it has nothing to do.
#[tokio::test]
async fn a_quick_destination_is_not_kept_waiting_for_what_was_assumed_of_it() {
    const ROWS: i32 = 3_000;
    let (channel, destination) = (World::new(Carrier::Stream).await, World::new(Carrier::Stream).await);
    for world in [&channel, &destination] {
        world.provider.answer(Reply::ok().after(Duration::from_millis(2)));
    }
    // Side by side, so that a busy machine slows both.
    let (fixed_setup, from_data_setup) =
        (limited(&channel, "max_in_flight = 4"), from_the_row(&destination, "max_in_flight_per_origin = 4"));
    let (fixed, from_data) =
        tokio::join!(work_off(&channel, &fixed_setup, ROWS), work_off(&destination, &from_data_setup, ROWS));
    // By what is assumed of a destination before it is known, it would take eight times as long.
    assert!(from_data < 4.0 * fixed, "{from_data:.1} s where the same limit on the channel takes {fixed:.1} s");
}

#[tokio::test]
async fn a_backlog_for_a_channel_with_a_rate_limit_is_worked_off_within_it() {
    let world = World::new(Carrier::Stream).await;
    work_off(&world, &limited(&world, "rate_limit = \"200/s\""), 800).await;
    let at: Vec<_> = world.provider.ledger().iter().map(|call| call.at).collect();
    // A call may take a while from its start to the provider's ledger.
    let span = Duration::from_millis(900);
    let most = (0..at.len()).map(|n| at[n..].iter().take_while(|later| **later - at[n] < span).count()).max();
    assert!(most <= Some(200), "{most:?} calls within {span:?}");
}

/// Single rows of a topic of their own to a provider that another topic's backlog keeps busy for half a minute: for
/// each, how many calls for the backlog were made between its commit and its own. Two hundred are a second of work.
async fn in_front_of_singles(world: &World, setup: &Setup) -> Vec<usize> {
    world.provider.answer(Reply::ok().after(Duration::from_millis(20)));
    let _instance: Instance = setup.start().await;
    notify(world, "bulk", 5_000).await;
    world.provider.wait_for(100, SOON).await;
    let mut in_front = Vec::new();
    // The first is of a topic that nobody has seen, the others are of one that is known.
    for n in 1..=5 {
        let before = world.provider.count();
        notify(world, "single", 1).await;
        let sent = "SELECT count(*) FROM outboxd.notification_log WHERE topic = 'single' AND status = 'SENT'";
        world.until(&format!("SELECT ({sent}) = {n}")).await;
        let ledger = world.provider.ledger();
        let single = ledger[before..].iter().position(|call| call.json()["topic"] == "single");
        in_front.push(single.expect("it was called"));
    }
    let left: i64 = world.count("outbox WHERE topic = 'bulk'").await;
    println!("in front of singles: {in_front:?} calls; {left} of the backlog are left");
    assert!(left > 3_000);
    in_front
}

/// A second of work may wait in front of it, and half as much for chance.
const IN_FRONT_MAX: usize = 300;
/// Of one call at a time: the two that were next already, and some for chance.
const SLOW_IN_FRONT_MAX: usize = 5;

#[tokio::test]
async fn a_single_row_does_not_wait_for_another_topics_backlog_to_the_same_channel() {
    let world = World::new(Carrier::Stream).await;
    let in_front = in_front_of_singles(&world, &limited(&world, "max_in_flight = 4")).await;
    assert!(in_front.iter().all(|calls| *calls < IN_FRONT_MAX), "{in_front:?}");
}

#[tokio::test]
async fn a_single_row_does_not_wait_for_another_topics_backlog_to_the_same_destination() {
    let world = World::new(Carrier::Stream).await;
    let in_front = in_front_of_singles(&world, &from_the_row(&world, "max_in_flight_per_origin = 4")).await;
    assert!(in_front.iter().all(|calls| *calls < IN_FRONT_MAX), "{in_front:?}");
}

#[tokio::test]
async fn a_retry_does_not_wait_for_the_backlog_of_its_channel() {
    let world = World::new(Carrier::Stream).await;
    world.provider.answer_with(|call| match (call.json()["topic"].as_str(), call.header("outboxd-attempt")) {
        (Some("flaky"), Some("1")) => Reply::status(503),
        _ => Reply::ok().after(Duration::from_millis(20)),
    });
    let _instance = limited(&world, "max_in_flight = 4").start().await;
    notify(&world, "bulk", 5_000).await;
    world.provider.wait_for(100, SOON).await;
    notify(&world, "flaky", 5).await;
    world.until_count(5, "notification_log WHERE topic = 'flaky' AND status = 'SENT'").await;
    let ledger = world.provider.ledger();
    let flaky = |attempt| {
        let is_it =
            move |call: &&Call| call.json()["topic"] == "flaky" && call.header("outboxd-attempt") == Some(attempt);
        ledger.iter().filter(is_it).map(|call| call.order).max().expect("it was called")
    };
    let in_front = flaky("2") - flaky("1");
    println!("{in_front} calls between the last failure and the last retry");
    assert!(in_front < IN_FRONT_MAX, "{in_front}");
}

/// Calls for the backlog between a row's first attempt and its second.
fn in_front_of_retry(ledger: &[Call], topic: &str) -> usize {
    let called = |attempt| {
        let is_it = |call: &&Call| call.json()["topic"] == topic && call.header("outboxd-attempt") == Some(attempt);
        ledger.iter().filter(is_it).map(|call| call.order).max().expect("it was called")
    };
    called("2") - called("1") - 1
}

/// One call at a time, and each takes long: whatever comes free, the backlog has taken before another topic is asked.
#[tokio::test]
async fn neither_a_single_row_nor_a_retry_waits_for_the_backlog_of_a_slow_channel() {
    let world = World::new(Carrier::Stream).await;
    world.provider.answer_with(|call| match (call.json()["topic"].as_str(), call.header("outboxd-attempt")) {
        (Some("flaky"), Some("1")) => Reply::status(503),
        _ => Reply::ok().after(Duration::from_millis(250)),
    });
    let _instance = limited(&world, "max_in_flight = 1").start().await;
    notify(&world, "bulk", 200).await;
    world.provider.wait_for(5, SOON).await;
    let (mut singles, mut retries) = (Vec::new(), Vec::new());
    for n in 1..=4 {
        for topic in ["single", "flaky"] {
            let before = world.provider.count();
            notify(&world, topic, 1).await;
            let sent = format!("FROM outboxd.notification_log WHERE topic = '{topic}' AND status = 'SENT'");
            world.until(&format!("SELECT count(*) = {n} {sent}")).await;
            let ledger = world.provider.ledger();
            let first = ledger[before..].iter().position(|call| call.json()["topic"] == topic);
            singles.push(first.expect("it was called"));
            if topic == "flaky" {
                retries.push(in_front_of_retry(&ledger[before..], topic));
            }
        }
    }
    println!("in front of single rows: {singles:?} calls, of retries: {retries:?}");
    assert!(singles.iter().chain(&retries).all(|calls| *calls <= SLOW_IN_FRONT_MAX), "{singles:?} {retries:?}");
}

#[tokio::test]
async fn what_cannot_start_within_a_second_goes_back_unclaimed_with_its_time() {
    const ROWS: i32 = 100;
    let world = World::new(Carrier::Stream).await;
    world.provider.answer(Reply::ok().after(Duration::from_millis(500)));
    let mut instance = from_the_row(&world, "max_in_flight_per_origin = 1").start().await;
    notify(&world, "orders", ROWS).await;
    world.provider.wait_for(1, SOON).await;
    let back = "state = 'ready' AND retry_at > now() AND instance IS NULL";
    world.until(&format!("SELECT count(*) > 50 FROM outboxd.outbox WHERE {back}")).await;
    let burned = format!("SELECT count(*) FROM outboxd.outbox WHERE {back} AND (attempts > 0 OR epoch > 0)");
    assert_eq!(world.value::<i64>(&burned).await, 0, "no attempt was burned");
    let promised = format!("SELECT count(DISTINCT retry_at) > 25 FROM outboxd.outbox WHERE {back}");
    assert!(world.value::<bool>(&promised).await, "each has a time of its own");
    assert!(instance.metric("outboxd_put_back_total", &[]).await > 50.0);
    world.provider.answer(Reply::ok());
    world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
    assert_eq!(world.count("notification_log WHERE status = 'SENT' AND attempts = 1").await, i64::from(ROWS));
}
