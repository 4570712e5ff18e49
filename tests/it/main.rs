//! One test binary; modules in the order of a notification's life.

fn main() {}
