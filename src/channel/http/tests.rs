//! Calls as a channel makes them, and servers on real sockets that count their connections.

use std::net::SocketAddr;

use futures_util::future::join_all;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::*;
use crate::channel::lookups::System;

const SOON: Duration = Duration::from_secs(10);
pub(super) const NO_BODY: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
pub(super) const TEN_BYTES: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n0123456789";

pub(super) fn http(clients: Clients) -> Http {
    Http {
        clients,
        method: Method::POST,
        timeout: Duration::from_secs(10),
        first_byte_timeout: Duration::from_secs(10),
        response_bytes_max: 1000,
        retry_after_max: Duration::from_secs(60),
        answers: None,
    }
}

pub(super) fn plain() -> Http {
    with_tls(tls::client_config().unwrap())
}

pub(super) fn with_tls(tls: ClientConfig) -> Http {
    http(
        Clients::new(
            tls,
            Arc::new(System::new(&Arc::default(), Duration::from_secs(5))),
            Egress::Direct,
            Duration::from_secs(5),
            Arc::default(),
        )
        .unwrap(),
    )
}

pub(super) async fn call(http: &Http, url: &Url) -> Outcome {
    http.call(&only_one(), url, HeaderMap::new(), Bytes::from_static(b"{}")).await
}

pub(super) async fn assert_sent(http: &Http, url: &Url) {
    let outcome = call(http, url).await;
    assert!(matches!(outcome, Outcome::Sent { status: 200 | 204, .. }), "{outcome:?}");
}

pub(super) async fn assert_all_sent(http: &Http, url: &Url, calls: usize) {
    join_all((0..calls).map(|_| assert_sent(http, url))).await;
}

/// The origin of whom the operator wrote down.
pub(super) fn only_one() -> Arc<str> {
    Arc::from(crate::channel::CHANNEL_WIDE)
}

pub(super) fn failed(outcome: Outcome) -> Failed {
    match outcome {
        Outcome::Failed(failed) => failed,
        _ => panic!("a failure was expected"),
    }
}

/// Sets the clock forward. It stands still only for this moment, so that no timeout is met on the way.
pub(super) async fn later(span: Duration) {
    tokio::time::pause();
    tokio::time::advance(span).await;
    tokio::time::resume();
}

/// A server's certificate for 127.0.0.1, and a client that trusts it and no other.
fn certified(protocols: &[&str]) -> (TlsAcceptor, ClientConfig) {
    let certified = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
    let certificate: CertificateDer<'static> = certified.cert.der().clone();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    server.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.alpn_protocols = tls::client_config().unwrap().alpn_protocols;
    (TlsAcceptor::from(Arc::new(server)), client)
}

/// Connections of a server: how many there were, how many are open.
#[derive(Clone)]
pub(super) struct Seen(watch::Sender<(usize, usize)>);

impl Seen {
    fn new() -> Seen {
        Seen(watch::Sender::new((0, 0)))
    }

    pub(super) fn connections(&self) -> usize {
        self.0.borrow().0
    }

    pub(super) async fn until_open(&self, open: usize) {
        let mut seen = self.0.subscribe();
        let waited = timeout(SOON, seen.wait_for(|seen| seen.1 == open)).await.is_ok();
        assert!(waited, "{} are open", self.0.borrow().1);
    }

    fn begin(&self) -> Open {
        self.0.send_modify(|seen| *seen = (seen.0 + 1, seen.1 + 1));
        Open(self.clone())
    }
}

pub(super) struct Open(Seen);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.0.send_modify(|seen| seen.1 -= 1);
    }
}

/// What a server does after it has read a request and written its answer.
#[derive(Clone, Copy)]
pub(super) enum Then {
    Next,
    Close,
    /// Closes when the client has had the time to put the connection away, with these last words.
    Leave(&'static [u8]),
    Hang,
}

pub(super) async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Gives each request of a connection the next of these answers, and begins again.
pub(super) async fn server(answers: &'static [&'static [u8]], then: Then) -> (Url, Seen) {
    let (listener, address) = listen().await;
    let seen = Seen::new();
    let counted = seen.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, counted.begin(), answers, then));
        }
    });
    (Url::parse(&format!("http://{address}/")).unwrap(), seen)
}

/// Serves requests whose body is `{}`.
pub(super) async fn serve<S>(mut stream: S, open: Open, answers: &'static [&'static [u8]], then: Then)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut buffer = Vec::new();
    for answer in answers.iter().cycle() {
        while !buffer.ends_with(b"\r\n\r\n{}") {
            if !matches!(stream.read_buf(&mut buffer).await, Ok(read) if read > 0) {
                return;
            }
        }
        buffer.clear();
        if stream.write_all(answer).await.is_err() {
            return;
        }
        match then {
            Then::Next => {}
            Then::Close => return,
            Then::Leave(words) => {
                tokio::time::sleep(Duration::from_millis(20)).await;
                let _not_read_by_the_client = stream.write_all(words).await;
                return;
            }
            Then::Hang => {
                // Until the client is gone.
                let _gone = stream.read_buf(&mut buffer).await;
                return;
            }
        }
    }
    drop(open);
}

/// A server behind TLS that speaks these protocols and leaves each connection to `serve`.
pub(super) async fn secure_server<F>(
    protocols: &[&str],
    serve: impl Fn(TlsStream<TcpStream>, Open) -> F + Send + Sync + 'static,
) -> (Url, Seen, ClientConfig)
where
    F: Future<Output = ()> + Send + 'static,
{
    let (listener, address) = listen().await;
    let (acceptor, tls) = certified(protocols);
    let seen = Seen::new();
    let counted = seen.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let open = counted.begin();
            // A client that needs no second connection may leave in the midst of its handshake.
            if let Ok(stream) = acceptor.accept(stream).await {
                tokio::spawn(serve(stream, open));
            }
        }
    });
    (Url::parse(&format!("https://{address}/a?b")).unwrap(), seen, tls)
}
