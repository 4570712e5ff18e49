//! A throwaway Redis, where one is installed.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::leash::Leash;
use super::{LOOK_AGAIN, START_TIMEOUT, find_program, free_port};

/// A Redis of our own; gone when dropped, its directory too.
#[derive(Debug)]
pub(in crate::cli) struct Redis {
    leash: Leash,
    port: u16,
}

impl Redis {
    /// Starts one without persistence; `None` if `redis-server` is not installed.
    pub(in crate::cli) async fn start() -> Result<Option<Redis>> {
        let Some(program) = find_program("redis-server") else { return Ok(None) };
        let (program, port) = (program.display().to_string(), free_port()?);
        let mut leash = Leash::new("redis", None)?;
        let (dir, port_text) = (leash.path(""), port.to_string());
        let args = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port", &port_text, "--dir", &dir];
        leash.start(&[&[program.as_str()], &args[..]].concat(), "TERM")?;
        let server = Redis { leash, port };
        let began = Instant::now();
        while !server.answers().await {
            if began.elapsed() > START_TIMEOUT {
                bail!("the throwaway Redis does not answer:\n{}", server.leash.log_tail());
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Ok(Some(server))
    }

    /// How clients reach it.
    pub(in crate::cli) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    async fn answers(&self) -> bool {
        let Ok(client) = redis::Client::open(self.url()) else { return false };
        let connect = client.get_multiplexed_async_connection();
        let Ok(Ok(mut connection)) = tokio::time::timeout(Duration::from_secs(1), connect).await else { return false };
        redis::cmd("PING").query_async::<String>(&mut connection).await.is_ok()
    }
}
