//! Against servers on real sockets that count their connections.

use std::net::SocketAddr;
use std::pin::pin;

use futures_util::future::join_all;
use http::Method;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use url::Url;

use super::*;

const SOON: Duration = Duration::from_secs(10);
const NO_BODY: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
pub(crate) const TEN_BYTES: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n0123456789";

/// A server's certificate for 127.0.0.1, and a client that trusts it and no other.
pub(crate) fn tls(protocols: &[&str]) -> (TlsAcceptor, ClientConfig) {
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
    client.alpn_protocols = crate::tls::client_config().unwrap().alpn_protocols;
    (TlsAcceptor::from(Arc::new(server)), client)
}

/// Connections of a server: how many there were, how many are open.
#[derive(Clone)]
pub(crate) struct Seen(watch::Sender<(usize, usize)>);

impl Seen {
    fn new() -> Seen {
        Seen(watch::Sender::new((0, 0)))
    }

    pub(crate) fn connections(&self) -> usize {
        self.0.borrow().0
    }

    pub(crate) async fn until_open(&self, open: usize) {
        let mut seen = self.0.subscribe();
        let waited = timeout(SOON, seen.wait_for(|seen| seen.1 == open)).await.is_ok();
        assert!(waited, "{} are open", self.0.borrow().1);
    }

    fn begin(&self) -> Open {
        self.0.send_modify(|seen| *seen = (seen.0 + 1, seen.1 + 1));
        Open(self.clone())
    }
}

pub(crate) struct Open(Seen);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.0.send_modify(|seen| seen.1 -= 1);
    }
}

/// What a server does after it has read a request and written its answer.
#[derive(Clone, Copy)]
pub(crate) enum Then {
    Next,
    Close,
    /// Closes when the client has had the time to put the connection away, with these last words.
    Leave(&'static [u8]),
    Hang,
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

pub(crate) fn place(url: &str) -> Place {
    Place::new(&Url::parse(url).unwrap()).unwrap()
}

/// Gives each request of a connection the next of these answers, and begins again.
pub(crate) async fn server(answers: &'static [&'static [u8]], then: Then) -> (Place, Seen) {
    let (listener, address) = listen().await;
    let seen = Seen::new();
    let counted = seen.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, counted.begin(), answers, then));
        }
    });
    (place(&format!("http://{address}/")), seen)
}

async fn serve<S>(mut stream: S, open: Open, answers: &'static [&'static [u8]], then: Then)
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

fn client() -> Client {
    with_tls(crate::tls::client_config().unwrap())
}

pub(crate) fn with_tls(tls: ClientConfig) -> Client {
    Client::new(tls, Arc::new(System), Duration::from_secs(2))
}

pub(crate) fn request(body: &'static [u8]) -> Request<Tracked> {
    let mut request = Request::new(Handover::new(Instant::now(), Bytes::from_static(body)).1);
    *request.method_mut() = Method::POST;
    request
}

/// One call, its answer read to the end.
pub(crate) async fn call(client: &Client, place: &Place) -> Result<Vec<u8>, Error> {
    let mut answer = client.send(place, request(b"{}")).await?;
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await? {
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

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
    let (place, seen) = server(answers, Then::Next).await;
    let client = client();
    for _ in 0..3 {
        for expected in ["", "0123456789", "", "abcde", "abc", "z"] {
            assert_eq!(String::from_utf8(call(&client, &place).await.unwrap()).unwrap(), expected);
        }
    }
    assert_eq!(seen.connections(), 1);
}

#[tokio::test]
async fn what_comes_in_many_pieces_arrives_whole_and_leaves_the_connection_usable() {
    let (listener, address) = listen().await;
    let place = place(&format!("http://{address}/"));
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
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2097152\r\n\r\n").await.unwrap();
            for _ in 0..32 {
                stream.write_all(&buffer).await.unwrap();
                tokio::task::yield_now().await;
            }
        }
    });
    let client = client();
    for _ in 0..2 {
        let mut answer = client.send(&place, request(&[b'x'; 4 << 20])).await.unwrap();
        let mut bytes = 0;
        while let Some(chunk) = answer.chunk().await.unwrap() {
            bytes += chunk.len();
        }
        assert_eq!(bytes, 2 << 20);
    }
    server.await.unwrap();
}

