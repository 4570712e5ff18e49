//! 6. What keeps an installation healthy beside the work itself: heartbeats, going on without Redis, pauses and
//!    circuits of all instances, what the views count, operators' big actions, what a copy of the database brought, and the removal of what has ended.
//!
//! **Guarantee.** Nothing here is on a notification's path: if all of it stood still, what is committed would still be
//! delivered once Redis answers, and only the end of a dead instance's leases would wait. **Limit.** Figures in the
//! views are seconds old.
//!
//! Each file is one loop: `run` waits and stops, and does one bounded piece of work at a time. What one instance does at a
//! time for all (retention) does it under a leader lease ([`crate::store::leader`]).
//!
//! May change: what is counted and how often. Must not: a delivery that waits for anything here, or a lock that the
//! app's writes wait for.

pub mod bulk;
pub mod circuits;
pub mod fallback;
pub mod heartbeat;
pub mod origin;
pub mod retention;
pub mod routes;
pub mod statistics;
