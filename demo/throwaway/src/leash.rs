//! Directories and processes that cannot outlive us, however we end.
//!
//! Each lives under a small shell that reads from a pipe whose other end is in this process. When we end — normally, by
//! a panic, Ctrl-C or SIGKILL — the pipe closes, the shell ends its process and removes the directory. The shell makes
//! the directory itself, so there is no moment at which nobody would remove it. It has a process group of its own, so a
//! Ctrl-C in the terminal reaches only us.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};

/// Each line on the pipe is an order, answered by one line; the pipe's end is the end. An answer that nobody reads any more
/// must not end the shell before it has cleaned up.
const SCRIPT: &str = r#"
trap : PIPE
mkdir -m 700 -- "$1" && cd -- "$1" || exit 1
echo made
pid= stop_signal=
launch() { sh ./command </dev/null >>./log 2>&1 & pid=$!; }
while read -r order argument; do
    case $order in
    run) launch; wait "$pid"; echo "$?"; pid= ;;
    start) stop_signal=$argument; launch; echo "$pid" ;;
    signal) kill -"$argument" "$pid"; echo "$?" ;;
    reap) wait "$pid"; echo "$?"; pid= ;;
    esac
done 2>/dev/null
if [ -n "$pid" ]; then
    kill -"$stop_signal" "$pid"
    kill -CONT "$pid"
    wait "$pid"
fi 2>/dev/null
cd / && rm -rf -- "$1"
"#;

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
pub struct Leash {
    shell: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    dir: PathBuf,
    pid: Option<u32>,
}

impl Leash {
    /// Makes the directory; the process in it will run as `user`.
    pub fn new(purpose: &str, user: Option<User>) -> Result<Leash> {
        let dir = std::env::temp_dir().join(format!("outboxd-{purpose}-{:016x}", rand::random::<u64>()));
        let mut command = Command::new("sh");
        command
            .args(["-c", SCRIPT, "leash"])
            .arg(&dir)
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
        let mut leash = Leash { shell, orders, answers, dir, pid: None };
        let answer = leash.answer()?;
        ensure!(answer == "made", "cannot create {}", leash.dir.display());
        Ok(leash)
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
        let text = std::fs::read_to_string(self.dir.join("log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    fn write_command(&self, command: &[&str]) -> Result<()> {
        let quoted: Vec<String> = command.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect();
        // The shell becomes the program, so the id it was started under is the program's own.
        std::fs::write(self.dir.join("command"), format!("exec {}\n", quoted.join(" ")))
            .with_context(|| format!("cannot write in {}", self.dir.display()))
    }

    fn order(&mut self, order: &str) -> Result<String> {
        let orders = self.orders.as_mut().context("the leash is cut")?;
        orders.write_all(format!("{order}\n").as_bytes()).context("the leash is cut")?;
        self.answer()
    }

    fn answer(&mut self) -> Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line).context("the leash is cut")?;
        Ok(line.trim().to_owned())
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        drop(self.orders.take());
        // Nothing can be done about a shell that cannot be waited for.
        let _ = self.shell.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_whose_owner_was_killed_before_it_answered_removes_its_directory() {
        for orders in ["", "run\n", "start KILL\n"] {
            let dir = std::env::temp_dir().join(format!("outboxd-leash-{:016x}", rand::random::<u64>()));
            let (nobody, answers) = std::io::pipe().unwrap();
            drop(nobody);
            let mut shell = Command::new("sh")
                .args(["-c", SCRIPT, "leash"])
                .arg(&dir)
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
}
