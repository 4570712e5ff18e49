//! outboxd: your app commits, outboxd delivers.
//!
//! # The life of one notification
//!
//! 0. The app writes it in its own transaction, by `outboxd.notify()` or a plain INSERT (`sql/functions/notify.sql`).
//! 1. What is due later is released when its time comes: [`producer`].
//! 2. The commit is seen, and the row published: reserved, pushed, confirmed. [`relay`]; what was lost on the way is
//!    found by [`relay::repair`]. `service/wakeup.rs` wakes both stages.
//! 3. The queue carries a message "row 17, epoch 3 is ready" to a worker: [`queue`].
//! 4. The worker takes it, claims the row when the call may start, sends, records the outcome, acknowledges:
//!    [`worker`].
//! 5. The call itself, its limits and its circuit: [`channel`]. What follows a failure: [`retry`].
//! 6. Who is alive, what the views count, what has ended and goes: [`upkeep`].
//!
//! Beside it: campaigns ([`schedule`]) and domain events ([`events`]).
//!
//! Every statement is in [`store`]; who imports whom is kept by `tests/it/tidy.rs`:
//! `cli → service → stages, server → store → {queue, channel} → {notification, retry}`; all may use `config` and
//! `telemetry`.

pub mod notification;
pub mod retry;

pub mod producer;

pub mod relay;

pub mod queue;

pub mod worker;

pub mod channel;

pub mod upkeep;

pub mod events;
pub mod schedule;

pub mod store;

pub mod server;

pub mod config;
pub mod failpoint;
pub mod masked;
pub mod printable;
pub mod telemetry;
pub mod tls;

pub mod cli;
pub mod service;

pub use producer::embed::{Notification, Producer, Ticket};
