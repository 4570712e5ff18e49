//! A throwaway Redis, where one is installed.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::supervisor::Supervisor;
use super::{POLL_INTERVAL, START_TIMEOUT, find_program, free_port};

const PING_TIMEOUT: Duration = Duration::from_secs(1);

/// A Redis of our own; gone when dropped, its directory too. Everything here blocks for the moment it takes.
#[derive(Debug)]
pub struct Redis {
    supervisor: Supervisor,
    port: u16,
    program: String,
    args: Vec<String>,
}

impl Redis {
    /// Starts one without persistence; `None` if `redis-server` is not installed.
    pub fn start() -> Result<Option<Redis>> {
        let Some(mut server) = Redis::new()? else { return Ok(None) };
        server.restart()?;
        Ok(Some(server))
    }

    /// One that is not started yet; `None` if there is no server `OUTBOXD_TEST_REDIS_SERVER` (another version, or Valkey),
    /// nor a `redis-server`.
    pub fn new() -> Result<Option<Redis>> {
        let named = std::env::var_os("OUTBOXD_TEST_REDIS_SERVER").map(PathBuf::from);
        let Some(program) = named.or_else(|| find_program("redis-server")) else { return Ok(None) };
        let (supervisor, port) = (Supervisor::new("redis", None)?, free_port()?);
        Ok(Some(Redis { supervisor, port, program: program.display().to_string(), args: Vec::new() }))
    }

    /// Further arguments of `redis-server` for the next starts; the last word counts.
    pub fn set_args(&mut self, args: &[&str]) {
        self.args = args.iter().map(ToString::to_string).collect();
    }

    /// Starts it, again on its port with whatever it left on disk, and waits until it answers. It must not run.
    pub fn restart(&mut self) -> Result<()> {
        self.launch()?;
        let began = Instant::now();
        while !self.answers() {
            if began.elapsed() > START_TIMEOUT {
                bail!("the throwaway Redis does not answer:\n{}", self.supervisor.log_tail());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// The same without waiting for it to answer.
    pub fn launch(&mut self) -> Result<()> {
        let (dir, port) = (self.supervisor.path(""), self.port.to_string());
        let own = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port", &port, "--dir", &dir];
        let own = [self.program.as_str()].into_iter().chain(own);
        let command: Vec<&str> = own.chain(self.args.iter().map(String::as_str)).collect();
        self.supervisor.start(&command, "TERM").map(|_| ())
    }

    /// Ends it at once, as a crash would.
    pub fn kill(&mut self) -> Result<()> {
        self.supervisor.kill()?;
        while self.supervisor.is_running() {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Its process.
    pub fn pid(&self) -> Result<u32> {
        self.supervisor.pid().context("it was not started")
    }

    /// How clients reach it.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        self.supervisor.dir()
    }

    /// One that refuses this user answers too; one that still loads its data does not.
    fn answers(&self) -> bool {
        ping(self.port).is_ok_and(|answer| ["+PONG", "-NOPERM", "-NOAUTH"].iter().any(|text| answer.starts_with(text)))
    }
}

fn ping(port: u16) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&SocketAddr::from(([127, 0, 0, 1], port)), PING_TIMEOUT)?;
    stream.set_read_timeout(Some(PING_TIMEOUT))?;
    stream.write_all(b"PING\r\n")?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    Ok(answer)
}
