//! One test binary; modules in the order of a notification's life.
#![allow(clippy::unwrap_used, missing_docs)]

mod check;
mod config;
mod connect;
mod example;
mod support;
