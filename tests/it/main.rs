//! One test binary; modules in the order of a notification's life.
#![allow(clippy::unwrap_used, missing_docs)]

mod channel;
#[allow(dead_code)] // each module of tests uses its own part
mod config;
mod migrate;
mod queue;
mod check;
mod config;
mod example;
mod support;
