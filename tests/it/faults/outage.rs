//! Postgres away for longer than heartbeats and leases last: nobody takes himself, or those who were cut off with him,
//! for dead.

use std::time::Duration;

use crate::support::instance::{Instance, Setup};
use crate::support::provider::Reply;
use crate::support::proxy::{Fault, Proxy};
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World};

const SOON: Duration = Duration::from_secs(20);
/// Of heartbeats. Long enough for some sweeps, and then for the last one to come back.
const TTL: &str = "9s";
/// Longer than that, and than the lease.
const AWAY: &str = "12 s";

/// An instance that reaches the database by a way that can be cut.
async fn start_behind_a_proxy(world: &World, setup: &Setup) -> (Proxy, Instance) {
    let proxy = Proxy::start(world.database.port).await;
    let url = world.database.url_at(proxy.port());
    let instance = setup.clone().database_url(&url).start().await;
    (proxy, instance)
}

#[tokio::test]
async fn calls_that_end_well_while_postgres_is_away_are_not_made_again() {
    let world = World::new(Carrier::Memory).await;
    world.provider.answer(Reply::ok().after(Duration::from_secs(4)));
    let setup = world.setup.clone().set("worker.heartbeat_ttl", TTL);
    let setup = setup.set("worker.concurrency", 32);
    let (first_way, first) = start_behind_a_proxy(&world, &setup).await;
    world.notify(20).await;
    world.provider.wait_for(20, SOON).await;
    // The first is cut off first, so what comes now is the second's.
    first_way.set(Fault::Reset);
    let (second_way, second) = start_behind_a_proxy(&world, &setup).await;
    world.notify(20).await;
    world.provider.wait_for(40, SOON).await;
    second_way.set(Fault::Reset);
    world.until(&format!("SELECT bool_and(heartbeat_at < now() - interval '{AWAY}') FROM outboxd.instance")).await;
    let held =
        "SELECT count(*) FILTER (WHERE lease_until < now()) = 40 AND count(DISTINCT instance) = 2 FROM outboxd.outbox";
    assert!(world.value::<bool>(held).await, "every lease is over, and each holds its own");

    // The first is back and sweeps before the second is: it must not end the second's leases yet.
    let back: String = world.value("SELECT now()::text").await;
    first_way.heal();
    let swept = format!(
        "SELECT heartbeat_at > '{back}'::timestamptz + interval '3 s' FROM outboxd.instance ORDER BY id LIMIT 1"
    );
    world.until(&swept).await;
    second_way.heal();
    world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
    assert_eq!(world.provider.count(), 40);
    let noted = "SELECT coalesce(string_agg(DISTINCT outcome, ', '), 'none') FROM outboxd.attempts";
    assert_eq!(world.value::<String>(noted).await, "none");
    assert!(!first.has_ended() && !second.has_ended());
}

#[tokio::test]
async fn an_instance_that_starts_as_postgres_comes_back_leaves_the_others_time_to_beat() {
    let world = World::new(Carrier::Memory).await;
    world.provider.answer(Reply::ok().after(Duration::from_secs(4)));
    let setup = world.setup.clone().set("worker.heartbeat_ttl", TTL);
    let (way, _first) = start_behind_a_proxy(&world, &setup).await;
    world.notify(20).await;
    world.provider.wait_for(20, SOON).await;
    way.set(Fault::Reset);
    world.until(&format!("SELECT heartbeat_at < now() - interval '{AWAY}' FROM outboxd.instance")).await;
    let _second = setup.start().await;
    // It has been there for some sweeps, and not yet for a TTL.
    let swept = "SELECT heartbeat_at > started_at + interval '3 s' FROM outboxd.instance ORDER BY id DESC LIMIT 1";
    world.until(swept).await;
    way.heal();
    world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
}

/// What it took before it noticed must not wait for it: the other has to be enough, for as long as the silence lasts.
#[tokio::test]
async fn an_instance_that_cannot_reach_postgres_leaves_the_queue_to_the_others() {
    for carrier in [Carrier::Stream, Carrier::List] {
        let world = World::new(carrier).await;
        let (way, mut first) = start_behind_a_proxy(&world, &world.setup).await;
        let _second = world.setup.start().await;
        way.set(Fault::BlackHole);
        world.notify(300).await;
        world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
        first.wait_for_log("what was goes back to the queue").await;
        // From then on it takes nothing.
        world.notify(300).await;
        world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
        way.heal();
        first.wait_for_log("Postgres answers; taking goes on").await;
        world.notify(300).await;
        world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
    }
}
