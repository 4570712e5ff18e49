//! A bounded model of outboxd's protocol: every interleaving of its guarded statements, with faults between any two.
//!
//! Postgres, the queue, the provider and two instances are one small value, a [`state::State`]. A
//! [`protocol::Protocol`] says which steps are possible in it: the statements of `sql/`, each with the guards of its
//! WHERE clause, and what goes wrong. [`explore::check`] visits every state that can be reached and judges every
//! step by [`properties`]. Its answer is "holds", or a shortest trace to what must not be.
//!
//! Read in this order:
//!
//! | module | is |
//! |---|---|
//! | [`scope`] | how large a world is: rows, queue, and how much may go wrong |
//! | [`state`], [`messages`] | the world: tables, queues, memory of the instances |
//! | [`guards`] | one flag for each guard; tests take one away |
//! | [`protocol`], [`action`] | the steps: app, producer, relay, worker, sweeper, operator, faults |
//! | [`properties`] | what must hold |
//! | [`explore`] | the search |
//!
//! Time is not modelled. "The lease runs out", "5 s have passed", "it is due" are steps that may come at any moment;
//! those that need somebody to be slow are counted as events of the scope.
//!
//! The search is our own, two hundred lines without a dependency. The crate for it, stateright, brings a web server
//! that no feature turns off, and its "eventually" does not say what is asked here: that from *every* state, without
//! further faults, every row ends.

pub mod action;
pub mod explore;
pub mod guards;
pub mod messages;
pub mod properties;
pub mod protocol;
pub mod scope;
pub mod state;
