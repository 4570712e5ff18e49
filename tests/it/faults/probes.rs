//! A provider that does not know us for long: what waits is kept, and an operator need not wait for the circuit.

use std::time::Duration;

use crate::support::provider::{Provider, Reply};
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World};

const SOON: Duration = Duration::from_secs(20);
const FAILED: &str = "SELECT count(*) FROM outboxd.notification_log WHERE status = 'FAILED'";

/// Two 401 in a row open the circuit for so long; one call at a time, so that no more than two are made.
async fn world(open_for: &str) -> World {
    let world = World::new(Carrier::Memory)
        .await
        .set("channels.webhook.max_in_flight", 1)
        .set("channels.webhook.circuit.unauthorized", 2)
        .set("channels.webhook.circuit.open_for", open_for);
    world.provider.answer(Reply::status(401));
    world
}

/// The circuit is open, and five rows wait behind it.
async fn open_the_circuit(world: &World) {
    world.notify(7).await;
    let open = "SELECT count(*) = 1 FROM outboxd.channel_health WHERE circuit = 'open' AND held_because LIKE '%401%'";
    world.until(open).await;
    world.until(&format!("SELECT ({FAILED}) = 2")).await;
}

#[tokio::test]
async fn probes_that_fail_use_up_no_attempt_and_no_notification() {
    let world = world("100ms").await;
    let _instance = world.setup.start().await;
    open_the_circuit(&world).await;
    // More probes than a notification has attempts.
    world.provider.wait_for(2 + 6, SOON).await;
    assert_eq!(world.value::<i64>(FAILED).await, 2);
    world.until("SELECT count(*) >= 6 FROM outboxd.attempts WHERE outcome = 'failed' AND number IS NULL").await;
    world.provider.answer(Reply::ok());
    world.until_count(5, "notification_log WHERE status = 'SENT' AND attempts = 1").await;
    assert_eq!(world.value::<i64>(FAILED).await, 2);
    world.until_ended().await.assert_nothing_lost().assert_duplicates_explained();
}

/// Forty calls are under way when the first refusal comes.
#[tokio::test]
async fn a_streak_of_401_costs_no_more_notifications_than_it_takes_to_open_the_circuit() {
    let world = World::new(Carrier::Memory).await.set("channels.webhook.circuit.open_for", "200ms");
    world.provider.answer(Reply::status(401).after(Duration::from_secs(1)));
    let _instance = world.setup.start().await;
    world.notify(40).await;
    world.until_count(1, "channel_state WHERE reason = 'unauthorized'").await;
    // Probes go on failing.
    world.provider.wait_for(40 + 3, SOON).await;
    let used_up = "notification_log l LEFT JOIN outboxd.outbox o USING (id)
                    WHERE l.status = 'FAILED' OR o.state = 'ready' AND o.attempts > 0";
    assert_eq!(world.count(used_up).await, 5, "circuit.unauthorized");
    world.provider.answer(Reply::ok());
    world.until_count(35, "notification_log WHERE status = 'SENT' AND attempts = 1").await;
    world.until_ended().await.assert_nothing_lost();
}

#[tokio::test]
async fn what_was_under_way_when_the_credentials_were_refused_does_not_go_by_sms() {
    let mut world = World::new(Carrier::Memory).await;
    let sms = with_sms(&mut world);
    world.setup = world.setup.clone().set("channels.webhook.circuit.open_for", "1h");
    world.provider.answer(Reply::status(401).after(Duration::from_secs(1)));
    let _instance = world.setup.start().await;
    world.notify(40).await;
    world.until_count(5, "notification_log WHERE status = 'SENT'").await;
    let waiting = "SELECT count(*) = 35 FROM outboxd.outbox WHERE state = 'ready' AND route_step = 0 AND attempts = 0";
    world.until(waiting).await;
    assert_eq!(sms.count(), 5, "circuit.unauthorized");
}

/// The circuit opens for an hour; nobody asks for a probe.
#[tokio::test]
async fn a_restart_with_other_credentials_probes_at_once_and_an_unchanged_one_does_not() {
    let mut world = world("1h").await;
    world.setup = world.setup.clone().set("channels.webhook.headers.Authorization", "Bearer old");
    let instance = world.setup.start().await;
    open_the_circuit(&world).await;
    assert_eq!(instance.drain().await, 0);
    let instance = world.setup.start().await;
    world.until("SELECT count(*) = 1 FROM outboxd.workers").await;
    world.until("SELECT held_until > now() + interval '1 min' FROM outboxd.channel_health").await;
    assert_eq!(instance.drain().await, 0);
    assert_eq!(world.provider.count(), 2, "nothing has changed, so nobody was called");
    world.provider.answer(Reply::ok());
    world.setup = world.setup.clone().set("channels.webhook.headers.Authorization", "Bearer new");
    let _instance = world.setup.start().await;
    world.until_count(5, "notification_log WHERE status = 'SENT'").await;
    assert_eq!(world.count("channel_state h WHERE h::text LIKE '%Bearer%'").await, 0);
    world.until_ended().await.assert_nothing_lost();
}

