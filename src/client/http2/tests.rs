//! Against a server behind TLS that speaks HTTP/2.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{HeaderValue, Response};
use tokio::io::{AsyncRead, AsyncWrite};

use super::super::tests::{Open, call, request, secure_server, with_tls};
use super::super::{Client, System};
use super::*;

/// Retires the connection when asked by `x-retire`.
async fn serve<S>(stream: S, _open: Open)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut connection = h2::server::handshake(stream).await.unwrap();
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        assert_eq!((request.headers().get("host"), request.uri().path()), (None, "/a"));
        assert!(request.uri().authority().is_some_and(|authority| authority.as_str().starts_with("127.0.0.1:")));
        let mut body = respond.send_response(Response::new(()), false).unwrap();
        body.send_data(Bytes::from_static(b"0123456789"), true).unwrap();
        if request.headers().contains_key("x-retire") {
            connection.graceful_shutdown();
        }
    }
}

#[tokio::test]
async fn calls_over_http2_share_one_connection() {
    let (place, seen, tls) = secure_server(&["h2", "http/1.1"], serve).await;
    let client = with_tls(tls);
    call(&client, &place).await.unwrap();
    for body in join_all((0..50).map(|_| call(&client, &place))).await {
        assert_eq!(body.unwrap().len(), 10);
    }
    assert_eq!(seen.connections(), 1);
    drop(client);
    seen.until_open(0).await;
}

#[tokio::test]
async fn when_a_shared_connection_is_retired_one_call_makes_the_next_for_all() {
    let (place, seen, tls) = secure_server(&["h2"], serve).await;
    let client = with_tls(tls);
    let mut last = request(b"{}");
    last.headers_mut().insert("x-retire", HeaderValue::from_static("1"));
    let mut answer = client.send(&place, last).await.unwrap();
    while answer.chunk().await.unwrap().is_some() {}
    seen.until_open(0).await;
    for body in join_all((0..50).map(|_| call(&client, &place))).await {
        assert_eq!(body.unwrap().len(), 10);
    }
    assert_eq!(seen.connections(), 2);
}

#[tokio::test]
async fn a_shared_connection_that_nobody_uses_ends() {
    let (place, seen, tls) = secure_server(&["h2"], serve).await;
    let client = Client::with_idle_max(tls, Arc::new(System), Duration::from_secs(2), Duration::from_millis(300));
    call(&client, &place).await.unwrap();
    seen.until_open(0).await;
    call(&client, &place).await.unwrap();
    assert_eq!(seen.connections(), 2);
}
