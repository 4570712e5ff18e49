//! A throwaway Redis, where one is installed.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::leash::Leash;
use super::{LOOK_AGAIN, START_TIMEOUT, find_program, free_port};

const PONG: [u8; 7] = *b"+PONG\r\n";
const PING_TIMEOUT: Duration = Duration::from_secs(1);

/// A Redis of our own; gone when dropped, its directory too.
#[derive(Debug)]
pub struct Redis {
    leash: Leash,
    port: u16,
    program: String,
}

impl Redis {
    /// Starts one without persistence; `None` if `redis-server` is not installed.
    pub async fn start() -> Result<Option<Redis>> {
        let Some(program) = find_program("redis-server") else { return Ok(None) };
        let (leash, port) = (Leash::new("redis", None)?, free_port()?);
        let mut server = Redis { leash, port, program: program.display().to_string() };
        server.restart(&[]).await?;
        Ok(Some(server))
    }

    /// Starts it again on its port, empty, with more arguments, and waits until it answers. It must have ended.
    pub async fn restart(&mut self, more: &[&str]) -> Result<()> {
        let (dir, port_text) = (self.leash.path(""), self.port.to_string());
        let args = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port", &port_text, "--dir", &dir];
        self.leash.start(&[&[self.program.as_str()], &args[..], more].concat(), "TERM")?;
        let began = Instant::now();
        while !self.answers().await {
            if began.elapsed() > START_TIMEOUT {
                bail!("the throwaway Redis does not answer:\n{}", self.leash.log_tail());
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }

    /// Ends it at once, as a crash would.
    pub async fn kill(&mut self) -> Result<()> {
        self.leash.kill()?;
        while self.leash.is_running() {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }

    /// How clients reach it.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    async fn answers(&self) -> bool {
        let answer = tokio::time::timeout(PING_TIMEOUT, ping(self.port)).await;
        matches!(answer, Ok(Ok(PONG)))
    }
}

async fn ping(port: u16) -> std::io::Result<[u8; PONG.len()]> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.write_all(b"PING\r\n").await?;
    let mut answer = [0; PONG.len()];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}
