//! Servers that cannot outlive the test run, however it ends.
//!
//! Each server runs under a small shell that holds the read end of a pipe whose write end is in this
//! process. When this process ends — normally, by a panic, Ctrl-C or SIGKILL — the pipe closes, the shell
//! ends the server and removes its directory. The shell has a process group of its own, so a Ctrl-C in the
//! terminal reaches only the tests.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A server process on a leash.
#[derive(Debug)]
pub struct Leashed {
    shell: Child,
    pipe: Option<ChildStdin>,
    pid: i32,
}

/// `stop_signal` is what ends the server quickly and safely; `remove` is deleted after it has ended.
const SCRIPT: &str = r#"
log=$1; stop_signal=$2; remove=$3; shift 3
"$@" </dev/null >>"$log" 2>&1 &
pid=$!
echo "$pid"
exec >/dev/null
cat >/dev/null
kill -"$stop_signal" "$pid" 2>/dev/null
kill -CONT "$pid" 2>/dev/null
wait "$pid"
[ -z "$remove" ] || rm -rf -- "$remove"
"#;

/// Starts `command` with its output in `log`.
pub fn leash(command: &[String], log: &Path, stop_signal: &str, remove: Option<&Path>) -> Leashed {
    let mut shell = Command::new("sh")
        .args(["-c", SCRIPT, "leash"])
        .arg(log)
        .arg(stop_signal)
        .arg(remove.unwrap_or(Path::new("")))
        .args(command)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .expect("sh starts");
    let mut line = String::new();
    let stdout = shell.stdout.take().expect("stdout is piped");
    BufReader::new(stdout).read_line(&mut line).expect("the shell tells the pid");
    let pid = line.trim().parse().expect("a pid");
    let pipe = shell.stdin.take();
    Leashed { shell, pipe, pid }
}

impl Leashed {
    /// The server's own process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Sends a signal to the server (SIGKILL, SIGSTOP, SIGCONT …).
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid), signal).expect("the server is still ours to signal");
    }
}

impl Drop for Leashed {
    fn drop(&mut self) {
        drop(self.pipe.take());
        self.shell.wait().expect("the leash's shell ends");
    }
}

/// A loopback port that was free a moment ago.
pub fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).expect("a free port").local_addr().expect("its address").port()
}

/// A new directory under the system's temporary one; whoever runs the server inside removes it.
pub fn scratch_dir(purpose: &str) -> PathBuf {
    tempfile::Builder::new().prefix(&format!("outboxd-{purpose}-")).tempdir().expect("a temporary directory").keep()
}

/// The last lines of a server's log, for a panic message.
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
