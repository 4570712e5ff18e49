//! A TCP proxy between one instance and one server. It carries bytes and knows no protocol. A fault applies to open and
//! new connections from the moment it is set.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

const BUFFER_BYTES: usize = 64 * 1024;

/// What happens to bytes on their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Weather {
    /// They pass.
    Fine,
    /// Nothing moves and nobody is told; what is under way arrives afterwards, as after a partition.
    Silent,
    /// Requests pass, replies vanish.
    Swallow,
    /// The server's side is closed; the client's stays open and silent for good, also afterwards.
    HalfOpen,
    /// Connections are reset, new ones as soon as they are made.
    Reset,
}

impl Weather {
    fn breaks(self) -> bool {
        matches!(self, Weather::HalfOpen | Weather::Reset)
    }
}

/// A listener in front of one server. Ends with everything it carries when dropped.
#[derive(Debug)]
pub(super) struct Proxy {
    port: u16,
    weather: watch::Sender<Weather>,
    _accepting: AbortOnDropHandle<()>,
}

impl Proxy {
    /// In front of `127.0.0.1:port`.
    pub(super) async fn start(server_port: u16) -> Result<Proxy> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("no free port on 127.0.0.1")?;
        let port = listener.local_addr()?.port();
        let weather = watch::Sender::new(Weather::Fine);
        let server = SocketAddr::from(([127, 0, 0, 1], server_port));
        let accepting = AbortOnDropHandle::new(tokio::spawn(accept(listener, server, weather.subscribe())));
        Ok(Proxy { port, weather, _accepting: accepting })
    }

    /// On loopback.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// From now on.
    pub(super) fn set(&self, weather: Weather) {
        self.weather.send_replace(weather);
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, weather: watch::Receiver<Weather>) {
    // Dropped with this task, and with it every connection.
    let mut carried = JoinSet::new();
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        while carried.try_join_next().is_some() {}
        carried.spawn(carry(client, server, weather.clone()));
    }
}

/// Carries one connection until either side closes it or a fault breaks it.
async fn carry(mut client: TcpStream, server: SocketAddr, mut weather: watch::Receiver<Weather>) {
    // The sender is gone only together with this task.
    let Ok(now) = weather.wait_for(|now| *now != Weather::Silent).await.map(|now| *now) else { return };
    let connected = match now {
        Weather::Reset => None,
        _ => TcpStream::connect(server).await.ok(),
    };
    let Some(mut server) = connected else { return reset(client) };
    let broken = {
        let (_, _) = (client.set_nodelay(true), server.set_nodelay(true));
        let (mut client_read, mut client_write) = client.split();
        let (mut server_read, mut server_write) = server.split();
        let (there, back) = (weather.clone(), weather.clone());
        let pumps = async {
            tokio::join!(
                pump(&mut client_read, &mut server_write, there, Way::Request),
                pump(&mut server_read, &mut client_write, back, Way::Reply)
            )
        };
        tokio::select! {
            _ = pumps => None,
            broken = weather.wait_for(|now| now.breaks()) => broken.ok().map(|now| *now),
        }
    };
    drop(server);
    match broken {
        Some(Weather::Reset) => reset(client),
        // Held, not read, until the proxy ends.
        Some(_) => std::future::pending().await,
        None => {}
    }
}

fn reset(stream: TcpStream) {
    // A socket that cannot be told to reset is closed all the same.
    let _ = stream.set_zero_linger();
    drop(stream);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Request,
    Reply,
}

/// Carries one direction until it ends.
async fn pump(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    mut weather: watch::Receiver<Weather>,
    way: Way,
) {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let count = from.read(&mut buffer).await.unwrap_or(0);
        let Ok(now) = weather.wait_for(|now| *now != Weather::Silent).await.map(|now| *now) else { return };
        if count == 0 {
            // The other side may still have something to say. A socket already closed is closed.
            let _ = to.shutdown().await;
            return;
        }
        if now == Weather::Swallow && way == Way::Reply {
            continue;
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
