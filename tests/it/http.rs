//! The endpoints: health from start to end, the token, what strangers are told, what a connection may cost.

mod connections;
mod strangers;

use std::net::SocketAddr;
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::io::AsyncWriteExt as _;

use crate::support::command::{Ran, outboxd};
use crate::support::http::{Answer, ask, get, send};
use crate::support::instance::{Instance, Setup};
use crate::support::postgres::Database;
use crate::support::provider::Reply;
use crate::support::proxy::{Fault, Proxy};
use crate::support::redis::RedisServer;
use crate::support::sql::Sql;
use crate::support::world::{Carrier, World};
use crate::support::{postgres, redis, wait};

const SOON: Duration = Duration::from_secs(10);

/// A channel that is never called.
fn idle(database: &Database) -> Setup {
    Setup::new(&database.url()).webhook("http://127.0.0.1:9/")
}

/// Whether a check of `/readyz` is fine; `None`: it is not named.
fn check(answer: &Answer, name: &str) -> Option<bool> {
    let report = answer.json();
    let found = report["checks"].as_array().unwrap().iter().find(|check| check["name"] == name)?.clone();
    found["ok"].as_bool()
}

/// Asks until `/readyz` answers with this status.
async fn until_readyz(addr: SocketAddr, status: u16) -> Answer {
    wait::until_ok("/readyz", async || {
        let answer = get(addr, "/readyz", &[]).await;
        if answer.status == status { Ok(answer) } else { Err(answer) }
    })
    .await
}

/// Asks until `/metrics` says this.
async fn until_metrics(addr: SocketAddr, wanted: &str) {
    wait::until(wanted, async || get(addr, "/metrics", &[]).await.body.contains(wanted)).await;
}

async fn check_ready(addr: SocketAddr) -> Ran {
    outboxd("postgres://127.0.0.1/unused", &["check", "--ready"], &[("OUTBOXD_HTTP_ADDR", &addr.to_string())]).await
}

