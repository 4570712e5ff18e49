//! The live feed: what an app's own clients hear over WebSocket.

mod client;
mod limits;
mod load;
mod losses;
mod page;
mod rights;

use std::net::SocketAddr;

use serde_json::Value;

use crate::support::instance::Instance;
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World};
use client::{Client, Refused, positions};

/// An instance with Redis, nobody needs a token.
struct Scene {
    world: World,
    instance: Instance,
    addr: SocketAddr,
}

impl Scene {
    async fn new() -> Scene {
        Scene::with(|world| world).await
    }

    async fn with(change: impl FnOnce(World) -> World) -> Scene {
        Scene::on(change(World::new(Carrier::Stream).await)).await
    }

    async fn on(world: World) -> Scene {
        let mut instance = world.setup.start().await;
        let addr = instance.http_addr().await;
        Scene { world, instance, addr }
    }

    async fn connect(&self, query: &str) -> Client {
        Client::connect(self.addr, query, &[]).await.expect("it is let in")
    }

    async fn refused(&self, query: &str, headers: &[(&str, &str)]) -> Refused {
        Client::connect(self.addr, query, headers).await.expect_err("it is refused")
    }

    async fn publish(&self, topic: &str, key: &str, payload: &str) {
        self.world.run(&format!("SELECT outboxd.publish('{topic}', '{key}', '{payload}')")).await;
    }

    /// So many events on three keys, in one transaction each.
    async fn publish_many(&self, topic: &str, count: usize) {
        for n in 0..count {
            self.publish(topic, &format!("k{}", n % 3), &format!("{{\"n\": {n}}}")).await;
        }
    }

    /// Waits until everything published is in the streams.
    async fn appended(&self) {
        self.world.until_count(0, "events_waiting").await;
    }
}

#[tokio::test]
async fn a_client_hears_each_event_of_its_topics_once_and_in_order() {
    let scene = Scene::new().await;
    scene.publish("order", "before", "{}").await;
    scene.appended().await;
    let mut client = scene.connect("topic=order&topic=quiz").await;
    assert_eq!(client.ready().await["positions"], serde_json::json!({ "order": 1, "quiz": 0 }));
    let headers = r#"{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}"#;
    let publish = format!("SELECT outboxd.publish('order', 'k0', '{{\"n\": [1, \"é\"]}}', '{headers}')");
    let id: i64 = scene.world.value(&publish).await;
    let event = client.message().await;
    assert_eq!((&event["type"], &event["topic"], &event["key"]), (&"event".into(), &"order".into(), &"k0".into()));
    assert_eq!((&event["id"], &event["position"]), (&id.into(), &2.into()));
    assert_eq!(event["payload"], serde_json::json!({ "n": [1, "é"] }));
    assert!(event["headers"]["traceparent"].as_str().unwrap().starts_with("00-0af7"), "{event}");
    assert!(event["created_at"].as_str().unwrap().ends_with('Z'), "{event}");
    scene.publish_many("order", 30).await;
    scene.publish("quiz", "k", "{}").await;
    scene.publish("other", "k", "{}").await;
    let events = client.events(31).await;
    let order: Vec<&Value> = events.iter().filter(|event| event["topic"] == "order").collect();
    assert_eq!(positions(order.iter().copied()), (3..=32).collect::<Vec<i64>>());
    assert!(order.iter().enumerate().all(|(n, event)| event["payload"]["n"] == n), "{order:?}");
    assert_eq!(events.iter().filter(|event| event["topic"] == "quiz").count(), 1);
}

#[tokio::test]
async fn one_event_reaches_every_client_and_a_key_only_its_own() {
    let mut scene = Scene::new().await;
    let (mut all, mut keyed) = (Vec::new(), Vec::new());
    for n in 0..40 {
        all.push(scene.connect("topic=order").await);
        keyed.push(scene.connect(&format!("topic=order&key=k{}", n % 3)).await);
    }
    for client in all.iter_mut().chain(&mut keyed) {
        client.ready().await;
    }
    assert_eq!(scene.instance.metric("outboxd_live_sessions", &[]).await, 80.0);
    scene.publish_many("order", 30).await;
    for client in &mut all {
        assert_eq!(positions(&client.events(30).await), (1..=30).collect::<Vec<i64>>());
    }
    for (n, client) in keyed.iter_mut().enumerate() {
        let events = client.events(10).await;
        assert!(events.iter().all(|event| event["key"] == format!("k{}", n % 3)), "{events:?}");
        assert!(positions(&events).is_sorted(), "{events:?}");
    }
    assert_eq!(scene.instance.metric("outboxd_live_events_sent_total", &[]).await, 40.0 * 30.0 + 40.0 * 10.0);
}

