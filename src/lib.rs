//! outboxd: your app commits, outboxd delivers.

pub mod notification;
pub mod retry;

pub mod producer;
pub mod publisher;
pub mod relay;
pub mod wakeup;

pub mod queue;

pub mod channel;
pub mod holds;
pub mod worker;

pub mod bulk;
pub mod events;
pub mod heartbeat;
pub mod reporter;
pub mod rollup;
pub mod sweeper;

pub mod duty;
pub mod retention;
pub mod scheduler;

pub mod store;

pub mod cli;
pub mod config;
pub mod failpoint;
pub mod http;
pub mod migrate;
pub mod service;
pub mod shutdown;
pub mod systemd;
pub mod telemetry;
pub mod tls;

pub use producer::embed::{Notification, Producer, Ticket};
