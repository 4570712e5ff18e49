//! What reqwest does with connections, as it is set up here.

use std::net::SocketAddr;
use std::sync::Mutex;

use bytes::Bytes;
use http::HeaderMap;
use reqwest::dns::{Addrs, Name, Resolving};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::super::tests::{
    NO_BODY, TEN_BYTES, Then, assert_all_sent, assert_sent, call, failed, http, later, listen, only_one, plain,
    secure_server, serve, server, with_tls,
};
use super::*;
use crate::channel::lookups::System;
use crate::channel::outcome::{Cause, Outcome};
use crate::retry::Failure;
use crate::tls;

#[tokio::test]
async fn a_connection_is_used_again_after_every_kind_of_answer() {
    let answers: &[&[u8]] = &[
        NO_BODY,
        TEN_BYTES,
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x\r\n\r\n3\r\nabc\r\n0\r\nx: y\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nz",
    ];
    let (url, seen) = server(answers, Then::Next).await;
    let http = plain();
    for _ in 0..3 * answers.len() {
        assert_sent(&http, &url).await;
    }
    assert_eq!(seen.connections(), 1);
}

#[tokio::test]
async fn a_body_in_many_pieces_arrives_whole_and_leaves_the_connection_usable() {
    let (listener, address) = listen().await;
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut buffer = vec![0; 64 << 10];
        for _ in 0..2 {
            let mut left = None;
            while left != Some(0) {
                let read = stream.read(&mut buffer).await.unwrap();
                let head = buffer[..read].windows(4).position(|window| window == b"\r\n\r\n");
                left = Some(left.unwrap_or_else(|| (4 << 20) + head.unwrap() + 4) - read);
            }
            stream.write_all(TEN_BYTES).await.unwrap();
        }
    });
    let (http, url) = (plain(), Url::parse(&format!("http://{address}/")).unwrap());
    for _ in 0..2 {
        let outcome = http.call(&only_one(), &url, HeaderMap::new(), Bytes::from_static(&[b'x'; 4 << 20])).await;
        assert!(matches!(outcome, Outcome::Sent { .. }), "{outcome:?}");
    }
    server.await.unwrap();
}

