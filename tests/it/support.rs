//! What the tests stand on: real servers, a real provider, a faulty network.

pub mod process;
pub mod proxy;
pub mod redis;
