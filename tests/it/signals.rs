//! Signals that are no reason to end.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::provider::Reply;
use crate::support::proxy::{Fault, Proxy};
use crate::support::wait;
use crate::support::world::{Carrier, World};

const TOLD: &str = "SIGHUP changes nothing";

#[tokio::test]
async fn sighup_never_ends_the_process_not_twice_nor_in_a_start_nor_in_a_drain() {
    let world = World::new(Carrier::Memory).await;
    let port = world.database.url().split(':').next_back().unwrap().split('/').next().unwrap().parse().unwrap();
    let proxy = Proxy::start(port).await;
    proxy.set(Fault::BlackHole);
    let starting = world.setup.clone().database_url(&world.database.url_at(proxy.port()));
    let mut instance = starting.spawn();
    instance.wait_for_log("\"listening\"").await;
    let told = |instance: &crate::support::instance::Instance, times: usize| {
        let log = instance.log();
        assert!(log.matches(TOLD).count() <= times, "{log}");
        log.matches(TOLD).count() == times
    };
    instance.signal(Signal::SIGHUP);
    wait::until("told in its start", async || told(&instance, 1)).await;
    proxy.heal();
    instance.wait_for_log("\"started\"").await;
    for times in 2..=3 {
        instance.signal(Signal::SIGHUP);
        wait::until("told while it works", async || told(&instance, times)).await;
    }
    world.provider.answer(Reply::ok().after(Duration::from_secs(2)));
    world.notify(1).await;
    world.provider.wait_for(1, Duration::from_secs(10)).await;
    instance.signal(Signal::SIGTERM);
    instance.wait_for_log("draining").await;
    instance.signal(Signal::SIGHUP);
    wait::until("told in its drain", async || told(&instance, 4)).await;
    assert_eq!(instance.exit_code().await, 0);
    world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
}
