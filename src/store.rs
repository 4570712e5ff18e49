//! Postgres: the record of truth.

pub mod connect;