#[tokio::test]
async fn a_client_hears_what_was_appended_by_another_instance() {
    let scene = Scene::new().await;
    let mut other = scene.world.setup.start().await;
    let listens_only = scene.world.setup.clone().roles("api");
    let mut third = listens_only.start().await;
    let mut clients = Vec::new();
    for addr in [scene.addr, other.http_addr().await, third.http_addr().await] {
        let mut client = Client::connect(addr, "topic=order", &[]).await.expect("it is let in");
        client.ready().await;
        clients.push(client);
    }
    scene.publish_many("order", 10).await;
    for client in &mut clients {
        assert_eq!(positions(&client.events(10).await), (1..=10).collect::<Vec<i64>>());
    }
}

#[tokio::test]
async fn a_client_that_comes_back_gets_what_it_lacks_and_then_what_is_new() {
    let scene = Scene::new().await;
    let mut other = scene.world.setup.start().await;
    let mut client = scene.connect("topic=order").await;
    client.ready().await;
    scene.publish_many("order", 100).await;
    assert_eq!(positions(&client.events(40).await), (1..=40).collect::<Vec<i64>>());
    drop(client);
    scene.appended().await;
    let (there, query) = (other.http_addr().await, "topic=order&after=40&topic=quiz&after=0");
    for addr in [scene.addr, there] {
        let mut back = Client::connect(addr, query, &[]).await.expect("it is let in");
        assert_eq!(positions(&back.events(60).await), (41..=100).collect::<Vec<i64>>());
        assert_eq!(back.ready().await["positions"], serde_json::json!({ "order": 100, "quiz": 0 }));
    }
    let mut back = scene.connect("topic=order&after=98&key=k0").await;
    let mut current = scene.connect("topic=order&after=100").await;
    assert_eq!(positions(&back.events(1).await), [100], "99 is of another key");
    back.ready().await;
    current.ready().await;
    scene.publish("order", "k0", "{}").await;
    assert_eq!(positions(&back.events(1).await), [101]);
    assert_eq!(positions(&current.events(1).await), [101]);
}

#[tokio::test]
async fn a_client_that_comes_back_in_the_middle_of_a_burst_misses_nothing() {
    let scene = Scene::new().await;
    let many = "SELECT outboxd.publish('order', 'k', '{}') FROM generate_series(1, 300)";
    let mut got = Vec::new();
    let burst = async {
        for _ in 0..3 {
            scene.world.run(many).await;
        }
    };
    let listen = async {
        while got.len() < 900 {
            let after = got.last().copied().unwrap_or(0);
            let mut client = scene.connect(&format!("topic=order&after={after}")).await;
            while got.len() < 900 {
                let message = client.message().await;
                assert_ne!(message["type"], "gap", "{message}");
                if message["type"] == "event" {
                    got.push(message["position"].as_i64().unwrap());
                    if got.len() % 70 == 0 {
                        break;
                    }
                }
            }
        }
    };
    tokio::join!(burst, listen);
    assert_eq!(got, (1..=900).collect::<Vec<i64>>());
}

#[tokio::test]
async fn a_client_of_one_key_is_told_how_far_the_stream_has_come() {
    let scene = Scene::with(|mut world| {
        world.setup = world.setup.set("live.heartbeat", "200ms");
        world
    })
    .await;
    let mut client = scene.connect("topic=order&key=mine").await;
    client.ready().await;
    scene.publish("order", "theirs", "{}").await;
    loop {
        let message = client.message().await;
        assert_eq!(message["type"], "position", "{message}");
        if message["positions"]["order"] == 1 {
            break;
        }
    }
}