#[tokio::test]
async fn a_probe_that_dies_with_its_instance_is_soon_made_by_another() {
    let mut world = world("1h").await;
    world.setup = world.setup.clone().set("channels.webhook.timeout", "2s");
    let instance = world.setup.start().await;
    open_the_circuit(&world).await;
    world.provider.answer(Reply::hang());
    let operator = world.database.connect_as_member_of("outboxd_operator").await;
    operator.run("SELECT outboxd.probe_channel('webhook')").await;
    world.provider.wait_for(2 + 1, Duration::from_secs(3)).await;
    instance.kill().await;
    world.provider.answer(Reply::ok());
    let _other = world.setup.start().await;
    // The one that was probed with waits for its lease; the other four do not.
    world.provider.wait_for(2 + 1 + 4, SOON).await;
}

#[tokio::test]
async fn an_operator_closes_a_circuit_and_what_waits_goes_out_at_once() {
    let world = world("1h").await;
    let _instance = world.setup.start().await;
    open_the_circuit(&world).await;
    world.provider.answer(Reply::ok());
    let operator = world.database.connect_as_member_of("outboxd_operator").await;
    operator.run("SELECT outboxd.close_circuit('webhook')").await;
    world.provider.wait_for(2 + 5, Duration::from_secs(3)).await;
    world.until_ended().await.assert_nothing_lost();
    let closed = "SELECT concat_ws(' ', circuit, held_because) FROM outboxd.channel_health";
    assert_eq!(world.value::<String>(closed).await, "closed");
    let audit = "SELECT action || ' ' || subject || ' ' || affected FROM outboxd.audit";
    assert_eq!(world.value::<String>(audit).await, "close_circuit webhook 1");
}

#[tokio::test]
async fn an_operator_asks_for_a_probe_and_its_outcome_decides() {
    let world = world("1h").await;
    let _instance = world.setup.start().await;
    open_the_circuit(&world).await;
    let operator = world.database.connect_as_member_of("outboxd_operator").await;
    for probes in 1..=3 {
        operator.run("SELECT outboxd.probe_channel('webhook')").await;
        world.provider.wait_for(2 + probes, Duration::from_secs(3)).await;
        let noted =
            format!("SELECT count(*) = {probes} FROM outboxd.attempts WHERE outcome = 'failed' AND number IS NULL");
        world.until(&noted).await;
        world.until("SELECT circuit = 'open' FROM outboxd.channel_health").await;
    }
    assert_eq!((world.provider.count(), world.value::<i64>(FAILED).await), (5, 2), "one call for each");
    world.provider.answer(Reply::ok());
    operator.run("SELECT outboxd.probe_channel('webhook')").await;
    world.until_count(5, "notification_log WHERE status = 'SENT'").await;
    world.until_ended().await.assert_nothing_lost();
}

/// Rows that are due while the probe is under way go back. A probe may take 125 s here, and takes a moment.
#[tokio::test]
async fn what_waits_for_a_probe_goes_out_as_soon_as_it_has_succeeded() {
    let mut world = world("1s").await;
    world.setup = world.setup.clone().set("channels.webhook.timeout", "120s").set("worker.lease", "130s");
    let _instance = world.setup.start().await;
    open_the_circuit(&world).await;
    world.provider.answer(Reply::ok().after(Duration::from_millis(300)));
    world.until_count(5, "notification_log WHERE status = 'SENT'").await;
    world.until_ended().await.assert_nothing_lost();
}

/// A provider beside the world's own, to which its notifications can fail over.
fn with_sms(world: &mut World) -> Provider {
    let sms = Provider::start();
    world.setup = world
        .setup
        .clone()
        .set("channels.sms.url", sms.url("/"))
        .set("routes.default.channels", vec!["webhook", "sms"]);
    sms
}

#[tokio::test]
async fn while_a_channel_fails_the_next_one_is_used_at_once() {
    let mut world = world("1h").await;
    let sms = with_sms(&mut world);
    world.setup = world.setup.clone().set("channels.webhook.circuit.failures", 2);
    world.provider.answer(Reply::status(503));
    let _instance = world.setup.start().await;
    world.notify(20).await;
    world.until("SELECT count(*) >= 18 FROM outboxd.notification_log WHERE status = 'SENT'").await;
    assert_eq!(world.provider.count(), 2, "the two that opened the circuit");
    assert!(sms.count() >= 18, "{}", sms.count());
}

