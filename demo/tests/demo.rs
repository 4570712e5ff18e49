//! The demo keeps its promise, and leaves nothing behind. It needs `outboxd` beside it: `cargo test --workspace` builds
//! both.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::process::Command;

const ARGS: [&str; 4] = ["--orders", "200", "--seconds", "4"];

/// The demo with a temporary directory of its own, so that what it leaves there can be seen.
fn demo(tmp: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_outboxd-demo"));
    let path = std::env::var("PATH").unwrap();
    command.args(ARGS).env_clear().env("PATH", path).env("TMPDIR", tmp).stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Postgres, started by the demo as another user, must get through to its own directory.
fn scratch() -> TempDir {
    let dir = TempDir::with_prefix("outboxd-demo-").unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
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
    let output = demo(dir.path()).arg("--exit").output().await.expect("it runs");
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}\n{errors}");
    assert!(text.trim_end().ends_with("lost 0"), "{text}");
    assert!(text.contains("committed by the app                   180"), "{text}");
    assert!(
        processes_in(dir.path()).is_empty() && std::fs::read_dir(dir.path()).unwrap().count() == 0,
        "nothing is left"
    );
}

#[tokio::test]
async fn a_killed_demo_leaves_nothing_running() {
    let dir = scratch();
    let mut child = demo(dir.path()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let deadline = Instant::now() + Duration::from_secs(30);
    while !processes_in(dir.path()).iter().any(|command| command.contains(" run --config ")) {
        assert!(Instant::now() < deadline, "no instance was started");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    child.kill().await.unwrap();
    wait_until_gone(dir.path()).await;
}
