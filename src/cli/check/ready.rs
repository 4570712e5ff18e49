//! Asking a running instance whether it is ready, for images that hold no curl.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, anyhow};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::cli::{Exit, Failure, print};

/// Shorter than the time a container platform gives a probe.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) async fn run(addr: SocketAddr) -> Result<Exit, Failure> {
    let addr = reachable(addr);
    let asked = tokio::time::timeout(PATIENCE, ask(addr, "/readyz")).await;
    let status = asked.map_err(|_| anyhow!("no answer from {addr} within {PATIENCE:?}")).and_then(|status| status);
    match status {
        Ok(200) => {
            print("ready\n")?;
            Ok(Exit::Clean)
        }
        Ok(status) => Err(Failure::new(Exit::Unavailable, anyhow!("the instance on {addr} is not ready ({status})"))),
        Err(error) => Err(Failure::new(Exit::Unavailable, error)),
    }
}

/// Whether what listens there is an instance of ours.
pub(super) async fn is_alive(addr: SocketAddr) -> bool {
    matches!(tokio::time::timeout(PATIENCE, ask(reachable(addr), "/livez")).await, Ok(Ok(200)))
}

/// Where an instance that listens everywhere can be called from the same machine.
fn reachable(addr: SocketAddr) -> SocketAddr {
    let ip = match addr.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, addr.port())
}

async fn ask(addr: SocketAddr, path: &str) -> anyhow::Result<u16> {
    let mut stream = TcpStream::connect(addr).await.with_context(|| format!("no instance answers on {addr}"))?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut response = Vec::new();
    // The status line is all that is of interest.
    stream.take(4096).read_to_end(&mut response).await?;
    let text = String::from_utf8_lossy(&response);
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
    status.with_context(|| format!("what answers on {addr} does not speak HTTP"))
}
