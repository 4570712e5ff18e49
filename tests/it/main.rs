//! One test binary; modules in the order of a notification's life.
#![allow(clippy::unwrap_used, missing_docs)]

mod channel;
mod check;
mod config;
mod connect;
mod deliver;
mod deploy;
mod example;
mod http;
mod metrics;
mod migrate;
mod notify;
mod queue;
mod reference;
#[allow(dead_code)] // each module of tests uses its own part
mod support;
