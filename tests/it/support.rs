//! What the tests stand on: real servers, a real provider, a faulty network.

pub mod certs;
pub mod process;
pub mod tls;
