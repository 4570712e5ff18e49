//! HTTP/2: connections that calls share, and servers that refuse streams or retire their connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use url::Url;

use super::super::Http;
use super::super::tests::{Open, assert_all_sent, assert_sent, call, failed, later, only_one, secure_server, with_tls};
use super::*;
use crate::channel::outcome::Outcome;

/// Answers; retires the connection when asked by `x-retire`.
async fn answer<S>(stream: S, _open: Open)
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
    let (url, seen, tls) = secure_server(&["h2", "http/1.1"], answer).await;
    let http = with_tls(tls);
    assert_sent(&http, &url).await;
    assert_all_sent(&http, &url, 50).await;
    assert_eq!(seen.connections(), 1);
    drop(http);
    seen.until_open(0).await;
}

#[tokio::test]
async fn when_a_shared_connection_is_retired_calls_go_on_over_the_next() {
    let (url, seen, tls) = secure_server(&["h2"], answer).await;
    let http = with_tls(tls);
    let mut retire = HeaderMap::new();
    retire.insert("x-retire", HeaderValue::from_static("1"));
    let outcome = http.call(&only_one(), &url, retire, Bytes::from_static(b"{}")).await;
    assert!(matches!(outcome, Outcome::Sent { .. }), "{outcome:?}");
    seen.until_open(0).await;
    assert_all_sent(&http, &url, 50).await;
    // Those who ask at once each begin a connection; the first that stands serves all.
    seen.until_open(1).await;
    let connections = seen.connections();
    assert_all_sent(&http, &url, 50).await;
    assert_eq!(seen.connections(), connections);
}

#[tokio::test]
async fn a_shared_connection_that_nobody_uses_ends() {
    let (url, seen, tls) = secure_server(&["h2"], answer).await;
    let http = with_tls(tls);
    assert_sent(&http, &url).await;
    later(Duration::from_secs(31)).await;
    assert_sent(&http, &url).await;
    assert_eq!(seen.connections(), 2);
    seen.until_open(1).await;
}

/// What the server does to a stream.
#[derive(Clone, Copy)]
enum Fate {
    /// The first so many are reset for this reason, the rest answered.
    Reset(usize, h2::Reason),
    /// The connection is retired after it: the last that was processed, and never answered.
    LastProcessed,
}

/// Counts the streams it processes.
async fn server(fate: Fate) -> (Url, Http, Arc<AtomicUsize>) {
    let streams = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&streams);
    let (url, _, tls) = secure_server(&["h2"], move |stream, open| {
        let counter = Arc::clone(&counter);
        async move {
            let _open = open;
            let mut connection = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok((_request, mut respond))) = connection.accept().await {
                let number = counter.fetch_add(1, Ordering::SeqCst);
                match fate {
                    Fate::Reset(refused, reason) if number < refused => respond.send_reset(reason),
                    Fate::Reset(..) => {
                        respond.send_response(Response::new(()), true).unwrap();
                    }
                    Fate::LastProcessed => connection.abrupt_shutdown(h2::Reason::NO_ERROR),
                }
            }
        }
    })
    .await;
    (url, with_tls(tls), streams)
}

#[tokio::test]
async fn a_refused_stream_goes_out_again_a_few_times() {
    let (url, http, streams) = server(Fate::Reset(2, h2::Reason::REFUSED_STREAM)).await;
    assert_sent(&http, &url).await;
    assert_eq!(streams.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_stream_that_is_always_refused_is_transient() {
    let (url, http, streams) = server(Fate::Reset(usize::MAX, h2::Reason::REFUSED_STREAM)).await;
    let failed = failed(call(&http, &url).await);
    assert_eq!(failed.failure, Failure::Transient, "{}", failed.error);
    assert_eq!(streams.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_stream_that_ends_for_another_reason_is_unknown_and_not_repeated() {
    for fate in [
        Fate::Reset(usize::MAX, h2::Reason::INTERNAL_ERROR),
        Fate::Reset(usize::MAX, h2::Reason::CANCEL),
        Fate::Reset(usize::MAX, h2::Reason::NO_ERROR),
        Fate::LastProcessed,
    ] {
        let (url, http, streams) = server(fate).await;
        let failed = failed(call(&http, &url).await);
        assert_eq!(failed.failure, Failure::Ambiguous, "{}", failed.error);
        assert_eq!(streams.load(Ordering::SeqCst), 1);
    }
}

/// Reads one request's head and says that no stream was processed.
async fn process_nothing<S>(mut stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut preface, mut head) = ([0; 24], [0; 9]);
    stream.read_exact(&mut preface).await.unwrap();
    stream.write_all(b"\0\0\0\x04\0\0\0\0\0").await.unwrap();
    loop {
        stream.read_exact(&mut head).await.unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut frame = vec![0; length as usize];
        stream.read_exact(&mut frame).await.unwrap();
        if head[3] == 1 {
            let goaway = b"\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\0";
            stream.write_all(goaway).await.unwrap();
            // Until the client is gone.
            let _gone = stream.read_to_end(&mut frame).await;
            return;
        }
    }
}

#[tokio::test]
async fn a_call_that_came_after_the_last_stream_of_a_retired_connection_goes_out_again() {
    let is_first = AtomicUsize::new(0);
    let (url, seen, tls) = secure_server(&["h2"], move |stream, open| {
        let is_first = is_first.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            match is_first {
                true => process_nothing(stream).await,
                false => answer(stream, open).await,
            }
        }
    })
    .await;
    let http = with_tls(tls);
    assert_sent(&http, &url).await;
    assert_eq!(seen.connections(), 2);
}
