//! A provider that refuses our credentials, and several instances that hear it at the same time: a streak uses up so many
//! notifications as the setting says, whoever is told.

use std::time::Duration;

use outboxd::store::Store;

use crate::leader::config;
use crate::support::instance::Instance;
use crate::support::postgres;
use crate::support::provider::{Provider, Reply};
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World};

const SOON: Duration = Duration::from_secs(20);

/// Instances on one Redis, of which each has forty calls under way when there are enough notifications.
async fn fleet(world: &World, instances: usize) -> Vec<Instance> {
    let mut fleet = Vec::new();
    for _ in 0..instances {
        fleet.push(world.setup.start().await);
    }
    world.until_count(instances, "workers").await;
    fleet
}

/// As [`World::new`], with a provider beside it to which everything can fail over.
async fn world_with_sms(carrier: Carrier) -> (World, Provider) {
    let mut world = World::new(carrier).await;
    let sms = Provider::start();
    world.setup = world
        .setup
        .clone()
        .set("worker.concurrency", 40)
        .set("channels.webhook.max_in_flight", 40)
        .set("channels.webhook.circuit.open_for", "1h")
        .set("channels.webhook.circuit.open_max", "1h")
        .set("channels.sms.url", sms.url("/"))
        .set("routes.default.channels", vec!["webhook", "sms"]);
    (world, sms)
}

/// Rows that wait on their first channel with all their attempts.
fn wait_untouched(count: usize) -> String {
    format!("SELECT count(*) = {count} FROM outboxd.outbox WHERE state = 'ready' AND route_step = 0 AND attempts = 0")
}

#[tokio::test]
async fn three_instances_together_use_up_no_more_than_one_streak_of_401() {
    let (world, sms) = world_with_sms(Carrier::Stream).await;
    world.provider.answer(Reply::status(401).after(Duration::from_secs(1)));
    let _fleet = fleet(&world, 3).await;
    world.notify(120).await;
    // Each of them has heard more than a whole streak.
    world.provider.wait_for(45, SOON).await;
    world.until(&wait_untouched(115)).await;
    world.until_count(5, "notification_log WHERE status = 'SENT'").await;
    assert_eq!(sms.count(), 5, "circuit.unauthorized");
    let open = "SELECT format('%s %s', reason, openings) FROM outboxd.channel_state";
    assert_eq!(world.value::<String>(open).await, "unauthorized 1");
}

/// Each hears fewer than open a circuit.
#[tokio::test]
async fn refusals_that_three_instances_hear_one_by_one_are_one_streak() {
    let (mut world, sms) = world_with_sms(Carrier::Stream).await;
    world.setup = world.setup.clone().set("worker.concurrency", 1);
    world.provider.answer(Reply::status(403));
    let mut sent = 0;
    for refusals in [2, 2, 1] {
        let fleet = fleet(&world, 1).await;
        world.notify(refusals).await;
        sent += refusals;
        world.until_count(sent, "notification_log WHERE status = 'SENT'").await;
        for instance in fleet {
            instance.drain().await;
        }
    }
    let open = "SELECT count(*) = 1 FROM outboxd.channel_health WHERE circuit = 'open' AND held_because LIKE '%403%'";
    world.until(open).await;
    assert_eq!((world.provider.count(), sms.count()), (5, 5), "circuit.unauthorized");
}

#[tokio::test]
async fn an_accepted_call_ends_a_streak_of_401() {
    let (world, sms) = world_with_sms(Carrier::Memory).await;
    let _fleet = fleet(&world, 1).await;
    for round in 1..=3 {
        for _ in 0..4 {
            world.provider.script([Reply::status(401)]);
            world.notify(1).await;
            world.until_count(0, "outbox").await;
        }
        world.notify(1).await;
        world.until_count(0, "outbox").await;
        assert_eq!((world.provider.count(), sms.count()), (5 * round, 4 * round));
    }
    world.until_count(1, "channel_health WHERE channel = 'webhook' AND circuit = 'closed'").await;
}

/// Two calls fail and open the circuit; those that are under way beside them are refused later.
#[tokio::test]
async fn refusals_behind_a_circuit_that_failures_opened_go_back_with_all_their_attempts() {
    let (mut world, sms) = world_with_sms(Carrier::Memory).await;
    world.setup =
        world.setup.clone().set("channels.webhook.circuit.failures", 2).set("routes.default.while_held", "wait");
    let failure = Reply::status(503).after(Duration::from_secs(1));
    world.provider.script([failure.clone(), failure]);
    world.provider.answer(Reply::status(401).after(Duration::from_secs(2)));
    let _instance = world.setup.start().await;
    world.notify(40).await;
    world.until_count(1, "channel_state WHERE reason = 'failures'").await;
    world.until(&wait_untouched(38)).await;
    assert!(world.provider.count() > 2 + 5, "{} calls", world.provider.count());
    assert_eq!(sms.count(), 0, "nothing goes by SMS");
}

