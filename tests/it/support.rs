//! What the tests stand on: real servers, a real provider, a faulty network.

pub mod browser;
pub mod certs;
pub mod command;
pub mod golden;
pub mod otlp;
pub mod pgbouncer;
pub mod postgres;
pub mod process;
pub mod redis;
pub mod sql;
pub mod stream;
pub mod tls;
pub mod verdict;
pub mod wait;
pub mod world;

pub use outboxd_throwaway::{clock, http, instance, prometheus, provider, proxy};
