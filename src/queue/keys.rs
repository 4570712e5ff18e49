//! The names of our Redis keys.
//!
//! ```text
//! {prefix}:v1:stream                      stream  waiting and pending entries, one field `m` = one element
//!     group `workers`                             one consumer per worker
//! {prefix}:v1:list                        list    waiting elements, pushed on the left, taken from the right
//! {prefix}:v1:list:processing:<consumer>  list    taken and not acknowledged, oldest on the right
//! {prefix}:v1:<backend>:consumers         set     names of consumers that registered
//! {prefix}:v1:<backend>:alive:<consumer>  string  exists as long as the consumer sends heartbeats (TTL)
//! {prefix}:v1:owner                       hash    whose all of these are (see `owner`)
//! {prefix}:v1:<backend>:meta              hash    what tells a loss:
//!     generation, pushed                          the push counter (see `loss`)
//!     run                                         the server process that counts
//!     ended:<generation>                          where an earlier generation's count stood when it ended
//! ```
//!
//! The braces make the prefix the hash tag: on Redis Cluster all of them live on one node, so
//! transactions and scripts work. `v1` is the version of this layout.

use super::{Error, Result};

/// The consumer group of the stream.
pub(super) const GROUP: &str = "workers";

/// The field of a stream entry that holds the element.
pub(super) const FIELD: &str = "m";

/// The keys of one backend.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    /// Waiting messages.
    pub main: String,
    /// Registered consumers.
    pub consumers: String,
    /// What tells a loss.
    pub meta: String,
    /// Whose all of them are, whatever the backend.
    pub owner: String,
}

impl Keys {
    pub(super) fn new(prefix: &str, backend: &str) -> Result<Keys> {
        if prefix.is_empty() || prefix.contains(['{', '}']) {
            return Err(Error::Unusable(format!("queue.prefix {prefix:?} must be non-empty and without braces")));
        }
        let main = format!("{{{prefix}}}:v1:{backend}");
        Ok(Keys {
            consumers: format!("{main}:consumers"),
            meta: format!("{main}:meta"),
            owner: format!("{{{prefix}}}:v1:owner"),
            main,
        })
    }

    pub(super) fn alive(&self, consumer: &str) -> String {
        format!("{}:alive:{consumer}", self.main)
    }

    pub(super) fn processing(&self, consumer: &str) -> String {
        format!("{}:processing:{consumer}", self.main)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_carries_the_prefix_as_its_only_hash_tag() {
        let keys = Keys::new("shop", "list").expect("a good prefix");
        for key in [&keys.main, &keys.consumers, &keys.meta, &keys.alive("w1"), &keys.processing("w1")] {
            assert!(key.starts_with("{shop}:v1:list"), "{key}");
        }
    }

    #[test]
    fn a_prefix_that_would_break_the_hash_tag_is_refused() {
        for prefix in ["", "a{b", "a}b"] {
            assert!(matches!(Keys::new(prefix, "stream"), Err(Error::Unusable(_))), "{prefix:?}");
        }
    }
}