/// Of the endpoints that URLs name one refuses us. What was under way there waits for it by name, and so does what was
/// probed with.
#[tokio::test]
async fn what_one_endpoint_refused_says_that_it_waits_for_that_endpoint() {
    let mut world = World::new(Carrier::Memory).await;
    world.setup = world
        .setup
        .clone()
        .url_from_the_row()
        .set("channels.webhook.circuit.unauthorized", 2)
        .set("channels.webhook.circuit.open_for", "1h")
        .set("channels.webhook.circuit.open_max", "1h");
    world.provider.answer(Reply::status(401).after(Duration::from_secs(1)));
    let _instance = world.setup.start().await;
    let notify = format!(
        "SELECT outboxd.notify('orders', {}, '{{}}') FROM generate_series(1, 12)",
        quoted(&world.provider.url("/hook"))
    );
    world.run(&notify).await;
    for probes in 0..2 {
        world.until_count(10, "outbox WHERE state = 'ready' AND attempts = 0").await;
        world.until(&format!("SELECT openings = 1 + {probes} FROM outboxd.channel_state")).await;
        let told = "SELECT string_agg(DISTINCT format('%s, %s, %s', w.reason, w.origin = h.origin, h.waiting), '; ')
                      FROM outboxd.outbox o CROSS JOIN outboxd.why(o.id) w, outboxd.channel_health h WHERE h.origin IS NOT NULL";
        assert_eq!(world.value::<String>(told).await, "circuit open, t, 10", "after {probes} probes");
        let counted = "SELECT string_agg(format('%s %s', reason, count), ', ') FROM outboxd.waiting";
        assert_eq!(world.value::<String>(counted).await, "circuit open 10", "after {probes} probes");
        let probe = format!("SELECT outboxd.probe_channel('webhook', {})", quoted(&world.provider.url("")));
        world.run(&probe).await;
        world.provider.wait_for(12 + probes + 1, SOON).await;
    }
}

#[tokio::test]
async fn a_channel_that_is_not_held_any_more_is_forgotten_after_an_hour() {
    let database = postgres::database().await;
    let client = database.connect().await;
    let written = "INSERT INTO outboxd.channel_state (channel, origin, paused_at, held_until, reason, refused, refused_at, changed_at)
        SELECT channel, origin, paused_at, held_until, reason, 1, now() - refused, now() - interval '2 h'
          FROM (VALUES ('refused', 'now', NULL::timestamptz, NULL::timestamptz, NULL, interval '1 min'),
                       ('refused', 'long ago', NULL, NULL, NULL, '2 h'),
                       ('paused', '', now(), NULL, NULL, '2 h'),
                       ('open', '', NULL, now() - interval '2 h', 'failures', '2 h'),
                       ('asked to wait', 'still', NULL, now() + interval '1 h', 'retry_after', '2 h'),
                       ('asked to wait', 'long ago', NULL, now() - interval '2 h', 'retry_after', '2 h'))
               v(channel, origin, paused_at, held_until, reason, refused)";
    client.run(written).await;
    Store::open(&config(&database, &[])).unwrap().forget_counts().await.unwrap();
    let left = "SELECT string_agg(concat_ws(' ', channel, nullif(origin, '')), ', ' ORDER BY channel) FROM outboxd.channel_state";
    assert_eq!(client.value::<String>(left).await, "asked to wait still, open, paused, refused now");
}

fn quoted(text: &str) -> String {
    format!("'{text}'")
}

/// Headers are signed with a constant of the channel: the header's template stays the same.
#[tokio::test]
async fn a_restart_with_another_key_to_sign_with_probes_at_once() {
    let (mut world, _sms) = world_with_sms(Carrier::Memory).await;
    world.setup = world
        .setup
        .clone()
        .set("worker.concurrency", 1)
        .set("channels.webhook.headers.x-key", "{{ with.api_key }}")
        .set("channels.webhook.with.api_key", "revoked");
    world.provider.answer_with(|call| Reply::status(if call.header("x-key") == Some("renewed") { 200 } else { 401 }));
    let instance = world.setup.start().await;
    world.notify(8).await;
    world.until(&wait_untouched(3)).await;
    assert_eq!(instance.drain().await, 0);
    world.setup = world.setup.clone().set("channels.webhook.with.api_key", "renewed");
    let _instance = world.setup.start().await;
    let sent = "SELECT count(*) = 3 FROM outboxd.notification_log WHERE status = 'SENT' AND channel = 'webhook'";
    world.until(sent).await;
    assert_eq!(world.provider.count(), 5 + 3);
}
