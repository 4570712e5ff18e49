//! One test binary; modules in the order of a notification's life.
#![allow(clippy::unwrap_used, missing_docs)]

mod tidy;

mod check;
mod config;
mod connect;
mod deliver;
mod example;
mod refusals;

mod api;
mod deploy;
mod http;
mod live;
mod metrics;
mod migrate;
mod operator;
mod roles;
mod schema;
mod trace;

mod dedup;
mod notify;
mod notify_many;
mod ring;

mod dashboard;
mod dashboards;
mod event_consumer;
mod event_groups;
mod event_streams;
mod events;
mod health;
mod inbox;
mod operate;
mod operate_bulk;
mod recipients;
mod status;
mod terminal;
mod transcripts;
mod views;
mod waiting;
mod watch;

mod queue;

mod channel;

mod embed;
mod faults;
mod fuzz;
mod idle;
mod invariants;
mod signals;

mod leader;
mod retention;
mod schedule;

mod campaign;
mod many_topics;
mod ordering;

mod documents;
mod readme;
mod reference;

mod send;

#[allow(dead_code)] // each module of tests uses its own part
mod support;
