//! The `outboxd` command.

use std::process::ExitCode;

use clap::Parser;
use outboxd::cli::{self, Cli};

/// Small, short-lived pieces dominate here: a call's headers, a row's columns.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match cli::start(Cli::parse()) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            eprintln!("outboxd: {failure}");
            failure.exit.into()
        }
    }
}
