//! The `outboxd` command.

use std::process::ExitCode;

use outboxd::cli;

/// Small, short-lived pieces dominate here: a call's headers, a row's columns.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match cli::start() {
        Ok(exit) => exit.into(),
        Err(failure) => {
            eprintln!("outboxd: {failure}");
            failure.exit.into()
        }
    }
}
