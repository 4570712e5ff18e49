//! `[tokens.NAME]`: who may do what over HTTP.
//!
//! **Guarantee.** A scope covers itself alone, and `operate` covers all. `topics` narrows what each of them reaches: what is
//! of another topic is not there for the token, and what is about all topics is refused. **Limit.** Channels, instances,
//! health and metrics are about all topics.

use secrecy::SecretString;
use serde::Deserialize;

/// The name under which `http_token` acts.
pub const HTTP_TOKEN: &str = "http_token";
/// The name under which everybody on loopback acts while there is no token.
pub const LOCAL: &str = "local";

/// What a token is good for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Reads everything and changes nothing.
    #[default]
    Read,
    /// Writes notifications, and asks what became of one.
    Write,
    /// Everything.
    Operate,
}

impl Scope {
    /// As the configuration spells it.
    pub fn name(self) -> &'static str {
        match self {
            Scope::Read => "read",
            Scope::Write => "write",
            Scope::Operate => "operate",
        }
    }

    /// Whether who has this scope may do what needs `needed`.
    pub fn covers(self, needed: Scope) -> bool {
        self == Scope::Operate || self == needed
    }
}

/// `[tokens.NAME]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenConfig {
    /// What callers present.
    #[serde(default)]
    pub token: SecretString,
    /// What they may do.
    #[serde(default)]
    pub scope: Scope,
    /// The topics that they may read, write to, listen to and act on: names, or beginnings of names as in `order.*`. `None`: all.
    pub topics: Option<Vec<String>>,
    /// Whether they see payloads, headers and whole recipients.
    pub payloads: bool,
}
