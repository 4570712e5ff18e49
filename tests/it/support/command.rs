//! The binary's commands other than `run`: what they print and how they end.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

/// Every command ends by itself.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a command ended.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

/// Runs a command on this database with nothing else in its environment but `env`.
pub async fn outboxd(database_url: &str, args: &[&str], env: &[(&str, &str)]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_outboxd"));
    command.args(args).env_clear().env("DATABASE_URL", database_url).env("OUTBOXD_LOG", "warn").stdin(Stdio::null());
    command.envs(env.iter().copied());
    let ended = tokio::time::timeout(PATIENCE, command.kill_on_drop(true).output()).await;
    let ran = ended.unwrap_or_else(|_| panic!("{args:?} does not end")).unwrap();
    Ran {
        code: ran.status.code().unwrap_or(-1),
        out: String::from_utf8(ran.stdout).unwrap(),
        err: String::from_utf8(ran.stderr).unwrap(),
    }
}

/// Runs a command that must succeed; its output.
pub async fn succeeds(database_url: &str, args: &[&str]) -> String {
    let ran = outboxd(database_url, args, &[]).await;
    assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
    ran.out
}
