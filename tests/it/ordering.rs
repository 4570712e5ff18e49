//! Ordering keys: one at a time, in the order of release, whatever happens to the head.

use std::time::Duration;

use crate::support::instance::Instance;
use crate::support::provider::Reply;
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World};

const SOON: Duration = Duration::from_secs(20);

async fn start() -> (World, Instance) {
    let world = World::new(Carrier::Memory).await;
    let instance = world.setup.start().await;
    (world, instance)
}

async fn notify(session: &impl Sql, recipient: &str) -> i64 {
    session.value(&format!("SELECT outboxd.notify('t', '{recipient}', '{{}}', ordering_key => 'k')")).await
}

/// Who was called, in order.
fn calls(world: &World) -> Vec<String> {
    world.provider.ledger().iter().map(|call| call.recipient()).collect()
}

async fn all_ended(world: &World) {
    world.until_count(0, "notifications WHERE status IN ('PENDING', 'QUEUED', 'PROCESSING')").await;
}

#[tokio::test]
async fn two_writers_at_once_on_one_key_are_each_kept_in_order_and_never_called_at_once() {
    let (world, _instance) = start().await;
    world.provider.answer(Reply::ok().after(Duration::from_millis(10)));
    let write = async |name: &str| {
        let writer = world.database.connect().await;
        for n in 0..20 {
            notify(&writer, &format!("{name} {n:02}")).await;
        }
    };
    tokio::join!(write("a"), write("b"));
    world.provider.wait_for(40, SOON).await;
    all_ended(&world).await;
    let calls = calls(&world);
    for name in ["a", "b"] {
        let own: Vec<&String> = calls.iter().filter(|call| call.starts_with(name)).collect();
        assert!(own.is_sorted() && own.len() == 20, "{own:?}");
    }
    let at: Vec<_> = world.provider.ledger().iter().map(|call| call.at).collect();
    assert!(at.windows(2).all(|pair| pair[1] - pair[0] >= Duration::from_millis(10)), "one after the other's answer");
}

#[tokio::test]
async fn a_head_that_fails_for_now_is_retried_before_those_behind_it() {
    let (world, _instance) = start().await;
    world.provider.script([Reply::status(503), Reply::status(503)]);
    for recipient in ["1", "2", "3"] {
        notify(&world, recipient).await;
    }
    world.provider.wait_for(5, SOON).await;
    all_ended(&world).await;
    assert_eq!(calls(&world), ["1", "1", "1", "2", "3"]);
}

#[tokio::test]
async fn a_head_that_fails_for_good_lets_the_next_one_go() {
    let (world, _instance) = start().await;
    world.provider.script([Reply::status(400)]);
    for recipient in ["1", "2", "3"] {
        notify(&world, recipient).await;
    }
    world.provider.wait_for(3, SOON).await;
    all_ended(&world).await;
    assert_eq!(calls(&world), ["1", "2", "3"]);
    let outcomes: Vec<String> = world.values("SELECT status FROM outboxd.notifications ORDER BY id").await;
    assert_eq!(outcomes, ["FAILED", "SENT", "SENT"]);
}

#[tokio::test]
async fn a_head_that_is_canceled_while_it_waits_lets_the_next_one_go() {
    let world = World::new(Carrier::Memory).await;
    world.provider.script([Reply::status(503)]);
    let setup = world.setup.clone().set("routes.default.backoff.base", "60s").set("routes.default.backoff.max", "60s");
    let _instance = setup.start().await;
    let head = notify(&world, "1").await;
    for recipient in ["2", "3"] {
        notify(&world, recipient).await;
    }
    world.until_count(1, "attempts").await;
    assert_eq!(world.value::<String>(&format!("SELECT outboxd.cancel({head})")).await, "canceled");
    world.provider.wait_for(3, SOON).await;
    all_ended(&world).await;
    assert_eq!(calls(&world), ["1", "2", "3"]);
    let outcomes: Vec<String> = world.values("SELECT status FROM outboxd.notifications ORDER BY id").await;
    assert_eq!(outcomes, ["CANCELED", "SENT", "SENT"]);
}

#[tokio::test]
async fn a_head_that_fails_holds_its_key_in_its_own_topic_alone() {
    let world = World::new(Carrier::Memory).await;
    world.provider.script([Reply::status(503)]);
    let setup = world.setup.clone().set("routes.default.backoff.base", "60s").set("routes.default.backoff.max", "60s");
    let _instance = setup.start().await;
    let notify = async |topic: &str, recipient: &str| {
        world.run(&format!("SELECT outboxd.notify('{topic}', '{recipient}', '{{}}', ordering_key => 'k')")).await;
    };
    notify("failing", "head").await;
    world.until_count(1, "attempts").await;
    notify("failing", "behind").await;
    notify("honest", "1").await;
    world.run("INSERT INTO outboxd.notification_log (topic, recipient, payload, ordering_key) VALUES ('honest', '2', '{}', 'k')").await;
    world.provider.wait_for(3, SOON).await;
    assert_eq!(calls(&world), ["head", "1", "2"]);
    world.until_count(2, "notifications WHERE status = 'SENT'").await;
    let waiting = "SELECT string_agg(o.state::text, ' ' ORDER BY o.seq) FROM outboxd.outbox o";
    assert_eq!(world.value::<String>(waiting).await, "ready blocked");
}

#[tokio::test]
async fn a_head_that_is_retried_by_hand_goes_behind_those_that_wait() {
    let (world, _instance) = start().await;
    world.provider.script([Reply::status(400), Reply::ok().after(Duration::from_millis(700))]);
    let head = notify(&world, "1").await;
    for recipient in ["2", "3", "4"] {
        notify(&world, recipient).await;
    }
    // The second is being called, the others wait.
    world.provider.wait_for(2, SOON).await;
    world.until(&format!("SELECT status = 'FAILED' FROM outboxd.notifications WHERE id = {head}")).await;
    assert!(world.value::<bool>(&format!("SELECT outboxd.retry({head})")).await);
    world.provider.wait_for(5, SOON).await;
    all_ended(&world).await;
    assert_eq!(calls(&world), ["1", "2", "3", "4", "1"]);
}

#[tokio::test]
async fn rows_that_fall_due_go_in_the_order_they_are_due() {
    let (world, _instance) = start().await;
    let written = "INSERT INTO outboxd.notification_log (topic, recipient, payload, ordering_key, send_at)
        SELECT 't', n::text, '{}', 'k', now() + interval '500 ms' - n * interval '1 ms' FROM generate_series(1, 9) n";
    world.run(written).await;
    world.provider.wait_for(9, SOON).await;
    assert_eq!(calls(&world), ["9", "8", "7", "6", "5", "4", "3", "2", "1"]);
}