#[tokio::test]
async fn a_connection_that_its_peer_closed_while_it_was_idle_is_not_used() {
    for words in [&b""[..], b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\n\r\n"] {
        let (url, seen) = server(&[TEN_BYTES], Then::Leave(words)).await;
        let http = plain();
        for n in 1..=5 {
            assert_all_sent(&http, &url, 3).await;
            assert_eq!(seen.connections(), 3 * n, "three were idle when they were closed, and three were made anew");
            seen.until_open(0).await;
            // The client has to hear of it as well.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test]
async fn connections_of_many_calls_at_once_are_kept_and_end_when_idle_for_long() {
    let (url, seen) = server(&[TEN_BYTES], Then::Next).await;
    let http = plain();
    for _ in 0..3 {
        assert_all_sent(&http, &url, 8).await;
    }
    assert_eq!(seen.connections(), 8);
    later(Duration::from_secs(29)).await;
    assert_all_sent(&http, &url, 8).await;
    assert_eq!(seen.connections(), 8, "idle, but not for long");
    later(Duration::from_secs(31)).await;
    assert_sent(&http, &url).await;
    assert_eq!(seen.connections(), 9);
    seen.until_open(1).await;
    drop(http);
    seen.until_open(0).await;
}

#[tokio::test]
async fn an_answer_that_is_not_read_to_its_end_takes_its_connection_along() {
    // More than the limit, and the rest of what is announced never comes.
    let answer = [b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n".as_slice(), &[b'x'; 2000]].concat();
    let answers: &'static [&'static [u8]] = Box::leak(Box::new([&*answer.leak()]));
    let (url, seen) = server(answers, Then::Hang).await;
    let http = plain();
    for n in 1..=3 {
        assert_sent(&http, &url).await;
        assert_eq!(seen.connections(), n);
    }
    seen.until_open(0).await;
}

#[tokio::test]
async fn a_call_that_is_given_up_closes_its_connection() {
    let (url, seen) = server(&[b""], Then::Hang).await;
    let http = plain();
    assert!(timeout(Duration::from_millis(50), call(&http, &url)).await.is_err());
    assert_eq!(seen.connections(), 1);
    seen.until_open(0).await;
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_known_by_its_status() {
    for answer in [&b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n01234"[..], b"HTTP/1.1 200 OK\r\n\r\nuntil the end"]
    {
        let answers: &'static [&'static [u8]] = Box::leak(Box::new([answer]));
        let (url, _) = server(answers, Then::Close).await;
        assert_sent(&plain(), &url).await;
    }
    let (url, _) = server(&[b"HTTP/1.1 200"], Then::Close).await;
    let failed = failed(call(&plain(), &url).await);
    assert_eq!((failed.failure, failed.cause), (Failure::Ambiguous, Cause::NoAnswer), "{}", failed.error);
}

#[tokio::test]
async fn without_http2_a_secure_connection_is_used_again_too() {
    for protocols in [&["http/1.1"][..], &[]] {
        let (url, seen, tls) =
            secure_server(protocols, |stream, open| serve(stream, open, &[TEN_BYTES, NO_BODY], Then::Next)).await;
        let http = with_tls(tls);
        for _ in 0..4 {
            assert_sent(&http, &url).await;
        }
        assert_eq!(seen.connections(), 1);
    }
}

/// A DNS that always gives the same answer, and counts.
struct Always(Vec<SocketAddr>, Mutex<usize>);

impl Resolve for Always {
    fn resolve(&self, _: Name) -> Resolving {
        *self.1.lock().unwrap() += 1;
        let found = self.0.clone();
        Box::pin(async move { Ok(Box::new(found.into_iter()) as Addrs) })
    }
}

#[tokio::test]
async fn addresses_are_tried_in_turn_and_one_that_is_dead_leaves_time_for_the_next() {
    let (listening, seen) = server(&[TEN_BYTES], Then::Next).await;
    let port = listening.port().unwrap();
    // A listener that never accepts and whose backlog is full: connecting hangs.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, 3], port))).unwrap();
    let deaf = socket.listen(1).unwrap();
    let dead = deaf.local_addr().unwrap();
    let mut fillers = Vec::new();
    while let Ok(Ok(stream)) = timeout(Duration::from_millis(300), TcpStream::connect(dead)).await {
        fillers.push(stream);
    }
    let [refused, dead, alive] = [[127, 0, 0, 2], [127, 0, 0, 3], [127, 0, 0, 1]].map(|ip| SocketAddr::from((ip, 0)));
    let url = Url::parse(&format!("http://a.example:{port}/")).unwrap();
    let dial = |addresses: &[SocketAddr]| {
        let resolver = Arc::new(Always(addresses.to_vec(), Mutex::new(0)));
        let tls = tls::client_config().unwrap();
        let (seen, limit) = (Arc::clone(&resolver), Duration::from_millis(900));
        (http(Clients::new(tls, resolver, Egress::Direct, limit, Arc::default()).unwrap()), seen)
    };
    let (client, resolver) = dial(&[refused, dead, alive]);
    for _ in 0..2 {
        assert_sent(&client, &url).await;
    }
    assert_eq!((seen.connections(), *resolver.1.lock().unwrap()), (1, 1), "asked once for each connection");
    for (addresses, cause) in
        [(&[refused, dead][..], Cause::Connect), (&[dead, refused], Cause::Timeout), (&[], Cause::Connect)]
    {
        let failed = failed(call(&dial(addresses).0, &url).await);
        assert_eq!((failed.failure, failed.cause), (Failure::Transient, cause), "{}", failed.error);
    }
}

#[tokio::test]
async fn what_is_secure_goes_through_a_proxys_tunnel_and_is_verified_behind_it() {
    let (url, seen, tls) =
        secure_server(&["http/1.1"], |stream, open| serve(stream, open, &[TEN_BYTES], Then::Next)).await;
    let (listener, address) = listen().await;
    let destination = url.socket_addrs(|| None).unwrap()[0];
    let proxy = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            assert_ne!(stream.read_buf(&mut head).await.unwrap(), 0);
        }
        stream.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").await.unwrap();
        let mut behind = TcpStream::connect(destination).await.unwrap();
        let _either_side_ended = copy_bidirectional(&mut stream, &mut behind).await;
        String::from_utf8(head).unwrap()
    });
    let egress = Egress::proxy(&format!("http://{address}").into()).unwrap();
    let http = http(
        Clients::new(
            tls,
            Arc::new(System::new(&Arc::default(), Duration::from_secs(5))),
            egress,
            Duration::from_secs(5),
            Arc::default(),
        )
        .unwrap(),
    );
    for _ in 0..2 {
        assert_sent(&http, &url).await;
    }
    assert_eq!(seen.connections(), 1, "a tunnel is used again");
    drop(http);
    let head = proxy.await.unwrap();
    assert!(
        head.starts_with(&format!("CONNECT {destination} HTTP/1.1\r\n")) && !head.contains("content-type"),
        "{head}"
    );
}
