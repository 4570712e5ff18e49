//! Directories and processes that cannot outlive us, however we end.
//!
//! Each is supervised by a small shell that reads from a pipe whose other end is in this process. When we end — normally,
//! by a panic, Ctrl-C or SIGKILL — the pipe closes, the shell ends its process and removes the directory. The shell makes
//! the directory itself, so there is no moment at which nobody would remove it. It has a process group of its own, so a
//! Ctrl-C in the terminal reaches only us.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::log_tail;

/// Each line on the pipe is an order, answered by one line; the pipe's end is the end. An answer that nobody reads any more
/// must not end the shell before it has cleaned up.
///
/// The stop signal is repeated each second: a process that has only just been started may ignore it still, as a shell's
/// background processes ignore QUIT until they say otherwise. After `$2` seconds the process is killed. A Postgres that is
/// killed leaves its sessions, which end when they notice, and a few bytes of shared memory until the machine restarts;
/// else it would stay, and so would whoever waits for its end. One that is not stuck never gets there: five seconds after
/// QUIT it kills the sessions that are left. What still runs may add files while the directory is removed.
const SCRIPT: &str = r#"
trap : PIPE
mkdir -m 700 -- "$1" && cd -- "$1" || exit 1
echo made
patience=$2 pid= stop_signal=
launch() { sh ./command </dev/null >>./log 2>&1 & pid=$!; }
stop() {
    trap 'kill "$nap"; exit' TERM
    while [ "$patience" -gt 0 ]; do
        kill -"$stop_signal" "$pid"
        kill -CONT "$pid"
        sleep 1 & nap=$!
        wait "$nap"
        patience=$((patience - 1))
    done
    kill -KILL "$pid"
}
while read -r order argument; do
    case $order in
    run) launch; wait "$pid"; echo "$?"; pid= ;;
    start) stop_signal=$argument; launch; echo "$pid" ;;
    signal) kill -"$argument" "$pid"; echo "$?" ;;
    reap) wait "$pid"; echo "$?"; pid= ;;
    esac
done 2>/dev/null
if [ -n "$pid" ]; then
    stop & stopping=$!
    wait "$pid"
    kill "$stopping"
    wait "$stopping"
fi 2>/dev/null
cd /
for attempt in 1 2 3 4 5; do
    rm -rf -- "$1" && break
    sleep 1
done
"#;

/// Seconds that a process may take to end after its stop signal.
const STOP_PATIENCE: u32 = 30;

/// The user and group a process runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User {
    /// The user's number.
    pub uid: u32,
    /// The group's number.
    pub gid: u32,
}

/// A directory of our own and at most one process in it; both are gone when this is dropped.
#[derive(Debug)]
pub struct Supervisor {
    shell: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    dir: PathBuf,
    pid: Option<u32>,
}

impl Supervisor {
    /// Makes the directory; the process in it will run as `user`.
    pub fn new(purpose: &str, user: Option<User>) -> Result<Supervisor> {
        Supervisor::with_patience(purpose, user, STOP_PATIENCE)
    }

    fn with_patience(purpose: &str, user: Option<User>, seconds: u32) -> Result<Supervisor> {
        let dir = std::env::temp_dir().join(format!("outboxd-{purpose}-{:016x}", rand::random::<u64>()));
        let mut command = Command::new("sh");
        command
            .args(["-c", SCRIPT, "supervisor"])
            .arg(&dir)
            .arg(seconds.to_string())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0);
        if let Some(user) = user {
            command.uid(user.uid).gid(user.gid);
        }
        let mut shell = command.spawn().context("sh does not start")?;
        let orders = shell.stdin.take();
        let answers = BufReader::new(shell.stdout.take().context("sh has no output")?);
        let mut supervisor = Supervisor { shell, orders, answers, dir, pid: None };
        let answer = supervisor.answer()?;
        ensure!(answer == "made", "cannot create {}", supervisor.dir.display());
        Ok(supervisor)
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A file in the directory.
    pub fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    /// Runs a command to its end; an error holds its last words.
    pub fn run(&mut self, command: &[&str]) -> Result<()> {
        self.write_command(command)?;
        let status = self.order("run")?;
        ensure!(status == "0", "{} failed:\n{}", command[0], self.log_tail());
        Ok(())
    }

    /// Starts the process that stays; `stop_signal` is what ends it quickly and safely. Returns its id.
    pub fn start(&mut self, command: &[&str], stop_signal: &str) -> Result<u32> {
        if self.pid.is_some() && !self.is_running() {
            // One that has ended keeps its id until it is waited for, and a server's lock file names that id.
            self.reap()?;
        }
        self.write_command(command)?;
        let pid = self.order(&format!("start {stop_signal}"))?;
        let pid = pid.parse().with_context(|| format!("{} does not start", command[0]))?;
        self.pid = Some(pid);
        Ok(pid)
    }

    /// Ends the process at once, as a crash would; the directory stays until this is dropped.
    pub fn kill(&mut self) -> Result<()> {
        self.signal("KILL")
    }

