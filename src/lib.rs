//! outboxd: your app commits, outboxd delivers.

pub mod channel;
pub mod config;
pub mod migrate;
pub mod notification;
pub mod queue;
pub mod store;
pub mod retry;
