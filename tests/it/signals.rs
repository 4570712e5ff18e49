//! Signals that are no reason to end.

use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::support::provider::Reply;
use crate::support::proxy::{Fault, Proxy};
use crate::support::wait;
use crate::support::world::{Carrier, World};

const TOLD: &str = "SIGHUP changes nothing";

/// Whether a process holds SIGHUP back, and whether it takes it. For a moment of each new thread all are held back.
fn hangup(pid: i32) -> (bool, bool) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let has = |mask: &str, signal: Signal| {
        let line = status.lines().find_map(|line| line.strip_prefix(mask)).unwrap_or("0");
        u64::from_str_radix(line.trim(), 16).is_ok_and(|signals| signals & (1 << (signal as i32 - 1)) != 0)
    };
    let is_held = has("SigBlk:", Signal::SIGHUP) && !has("SigBlk:", Signal::SIGTERM);
    (is_held, has("SigCgt:", Signal::SIGHUP))
}

/// The first thing that it does is to hold the signal back; what it was sent before it can take it, it takes then.
#[tokio::test]
async fn sighup_before_the_program_can_take_it_is_held_back_and_told() {
    let world = World::new(Carrier::Memory).await;
    let mut held = None;
    for _ in 0..50 {
        let instance = world.setup.spawn();
        let pid = Pid::from_raw(instance.pid());
        // It is stopped between the two, or has come further: then it is tried again.
        while hangup(instance.pid()) == (false, false) {}
        instance.signal(Signal::SIGSTOP);
        wait::until("stopped", async || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") T "))
            .await;
        if hangup(instance.pid()) == (true, false) {
            held = Some(instance);
            break;
        }
    }
    let mut instance = held.expect("it holds SIGHUP back before it takes it");
    instance.signal(Signal::SIGHUP);
    instance.signal(Signal::SIGCONT);
    instance.wait_for_log("\"started\"").await;
    wait::until("told", async || instance.log().contains(TOLD)).await;
    assert_eq!(instance.drain().await, 0);
}

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
