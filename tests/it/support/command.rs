//! The command line: the real binary, what it printed and how it ended.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;

/// Longer than any command that ends by itself takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a command ended and what it said.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    /// What it printed with `--json`.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Both outputs, for a message or a look at all that was said.
    pub fn all(&self) -> String {
        format!("{}{}", self.out, self.err)
    }
}

impl From<Output> for Ran {
    fn from(ran: Output) -> Ran {
        Ran {
            code: ran.status.code().expect("no signal ended it"),
            out: String::from_utf8(ran.stdout).expect("text"),
            err: String::from_utf8(ran.stderr).expect("text"),
        }
    }
}

/// Runs the binary in `dir`, with no environment but `env` and an address of its own, until it ends.
pub async fn run_in(dir: &Path, args: &[&str], env: &[(&str, &str)]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_outboxd"));
    command.args(args).current_dir(dir).env_clear();
    // Those that run at the same time must not take each other's port.
    if let Some(&("check" | "run")) = args.first() {
        command.env("OUTBOXD_HTTP_ADDR", "127.0.0.1:0");
    }
    command.envs(env.iter().copied());
    command.stdin(Stdio::null()).kill_on_drop(true);
    let ran = tokio::time::timeout(PATIENCE, command.output()).await;
    let ran = ran.unwrap_or_else(|_| panic!("{args:?} does not end")).expect("it runs");
    ran.into()
}

/// Runs a command on this database with nothing else in its environment but `env`.
pub async fn outboxd(database_url: &str, args: &[&str], env: &[(&str, &str)]) -> Ran {
    let own = [("DATABASE_URL", database_url), ("OUTBOXD_LOG", "warn")];
    let env: Vec<(&str, &str)> = own.into_iter().chain(env.iter().copied()).collect();
    run_in(Path::new("."), args, &env).await
}

/// Runs a command that must succeed; its output.
pub async fn succeeds(database_url: &str, args: &[&str]) -> String {
    let ran = outboxd(database_url, args, &[]).await;
    assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
    ran.out
}

/// An example of the crate, as it is now. `--workspace`: with the features that `scripts/test` has built it with.
pub async fn example(name: &str) -> PathBuf {
    let build = ["build", "--quiet", "--locked", "--workspace", "--all-features", "--example", name];
    let built = Command::new(env!("CARGO")).args(build).output().await.expect("cargo runs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Path::new(env!("CARGO_BIN_EXE_outboxd")).with_file_name("examples").join(name)
}
