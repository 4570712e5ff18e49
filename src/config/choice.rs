//! What a setting takes beside plain values: one word out of a few, or a rate.

use std::time::Duration;

use serde::Deserialize;

/// A setting that takes one of a few words, each its variant's name in the configuration.
macro_rules! choice {
    ($(#[$about:meta])* $name:ident { $($(#[$meaning:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
        pub enum $name { $($(#[$meaning])* #[serde(rename = $word)] $variant,)* }

        impl $name {
            /// As the configuration spells them.
            pub const WORDS: &[&str] = &[$($word),*];

            /// As the configuration spells it.
            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $word,)* }
            }
        }
    };
}

choice! {
    /// Which backend carries messages.
    QueueKind {
        /// Redis streams.
        Stream = "stream",
        /// Redis lists.
        List = "list",
        /// In process; needs no Redis.
        Memory = "memory",
    }
}

choice! {
    /// How commits are seen.
    Wakeup {
        /// Sleep until the doorbell rings; the default.
        Bell = "bell",
        /// Poll only; the default with a pooler.
        Poll = "poll",
    }
}

choice! {
    /// The request's method.
    Method {
        /// The default.
        Post = "POST",
        /// For providers that want it.
        Put = "PUT",
    }
}

choice! {
    /// What happens to work whose channel's circuit is open because calls fail.
    WhileHeld {
        /// It moves to the next channel at once, if there is one. A channel that was paused, refuses our credentials or
        /// asked us to come back later is waited for all the same: it is not down, and nothing turns into paid SMS by
        /// accident.
        Failover = "failover",
        /// It waits, burning no attempt.
        Wait = "wait",
    }
}

choice! {
    /// What a token is good for.
    ///
    /// **Guarantee.** A scope covers itself alone, and `operate` covers all. `topics` narrows what each of them
    /// reaches: what is of another topic is not there for the token, and what is about all topics is refused.
    /// **Limit.** Channels, instances, health and metrics are about all topics.
    Scope {
        /// Reads everything and changes nothing.
        Read = "read",
        /// Writes notifications, and asks what became of one.
        Write = "write",
        /// Everything.
        Operate = "operate",
    }
}

impl Scope {
    /// Whether who has this scope may do what needs `needed`.
    pub fn covers(self, needed: Scope) -> bool {
        self == Scope::Operate || self == needed
    }
}

/// So many calls per span of time.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct RateLimit {
    /// Calls …
    pub count: u32,
    /// … per this.
    pub per: Duration,
}

choice! {
    /// A part of the work that an instance takes on.
    #[derive(PartialOrd, Ord, clap::ValueEnum)]
    Role {
        /// Releases what is due.
        Producer = "producer",
        /// Publishes what is unpublished.
        Relay = "relay",
        /// Calls the providers.
        Worker = "worker",
        /// Prepares campaigns, keeps retention.
        Scheduler = "scheduler",
        /// Serves HTTP.
        Api = "api",
    }
}

impl Role {
    /// Every role; what an instance takes on unless told otherwise.
    pub const ALL: [Role; 5] = [Role::Producer, Role::Relay, Role::Worker, Role::Scheduler, Role::Api];
    /// Those that push to or take from the queue.
    pub const CARRIERS: [Role; 3] = [Role::Producer, Role::Relay, Role::Worker];
}
