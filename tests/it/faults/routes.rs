//! A topic that an instance has no route for: its rows wait, and say why.

use crate::support::http;
use crate::support::instance::Setup;
use crate::support::provider::Reply;
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World};

/// The same configuration without a route for `orders`.
fn without_route(setup: &Setup) -> Setup {
    setup.clone().without("routes").set("routes.other.channels", vec!["webhook"])
}

const STATES: &str =
    "SELECT string_agg(DISTINCT concat_ws(' ', status, attempts, error), ', ') FROM outboxd.notifications";

#[tokio::test]
async fn rows_of_a_topic_without_a_route_wait_and_say_why_until_it_has_one() {
    let world = World::new(Carrier::Memory).await;
    let first = without_route(&world.setup).start().await;
    world.notify(5).await;
    world.insert(5).await;
    world.run("SELECT outboxd.notify('orders', 'k', '{}', ordering_key => 'k')").await;
    // Another topic's is delivered meanwhile: the ones without a route stand in nobody's way.
    world.run("SELECT outboxd.notify('other', 'r', '{}')").await;
    world.until("SELECT status = 'SENT' FROM outboxd.notifications WHERE topic = 'other'").await;
    world.until_count(11, "stuck WHERE reason = 'no route' AND topic = 'orders'").await;
    assert_eq!(world.value::<String>(&format!("{STATES} WHERE topic = 'orders'")).await, "QUEUED 0");
    assert_eq!(world.count("outbox WHERE published_at IS NOT NULL").await, 0, "nobody here could deliver them");
    world.until("SELECT level = 'critical' AND value LIKE '%orders%' FROM outboxd.health WHERE name = 'routes'").await;
    assert_eq!(world.provider.count(), 1);
    assert_eq!(first.drain().await, 0);
    let _second = world.setup.start().await;
    world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
    world.until("SELECT level = 'ok' FROM outboxd.health WHERE name = 'routes'").await;
}

#[tokio::test]
async fn an_instance_without_a_topics_route_leaves_its_rows_to_one_that_has_it() {
    let carriers = [Carrier::Memory, Carrier::List, Carrier::Stream].map(async |carrier| {
        let world = World::new(carrier).await;
        let mut old = without_route(&world.setup).start().await;
        world.notify(1).await;
        old.wait_for_log("this instance has no route for the topic").await;
        let _new = world.setup.start().await;
        for _ in 0..10 {
            world.notify(10).await;
        }
        world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
        assert_eq!(world.value::<String>(STATES).await, "SENT 1", "{carrier:?}");
        assert_eq!(old.log().matches("no route for the topic").count(), 1, "told once: {}", old.log());
    });
    futures_util::future::join_all(carriers).await;
}

#[tokio::test]
async fn a_relay_without_any_route_publishes_for_workers_that_have_them() {
    let world = World::new(Carrier::Stream).await;
    let _relay = world.setup.clone().without("routes").roles("producer,relay").start().await;
    let _worker = world.setup.clone().roles("worker").start().await;
    // What comes back goes another way than what is new.
    world.provider.script([Reply::status(503)]);
    world.notify(50).await;
    world.until_ended().await.assert_nothing_lost();
    assert_eq!(world.provider.count(), 51);
}

#[tokio::test]
async fn a_claim_whose_holder_died_is_ended_by_an_instance_without_its_route_and_waits() {
    let world = World::new(Carrier::Memory).await;
    let mut holder = world.setup.clone().failpoints("after_claim=abort").start().await;
    world.notify(3).await;
    holder.exit_code().await;
    let other = without_route(&world.setup).start().await;
    world.until_count(3, "stuck WHERE reason = 'no route'").await;
    let gone = "SELECT bool_and(status = 'QUEUED' AND attempts = 1 AND error LIKE 'worker % was gone before %') FROM outboxd.notifications";
    assert!(world.value::<bool>(gone).await);
    assert_eq!(other.drain().await, 0);
    let _last = world.setup.start().await;
    world.until_ended().await.assert_nothing_lost();
}

