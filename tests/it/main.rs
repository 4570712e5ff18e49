//! One test binary; modules in the order of a notification's life.
#![allow(clippy::unwrap_used, missing_docs)]

mod tidy;

mod check;
mod config;
mod connect;
mod deliver;
mod demo;
mod example;

mod migrate;
mod roles;
mod schema;

mod dedup;
mod notify;
mod notify_many;
mod ring;

mod events;
mod inbox;
mod operate;

mod queue;

mod channel;

mod embed;
mod faults;

mod duty;
mod retention;

mod deploy;
mod http;
mod metrics;
mod reference;

#[allow(dead_code)] // each module of tests uses its own part
mod support;
