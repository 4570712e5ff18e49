//! Faults that must be survived, each observed at the provider's ledger and in the rows.

mod chaos;
mod clock;
mod destinations;
mod disk;
mod duties;
mod postgres;
mod publish;
mod redis;
mod snapshot;
mod stretches;
mod sweep;
mod timers;
mod upgrade;
mod work;