#[tokio::test]
async fn a_channel_that_refuses_our_credentials_is_waited_for_and_nothing_goes_by_sms() {
    let mut world = world("1h").await;
    let sms = with_sms(&mut world);
    let _instance = world.setup.start().await;
    world.notify(20).await;
    let waiting = "SELECT count(*) = 18 FROM outboxd.outbox WHERE state = 'ready' AND route_step = 0";
    world.until_count(1, "channel_health WHERE circuit = 'open'").await;
    // The two that were refused have moved on: they do not wait.
    world.until_count(2, "notification_log WHERE status = 'SENT'").await;
    world.until(waiting).await;
    assert_eq!((world.provider.count(), sms.count()), (2, 2));
}

/// The relay cannot know of a later channel's circuit: what is meant for it is published and sent back with a time. An
/// instance learns within a second that the circuit was ended; what it sends back until then goes out all the same.
#[tokio::test]
async fn a_backlog_for_a_later_channel_goes_out_as_soon_as_an_operator_ends_its_circuit() {
    for end in ["close_circuit", "probe_channel"] {
        let mut world = world("1h").await;
        world.setup = world
            .setup
            .clone()
            .set("channels.gone.url", "{{ payload.gone }}")
            .set("routes.default.channels", vec!["gone", "webhook"]);
        let _one = world.setup.start().await;
        open_the_circuit(&world).await;
        let _other = world.setup.start().await;
        world.notify(200).await;
        let parked =
            "SELECT count(*) = 205 FROM outboxd.outbox WHERE state = 'ready' AND retry_at > now() + interval '1 min'";
        world.until(parked).await;
        world.provider.answer(Reply::ok());
        let operator = world.database.connect_as_member_of("outboxd_operator").await;
        operator.run(&format!("SELECT outboxd.{end}('webhook')")).await;
        world.until_count(205, "notification_log WHERE status = 'SENT'").await;
        world.until_ended().await.assert_nothing_lost();
    }
}

/// A channel's timeout and five seconds more: so long nobody else makes a probe that was granted and is under way.
#[tokio::test]
async fn a_probe_that_was_not_made_because_its_row_expired_is_the_next_rows() {
    let mut world = world("1h").await;
    world.setup = world.setup.clone().set("channels.webhook.timeout", "60s").set("worker.lease", "70s");
    let _instance = world.setup.start().await;
    world.notify(2).await;
    world.until(&format!("SELECT ({FAILED}) = 2")).await;
    let late = "SELECT outboxd.notify('orders', 'late', '{}', expires_at => clock_timestamp() + interval '200 ms')";
    world.run(late).await;
    world.until("SELECT expires_at < now() FROM outboxd.notification_log WHERE recipient = 'late'").await;
    world.provider.answer(Reply::ok());
    world.run("SELECT outboxd.probe_channel('webhook')").await;
    world.until_count(1, "notification_log WHERE recipient = 'late' AND error = 'expired'").await;
    assert_eq!(world.provider.count(), 2, "nobody was called for it");
    world.notify(1).await;
    world.provider.wait_for(3, SOON).await;
    world.until_ended().await.assert_nothing_lost();
}

#[tokio::test]
async fn a_provider_that_fails_and_asks_to_wait_is_not_probed_before_and_it_says_so() {
    let world = World::new(Carrier::Memory)
        .await
        .set("channels.webhook.circuit.failures", 2)
        .set("channels.webhook.circuit.open_for", "100ms")
        .set("channels.webhook.circuit.open_max", "200ms");
    world.provider.answer(Reply::status(503));
    let _instance = world.setup.start().await;
    world.notify(3).await;
    let held = |because| format!("SELECT count(*) = 1 FROM outboxd.channel_health WHERE held_because = '{because}'");
    let (fails, asks) = (
        "calls fail: too many failures in a row",
        "calls fail: too many failures in a row; the provider asked to wait",
    );
    world.until(&held(fails)).await;
    world.provider.answer(Reply::status(503).header("retry-after", "600"));
    world.until(&held(asks)).await;
    let long = "SELECT next_probe_at > now() + interval '9 min' AND circuit = 'open' FROM outboxd.channel_health";
    assert!(world.value::<bool>(long).await, "longer than circuit.open_max");
    let told = "SELECT bool_and(w.explanation LIKE '%The provider asked to wait and is probed at %')
                  FROM outboxd.outbox o, outboxd.why(o.id) w WHERE w.reason = 'circuit open'";
    world.until(told).await;
    // Whoever knows better need not wait, and what the provider said then holds no longer.
    world.provider.answer(Reply::status(503));
    let operator = world.database.connect_as_member_of("outboxd_operator").await;
    operator.run("SELECT outboxd.probe_channel('webhook')").await;
    world.until(&held(fails)).await;
    world.provider.answer(Reply::ok());
    world.until_ended().await.assert_nothing_lost();
}
