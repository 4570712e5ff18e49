//! README's steps, typed as they stand.

use std::pin::pin;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::Command;

use crate::support::postgres;
use crate::support::process::free_port;
use crate::support::provider::Provider;
use crate::support::redis::RedisServer;

/// Longer than the steps take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn every_step_of_the_readme_works_as_it_stands() {
    // Roles belong to the server, and README creates some.
    let server = postgres::start("").await;
    let (redis, provider) = (RedisServer::forgetful(), Provider::start());
    let mut script = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/readme"));
    script
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("OUTBOXD_BIN", env!("CARGO_BIN_EXE_outboxd"))
        .env("README_SERVER", format!("127.0.0.1:{}", server.port))
        .env("REDIS_URL", redis.url())
        .env("PUSH_URL", provider.url("/push"))
        .env("OUTBOXD_HTTP_ADDR", format!("127.0.0.1:{}", free_port()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let script = script.spawn().expect("it starts");
    let pid = Pid::from_raw(i32::try_from(script.id().unwrap()).unwrap());
    let mut ran = pin!(script.wait_with_output());
    let ran = match tokio::time::timeout(PATIENCE, ran.as_mut()).await {
        Ok(ran) => ran.unwrap(),
        Err(_) => {
            // Not SIGKILL: it takes away what it has started.
            kill(pid, Signal::SIGTERM).unwrap();
            panic!("it does not end: {:?}", ran.await)
        }
    };
    let said = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{said}");
    assert!(said.ends_with("every step of README.md works\n"), "{said}");
    let sent = provider.ledger().iter().filter(|call| call.path == "/push").count();
    assert!(sent >= 10, "the provider got {sent} calls: {said}");
}