#[tokio::test]
async fn a_started_instance_is_ready_and_names_each_check() {
    let database = postgres::database().await;
    let mut instance = idle(&database).start().await;
    let addr = instance.http_addr().await;
    let answer = get(addr, "/readyz", &[]).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.json()["status"], "ready");
    for name in ["started", "accepting", "database", "schema", "queue"] {
        assert_eq!(check(&answer, name), Some(true), "{name}: {answer:?}");
    }
    let version = get(addr, "/version", &[]).await;
    assert_eq!(version.json()["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(version.json()["schema"], outboxd::store::migrate::newest());
    let checked = check_ready(addr).await;
    assert_eq!((checked.code, checked.out.as_str()), (0, "ready\n"));
}

#[tokio::test]
async fn the_process_lives_before_it_is_ready() {
    // Takes connections and never says a word, so that the start does not end.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://postgres@{}/x", silent.local_addr().unwrap());
    let mut instance = Setup::new(&url).webhook("http://127.0.0.1:9/").spawn();
    let addr = instance.http_addr().await;
    assert_eq!(get(addr, "/livez", &[]).await.status, 200);
    let answer = get(addr, "/readyz", &[]).await;
    assert_eq!((answer.status, check(&answer, "started")), (503, Some(false)), "{answer:?}");
    let checked = check_ready(addr).await;
    assert_eq!(checked.code, 69);
    assert_eq!(get(addr, "/metrics", &[]).await.status, 200);
}

#[tokio::test]
async fn a_draining_instance_lives_is_not_ready_and_exits_0() {
    let world = World::new(Carrier::Memory).await;
    world.provider.answer(Reply::ok().after(Duration::from_millis(800)));
    let mut instance = world.setup.start().await;
    let addr = instance.http_addr().await;
    world.run("SELECT outboxd.notify('orders', 'r', '{}')").await;
    world.provider.wait_for(1, SOON).await;
    instance.signal(Signal::SIGTERM);
    let answer = until_readyz(addr, 503).await;
    assert_eq!(check(&answer, "accepting"), Some(false), "{answer:?}");
    assert_eq!(get(addr, "/livez", &[]).await.status, 200);
    assert_eq!(instance.exit_code().await, 0);
    assert_eq!(world.value::<String>("SELECT status::text FROM outboxd.notifications").await, "SENT");
}

#[tokio::test]
async fn without_postgres_it_lives_and_is_not_ready_until_postgres_is_back() {
    let database = postgres::database().await;
    let proxy = Proxy::start(database.port).await;
    let through = Database { port: proxy.port(), name: database.name.clone() };
    let mut instance = idle(&through).start().await;
    let addr = instance.http_addr().await;
    until_readyz(addr, 200).await;
    proxy.set(Fault::BlackHole);
    let answer = until_readyz(addr, 503).await;
    assert_eq!(check(&answer, "database"), Some(false), "{answer:?}");
    assert_eq!(check(&answer, "queue"), Some(true), "{answer:?}");
    assert_eq!(get(addr, "/livez", &[]).await.status, 200);
    until_metrics(addr, "\noutboxd_postgres_up 0\n").await;
    proxy.heal();
    until_readyz(addr, 200).await;
    until_metrics(addr, "\noutboxd_postgres_up 1\n").await;
}

#[tokio::test]
async fn without_redis_it_is_not_ready_until_redis_is_back() {
    let database = postgres::database().await;
    let mut server = RedisServer::forgetful();
    let mut instance = idle(&database).redis(server.url(), "stream", &redis::unique_prefix()).start().await;
    let addr = instance.http_addr().await;
    until_readyz(addr, 200).await;
    server.kill();
    let answer = until_readyz(addr, 503).await;
    assert_eq!((check(&answer, "queue"), check(&answer, "database")), (Some(false), Some(true)), "{answer:?}");
    server.restart();
    until_readyz(addr, 200).await;
}

#[tokio::test]
async fn a_schema_that_is_too_old_is_not_ready() {
    let database = postgres::database().await;
    let mut instance = idle(&database).start().await;
    let addr = instance.http_addr().await;
    until_readyz(addr, 200).await;
    let admin = database.connect().await;
    let newest = outboxd::store::migrate::newest();
    admin.run(&format!("DELETE FROM outboxd.refinery_schema_history WHERE version = {newest}")).await;
    let answer = until_readyz(addr, 503).await;
    assert_eq!((check(&answer, "schema"), check(&answer, "database")), (Some(false), Some(true)), "{answer:?}");
}

async fn with_token() -> (Instance, SocketAddr) {
    let database = postgres::database().await;
    let mut instance = idle(&database).env("OUTBOXD_HTTP_TOKEN", "hunter2-hunter2-hunter2").start().await;
    let addr = instance.http_addr().await;
    (instance, addr)
}

#[tokio::test]
async fn with_a_token_only_health_is_open() {
    let (instance, addr) = with_token().await;
    for path in ["/metrics", "/version"] {
        for given in [&[][..], &["Authorization: Bearer hunter3"], &["Authorization: Basic hunter2-hunter2-hunter2"]] {
            let answer = get(addr, path, given).await;
            assert_eq!(answer.status, 401, "{path} {given:?}");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer realm=\"outboxd\""));
            assert_problem(&answer, "Unauthorized");
        }
        assert_eq!(get(addr, path, &["Authorization: Bearer hunter2-hunter2-hunter2"]).await.status, 200, "{path}");
        assert_eq!(get(addr, path, &["authorization: bearer hunter2-hunter2-hunter2"]).await.status, 200, "{path}");
    }
    for path in ["/livez", "/readyz"] {
        assert_eq!(get(addr, path, &["Host: outboxd.example:8080"]).await.status, 200, "{path}");
    }
    assert!(!instance.log().contains("hunter2-hunter2-hunter2"), "{}", instance.log());
}

#[tokio::test]
async fn off_loopback_the_start_is_refused_without_a_token() {
    let mut instance = Setup::new("postgres://127.0.0.1/x")
        .webhook("http://127.0.0.1:9/")
        .env("OUTBOXD_HTTP_ADDR", "0.0.0.0:0")
        .spawn();
    assert_eq!(instance.exit_code().await, 78);
    assert!(
        instance.log().contains("set http_token (OUTBOXD_HTTP_TOKEN), or listen on 127.0.0.1"),
        "{}",
        instance.log()
    );
}

