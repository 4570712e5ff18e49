//! The `outboxd` command.

fn main() {}
