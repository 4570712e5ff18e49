//! HTTP/2: a server that refuses streams or retires its connection.

use std::sync::atomic::{AtomicUsize, Ordering};

use rustls::ClientConfig;
use tokio::net::TcpListener;
use url::Url;

use super::*;
use crate::client::System;

fn http2(tls: ClientConfig) -> Http {
    Http {
        client: Client::new(tls, Arc::new(System), Duration::from_secs(5)),
        method: Method::POST,
        timeout: Duration::from_secs(5),
        first_byte_timeout: Duration::from_secs(5),
        response_bytes_max: 1000,
        retry_after_max: Duration::from_secs(60),
    }
}

/// What the server does to a stream.
#[derive(Clone, Copy)]
enum Fate {
    /// The first so many are reset for this reason, the rest answered.
    Reset(usize, h2::Reason),
    /// The connection is retired after it: the last that was processed, and never answered.
    LastProcessed,
}

/// Counts the streams it sees.
async fn server(fate: Fate) -> (Place, Http, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("https://{}/", listener.local_addr().unwrap())).unwrap();
    let (acceptor, tls) = client::tests::tls(&["h2"]);
    let seen = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&seen);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let stream = acceptor.accept(stream).await.unwrap();
            let mut connection = h2::server::handshake(stream).await.unwrap();
            let counter = Arc::clone(&counter);
            tokio::spawn(async move {
                while let Some(Ok((_request, mut respond))) = connection.accept().await {
                    let number = counter.fetch_add(1, Ordering::SeqCst);
                    match fate {
                        Fate::Reset(refused, reason) if number < refused => respond.send_reset(reason),
                        Fate::Reset(..) => {
                            respond.send_response(http::Response::new(()), true).unwrap();
                        }
                        Fate::LastProcessed => connection.abrupt_shutdown(h2::Reason::NO_ERROR),
                    }
                }
            });
        }
    });
    (Place::new(&url).unwrap(), http2(tls), seen)
}

#[tokio::test]
async fn a_refused_stream_goes_out_again_a_few_times() {
    let (place, http, seen) = server(Fate::Reset(2, h2::Reason::REFUSED_STREAM)).await;
    let outcome = http.call(&place, HeaderMap::new(), Bytes::from_static(b"{}")).await;
    assert!(matches!(outcome, Outcome::Sent { status: 200, .. }), "{outcome:?}");
    assert_eq!(seen.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_stream_that_is_always_refused_is_transient() {
    let (place, http, seen) = server(Fate::Reset(usize::MAX, h2::Reason::REFUSED_STREAM)).await;
    let outcome = http.call(&place, HeaderMap::new(), Bytes::from_static(b"{}")).await;
    assert!(matches!(&outcome, Outcome::Failed(failed) if failed.failure == Failure::Transient), "{outcome:?}");
    assert_eq!(seen.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_stream_that_ends_for_another_reason_is_unknown_and_not_repeated() {
    for fate in [
        Fate::Reset(usize::MAX, h2::Reason::INTERNAL_ERROR),
        Fate::Reset(usize::MAX, h2::Reason::CANCEL),
        Fate::Reset(usize::MAX, h2::Reason::NO_ERROR),
        Fate::LastProcessed,
    ] {
        let (place, http, seen) = server(fate).await;
        let outcome = http.call(&place, HeaderMap::new(), Bytes::from_static(b"{}")).await;
        assert!(matches!(&outcome, Outcome::Failed(failed) if failed.failure == Failure::Ambiguous), "{outcome:?}");
        assert_eq!(seen.load(Ordering::SeqCst), 1);
    }
}
