//! Servers that cannot outlive the test run, however it ends: each on a [`Leash`], in a directory of its own.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
pub use outboxd_throwaway::leash::Leash;
use outboxd_throwaway::postgres::server_user;

/// A directory for a server.
pub fn leash(purpose: &str) -> Leash {
    Leash::new(purpose, None).expect("a directory and a shell")
}

/// The same for servers that refuse to run as root: they run, and own their directory, as the user postgres.
pub fn leash_as_postgres(purpose: &str) -> Leash {
    Leash::new(purpose, server_user().expect("a user to run Postgres as")).expect("a directory and a shell")
}

/// The id of the server on this leash.
pub fn pid(leash: &Leash) -> i32 {
    leash.pid().expect("it was started").try_into().expect("a process id")
}

/// Sends a signal to the server on this leash (SIGKILL, SIGSTOP, SIGCONT …).
pub fn signal(leash: &Leash, signal: Signal) {
    kill(Pid::from_raw(pid(leash)), signal).expect("the server is still ours to signal");
}

/// A loopback port that was free a moment ago.
pub fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).expect("a free port").local_addr().expect("its address").port()
}

/// A new directory under the system's temporary one; whoever makes it removes it.
pub fn scratch_dir(purpose: &str) -> PathBuf {
    tempfile::Builder::new().prefix(&format!("outboxd-{purpose}-")).tempdir().expect("a temporary directory").keep()
}

/// The last lines of a log, for a panic message.
pub fn log_tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

/// The processor time a process has taken so far; nothing, if it is gone.
pub fn cpu_time(pid: i32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // After its name, which may hold anything: the state, ten more, then time in user mode and in the kernel.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    // Linux counts in hundredths of a second.
    Duration::from_millis(ticks * 10)
}