    /// Sends the process a signal, by its name without SIG.
    pub fn signal(&mut self, name: &str) -> Result<()> {
        let status = self.order(&format!("signal {name}"))?;
        ensure!(status == "0", "the process had ended before:\n{}", self.log_tail());
        Ok(())
    }

    /// The id of the process that stays, unless it was waited for.
    pub fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// Whether the process that stays was started and has not ended.
    pub fn is_running(&self) -> bool {
        let stat = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/stat")).ok();
        let Some(stat) = self.pid.and_then(stat) else { return false };
        // The state comes after the name, which may hold anything. Z: ended, and not asked for its status yet.
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    }

    /// Waits for the process's end; its exit status, 128 and the signal's number if a signal ended it.
    pub fn reap(&mut self) -> Result<i32> {
        self.pid = None;
        self.order("reap")?.parse().context("nothing was started")
    }

    /// The last lines that the processes wrote.
    pub fn log_tail(&self) -> String {
        log_tail(&self.dir.join("log"))
    }

    fn write_command(&self, command: &[&str]) -> Result<()> {
        let quoted: Vec<String> = command.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect();
        // The shell becomes the program, so the id it was started under is the program's own.
        std::fs::write(self.dir.join("command"), format!("exec {}\n", quoted.join(" ")))
            .with_context(|| format!("cannot write in {}", self.dir.display()))
    }

    fn order(&mut self, order: &str) -> Result<String> {
        let orders = self.orders.as_mut().context("the supervising shell has ended")?;
        orders.write_all(format!("{order}\n").as_bytes()).context("the supervising shell has ended")?;
        self.answer()
    }

    fn answer(&mut self) -> Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line).context("the supervising shell has ended")?;
        Ok(line.trim().to_owned())
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        drop(self.orders.take());
        // Nothing can be done about a shell that cannot be waited for.
        let _ = self.shell.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::{program, server_user};

    #[test]
    fn a_shell_whose_owner_was_killed_before_it_answered_removes_its_directory() {
        for orders in ["", "run\n", "start KILL\n"] {
            let dir = std::env::temp_dir().join(format!("outboxd-supervisor-{:016x}", rand::random::<u64>()));
            let (nobody, answers) = std::io::pipe().unwrap();
            drop(nobody);
            let mut shell = Command::new("sh")
                .args(["-c", SCRIPT, "supervisor"])
                .arg(&dir)
                .arg("1")
                .stdin(Stdio::piped())
                .stdout(answers)
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            shell.stdin.take().unwrap().write_all(orders.as_bytes()).unwrap();
            shell.wait().unwrap();
            assert!(!dir.exists(), "after {orders:?}");
        }
    }

    /// Starts a process that ignores its stop signal while `deaf` runs, and would run for ten seconds more; whether it is
    /// ended earlier by a supervisor with so much patience.
    fn is_ended(deaf: &str, patience_s: u32) -> bool {
        let evidence = Supervisor::new("evidence", None).unwrap();
        let outlived = evidence.path("outlived");
        let rest = format!("n=0; while [ $n -lt 100 ]; do n=$((n + 1)); sleep 0.1; done; : >{outlived}");
        let script = format!("trap '' TERM; : >deaf; {deaf}; trap - TERM; {rest}");
        let mut supervisor = Supervisor::with_patience("deaf", None, patience_s).unwrap();
        supervisor.start(&["sh", "-c", &script], "TERM").unwrap();
        while !supervisor.dir().join("deaf").exists() {
            std::thread::yield_now();
        }
        drop(supervisor);
        !Path::new(&outlived).exists()
    }

    #[test]
    fn a_process_that_ignores_its_stop_signal_at_first_is_ended_nevertheless() {
        assert!(is_ended("sleep 1", STOP_PATIENCE));
    }

    #[test]
    fn a_process_that_never_minds_its_stop_signal_is_killed() {
        let script = "n=0; while [ $n -lt 100 ]; do n=$((n + 1)); sleep 0.1; done";
        assert!(is_ended(script, 1));
    }

    #[test]
    fn a_postgres_that_is_stopped_as_soon_as_it_is_started_ends() {
        let server_user = server_user().unwrap();
        let mut cluster = Supervisor::new("cluster", server_user).unwrap();
        let data = cluster.path("data");
        cluster.run(&[&program("initdb").unwrap(), "-A", "trust", "-N", "-D", &data]).unwrap();
        for _ in 0..10 {
            let mut supervisor = Supervisor::new("stopped", server_user).unwrap();
            let sockets = format!("unix_socket_directories={}", supervisor.dir().display());
            let settings = ["-D", &data, "-c", "listen_addresses=", "-c", &sockets];
            supervisor.start(&[&[program("postgres").unwrap().as_str()], &settings[..]].concat(), "QUIT").unwrap();
        }
        assert!(!Path::new(&data).join("postmaster.pid").exists(), "one is left");
    }
}
