//! The binary's commands other than `run`, on a database: what they print and how they end.

use std::path::Path;

use super::cli::{self, Ran};

/// Runs a command on this database with nothing else in its environment but `env`.
pub async fn outboxd(database_url: &str, args: &[&str], env: &[(&str, &str)]) -> Ran {
    let own = [("DATABASE_URL", database_url), ("OUTBOXD_LOG", "warn")];
    let env: Vec<(&str, &str)> = own.into_iter().chain(env.iter().copied()).collect();
    cli::outboxd(Path::new("."), args, &env).await
}

/// Runs a command that must succeed; its output.
pub async fn succeeds(database_url: &str, args: &[&str]) -> String {
    let ran = outboxd(database_url, args, &[]).await;
    assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
    ran.out
}
