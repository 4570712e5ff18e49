//! What a provider does with a request: answers, or misbehaves.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// What the provider does with a request that it has written down.
#[derive(Debug, Clone)]
pub struct Reply {
    delay: Duration,
    act: Act,
}

#[derive(Debug, Clone)]
enum Act {
    Answer { status: u16, headers: Vec<(String, String)>, body: Vec<u8>, then_close: bool },
    Hang,
    Reset,
    Close,
    Drip { status: u16 },
    Endless { status: u16 },
    Raw(Vec<u8>),
}

impl Reply {
    fn new(act: Act) -> Reply {
        Reply { delay: Duration::ZERO, act }
    }

    /// An answer with this status and no body.
    pub fn status(status: u16) -> Reply {
        Reply::new(Act::Answer { status, headers: Vec::new(), body: Vec::new(), then_close: false })
    }

    /// 200.
    pub fn ok() -> Reply {
        Reply::status(200)
    }

    /// A redirect to somewhere else.
    pub fn redirect(status: u16, to: &str) -> Reply {
        Reply::status(status).header("location", to)
    }

    /// 64 KiB of gzip that unpack to 10 MB of zeros.
    pub fn gzip_bomb(status: u16) -> Reply {
        Reply::status(status).header("content-encoding", "gzip").body(gzip_of_zeros(40_000))
    }

    /// Reads everything, answers nothing, keeps the connection.
    pub fn hang() -> Reply {
        Reply::new(Act::Hang)
    }

    /// Reads everything, then resets the connection (RST).
    pub fn reset() -> Reply {
        Reply::new(Act::Reset)
    }

    /// Reads everything, then closes the connection (FIN) without an answer.
    pub fn close() -> Reply {
        Reply::new(Act::Close)
    }

    /// Answers with a body of one byte per second, a thousand of them.
    pub fn drip(status: u16) -> Reply {
        Reply::new(Act::Drip { status })
    }

    /// Answers with a body that never ends, as fast as it is read.
    pub fn endless(status: u16) -> Reply {
        Reply::new(Act::Endless { status })
    }

    /// Writes these bytes and closes.
    pub fn raw(bytes: &[u8]) -> Reply {
        Reply::new(Act::Raw(bytes.to_vec()))
    }

    /// Waits first.
    pub fn after(self, delay: Duration) -> Reply {
        Reply { delay, ..self }
    }

    pub fn header(mut self, name: &str, value: &str) -> Reply {
        if let Act::Answer { headers, .. } = &mut self.act {
            headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    pub fn body(mut self, bytes: impl Into<Vec<u8>>) -> Reply {
        if let Act::Answer { body, .. } = &mut self.act {
            *body = bytes.into();
        }
        self
    }

    /// Closes the connection after the answer without having said so: the next request on it meets a FIN.
    pub fn then_close(mut self) -> Reply {
        if let Act::Answer { then_close, .. } = &mut self.act {
            *then_close = true;
        }
        self
    }

    /// The status that it answers with, if it answers.
    pub fn answers(&self) -> Option<u16> {
        match self.act {
            Act::Answer { status, .. } | Act::Drip { status } | Act::Endless { status } => Some(status),
            Act::Hang | Act::Reset | Act::Close | Act::Raw(_) => None,
        }
    }

    pub(super) fn is_answer(&self) -> bool {
        matches!(self.act, Act::Answer { .. })
    }

    /// As long as it was told to.
    pub(super) async fn wait(&self) {
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
    }

    /// Does what was asked, and counts the bytes of endless bodies; true if the connection goes on.
    pub(super) async fn act(self, stream: &mut TcpStream, streamed: &AtomicU64) -> std::io::Result<bool> {
        match self.act {
            Act::Answer { status, headers, body, then_close } => {
                let mut head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n", body.len());
                headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
                stream.write_all(&[head.as_bytes(), b"\r\n", &body].concat()).await?;
                return Ok(!then_close);
            }
            Act::Hang => std::future::pending().await,
            Act::Reset => stream.set_zero_linger()?,
            Act::Close => {}
            Act::Drip { status } => {
                stream.write_all(format!("HTTP/1.1 {status} X\r\ncontent-length: 1000\r\n\r\n").as_bytes()).await?;
                for _ in 0..1000 {
                    stream.write_all(b"x").await?;
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
            Act::Endless { status } => {
                let head = format!("HTTP/1.1 {status} X\r\ntransfer-encoding: chunked\r\n\r\n");
                stream.write_all(head.as_bytes()).await?;
                let chunk = [b"4000\r\n".as_slice(), &[b'x'; 0x4000], b"\r\n"].concat();
                loop {
                    stream.write_all(&chunk).await?;
                    streamed.fetch_add(chunk.len() as u64, Ordering::SeqCst);
                }
            }
            Act::Raw(bytes) => stream.write_all(&bytes).await?,
        }
        Ok(false)
    }
}

/// A gzip stream of one zero and then `matches` times "258 bytes as the last one", 13 bits each.
fn gzip_of_zeros(matches: usize) -> Vec<u8> {
    let fixed_block = "110";
    let literal_zero = "00110000";
    let length_258_distance_1 = "1100010100000";
    let end = "0000000";
    let bits: Vec<u8> = [fixed_block, literal_zero, &length_258_distance_1.repeat(matches), end].concat().into_bytes();
    let byte = |bits: &[u8]| bits.iter().enumerate().fold(0, |byte, (place, bit)| byte | (bit - b'0') << place);
    [b"\x1f\x8b\x08\0\0\0\0\0\0\x03".to_vec(), bits.chunks(8).map(byte).collect()].concat()
}
