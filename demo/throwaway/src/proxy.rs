//! A TCP proxy that can be turned against the connections it carries: slow, silent, half-open, cut.
//!
//! It carries bytes and knows no protocol, so it stands in front of Postgres, Redis and HTTP alike. A fault applies to open
//! and new connections from the moment it is set; [`Proxy::heal`] ends it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

const BUFFER_BYTES: usize = 64 * 1024;

/// What happens to bytes on their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: they pass.
    None,
    /// Each piece waits this long, in both directions.
    Delay(Duration),
    /// Nothing moves in either direction and nobody is told; what is under way arrives after healing, as TCP retransmits
    /// after a partition.
    BlackHole,
    /// Requests pass, replies vanish for good.
    SwallowReplies,
    /// The server's side is closed; the client's stays open and silent, for good: healing serves only new connections.
    HalfOpen,
    /// Connections are reset, new ones as soon as they are made.
    Reset,
}

impl Fault {
    fn breaks(self) -> bool {
        matches!(self, Fault::HalfOpen | Fault::Reset)
    }
}

/// A listener in front of one server. Ends with everything it carries when dropped.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    fault: watch::Sender<Fault>,
    /// Raised to end every connection that is open now.
    cut: watch::Sender<u64>,
    swallowed: Arc<AtomicU64>,
    _accepting: AbortOnDropHandle<()>,
}

impl Proxy {
    /// In front of `127.0.0.1:port`.
    pub async fn start(port: u16) -> Proxy {
        Proxy::before(SocketAddr::from(([127, 0, 0, 1], port))).await
    }

    /// In front of any address.
    pub async fn before(server: SocketAddr) -> Proxy {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let (fault, faults) = watch::channel(Fault::None);
        let (cut, cuts) = watch::channel(0);
        let swallowed = Arc::new(AtomicU64::new(0));
        let path = Path { server, fault: faults, cut: cuts, swallowed: Arc::clone(&swallowed) };
        let accepting = AbortOnDropHandle::new(tokio::spawn(accept(listener, path)));
        Proxy { port, fault, cut, swallowed, _accepting: accepting }
    }

    /// On loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on.
    pub fn set(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }

    /// Bytes pass again.
    pub fn heal(&self) {
        self.set(Fault::None);
    }

    /// Closes every connection that is open now, on both sides; new ones are served.
    pub fn cut_all(&self) {
        self.cut.send_modify(|count| *count += 1);
    }

    /// Bytes of replies that vanished so far.
    pub fn swallowed(&self) -> u64 {
        self.swallowed.load(Ordering::Relaxed)
    }
}

/// What every connection is told.
#[derive(Debug, Clone)]
struct Path {
    server: SocketAddr,
    fault: watch::Receiver<Fault>,
    cut: watch::Receiver<u64>,
    swallowed: Arc<AtomicU64>,
}

async fn accept(listener: TcpListener, path: Path) {
    // Dropped with this task, and with it every connection.
    let mut carried = JoinSet::new();
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        while carried.try_join_next().is_some() {}
        let mut path = path.clone();
        path.cut.mark_unchanged();
        carried.spawn(carry(client, path));
    }
}

/// Carries one connection until either side closes it or it is broken.
async fn carry(mut client: TcpStream, mut path: Path) {
    // The sender is gone only together with this task.
    let Ok(now) = path.fault.wait_for(|now| *now != Fault::BlackHole).await.map(|now| *now) else { return };
    let connected = match now {
        Fault::Reset => None,
        _ => TcpStream::connect(path.server).await.ok(),
    };
    let Some(mut server) = connected else { return reset(client) };
    let broken = {
        let (_, _) = (client.set_nodelay(true), server.set_nodelay(true));
        let (mut client_read, mut client_write) = client.split();
        let (mut server_read, mut server_write) = server.split();
        let (there, back) = (path.clone(), path.clone());
        let pumps = async {
            tokio::join!(
                pump(&mut client_read, &mut server_write, there, Way::Request),
                pump(&mut server_read, &mut client_write, back, Way::Reply)
            )
        };
        tokio::select! {
            _ = pumps => None,
            _ = path.cut.changed() => None,
            broken = path.fault.wait_for(|now| now.breaks()) => broken.ok().map(|now| *now),
        }
    };
    drop(server);
    match broken {
        Some(Fault::Reset) => reset(client),
        // Held, not read, until it is cut or the proxy ends.
        Some(_) => drop(path.cut.changed().await),
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
async fn pump(from: &mut (impl AsyncRead + Unpin), to: &mut (impl AsyncWrite + Unpin), mut path: Path, way: Way) {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let count = from.read(&mut buffer).await.unwrap_or(0);
        let Ok(now) = path.fault.wait_for(|now| *now != Fault::BlackHole).await.map(|now| *now) else { return };
        if count == 0 {
            // The other side may still have something to say. A socket already closed is closed.
            let _ = to.shutdown().await;
            return;
        }
        match now {
            Fault::SwallowReplies if way == Way::Reply => {
                path.swallowed.fetch_add(count as u64, Ordering::Relaxed);
                continue;
            }
            Fault::Delay(delay) => tokio::time::sleep(delay).await,
            _ => {}
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
