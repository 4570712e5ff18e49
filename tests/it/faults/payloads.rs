//! Large payloads: what is claimed of them fits in the memory that the manifests ship, and keeps nobody else waiting.

use std::time::Duration;

use crate::support::instance::{Instance, Setup};
use crate::support::provider::{Provider, Reply};
use crate::support::sql;
use crate::support::world::{Carrier, World};

const SOON: Duration = Duration::from_secs(60);
/// `deploy/kubernetes/outboxd.yaml`: 256Mi.
const RSS_MAX_KIB: u64 = 256 << 10;
const ROWS: i32 = 2_000;
/// In the text of a payload that takes nearly the 256 KiB that one may.
const TEXT_BYTES: i32 = 261_500;
/// By the database's clock, from commit to SENT.
const WAIT_MAX_S: f64 = 2.0;
const HOST: &str = "http://127.0.%s.%s:%s/";

/// The most memory that a process has had, in KiB.
fn peak_kib(instance: &Instance) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", instance.pid())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Calls hang for longer than the test takes.
fn to_every_host(world: &World) -> Setup {
    world.setup.clone().url_from_the_row().set("channels.webhook.timeout", "40s").set("worker.lease", "60s")
}

/// Seconds until a row of this topic, with so long a text, was SENT to a host that answers.
async fn single(world: &World, topic: &str, text_bytes: i32) -> f64 {
    let url = world.provider.url("/hook");
    let notify = format!(
        "SELECT outboxd.notify('{topic}', '{url}', jsonb_build_object('text', repeat('x', {text_bytes}), 'url', '{url}'))"
    );
    let id: i64 = sql::value(&world.app, &notify).await;
    let row = format!("FROM outboxd.notification_log WHERE id = {id}");
    sql::until(&world.app, &format!("SELECT status = 'SENT' {row}")).await;
    sql::value(&world.app, &format!("SELECT extract(epoch FROM finished_at - created_at)::float8 {row}")).await
}

/// Two topics with large payloads of this character, and long headers, for hosts that never answer: so many calls are
/// made. Beside them the rows of other topics have their turn, small and large.
async fn assert_fits(world: &World, setup: &Setup, character: char, calls: usize) {
    let hanging = Provider::start_at("0.0.0.0:0".parse().unwrap()).unwrap();
    hanging.answer(Reply::hang());
    let instance = setup.start().await;
    let port = hanging.addr().port();
    let notify = format!(
        "SELECT outboxd.notify('large-' || n % 2, format('{HOST}', 1 + n / 250, 1 + n % 250, {port}),
                jsonb_build_object('text', repeat('{character}', {TEXT_BYTES}),
                                   'url', format('{HOST}', 1 + n / 250, 1 + n % 250, {port})),
                headers => jsonb_build_object('x-long', repeat('h', 8000))) FROM generate_series(1, {ROWS}) n"
    );
    sql::run(&world.app, &notify).await;
    hanging.wait_for(calls, SOON).await;
    let mut waits = Vec::new();
    for _ in 0..3 {
        waits.push(single(world, "small", 1).await);
        waits.push(single(world, "honest", TEXT_BYTES).await);
    }
    let ended: i64 = sql::value(&world.app, "SELECT count(*) FROM outboxd.attempts").await;
    let peak = peak_kib(&instance);
    println!("{} MiB, {} calls hang, waits {waits:.2?}", peak >> 10, hanging.count());
    assert_eq!(ended, 0, "no call had to end for theirs to begin: {waits:?}");
    assert!(peak <= RSS_MAX_KIB, "{} MiB", peak >> 10);
    assert!(waits.iter().all(|wait| *wait < WAIT_MAX_S), "{waits:?}");
}

#[tokio::test]
async fn large_payloads_to_hanging_hosts_fit_in_the_memory_that_is_shipped() {
    let world = World::new(Carrier::Stream).await;
    let setup = to_every_host(&world).set("channels.webhook.forward_headers", vec!["x-*"]);
    assert_fits(&world, &setup, 'x', 160).await;
}

#[tokio::test]
async fn so_do_large_payloads_in_bodies_made_by_a_template() {
    let world = World::new(Carrier::List).await;
    let setup = to_every_host(&world).set(
        "channels.webhook.body",
        "{\"to\": {{ recipient|tojson }}, \"text\": {{ payload.text|tojson }}, \"x\": {{ headers|length }}}",
    );
    // What is safe inside HTML takes six bytes for each of these.
    assert_fits(&world, &setup, '<', 160).await;
}

#[tokio::test]
async fn so_do_large_payloads_that_a_template_makes_three_times_as_long() {
    let world = World::new(Carrier::Memory).await;
    let setup = to_every_host(&world)
        .set("channels.webhook.body", "{\"text\": \"{{ payload.text|urlencode }}\", \"x\": {{ headers|length }}}");
    assert_fits(&world, &setup, '<', 50).await;
}

#[tokio::test]
async fn so_do_large_payloads_that_the_url_is_made_of() {
    let world = World::new(Carrier::Stream).await;
    let setup = to_every_host(&world)
        .set("channels.webhook.url", "{{ payload.url }}")
        .set("channels.webhook.forward_headers", vec!["x-*"]);
    assert_fits(&world, &setup, 'x', 160).await;
}

#[tokio::test]
async fn a_payload_larger_than_the_whole_budget_still_goes() {
    let world = World::new(Carrier::Memory).await;
    let _instance = world.setup.clone().set("worker.payload_bytes_max", "64KiB").start().await;
    let notify = "SELECT outboxd.notify('t' || n % 3, 'r', jsonb_build_object('text', repeat('x', 262000))) FROM generate_series(1, 30) n";
    sql::run(&world.app, notify).await;
    world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
    assert!(
        world.provider.ledger().iter().all(|call| call.json()["payload"]["text"].as_str().unwrap().len() == 262_000)
    );
}
