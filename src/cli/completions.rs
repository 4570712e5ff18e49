//! `outboxd completions`: the shell's help with typing.

use clap::CommandFactory;
use clap_complete::Shell;

use super::{Cli, Exit, Failure, print};

const EXAMPLES: &str = "\
Examples:
  outboxd completions bash > /etc/bash_completion.d/outboxd
  outboxd completions zsh > ~/.zfunc/_outboxd
  outboxd completions fish > ~/.config/fish/completions/outboxd.fish";

/// Prints a shell's completion script.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Which shell.
    shell: Shell,
}

pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "outboxd", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Clean)
}
