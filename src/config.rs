//! Configuration: what the rest of the program is told.
//!
//! `tables.rs` has every setting once: a field, what it takes, what happens without it, what it means. [`load`] reads them
//! from the file, then the environment, then flags, notes every error and goes on, and validates the whole. Later sources
//! win.
//!
//! **Guarantee.** All errors are reported together, each with the line or variable it came from and what to write
//! instead; secrets never print. **Limit.** What only a server can tell (rights, versions, reachability) is `outboxd
//! check`'s.
//!
//! May change: a default, with a line in the CHANGELOG. Must not: a second source for one value, or a key that is read
//! elsewhere.

mod choice;
pub(crate) mod conninfo;
mod env;
mod error;
mod file;
pub mod key;
pub(crate) mod legal;
mod load;
pub(crate) mod redis_url;
mod settings;
mod tables;
pub(crate) mod template;
mod validate;
mod value;

pub use choice::{Method, QueueKind, RateLimit, Role, Scope, Wakeup, WhileHeld};
pub use conninfo::MASK;
pub use env::Env;
pub use error::{Error, Errors, Origin};
pub use load::{DEFAULT_FILES, Database, Loaded, Sources, defaults, load, load_database};
pub use settings::Shown;
pub use tables::*;
pub use validate::warnings;

/// Bytes of a topic at most, as `notify()` and `publish()` have it; at least one.
pub const TOPIC_BYTES_MAX: usize = 200;
/// The route of topics that have none of their own.
pub const DEFAULT_ROUTE: &str = "default";
/// The name under which `http_token` acts.
pub const HTTP_TOKEN: &str = "http_token";
/// The name under which everybody on loopback acts while there is no token.
pub const LOCAL: &str = "local";
