//! One test binary; modules in the order of a notification's life.
#![allow(clippy::unwrap_used, missing_docs)]

mod tidy;

mod bench;
mod check;
mod config;
mod connect;
mod deliver;
mod demo;
mod example;

mod deploy;
mod http;
mod metrics;
mod migrate;
mod roles;
mod schema;
mod trace;

mod dedup;
mod notify;
mod notify_many;
mod ring;

mod dashboards;
mod event_streams;
mod events;
mod health;
mod inbox;
mod operate;
mod operate_bulk;
mod status;
mod transcripts;
mod views;

mod queue;

mod channel;

mod embed;
mod faults;
mod invariants;

mod duty;
mod retention;
mod schedule;

mod campaign;
mod ordering;

mod reference;

mod send;

#[allow(dead_code)] // each module of tests uses its own part
mod support;
