//! A client of our own endpoints: plain HTTP/1.1, one request a connection, nothing hidden.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longer than any answer of ours may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// An answer as it arrived.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    head: String,
    pub body: String,
}

impl Answer {
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        fields.into_iter().find(|(given, _)| given.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// GET with further header lines.
pub async fn get(addr: SocketAddr, path: &str, headers: &[&str]) -> Answer {
    ask(addr, "GET", path, headers).await
}

/// Any method; the request has no body.
pub async fn ask(addr: SocketAddr, method: &str, path: &str, headers: &[&str]) -> Answer {
    let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|line| line.starts_with("Host:")) {
        head.push_str(&format!("Host: {addr}\r\n"));
    }
    headers.iter().for_each(|line| head.push_str(&format!("{line}\r\n")));
    head.push_str("\r\n");
    answer(&send(addr, head.as_bytes()).await)
}

fn answer(answer: &str) -> Answer {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no HTTP: {answer:?}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    Answer { status, head: head.to_owned(), body: unchunk(head, body) }
}

/// Sends these bytes and reads until the other side closes.
pub async fn send(addr: SocketAddr, bytes: &[u8]) -> String {
    let exchange = async {
        let mut stream = TcpStream::connect(addr).await.expect("somebody listens");
        stream.write_all(bytes).await.expect("it is sent");
        let mut answer = Vec::new();
        // A reset counts as closing: the server may close while we still write.
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8(answer).expect("text")
    };
    tokio::time::timeout(PATIENCE, exchange).await.expect("an answer, or an end, in time")
}

fn unchunk(head: &str, body: &str) -> String {
    if !head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        return body.to_owned();
    }
    let (mut rest, mut whole) = (body, String::new());
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("a chunk's size");
        whole.push_str(&after[..size]);
        rest = after[size..].trim_start_matches("\r\n");
        if size == 0 {
            break;
        }
    }
    whole
}

/// A request with a JSON body.
pub async fn post(addr: SocketAddr, path: &str, headers: &[&str], body: &str) -> Answer {
    post_bytes(addr, path, &[headers, &["Content-Type: application/json"]].concat(), body.as_bytes()).await
}

/// A request with any body.
pub async fn post_bytes(addr: SocketAddr, path: &str, headers: &[&str], body: &[u8]) -> Answer {
    let mut request = format!("POST {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    if !headers.iter().any(|line| line.starts_with("Host:")) {
        request.push_str(&format!("Host: {addr}\r\n"));
    }
    headers.iter().for_each(|line| request.push_str(&format!("{line}\r\n")));
    request.push_str("\r\n");
    answer(&send(addr, &[request.as_bytes(), body].concat()).await)
}
