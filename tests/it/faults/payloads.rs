//! Large payloads: what is claimed of them fits in the memory that the manifests ship.

use std::time::Duration;

use crate::support::instance::{Instance, Setup};
use crate::support::provider::{Provider, Reply};
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World};

const SOON: Duration = Duration::from_secs(60);
/// `deploy/kubernetes/outboxd.yaml`: 256Mi.
const RSS_MAX_KIB: u64 = 256 << 10;
const ROWS: i32 = 2_000;
/// In the text of a payload that takes nearly the 256 KiB that one may.
const TEXT_BYTES: i32 = 262_000;

/// The most memory that a process has had, in KiB.
fn peak_kib(instance: &Instance) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", instance.pid())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

fn to_every_host(world: &World) -> Setup {
    world.setup.clone().url_from_the_row().set("channels.webhook.timeout", "3s")
}

/// Large payloads for hosts that never answer, until some hundred calls were made and begin again.
async fn peak_with(world: &World, setup: &Setup, recipient: &str) -> u64 {
    let hanging = Provider::start_at("0.0.0.0:0".parse().unwrap()).unwrap();
    hanging.answer(Reply::hang());
    let instance = setup.start().await;
    let port = hanging.addr().port();
    let notify = format!(
        "SELECT outboxd.notify('large', format('{recipient}', 1 + n / 250, 1 + n % 250, {port}), jsonb_build_object('text', repeat('x', {TEXT_BYTES}),
                'url', format('http://127.0.%s.%s:{port}/', 1 + n / 250, 1 + n % 250))) FROM generate_series(1, {ROWS}) n"
    );
    world.run(&notify).await;
    hanging.wait_for(300, SOON).await;
    // Beside them a topic of few bytes has its turn.
    world
        .run(&format!(
            "SELECT outboxd.notify('small', '{}', '{{\"url\": \"{0}\", \"text\": \"\"}}')",
            world.provider.url("/hook")
        ))
        .await;
    world.provider.wait_for(1, SOON).await;
    let peak = peak_kib(&instance);
    println!("{} MiB", peak >> 10);
    peak
}

const HOST: &str = "http://127.0.%s.%s:%s/";

#[tokio::test]
async fn large_payloads_to_hanging_hosts_fit_in_the_memory_that_is_shipped() {
    let world = World::new(Carrier::Stream).await;
    let peak = peak_with(&world, &to_every_host(&world), HOST).await;
    assert!(peak <= RSS_MAX_KIB, "{} MiB", peak >> 10);
}

#[tokio::test]
async fn so_do_large_payloads_in_bodies_made_by_a_template() {
    let world = World::new(Carrier::Stream).await;
    let setup = to_every_host(&world)
        .set("channels.webhook.body", "{\"to\": {{ recipient|tojson }}, \"text\": {{ payload.text|tojson }}}");
    let peak = peak_with(&world, &setup, HOST).await;
    assert!(peak <= RSS_MAX_KIB, "{} MiB", peak >> 10);
}

#[tokio::test]
async fn so_do_large_payloads_that_the_url_is_made_of() {
    let world = World::new(Carrier::Stream).await;
    let setup = to_every_host(&world).set("channels.webhook.url", "{{ payload.url }}");
    let peak = peak_with(&world, &setup, HOST).await;
    assert!(peak <= RSS_MAX_KIB, "{} MiB", peak >> 10);
}

#[tokio::test]
async fn a_payload_larger_than_the_whole_budget_still_goes() {
    let world = World::new(Carrier::Memory).await;
    let _instance = world.setup.clone().set("worker.payload_bytes_max", "64KiB").start().await;
    let notify = "SELECT outboxd.notify('t' || n % 3, 'r', jsonb_build_object('text', repeat('x', 262000))) FROM generate_series(1, 30) n";
    world.run(notify).await;
    world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
    assert!(
        world.provider.ledger().iter().all(|call| call.json()["payload"]["text"].as_str().unwrap().len() == 262_000)
    );
}
