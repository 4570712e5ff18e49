//! outboxd: your app commits, outboxd delivers.

pub mod cli;
pub mod config;
pub mod notification;
pub mod queue;
pub mod store;
pub mod telemetry;
