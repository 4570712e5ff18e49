//! The `outboxd` command.

use std::process::ExitCode;

use clap::Parser;
use outboxd::cli::{self, Cli};

fn main() -> ExitCode {
    match cli::start(Cli::parse()) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            eprintln!("outboxd: {failure}");
            failure.exit.into()
        }
    }
}
