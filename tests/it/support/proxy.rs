//! A TCP proxy that a test can turn against its own connections: slow, silent, half-open, cut.
//!
//! It carries bytes and knows no protocol, so it stands in front of Postgres, Redis and HTTP alike. The fault
//! applies to open and new connections from the moment it is set; [`Proxy::heal`] ends it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// What happens to bytes on their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: they pass.
    None,
    /// Each piece waits this long, in both directions.
    Delay(Duration),
    /// Nothing moves in either direction and nobody is told; what is under way arrives after healing, as
    /// TCP retransmits after a partition.
    BlackHole,
    /// Requests pass, replies vanish for good.
    SwallowReplies,
    /// The server's side is closed; the client's stays open and silent, for good: healing serves only new
    /// connections.
    HalfOpen,
    /// Connections are reset, new ones as soon as they are made.
    Reset,
}

/// A listener in front of one server. Ends with everything it carries when dropped.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    fault: watch::Sender<Fault>,
    /// Raised to end every connection that is open now.
    cut: watch::Sender<u64>,
    swallowed: Arc<AtomicU64>,
    accepting: AbortHandle,
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
        let path = Path { server, fault: faults, cut: cuts, swallowed: swallowed.clone() };
        let accepting = tokio::spawn(accept(listener, path)).abort_handle();
        Proxy { port, fault, cut, swallowed, accepting }
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

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    ToServer,
    ToClient,
}

async fn accept(listener: TcpListener, path: Path) {
    // Dropped with this task, and with it every connection.
    let mut carried = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        while carried.try_join_next().is_some() {}
        let mut path = path.clone();
        path.cut.mark_unchanged();
        carried.spawn(carry(client, path));
    }
}

/// Carries one connection until either side closes it or a test does.
async fn carry(client: TcpStream, mut path: Path) {
    path.fault.wait_for(|fault| *fault != Fault::BlackHole).await.expect("the proxy outlives its connections");
    if *path.fault.borrow() == Fault::Reset {
        return reset(client);
    }
    let Ok(server) = TcpStream::connect(path.server).await else { return };
    client.set_nodelay(true).expect("a TCP socket");
    server.set_nodelay(true).expect("a TCP socket");
    let (client_read, client_write) = client.into_split();
    let (server_read, server_write) = server.into_split();
    let mut cut = path.cut.clone();
    let mut watched = path.fault.clone();
    let carried = async {
        tokio::join!(
            pump(client_read, server_write, path.clone(), Way::ToServer),
            pump(server_read, client_write, path.clone(), Way::ToClient),
        )
    };
    tokio::pin!(carried);
    let broken = watched.wait_for(|fault| matches!(fault, Fault::HalfOpen | Fault::Reset));
    let ended = tokio::select! {
        halves = &mut carried => Some(halves),
        _cut = cut.changed() => None,
        _fault = broken => None,
    };
    let fault = *path.fault.borrow();
    if !matches!(fault, Fault::HalfOpen | Fault::Reset) {
        return;
    }
    // The halves are inside the pumps, which end when told of either fault and hand the client back.
    let ((client_read, server_write), (server_read, client_write)) = match ended {
        Some(halves) => halves,
        None => carried.await,
    };
    drop((server_write, server_read));
    let client = client_read.reunite(client_write).expect("halves of one socket");
    match fault {
        Fault::Reset => reset(client),
        _ => {
            // Held, not read, until the test cuts it or ends.
            let _cut = cut.changed().await;
            drop(client);
        }
    }
}

fn reset(stream: TcpStream) {
    stream.set_zero_linger().expect("a TCP socket");
    drop(stream);
}

/// Carries one direction until it ends or the connection is broken by a fault; hands the halves back.
async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut path: Path,
    way: Way,
) -> (OwnedReadHalf, OwnedWriteHalf) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let mut fault = path.fault.clone();
        let broken = fault.wait_for(|fault| matches!(fault, Fault::HalfOpen | Fault::Reset));
        let count = tokio::select! {
            read = from.read(&mut buffer) => read.unwrap_or(0),
            _broken = broken => return (from, to),
        };
        if count == 0 {
            // One side is done; the other may still have something to say. A socket already closed is closed.
            let _already_closed = to.shutdown().await;
            return (from, to);
        }
        let now = *path.fault.wait_for(|fault| *fault != Fault::BlackHole).await.expect("the proxy outlives it");
        match now {
            Fault::SwallowReplies if way == Way::ToClient => {
                path.swallowed.fetch_add(count as u64, Ordering::Relaxed);
                continue;
            }
            Fault::Delay(delay) => tokio::time::sleep(delay).await,
            Fault::HalfOpen | Fault::Reset => return (from, to),
            Fault::None | Fault::SwallowReplies | Fault::BlackHole => {}
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return (from, to);
        }
    }
}
