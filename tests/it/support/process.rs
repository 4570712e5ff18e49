//! Processes of the tests: servers under a [`Supervisor`], which ends them however the test run ends.

use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use outboxd_throwaway::postgres::server_user;
use outboxd_throwaway::supervisor::Supervisor;

/// A directory for a server.
pub fn supervisor(purpose: &str) -> Supervisor {
    Supervisor::new(purpose, None).expect("a directory and a shell")
}

/// The same for servers that refuse to run as root: they run, and own their directory, as the user postgres.
pub fn supervisor_as_postgres(purpose: &str) -> Supervisor {
    Supervisor::new(purpose, server_user().expect("a user to run Postgres as")).expect("a directory and a shell")
}

/// Sends a signal (SIGKILL, SIGSTOP, SIGCONT …).
pub fn signal(pid: u32, signal: Signal) -> nix::Result<()> {
    kill(Pid::from_raw(pid.try_into().expect("a process id")), signal)
}

/// A loopback port that was free a moment ago.
pub fn free_port() -> u16 {
    outboxd_throwaway::free_port().expect("a free port")
}

/// A new directory under the system's temporary one; whoever makes it removes it.
pub fn scratch_dir(purpose: &str) -> PathBuf {
    tempfile::Builder::new().prefix(&format!("outboxd-{purpose}-")).tempdir().expect("a temporary directory").keep()
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
