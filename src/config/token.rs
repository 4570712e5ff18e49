//! Who may do what over HTTP.

use secrecy::SecretString;

use super::section::Section;

/// The name under which `http_token` acts.
pub const HTTP_TOKEN: &str = "http_token";
/// The name under which everybody on loopback acts while there is no token.
pub const LOCAL: &str = "local";

/// What a token is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Reads everything and changes nothing.
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
#[derive(Debug, Clone)]
pub struct TokenConfig {
    /// What callers present.
    pub token: SecretString,
    /// What they may do.
    pub scope: Scope,
    /// The topics that they may write to and listen to: names, or beginnings of names as in `order.*`. `None`: all.
    pub topics: Option<Vec<String>>,
    /// Whether they see payloads, headers and whole recipients.
    pub payloads: bool,
}

/// One table of the section.
pub(super) fn build(s: &Section<'_>) -> TokenConfig {
    let scope = match s.text("scope").as_deref() {
        Some("operate") => Scope::Operate,
        Some("write") => Scope::Write,
        _ => Scope::Read,
    };
    TokenConfig {
        token: s.secret("token").unwrap_or_default(),
        scope,
        topics: s.value("topics").map(|_| s.texts("topics")),
        payloads: s.value("payloads").map_or(scope == Scope::Operate, |_| s.flag("payloads")),
    }
}
