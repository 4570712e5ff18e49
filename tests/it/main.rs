//! One test binary; modules in the order of a notification's life.
#![allow(clippy::unwrap_used, missing_docs)]

mod bench;
mod channel;
mod check;
mod config;
mod connect;
mod deliver;
mod demo;
mod example;
mod migrate;
mod notify;
mod queue;
mod send;
#[allow(dead_code)] // each module of tests uses its own part
mod support;
