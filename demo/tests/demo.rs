//! The demo keeps its promise, and leaves nothing behind. It needs `outboxd` beside it: `cargo test --workspace` builds
//! both.
#![allow(clippy::unwrap_used)]

use std::process::Stdio;
use std::time::{Duration, Instant};

use outboxd_throwaway::scratch::Scratch;
use tokio::process::Command;

const ARGS: [&str; 4] = ["--orders", "200", "--seconds", "4"];

fn demo(scratch: &Scratch) -> Command {
    let mut command = Command::from(scratch.command(env!("CARGO_BIN_EXE_outboxd-demo")));
    command.args(ARGS).kill_on_drop(true);
    command
}

/// Waits until no process and no file of the demo is left.
async fn wait_until_gone(scratch: &Scratch) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let (files, running) = scratch.left().unwrap();
        if running.is_empty() && files == 0 {
            return;
        }
        assert!(Instant::now() < deadline, "{files} directories and these processes are left: {running:#?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn the_demo_loses_nothing_and_cleans_up() {
    let scratch = Scratch::new("outboxd-demo").unwrap();
    let output = demo(&scratch).arg("--exit").output().await.expect("it runs");
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}\n{errors}");
    assert!(text.trim_end().ends_with("lost 0"), "{text}");
    assert!(text.contains("committed by the app                   180"), "{text}");
    assert_eq!(scratch.left().unwrap(), (0, Vec::new()), "nothing is left");
}

#[tokio::test]
async fn a_killed_demo_leaves_nothing_running() {
    let scratch = Scratch::new("outboxd-demo").unwrap();
    let mut child = demo(&scratch).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let deadline = Instant::now() + Duration::from_secs(30);
    while !scratch.processes().unwrap().iter().any(|command| command.contains(" run --config ")) {
        assert!(Instant::now() < deadline, "no instance was started");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    child.kill().await.unwrap();
    wait_until_gone(&scratch).await;
}
