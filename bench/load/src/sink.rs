//! A provider that answers at once: the least HTTP server that keep-alive clients are content with, on a thread of its
//! own, so that its cost can be told from ours.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};

/// The thread's name, by which its CPU time is found; at most 15 characters.
pub(super) const THREAD: &str = "bench-sink";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
/// A request of ours is well below.
const REQUEST_BYTES_MAX: usize = 64 * 1024;

/// When each notification arrived first, and how many requests there were.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    /// By notification.
    pub(super) first: HashMap<i64, Instant>,
    /// Repeats included.
    pub(super) requests: usize,
}

/// The running sink; it stops when dropped.
#[derive(Debug)]
pub(super) struct Sink {
    addr: SocketAddr,
    arrivals: Arc<Mutex<Arrivals>>,
    _stop: DropGuard,
}

impl Sink {
    /// Starts it on a free loopback port.
    pub(super) fn start() -> Result<Sink> {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).context("no free port on 127.0.0.1")?;
        listener.set_nonblocking(true)?;
        let addr = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let arrivals = Arc::new(Mutex::new(Arrivals::default()));
        let (stop, written) = (CancellationToken::new(), Arc::clone(&arrivals));
        let until = stop.clone();
        // Ends by itself once the sink is dropped.
        std::thread::Builder::new().name(THREAD.into()).spawn(move || {
            runtime.block_on(until.run_until_cancelled(accept(listener, written)));
        })?;
        Ok(Sink { addr, arrivals, _stop: stop.drop_guard() })
    }

    /// Where to send.
    pub(super) fn url(&self) -> String {
        format!("http://{}/", self.addr)
    }

    /// How many notifications have arrived.
    pub(super) fn arrived(&self) -> usize {
        self.lock().first.len()
    }

    /// What has arrived so far; starts anew.
    pub(super) fn take(&self) -> Arrivals {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Arrivals> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn accept(listener: std::net::TcpListener, arrivals: Arc<Mutex<Arrivals>>) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    while let Ok((stream, _)) = listener.accept().await {
        let arrivals = Arc::clone(&arrivals);
        // A client that goes away ends its connection's task.
        tokio::spawn(async move { serve(stream, &arrivals).await });
    }
}

async fn serve(mut stream: TcpStream, arrivals: &Mutex<Arrivals>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(4096);
    loop {
        let Some(length) = request_length(&buffer) else {
            if buffer.len() > REQUEST_BYTES_MAX || stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
            continue;
        };
        if let Some(id) = notification_id(&buffer[..length]) {
            let mut arrivals = arrivals.lock().unwrap_or_else(PoisonError::into_inner);
            arrivals.requests += 1;
            arrivals.first.entry(id).or_insert_with(Instant::now);
        }
        buffer.drain(..length);
        stream.write_all(ANSWER).await?;
    }
}

/// The bytes of the first request, once all of it is there.
fn request_length(buffer: &[u8]) -> Option<usize> {
    let head = find(buffer, b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&buffer[..head]).ok()?;
    let length = text.lines().filter_map(|line| line.split_once(':')).find_map(|(name, value)| {
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let whole = head + length.unwrap_or(0);
    (buffer.len() >= whole).then_some(whole)
}

/// The standard envelope begins with it.
fn notification_id(request: &[u8]) -> Option<i64> {
    let start = find(request, b"{\"id\":")? + 6;
    let digits = request[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&request[start..start + digits]).ok()?.parse().ok()
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_taken_once_it_is_whole() {
        let request = b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n{\"id\":42}GET";
        let whole = request.len() - 3;
        assert_eq!(request_length(request), Some(whole));
        assert_eq!(request_length(&request[..whole - 1]), None);
        assert_eq!(notification_id(&request[..whole]), Some(42));
    }
}
