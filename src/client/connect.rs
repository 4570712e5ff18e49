//! From an origin to a stream: the name, the connection, TLS.
//!
//! A name's addresses are tried in turn, and each gets an even share of the time that is left: one that is dead does
//! not use up the time of the others. An address in the URL is connected to as it stands and never reaches the
//! resolver.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use url::Host;

use super::{Error, Place};

/// A name's addresses, or why there are none. Their ports are not looked at.
pub type Resolved = Result<Vec<SocketAddr>, Box<dyn std::error::Error + Send + Sync>>;

/// Finds the addresses of a name. What it answers is connected to.
#[async_trait]
pub trait Resolve: Send + Sync {
    /// Asked once for each new connection.
    async fn resolve(&self, name: &str) -> Resolved;
}

/// The system's resolver.
#[derive(Debug)]
pub(crate) struct System;

#[async_trait]
impl Resolve for System {
    async fn resolve(&self, name: &str) -> Resolved {
        Ok(tokio::net::lookup_host((name, 0)).await?.collect())
    }
}

/// Makes connections.
pub(super) struct Connector {
    tls: TlsConnector,
    resolver: Arc<dyn Resolve>,
    timeout: Duration,
}

/// A stream, by what is spoken on it.
pub(super) enum Opened {
    Http1(Stream),
    Http2(Stream),
}

impl Connector {
    pub(super) fn new(tls: ClientConfig, resolver: Arc<dyn Resolve>, timeout: Duration) -> Connector {
        Connector { tls: TlsConnector::from(Arc::new(tls)), resolver, timeout }
    }

    /// How long a connection may take, TLS and all.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Opens a stream. The caller stops it when its time is over.
    pub(super) async fn open(&self, place: &Place) -> Result<Opened, Error> {
        let deadline = Instant::now() + self.timeout;
        let port = place.port();
        let addresses = match place.host() {
            Host::Ipv4(ip) => vec![SocketAddr::from((*ip, port))],
            Host::Ipv6(ip) => vec![SocketAddr::from((*ip, port))],
            Host::Domain(name) => self.resolver.resolve(name).await.map_err(Error::Connect)?,
        };
        let tcp = tcp(&addresses, port, deadline).await.map_err(failed)?;
        tcp.set_nodelay(true).map_err(failed)?;
        if !place.is_secure() {
            return Ok(Opened::Http1(Stream::Plain(tcp)));
        }
        let name = place.server_name().map_err(|error| Error::Connect(error.into()))?;
        let tls = self.tls.connect(name, tcp).await.map_err(failed)?;
        let is_http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
        let stream = Stream::Tls(Box::new(tls));
        Ok(if is_http2 { Opened::Http2(stream) } else { Opened::Http1(stream) })
    }
}

fn failed(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::TimedOut => Error::ConnectTimeout,
        _ => Error::Connect(error.into()),
    }
}

/// Connects to the first address that answers; else the last one's error.
async fn tcp(addresses: &[SocketAddr], port: u16, deadline: Instant) -> io::Result<TcpStream> {
    let mut error = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for (left, address) in (1u32..=u32::try_from(addresses.len()).unwrap_or(u32::MAX)).rev().zip(addresses) {
        let mut address = *address;
        address.set_port(port);
        let share = deadline.saturating_duration_since(Instant::now()) / left;
        match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(refused)) => error = refused,
            Err(elapsed) => error = elapsed.into(),
        }
    }
    Err(error)
}

/// A connection with or without TLS.
#[derive(Debug)]
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Stream::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests;