#[tokio::test]
async fn of_two_instances_the_one_without_a_topics_route_is_named_whichever_started_last() {
    for lacks_first in [true, false] {
        let world = World::new(Carrier::Memory).await;
        world.run("SELECT outboxd.pause('orders'), outboxd.notify('orders', 'r', '{}')").await;
        let mut setups = [without_route(&world.setup), world.setup.clone()];
        if !lacks_first {
            setups.reverse();
        }
        let mut first = setups[0].start().await;
        let _second = setups[1].start().await;
        let which = if lacks_first { "min" } else { "max" };
        let told = format!(
            "SELECT level = 'warn' AND value LIKE 'no route for orders (1 waiting) on 1 of 2 instances: '
                       || (SELECT {which}(id) FROM outboxd.instance) || ' on %'
               FROM outboxd.health WHERE name = 'routes'"
        );
        world.until(&told).await;
        let page = http::get(first.http_addr().await, "/topics", &["Accept: text/html"]).await;
        assert!(page.body.contains("not on 1 of 2 instances") && !page.body.contains("no route</span>"), "{page:?}");
    }
}

/// Seconds from the commit of so many rows of `orders` to the last SENT.
async fn seconds_to_send(world: &World, rows: i32) -> f64 {
    let last = "SELECT coalesce(max(id), 0) FROM outboxd.notification_log";
    let new = format!("FROM outboxd.notification_log WHERE id > {}", world.value::<i64>(last).await);
    world.notify(rows).await;
    world.until(&format!("SELECT count(*) FILTER (WHERE status = 'SENT') = {rows} {new}")).await;
    let took = format!("SELECT extract(epoch FROM max(finished_at) - min(created_at))::float8 {new}");
    world.value(&took).await
}

#[tokio::test]
async fn beside_an_instance_without_the_route_a_thousand_rows_take_no_longer() {
    for carrier in [Carrier::Stream, Carrier::List, Carrier::Memory] {
        let world = World::new(carrier).await;
        let has = world.setup.start().await;
        let alone = seconds_to_send(&world, 1_000).await;
        let mut lacks = without_route(&world.setup).start().await;
        let joined = seconds_to_send(&world, 1_000).await;
        let beside = seconds_to_send(&world, 1_000).await;
        let put_back = lacks.metric("outboxd_put_back_total", &[]).await;
        println!(
            "{carrier:?}: alone {alone:.2} s, as it joins {joined:.2} s, beside it {beside:.2} s, {put_back} put back by it"
        );
        assert!(joined.max(beside) <= alone + 1.0, "{alone:.2} s became {joined:.2} s and {beside:.2} s");
        // What both have a route for goes through the queue that they share.
        world.run("SELECT outboxd.notify('other', 'r', '{}') FROM generate_series(1, 50)").await;
        world.until_count(50, "notification_log WHERE topic = 'other' AND status = 'SENT'").await;
        // Nor does what it held die with the one that has the route.
        world.provider.answer(Reply::hang());
        world.notify(300).await;
        world.provider.wait_for(3_060, std::time::Duration::from_secs(30)).await;
        has.kill().await;
        world.provider.answer(Reply::ok());
        let _next = world.setup.start().await;
        world.until_ended().await.assert_nothing_lost();
    }
}

/// What a relay alone publishes may be taken by any worker: it costs time, as docs/scaling.md says, and nothing else.
#[tokio::test]
async fn split_roles_deliver_each_row_once_beside_a_worker_without_its_route() {
    for carrier in [Carrier::Stream, Carrier::List] {
        let world = World::new(carrier).await;
        let _relay = world.setup.clone().roles("producer,relay").start().await;
        let _has = world.setup.clone().roles("worker").start().await;
        let mut lacks = without_route(&world.setup).roles("worker,api").start().await;
        while lacks.metric("outboxd_put_back_total", &[]).await == 0.0 {
            println!("{carrier:?}: 100 rows took {:.1} s", seconds_to_send(&world, 100).await);
        }
        world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
        assert_eq!(world.value::<String>(STATES).await, "SENT 1", "{carrier:?}");
    }
}
