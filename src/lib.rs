//! outboxd: your app commits, outboxd delivers.

pub mod notification;
pub mod retry;

pub mod producer;
pub mod publisher;
pub mod relay;
pub mod holds;
pub mod wakeup;

pub mod queue;

pub mod worker;

pub mod channel;

pub mod store;

pub mod cli;
pub mod config;
pub mod migrate;
pub mod telemetry;
