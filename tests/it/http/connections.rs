//! What connections cost others: those that idle, crawl, or show no token.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use super::{idle, with_token};
use crate::support::http::{Answer, get};
use crate::support::{postgres, wait};

const TOKEN: &str = "Authorization: Bearer hunter2-hunter2-hunter2";

/// More connections than are served at a time.
const MANY: usize = 400;

async fn connect_from(source: &str, addr: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(source.parse().unwrap(), 0)).unwrap();
    socket.connect(addr).await.unwrap()
}

/// Connections from one address that each begin with these bytes.
async fn flood(source: &str, addr: SocketAddr, bytes: &[u8], count: usize) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    for _ in 0..count {
        let mut stream = connect_from(source, addr).await;
        // One that was cut off already is as good.
        let _ = stream.write_all(bytes).await;
        streams.push(stream);
    }
    streams
}

/// Asks on a connection that is kept; the status.
async fn ask_on(stream: &mut TcpStream, path: &str, header: &str) -> std::io::Result<u16> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut buffer = [0; 4096];
    let length = tokio::time::timeout(Duration::from_secs(10), stream.read(&mut buffer)).await.expect("in time")?;
    let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
    text.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or(std::io::ErrorKind::ConnectionReset.into())
}

#[tokio::test]
async fn connections_that_idle_crawl_or_show_no_token_keep_nobody_with_one_out() {
    let (_instance, addr) = with_token().await;
    let mut held = Vec::new();
    for (what, bytes) in [
        ("idle", &b""[..]),
        ("slow heads", b"GET / HTTP/1.1\r\nHost: local"),
        ("kept after a 401", b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        ("slow bodies", b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\nContent-Type: application/x-www-form-urlencoded\r\n\r\ntoken="),
    ] {
        held.extend(flood("127.0.0.1", addr, bytes, MANY).await);
        for path in ["/version", "/metrics"] {
            let answer = get(addr, path, &[TOKEN]).await;
            assert_eq!(answer.status, 200, "{path} beside connections that are {what}: {answer:?}");
        }
        for path in ["/livez", "/readyz"] {
            assert_eq!(get(addr, path, &[]).await.status, 200, "{path} beside {what}");
        }
    }
}

#[tokio::test]
async fn who_showed_a_token_keeps_its_connection_through_a_flood_from_anywhere() {
    let (_instance, addr) = with_token().await;
    let mut ours = connect_from("127.0.0.1", addr).await;
    assert_eq!(ask_on(&mut ours, "/version", TOKEN).await.unwrap(), 200);
    for source in ["127.0.0.1", "127.0.0.2", "127.0.0.3"] {
        let _held = flood(source, addr, b"GET / HTTP/1.1\r\n", MANY).await;
        assert_eq!(ask_on(&mut ours, "/version", TOKEN).await.expect("it is kept"), 200, "{source}");
    }
}

#[tokio::test]
async fn a_flood_from_one_address_costs_the_connections_of_that_address_alone() {
    let (_instance, addr) = with_token().await;
    let mut slow = connect_from("127.0.0.1", addr).await;
    slow.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n").await.unwrap();
    let _held = flood("127.0.0.2", addr, b"GET / HTTP/1.1\r\n", MANY).await;
    slow.write_all(b"Connection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    slow.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// A login whose body does not come.
const CRAWLING: &str = "POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\nContent-Type: application/x-www-form-urlencoded\r\n";

const TOKENS: &str = "[tokens.weak]\ntoken = \"k3Rz8vQm1LxT5yWd\"\nscope = \"read\"\n[tokens.ops]\ntoken = \"p9Bn4cJf7HsG2aXe\"\nscope = \"operate\"\n";
const WEAK: &str = "Authorization: Bearer k3Rz8vQm1LxT5yWd";
const OPS: &str = "Authorization: Bearer p9Bn4cJf7HsG2aXe";

#[tokio::test]
async fn a_token_whose_requests_crawl_anywhere_leaves_connections_to_the_others() {
    let database = postgres::database().await;
    let mut instance = idle(&database).toml(TOKENS).start().await;
    let addr = instance.http_addr().await;
    let asks = async |what: &str| {
        let ops: Answer = get(addr, "/version", &[OPS]).await;
        assert_eq!(ops.status, 200, "{what}: {ops:?}");
        assert_eq!(get(addr, "/login", &[]).await.status, 200, "{what}: who has no token yet");
    };
    let crawling = format!("{CRAWLING}{WEAK}\r\n\r\ntoken=");
    let held = flood("127.0.0.2", addr, crawling.as_bytes(), MANY).await;
    asks("bodies").await;
    let crowded = get(addr, "/version", &[WEAK]).await;
    assert_eq!((crowded.status, crowded.header("retry-after")), (503, Some("1")), "{crowded:?}");
    assert!(crowded.body.contains("96 requests of this token"), "{crowded:?}");
    drop(held);
    // Those who showed it once, and then ask for something without it.
    let mut held = Vec::new();
    for _ in 0..MANY {
        let mut stream = connect_from("127.0.0.2", addr).await;
        let _ = ask_on(&mut stream, "/version", WEAK).await;
        let _ = stream.write_all(format!("{CRAWLING}\r\ntoken=").as_bytes()).await;
        held.push(stream);
    }
    asks("bodies without the token").await;
    drop(held);
    let live = format!("GET /live?page=/topics HTTP/1.1\r\nHost: localhost\r\n{WEAK}\r\n\r\n{crawling}");
    let _held = flood("127.0.0.2", addr, live.as_bytes(), MANY).await;
    asks("pages").await;
}

#[tokio::test]
async fn while_all_work_for_those_who_may_the_probes_are_answered_and_others_wait() {
    let database = postgres::database().await;
    let mut instance = idle(&database).start().await;
    let addr = instance.http_addr().await;
    // Without tokens everybody may: bodies that do not come hold all that are served at a time.
    let head = b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\nContent-Type: application/x-www-form-urlencoded\r\nExpect: 100-continue\r\n\r\n";
    let mut held = Vec::new();
    for _ in 0..256 {
        let mut stream = flood("127.0.0.1", addr, head, 1).await.remove(0);
        let mut go_on = [0; 25];
        stream.read_exact(&mut go_on).await.unwrap();
        assert!(go_on.starts_with(b"HTTP/1.1 100 Continue"), "its body is waited for");
        held.push(stream);
    }
    for path in ["/livez", "/readyz"] {
        assert_eq!(get(addr, path, &[]).await.status, 200, "{path}");
    }
    let other = get(addr, "/version", &[]).await;
    assert_eq!((other.status, other.header("retry-after")), (503, Some("1")), "{other:?}");
    let is_open = |stream: &TcpStream| {
        stream.try_read(&mut [0; 1]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    };
    assert!(held.iter().all(is_open), "the answers came while all of them were held");
    drop(held);
    wait::until("what is free again is for all", async || get(addr, "/version", &[]).await.status == 200).await;
}
