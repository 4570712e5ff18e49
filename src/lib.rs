//! outboxd: your app commits, outboxd delivers.

pub mod channel;
pub mod config;
pub mod notification;
pub mod queue;
pub mod retry;