#[tokio::test]
async fn a_connection_that_its_peer_closed_while_it_was_idle_is_not_used() {
    for words in [&b""[..], b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\n\r\n"] {
        let (place, seen) = server(&[TEN_BYTES], Then::Leave(words)).await;
        let client = client();
        for n in 1..=5 {
            for body in join_all((0..3).map(|_| call(&client, &place))).await {
                assert_eq!(body.unwrap().len(), 10);
            }
            assert_eq!(seen.connections(), 3 * n, "three were idle when they were closed, and three were made anew");
            seen.until_open(0).await;
            // The runtime has to hear of it as well.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test]
async fn a_call_on_a_kept_connection_is_woken_once_by_its_answer() {
    let (place, _) = server(&[NO_BODY, TEN_BYTES], Then::Next).await;
    let client = client();
    call(&client, &place).await.unwrap();
    let mut polls = 0;
    for _ in 0..100 {
        let mut calling = pin!(call(&client, &place));
        poll_fn(|cx| {
            polls += 1;
            calling.as_mut().poll(cx)
        })
        .await
        .unwrap();
    }
    // To begin and to end. The rare answer that comes in pieces takes one more.
    assert!((200..220).contains(&polls), "{polls} polls of 100 calls");
}

/// Long beside a pause of a busy machine, short beside a test.
const IDLE_MAX: Duration = Duration::from_millis(1_500);

/// Keeps connections for [`IDLE_MAX`].
fn impatient() -> Client {
    let tls = crate::tls::client_config().unwrap();
    Client::with_idle_max(tls, Arc::new(System), Duration::from_secs(2), IDLE_MAX)
}

#[tokio::test]
async fn each_of_many_calls_at_once_has_a_connection_which_is_kept_and_ends_when_idle_for_long() {
    let (place, seen) = server(&[TEN_BYTES], Then::Next).await;
    let client = impatient();
    for _ in 0..3 {
        let mut answers = join_all((0..8).map(|_| client.send(&place, request(b"{}")))).await;
        for answer in &mut answers {
            let answer = answer.as_mut().unwrap();
            while answer.chunk().await.unwrap().is_some() {}
        }
    }
    assert_eq!(seen.connections(), 8);
    seen.until_open(8).await;
    seen.until_open(0).await;
    assert!(client.pool.is_empty(), "an origin that nobody calls is forgotten");
    assert_eq!(call(&client, &place).await.unwrap().len(), 10);
    assert_eq!(seen.connections(), 9);
    drop(client);
    seen.until_open(0).await;
}

#[tokio::test]
async fn a_connection_that_is_used_does_not_end_and_those_it_makes_superfluous_do() {
    let (place, seen) = server(&[TEN_BYTES], Then::Next).await;
    let client = impatient();
    join_all((0..4).map(|_| call(&client, &place))).await;
    let connections = seen.connections();
    let started = Instant::now();
    while started.elapsed() < 3 * IDLE_MAX {
        call(&client, &place).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    seen.until_open(1).await;
    assert_eq!(seen.connections(), connections);
}

#[tokio::test]
async fn an_answer_that_is_not_read_to_its_end_takes_its_connection_along() {
    let (place, seen) = server(&[TEN_BYTES], Then::Next).await;
    let client = client();
    for n in 1..=3 {
        let answer = client.send(&place, request(b"{}")).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        drop(answer);
        assert_eq!(seen.connections(), n);
    }
    seen.until_open(0).await;
    let (place, seen) = server(&[b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n01234", b"6789"], Then::Hang).await;
    let mut answer = client.send(&place, request(b"{}")).await.unwrap();
    assert_eq!(answer.chunk().await.unwrap().unwrap(), "01234");
    assert!(timeout(Duration::from_millis(50), answer.chunk()).await.is_err());
    drop(answer);
    seen.until_open(0).await;
}

#[tokio::test]
async fn a_call_that_is_given_up_closes_its_connection() {
    let (place, seen) = server(&[b""], Then::Hang).await;
    let client = client();
    assert!(timeout(Duration::from_millis(50), call(&client, &place)).await.is_err());
    assert_eq!(seen.connections(), 1);
    seen.until_open(0).await;
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_an_error() {
    let (place, _) = server(&[b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n01234"], Then::Close).await;
    assert!(matches!(call(&client(), &place).await, Err(Error::Exchange(_))));
    let (place, _) = server(&[b"HTTP/1.1 200 OK\r\n\r\nuntil the end"], Then::Close).await;
    assert_eq!(call(&client(), &place).await.unwrap(), b"until the end");
}

/// A server behind TLS that speaks these protocols and leaves each connection to `serve`.
pub(crate) async fn secure_server<F>(
    protocols: &[&str],
    serve: impl Fn(TlsStream<TcpStream>, Open) -> F + Send + Sync + 'static,
) -> (Place, Seen, ClientConfig)
where
    F: Future<Output = ()> + Send + 'static,
{
    let (listener, address) = listen().await;
    let (acceptor, tls) = tls(protocols);
    let seen = Seen::new();
    let counted = seen.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let open = counted.begin();
            tokio::spawn(serve(acceptor.accept(stream).await.unwrap(), open));
        }
    });
    (place(&format!("https://{address}/a?b")), seen, tls)
}

#[tokio::test]
async fn without_http2_a_secure_connection_is_used_again_too() {
    for protocols in [&["http/1.1"][..], &[]] {
        let (place, seen, tls) =
            secure_server(protocols, |stream, open| serve(stream, open, &[TEN_BYTES, NO_BODY], Then::Next)).await;
        let client = with_tls(tls);
        for expected in [10, 0, 10, 0] {
            assert_eq!(call(&client, &place).await.unwrap().len(), expected);
        }
        assert_eq!(seen.connections(), 1);
    }
}
