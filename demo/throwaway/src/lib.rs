//! What the demo, the load generator, the soak and the tests stand on: servers, instances, a provider, a faulty network, and
//! the verdict. All on free loopback ports, in directories of their own, gone with us.
#![allow(missing_docs)] // most names here say it

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

pub mod clock;
pub mod evidence;
pub mod http;
pub mod instance;
pub mod postgres;
pub mod prometheus;
pub mod provider;
pub mod proxy;
pub mod redis;
pub mod scratch;
pub mod supervisor;
pub mod verdict;

/// How long a server may take to answer for the first time on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How often it is asked meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Where servers are kept that are on root's PATH only.
const SYSTEM_DIRS: [&str; 4] = ["/usr/local/bin", "/usr/local/sbin", "/usr/sbin", "/sbin"];

/// A loopback port that was free a moment ago.
pub fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("no free port on 127.0.0.1")?;
    Ok(listener.local_addr()?.port())
}

/// Asks until it is so; an error, or `patience` that ends, is one.
pub async fn until<F>(what: &str, patience: Duration, mut ask: impl FnMut() -> F) -> Result<()>
where
    F: Future<Output = Result<bool>>,
{
    let began = Instant::now();
    while !ask().await? {
        ensure!(began.elapsed() < patience, "not within {patience:?}: {what}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

/// The last lines of a log, for a message.
pub fn log_tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

/// A program on PATH, or where distributions keep servers.
fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain(SYSTEM_DIRS.map(PathBuf::from));
    dirs.map(|dir| dir.join(name)).find(|program| program.is_file())
}
