//! What a client may cost, and how it ends.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;

use crate::support::sql::Sql;
use crate::support::{http, wait};

use super::Scene;
use super::client::{Client, positions};

async fn with(key: &'static str, value: impl Into<toml::Value>) -> Scene {
    Scene::with(|world| world.set(key, value)).await
}

/// Waits until so many sessions have ended for this reason.
async fn until_closed(scene: &mut Scene, reason: &str, count: f64) {
    wait::until(reason, async || {
        scene.instance.metric("outboxd_live_closed_total", &[("reason", reason)]).await >= count
    })
    .await;
}

#[tokio::test]
async fn a_slow_client_is_dropped_with_a_reason_and_the_others_miss_nothing() {
    let mut scene = Scene::new().await;
    let mut slow = scene.connect("topic=order").await;
    slow.ready().await;
    let mut quick = scene.connect("topic=order").await;
    quick.ready().await;
    // More than the kernel's buffers and the mailbox hold.
    let large = "SELECT outboxd.publish('order', 'k', to_jsonb(repeat('x', 200000))) FROM generate_series(1, 20)";
    let mut published = 0;
    while scene.instance.metric("outboxd_live_closed_total", &[("reason", "slow")]).await == 0.0 {
        assert!(published < 600, "it is never too slow");
        scene.world.run(large).await;
        assert_eq!(positions(&quick.events(20).await), (published + 1..=published + 20).collect::<Vec<i64>>());
        published += 20;
    }
    let (code, reason, messages) = slow.closed().await;
    assert_eq!(code, 1008);
    assert!(reason.contains("too slow") && reason.contains("after"), "{reason}");
    assert!(messages < published as usize, "{messages} of {published}");
}

#[tokio::test]
async fn a_burst_makes_nobody_slow_who_reads() {
    let mut scene = Scene::new().await;
    let mut clients = Vec::new();
    for _ in 0..20 {
        let mut client = scene.connect("topic=order").await;
        client.ready().await;
        clients.push(client);
    }
    scene.world.run("SELECT outboxd.publish('order', 'k', '{}') FROM generate_series(1, 2000)").await;
    let read = clients.iter_mut().map(async |client| positions(&client.events(2_000).await));
    for got in futures_util::future::join_all(read).await {
        assert_eq!(got, (1..=2_000).collect::<Vec<i64>>());
    }
    assert_eq!(scene.instance.metric("outboxd_live_closed_total", &[("reason", "slow")]).await, 0.0);
}

#[tokio::test]
async fn clients_are_pinged_and_a_silent_one_is_closed() {
    let mut scene = with("live.heartbeat", "300ms").await;
    let silent = scene.connect("topic=order").await;
    let mut alive = scene.connect("topic=order").await;
    alive.pinged(6).await;
    // Whoever does not read does not answer, so this one reads on.
    tokio::select! {
        () = until_closed(&mut scene, "silent", 1.0) => {}
        () = alive.pinged(usize::MAX) => {}
    }
    drop(silent);
    let ((), events) = tokio::join!(scene.publish("order", "k", "{}"), alive.events(1));
    assert_eq!(events.len(), 1, "who answers stays");
}

#[tokio::test]
async fn what_a_client_sends_is_bounded() {
    let mut scene = Scene::new().await;
    let mut chatty = scene.connect("topic=order").await;
    chatty.ready().await;
    for _ in 0..100 {
        chatty.send(Message::text("hello?")).await.unwrap();
    }
    assert_eq!(chatty.closed().await.0, 1008);
    let mut long = scene.connect("topic=order").await;
    long.ready().await;
    long.send(Message::text("x".repeat(2_000))).await.unwrap();
    assert_eq!(long.closed().await.0, 1002);
    let mut broken = scene.connect("topic=order").await;
    broken.ready().await;
    broken.stream().write_all(&[0xff; 64]).await.unwrap();
    assert_eq!(broken.closed().await.0, 1002);
    until_closed(&mut scene, "gone", 2.0).await;
    assert_eq!(scene.instance.metric("outboxd_live_sessions", &[]).await, 0.0);
}

#[tokio::test]
async fn sessions_have_a_limit_of_their_own_and_leave_room_for_other_requests() {
    let mut scene = with("live.sessions_max", 300).await;
    let mut clients = Vec::new();
    // More than the connections that are served at a time.
    for _ in 0..300 {
        clients.push(scene.connect("topic=order").await);
    }
    assert_eq!(http::get(scene.addr, "/livez", &[]).await.status, 200);
    let refused = scene.refused("topic=order", &[]).await;
    assert_eq!((refused.status, refused.retry_after.as_deref()), (503, Some("1")), "{refused:?}");
    assert_eq!(scene.instance.metric("outboxd_live_refused_total", &[]).await, 1.0);
    clients.truncate(290);
    until_closed(&mut scene, "gone", 10.0).await;
    for _ in 0..5 {
        scene.connect("topic=order").await.ready().await;
    }
}

/// Goes as far as the upgrade and reads nothing of what follows; the status.
async fn upgraded(scene: &Scene, query: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(scene.addr).await.unwrap();
    let request = format!(
        "GET /v1/live?{query} HTTP/1.1\r\nHost: {}\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
        scene.addr
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).await.unwrap();
    (stream, String::from_utf8_lossy(&status[9..]).into_owned())
}

