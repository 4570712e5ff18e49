//! A connection on which no message of the server may be long: for sessions that run foreign code.
//!
//! The driver takes a message whole before it looks at it. How long a notice or an error is, and a few settings that
//! the server reports, whoever runs there decides: up to a gigabyte. So the stream reads the lengths along, above
//! TLS, and breaks off when one is announced that is too long.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_postgres::{Client, Config, Connection};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_util::either::Either;

use super::{Error, Target, classify};

/// A row has a recipient of 8 KiB and a payload of 256 KiB at most.
const MESSAGE_BYTES_MAX: u32 = 1 << 20;
/// What a message begins with: its type, and its length without the type.
const HEADER_BYTES: usize = 5;

type Plain = Either<TcpStream, UnixStream>;
type Encrypted = <MakeRustlsConnect as MakeTlsConnect<Plain>>::Stream;
/// Moves the messages of such a connection.
pub(in crate::store) type BoundedConnection = Connection<Bounded<Plain>, Bounded<Encrypted>>;

impl Target {
    /// Makes one such connection, with nothing set.
    pub(in crate::store) async fn connect_bounded(
        &self,
        timeout: Duration,
    ) -> Result<(Client, BoundedConnection), Error> {
        let connect = |config| connect(config, self.tls.clone());
        let opened = self.open_by(timeout, "", connect).await?;
        Ok((opened.client, opened.connection))
    }
}

/// To the one address of an endpoint.
async fn connect(config: Config, mut tls: MakeRustlsConnect) -> Result<(Client, BoundedConnection), Error> {
    let unreachable = |error: io::Error| Error::Unreachable { reason: error.to_string() };
    let port = config.get_ports().first().copied().unwrap_or(5432);
    let (stream, name) = match (config.get_hosts().first(), config.get_hostaddrs().first()) {
        (Some(Host::Unix(dir)), _) => {
            let path = dir.join(format!(".s.PGSQL.{port}"));
            (Either::Right(UnixStream::connect(path).await.map_err(unreachable)?), "")
        }
        (host, Some(address)) => {
            let stream = TcpStream::connect((*address, port)).await.map_err(unreachable)?;
            stream.set_nodelay(true).map_err(unreachable)?;
            (Either::Left(stream), if let Some(Host::Tcp(name)) = host { name.as_str() } else { "" })
        }
        (_, None) => return Err(Error::Unreachable { reason: "no address".to_owned() }),
    };
    // Whether it encrypts the server says in one byte, before its first message.
    let answer_bytes = if config.get_ssl_mode() == SslMode::Disable { 0 } else { 1 };
    let stream = Bounded { stream, header: Vec::new(), rest: answer_bytes };
    let tls =
        MakeTlsConnect::<Plain>::make_tls_connect(&mut tls, name).map_err(|error| Error::Tls(error.to_string()))?;
    config.connect_raw(stream, BoundedTls(tls)).await.map_err(|error| classify(&error))
}

/// A stream of messages of limited length.
pub(in crate::store) struct Bounded<S> {
    stream: S,
    /// Of the message that begins, as far as it is here.
    header: Vec<u8>,
    /// Bytes to come before the next message begins.
    rest: usize,
}

impl<S> Bounded<S> {
    /// Reads along what has come.
    fn follow(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        loop {
            let passed = self.rest.min(bytes.len());
            (self.rest, bytes) = (self.rest - passed, &bytes[passed..]);
            let Some((first, others)) = bytes.split_first() else { return Ok(()) };
            self.header.push(*first);
            bytes = others;
            if self.header.len() == HEADER_BYTES {
                let length = self.header[1..].iter().fold(0, |length, byte| length << 8 | u32::from(*byte));
                if length > MESSAGE_BYTES_MAX {
                    return Err(io::Error::other("a message of more than 1 MiB was to come"));
                }
                self.header.clear();
                // The length counts itself.
                self.rest = (length as usize).saturating_sub(HEADER_BYTES - 1);
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        Poll::Ready(self.follow(&buf.filled()[before..]))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: TlsStream + Unpin> TlsStream for Bounded<S> {
    fn channel_binding(&self) -> ChannelBinding {
        self.stream.channel_binding()
    }
}

/// Puts the bound above the encryption, where the messages are.
struct BoundedTls<T>(T);

impl<T> TlsConnect<Bounded<Plain>> for BoundedTls<T>
where
    T: TlsConnect<Plain>,
    T::Future: Send + 'static,
{
    type Stream = Bounded<T::Stream>;
    type Error = T::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Stream, T::Error>> + Send>>;

    fn connect(self, below: Bounded<Plain>) -> Self::Future {
        let encrypting = self.0.connect(below.stream);
        Box::pin(async { Ok(Bounded { stream: encrypting.await?, header: Vec::new(), rest: 0 }) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(length: u32) -> Vec<u8> {
        let mut bytes = vec![b'N'];
        bytes.extend(length.to_be_bytes());
        bytes.resize(1 + length as usize, b'x');
        bytes
    }

    #[test]
    fn messages_up_to_the_limit_pass_however_they_are_cut() {
        let bytes = [message(4), message(5), message(MESSAGE_BYTES_MAX), message(9)].concat();
        for part in [1, 3, 7, 4096, bytes.len()] {
            let mut bounded = Bounded { stream: (), header: Vec::new(), rest: 0 };
            assert!(bytes.chunks(part).all(|chunk| bounded.follow(chunk).is_ok()), "{part}");
            assert!(bounded.header.is_empty() && bounded.rest == 0, "{part}");
        }
    }

    #[test]
    fn a_longer_message_is_refused_as_soon_as_it_is_announced() {
        for part in [1, 4, 5, 14] {
            let bytes = [message(8), message(MESSAGE_BYTES_MAX + 1)].concat();
            let mut bounded = Bounded { stream: (), header: Vec::new(), rest: 0 };
            let refused_at = bytes.chunks(part).position(|chunk| bounded.follow(chunk).is_err());
            assert_eq!(refused_at, Some((9 + HEADER_BYTES - 1) / part), "{part}");
        }
    }
}
