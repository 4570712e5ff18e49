//! What the tests stand on: real servers, a real provider, a faulty network.

pub mod postgres;
pub mod process;
pub mod sql;
