//! `outboxd demo`: it keeps its promise, and leaves nothing behind.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::Command;

use crate::support::process;

const ARGS: [&str; 5] = ["demo", "--orders", "200", "--seconds", "4"];

/// The demo with a temporary directory of its own, so that what it leaves there can be seen.
fn demo(tmp: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_outboxd"));
    let path = std::env::var("PATH").unwrap();
    command.args(ARGS).env_clear().env("PATH", path).env("TMPDIR", tmp).stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Postgres, started by the demo as another user, must get through to its own directory.
fn scratch() -> std::path::PathBuf {
    let dir = process::scratch_dir("demo");
    std::fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    dir
}

/// Processes whose command line names the directory.
fn processes_in(dir: &Path) -> Vec<String> {
    let name = dir.display().to_string();
    let commands = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let command = std::fs::read(entry.ok()?.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&command).replace('\0', " "))
    });
    commands.filter(|command| command.contains(&name)).collect()
}

/// Waits until no process and no file of the demo is left.
async fn wait_until_gone(dir: &Path) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let (running, files) = (processes_in(dir), std::fs::read_dir(dir).unwrap().count());
        if running.is_empty() && files == 0 {
            return;
        }
        assert!(Instant::now() < deadline, "{files} directories and these processes are left: {running:#?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn the_demo_loses_nothing_and_cleans_up() {
    let dir = scratch();
    let output = demo(&dir).arg("--exit").output().await.expect("it runs");
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}\n{errors}");
    assert!(text.trim_end().ends_with("lost 0"), "{text}");
    assert!(text.contains("committed by the app                   180"), "{text}");
    assert!(processes_in(&dir).is_empty() && std::fs::read_dir(&dir).unwrap().count() == 0, "nothing is left");
    std::fs::remove_dir(&dir).unwrap();
}

#[tokio::test]
async fn a_killed_demo_leaves_nothing_running() {
    let dir = scratch();
    let mut child = demo(&dir).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let deadline = Instant::now() + Duration::from_secs(30);
    while !processes_in(&dir).iter().any(|command| command.contains(" run --config ")) {
        assert!(Instant::now() < deadline, "no instance was started");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    kill(Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()), Signal::SIGKILL).unwrap();
    child.wait().await.unwrap();
    wait_until_gone(&dir).await;
    std::fs::remove_dir(&dir).unwrap();
}