#[tokio::test]
async fn a_ticket_beyond_its_share_keeps_nobody_out_however_often_it_comes() {
    let scene = with("live.sessions_max", 40).await;
    let ticket = http::post(scene.addr, "/v1/live/tickets", &[], r#"{"topics": ["order"]}"#).await;
    let query = format!("topic=order&ticket={}", ticket.json()["ticket"].as_str().unwrap());
    let mut held = Vec::new();
    for _ in 0..16 {
        let mut client = scene.connect(&query).await;
        client.ready().await;
        held.push(client);
    }
    // They do not read why they are refused, nor answer it.
    let mut crowd = Vec::new();
    for n in 0..200 {
        crowd.push(upgraded(&scene, &query).await);
        if n % 20 == 19 {
            scene.connect("topic=order").await.ready().await;
        }
    }
    let refused = crowd.iter().filter(|(_, status)| status == "503").count();
    assert!(refused > 100, "few are let in to be told why: {refused} were refused");
    // So do those who leave as soon as they are let in, and do not wait for the last word.
    drop(held);
    for n in 0..200 {
        let (mut stream, _) = upgraded(&scene, &query).await;
        let _ = stream.write_all(&[0xff; 64]).await;
        crowd.push((stream, String::new()));
        if n % 20 == 19 {
            scene.connect("topic=order").await.ready().await;
        }
    }
}

async fn connect_from(source: &str, scene: &Scene, token: &str) -> Client {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(std::net::SocketAddr::new(source.parse().unwrap(), 0)).unwrap();
    let stream = socket.connect(scene.addr).await.unwrap();
    let bearer = format!("Bearer {token}");
    Client::over(stream, scene.addr, "topic=order", &[("Authorization", &bearer)]).await.expect("it is let in")
}

#[tokio::test]
async fn a_full_instance_takes_from_whom_has_most_and_nobody_keeps_the_others_out() {
    let tokens = "[tokens.shop]\ntoken = \"k3Rz8vQm1LxT5yWd\"\nscope = \"read\"\npayloads = true\n[tokens.ops]\ntoken = \"p9Bn4cJf7HsG2aXe\"\nscope = \"read\"\npayloads = true\n[tokens.etc]\ntoken = \"z2Wq6eRt8YuI0oPa\"\nscope = \"read\"\npayloads = true\n";
    let scene = Scene::with(|world| world.toml(tokens).set("live.sessions_max", 12)).await;
    let (shop, ops, etc) = ("k3Rz8vQm1LxT5yWd", "p9Bn4cJf7HsG2aXe", "z2Wq6eRt8YuI0oPa");
    let mut held = Vec::new();
    for token in [[shop; 6], [ops; 6]].concat() {
        let mut client = connect_from("127.0.0.2", &scene, token).await;
        client.ready().await;
        held.push(client);
    }
    // Another address: the newest session of the one that has all goes.
    let mut elsewhere = connect_from("127.0.0.3", &scene, etc).await;
    elsewhere.ready().await;
    let (code, reason, _) = held.pop().unwrap().closed().await;
    assert_eq!(code, 1013, "{reason}");
    assert!(reason.contains("others have fewer"), "{reason}");
    // Another token from the same address.
    let mut third = connect_from("127.0.0.2", &scene, etc).await;
    third.ready().await;
    scene.publish("order", "k", "{}").await;
    assert_eq!(third.events(1).await.len(), 1);
    assert_eq!(held[0].events(1).await.len(), 1, "who was there first stays");
}

#[tokio::test]
async fn what_is_asked_wrongly_is_a_problem() {
    let scene = Scene::new().await;
    let many: String = (0..17).map(|n| format!("&topic=t{n}")).collect();
    for query in ["", "topic=", "topic=a&after=x", "after=1&topic=a", "topic=a&topic=a", "topic=a&what=1", &many[1..]] {
        let refused = scene.refused(query, &[]).await;
        assert_eq!((refused.status, &refused.problem["status"]), (400, &400.into()), "{query}");
    }
    let plain = http::get(scene.addr, "/v1/live?topic=order", &[]).await;
    assert_eq!((plain.status, plain.header("upgrade")), (426, Some("websocket")), "{plain:?}");
    assert_eq!(plain.header("content-type"), Some("application/problem+json"));
}

#[tokio::test]
async fn an_instance_that_stops_closes_its_sessions_and_says_so() {
    let scene = Scene::new().await;
    let mut client = scene.connect("topic=order").await;
    client.ready().await;
    let mut silent = scene.connect("topic=order").await;
    silent.ready().await;
    let told = async {
        let (code, reason, _) = client.closed().await;
        assert_eq!(code, 1001);
        assert!(reason.contains("reconnect with after"), "{reason}");
    };
    let started = Instant::now();
    let (code, ()) = tokio::join!(scene.instance.drain(), told);
    assert_eq!(code, 0);
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    assert_eq!(silent.closed().await.0, 1001, "it finds the word when it reads");
}

#[tokio::test]
async fn a_client_that_leaves_is_forgotten() {
    let mut scene = Scene::new().await;
    let mut client = scene.connect("topic=order").await;
    client.ready().await;
    client.send(Message::Close(None)).await.unwrap();
    until_closed(&mut scene, "client", 1.0).await;
    drop(scene.connect("topic=order").await);
    wait::until("nobody is there", async || scene.instance.metric("outboxd_live_sessions", &[]).await == 0.0).await;
    let _: Result<Client, _> = Client::connect(scene.addr, "topic=order", &[]).await;
}
