//! A short soak finds nothing wrong, and leaves nothing behind. It needs `outboxd` beside it: `cargo test --workspace`
//! builds both.
#![allow(clippy::unwrap_used)]

use outboxd_throwaway::scratch::Scratch;
use tempfile::TempDir;
use tokio::process::Command;

/// A few faults of those that need no standby, at a rate that two busy cores can take.
const ARGS: [&str; 14] = [
    "--seconds",
    "45",
    "--seed",
    "43",
    "--queue",
    "stream",
    "--instances",
    "2",
    "--rate",
    "40",
    "--faults-per-minute",
    "10",
    "--kinds",
    "instance-kill,instance-stop,redis-flush,redis-restart,redis-cut,postgres-terminate,postgres-immediate,operator",
];

fn soak(scratch: &Scratch) -> Command {
    let mut command = Command::from(scratch.command(env!("CARGO_BIN_EXE_outboxd-soak")));
    command.kill_on_drop(true);
    command
}

#[tokio::test]
async fn a_short_soak_keeps_every_promise_and_cleans_up() {
    let (scratch, kept) = (Scratch::new("outboxd-soak").unwrap(), TempDir::new().unwrap());
    let (json, plot) = (kept.path().join("soak.json"), kept.path().join("soak.svg"));
    let output = soak(&scratch).args(ARGS).arg("--json").arg(&json).arg("--plot").arg(&plot).output().await.unwrap();
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}\n{errors}");
    let report: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    let verdict = &report["verdict"];
    assert!(verdict["committed"].as_u64().unwrap() > 500 && verdict["events_seen"].as_u64().unwrap() > 20, "{verdict}");
    // On a slow machine the operator may find Postgres stopped.
    let done = report["faults"].as_array().unwrap().iter().filter(|fault| fault["error"].is_null()).count();
    assert!(done >= 6, "{report:#}");
    assert!(std::fs::read_to_string(&plot).unwrap().contains("<polyline"));
    assert_eq!(scratch.left().unwrap(), (0, Vec::new()), "nothing is left");
}

#[tokio::test]
async fn the_same_seed_shows_the_same_plan() {
    let scratch = Scratch::new("outboxd-soak").unwrap();
    let plan = async |seed: &str| {
        let output = soak(&scratch).args(["--minutes", "10", "--plan", "--seed", seed]).output().await.unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let first = plan("7").await;
    assert!(first.lines().count() > 30, "{first}");
    assert_eq!(first, plan("7").await);
    assert_ne!(first, plan("8").await);
}