#[tokio::test]
async fn an_address_in_use_ends_with_69_and_one_that_is_not_ours_with_78() {
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let in_use = taken.local_addr().unwrap().to_string();
    for (addr, code, wanted) in
        [(in_use.as_str(), 69, "another program listens there"), ("192.0.2.1:8080", 78, "has no such address")]
    {
        let setup = Setup::new("postgres://127.0.0.1/x").webhook("http://127.0.0.1:9/");
        let mut instance =
            setup.env("OUTBOXD_HTTP_ADDR", addr).env("OUTBOXD_HTTP_TOKEN", "a-token-of-16-characters").spawn();
        assert_eq!(instance.exit_code().await, code, "{}", instance.log());
        assert!(instance.log().contains(wanted) && instance.log().contains(addr), "{}", instance.log());
    }
}

fn assert_problem(answer: &Answer, title: &str) {
    assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{answer:?}");
    let problem = answer.json();
    let name = title.split(' ').next().unwrap().to_lowercase();
    assert_eq!(problem["title"], title);
    assert!(problem["type"].as_str().unwrap().starts_with(&format!("urn:outboxd:problem:{name}")), "{problem}");
    assert_eq!(problem["status"], answer.status);
}

#[tokio::test]
async fn whatever_is_asked_the_answer_is_proper_and_safe_for_browsers() {
    let database = postgres::database().await;
    let mut instance = idle(&database).start().await;
    let addr = instance.http_addr().await;
    let missing = get(addr, "/nothing/here", &[]).await;
    assert_eq!(missing.status, 404);
    assert_problem(&missing, "Not Found");
    let posted = ask(addr, "POST", "/livez", &["Content-Length: 0"]).await;
    assert_eq!((posted.status, posted.header("allow")), (405, Some("GET,HEAD")));
    assert_problem(&posted, "Method Not Allowed");
    let rebound = get(addr, "/metrics", &["Host: attacker.example"]).await;
    assert_eq!(rebound.status, 421);
    assert_problem(&rebound, "Misdirected Request");
    let live = get(addr, "/livez", &[]).await;
    for answer in [&missing, &posted, &rebound, &live] {
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("referrer-policy", "same-origin"),
            ("cache-control", "no-store"),
            ("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{name}: {answer:?}");
        }
    }
}

#[tokio::test]
async fn a_head_that_is_too_long_or_never_ends_is_cut_off() {
    let database = postgres::database().await;
    let mut instance = idle(&database).start().await;
    let addr = instance.http_addr().await;
    let long = format!("GET /livez HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(64 << 10));
    let answer = send(addr, long.as_bytes()).await;
    assert!(!answer.contains(" 200 "), "{answer}");
    let many = format!("GET /livez HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "X: y\r\n".repeat(200));
    let answer = send(addr, many.as_bytes()).await;
    assert!(answer.contains(" 431 "), "{answer}");
    let answer = send(addr, b"GET /livez HTTP/1.1\r\nHost: local").await;
    assert!(!answer.contains(" 200 "), "{answer}");
    assert_eq!(get(addr, "/livez", &[]).await.status, 200, "and the others are still served");
}

#[tokio::test]
async fn a_client_that_reads_no_answers_loses_its_connection() {
    let database = postgres::database().await;
    let mut instance = idle(&database).start().await;
    let addr = instance.http_addr().await;
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(addr).await.unwrap();
    let requests = "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(1000);
    let asking = async { while stream.write_all(requests.as_bytes()).await.is_ok() {} };
    tokio::time::timeout(Duration::from_secs(60), asking).await.expect("the connection is taken away");
}

#[tokio::test]
async fn without_the_role_nothing_listens() {
    let database = postgres::database().await;
    let instance = idle(&database).roles("producer,relay,worker").start().await;
    assert!(!instance.log().contains("\"listening\""), "{}", instance.log());
    assert_eq!(instance.drain().await, 0);
}

#[tokio::test]
async fn systemd_is_told_when_it_is_ready_and_when_it_stops() {
    let database = postgres::database().await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let socket = tokio::net::UnixDatagram::bind(&path).unwrap();
    let hear = async || {
        let mut buffer = [0; 64];
        let length = tokio::time::timeout(SOON, socket.recv(&mut buffer)).await.expect("word in time").unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    let instance = idle(&database).env("NOTIFY_SOCKET", path.to_str().unwrap()).spawn();
    assert_eq!(hear().await, "READY=1");
    instance.signal(Signal::SIGTERM);
    assert_eq!(hear().await, "STOPPING=1");
}
