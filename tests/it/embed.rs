//! Apps that embed the crate push after their commit; the relay is still the guarantee.

use std::time::Duration;

use outboxd::{Notification, Producer};
use serde_json::json;

use crate::leader::config;
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World};
use crate::support::{command, postgres, redis};

const SOON: Duration = Duration::from_secs(15);

async fn producer(world: &World) -> Producer {
    let queue = [("redis_url", redis::shared().url()), ("queue.prefix", world.prefix.as_str())];
    Producer::connect(&config(&world.database, &queue)).await.unwrap()
}

#[tokio::test]
async fn an_app_pushes_after_its_commit_without_any_relay() {
    let world = World::new(Carrier::Stream).await;
    // Nobody publishes here: what arrives was pushed by the app.
    let _worker = world.setup.clone().roles("worker").start().await;
    let producer = producer(&world).await;
    let mut app = world.database.connect().await;
    let tx = app.transaction().await.unwrap();
    let ticket = producer.notify(&tx, &Notification::new("orders", "r", json!({"n": 1}))).await.unwrap();
    tx.commit().await.unwrap();
    producer.after_commit(ticket);
    world.provider.wait_for(1, SOON).await;
    world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
    producer.close().await;
    assert_eq!(world.count("publication").await, 0, "and confirmed");
}

#[tokio::test]
async fn an_app_pushes_only_what_may_go_now() {
    let world = World::new(Carrier::Stream).await;
    let producer = producer(&world).await;
    let app = world.database.connect().await;
    let later = chrono::Utc::now() + Duration::from_secs(3_600);
    let plain = Notification::new("orders", "r", json!({}));
    let with_key = Notification { ordering_key: Some("k"), ..plain.clone() };
    let once = Notification { dedup_key: Some("d"), ..plain.clone() };
    for notification in [&Notification { send_at: Some(later), ..plain.clone() }, &with_key, &with_key, &once, &once] {
        producer.after_commit(producer.notify(&app, notification).await.unwrap());
    }
    producer.close().await;
    let states = "SELECT string_agg(concat_ws(' ', l.status, o.state), ', ' ORDER BY l.id)
                    FROM outboxd.notification_log l LEFT JOIN outboxd.outbox o USING (id)";
    assert_eq!(app.value::<String>(states).await, "PENDING, QUEUED blocked, QUEUED blocked, QUEUED published");
    assert_eq!(world.pushed().await, 1);
}

#[tokio::test]
async fn an_app_that_dies_between_commit_and_push_leaves_the_rest_to_the_relay() {
    let world = World::new(Carrier::Stream).await;
    let _instance = world.setup.start().await;
    let producer = producer(&world).await;
    let mut app = world.database.connect().await;
    let tx = app.transaction().await.unwrap();
    let _never_pushed = producer.notify(&tx, &Notification::new("orders", "r", json!({}))).await.unwrap();
    tx.commit().await.unwrap();
    world.provider.wait_for(1, SOON).await;
    world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
}

#[tokio::test]
async fn app_and_relay_pushing_the_same_rows_deliver_them_once() {
    let world = World::new(Carrier::Stream).await;
    let _instance = world.setup.start().await;
    let producer = producer(&world).await;
    let mut app = world.database.connect().await;
    for n in 0..100 {
        let tx = app.transaction().await.unwrap();
        let recipient = format!("r{n}");
        let ticket = producer.notify(&tx, &Notification::new("orders", &recipient, json!({}))).await.unwrap();
        tx.commit().await.unwrap();
        producer.after_commit(ticket);
    }
    world.provider.wait_for(100, SOON).await;
    world.until_ended().await.assert_nothing_lost().assert_no_duplicate();
    assert_eq!(world.pushed().await, 100, "whoever reserves a row pushes it, and nobody else");
}

#[tokio::test]
async fn an_app_without_redis_is_told_so() {
    let config = config(&postgres::database().await, &[]);
    let refused = Producer::connect(&config).await.unwrap_err();
    assert!(refused.to_string().contains("set redis_url"), "{refused}");
}

#[tokio::test]
async fn the_example_commits_and_pushes() {
    let world = World::new(Carrier::Stream).await;
    let _worker = world.setup.clone().roles("worker").start().await;
    let output = tokio::process::Command::new(command::example("after_commit").await)
        .env("DATABASE_URL", world.database.url())
        .env("REDIS_URL", redis::shared().url())
        .env("OUTBOXD_QUEUE_PREFIX", &world.prefix)
        .output()
        .await
        .expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    world.provider.wait_for(1, SOON).await;
    world.until("SELECT status = 'SENT' FROM outboxd.notifications").await;
}
