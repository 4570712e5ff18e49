//! HTTP/2 without TLS, which only these tests speak: a server that refuses streams or retires its connection.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::TcpListener;

use super::*;

fn http2() -> Http {
    Http {
        client: Client::builder()
            .tls_backend_preconfigured(tls::client_config().unwrap())
            .no_proxy()
            .http2_prior_knowledge()
            .build()
            .unwrap(),
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
async fn server(fate: Fate) -> (Url, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
    let seen = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&seen);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            let counter = Arc::clone(&counter);
            tokio::spawn(async move {
                while let Some(Ok((_request, mut respond))) = connection.accept().await {
                    let number = counter.fetch_add(1, Ordering::SeqCst);
                    match fate {
                        Fate::Reset(refused, reason) if number < refused => respond.send_reset(reason),
                        Fate::Reset(..) => {
                            respond.send_response(axum::http::Response::new(()), true).unwrap();
                        }
                        Fate::LastProcessed => connection.abrupt_shutdown(h2::Reason::NO_ERROR),
                    }
                }
            });
        }
    });
    (url, seen)
}

#[tokio::test]
async fn a_refused_stream_goes_out_again_a_few_times() {
    let (url, seen) = server(Fate::Reset(2, h2::Reason::REFUSED_STREAM)).await;
    let outcome = http2().call(url, HeaderMap::new(), Bytes::from_static(b"{}")).await;
    assert!(matches!(outcome, Outcome::Sent { status: 200, .. }), "{outcome:?}");
    assert_eq!(seen.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_stream_that_is_always_refused_is_transient() {
    let (url, seen) = server(Fate::Reset(usize::MAX, h2::Reason::REFUSED_STREAM)).await;
    let outcome = http2().call(url, HeaderMap::new(), Bytes::from_static(b"{}")).await;
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
        let (url, seen) = server(fate).await;
        let outcome = http2().call(url, HeaderMap::new(), Bytes::from_static(b"{}")).await;
        assert!(matches!(&outcome, Outcome::Failed(failed) if failed.failure == Failure::Ambiguous), "{outcome:?}");
        assert_eq!(seen.load(Ordering::SeqCst), 1);
    }
}
