//! What a configuration key is: its path, what it takes, what happens without it.
//!
//! **Guarantee.** One entry says all that is known of a key. **Limit.** How two keys stand to each other is not said
//! here: see `validate`.

use std::fmt;
use std::time::Duration;

/// One key of the configuration. The table of them ([`super::KEYS`]) drives parsing, the names of environment
/// variables, the detection of unknown keys, what `check` prints and the reference documentation.
#[derive(Debug)]
pub struct Key {
    /// Dotted; `*` stands for a name that the user chooses.
    pub path: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// What happens without it.
    pub fallback: Fallback,
    /// Its meaning, one sentence.
    pub doc: &'static str,
}

/// What a key takes, with its bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// Any text.
    Text,
    /// Text that must never print.
    Secret,
    /// A URL whose password must never print.
    SecretUrl,
    /// One secret, or a list of them.
    Secrets,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// `true` or `false`.
    Flag,
    /// A whole number, smallest and largest.
    Integer(u64, u64),
    /// A number of bytes, smallest and largest: `16KiB`, `1MiB` or a plain number.
    Bytes(u64, u64),
    /// A share from 0 to 1.
    Ratio,
    /// A span of time, in milliseconds smallest and largest: `250ms`, `5s`, `10m`, `7d`.
    Duration(u64, u64),
    /// A span of time as above, or `never`.
    DurationOrNever(u64, u64),
    /// So many per span of time: `100/s`, `1000/m`.
    Rate,
    /// An IP address and port.
    Addr,
    /// A list of texts.
    Texts,
    /// A list of networks such as `10.0.0.0/8`.
    Networks,
}

/// What happens when a key is not given.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fallback {
    /// It must be given; what to do about it.
    Required(&'static str),
    /// This value, written as in the environment.
    Value(&'static str),
    /// What the text says, worked out from other keys in `build`.
    Derived(&'static str),
    /// Nothing; the text says what that means.
    Absent(&'static str),
}

impl Key {
    /// The parts of the path.
    pub fn segments(&self) -> impl Iterator<Item = &'static str> {
        self.path.split('.')
    }

    /// Whether the value must never print in full.
    pub fn is_secret(&self) -> bool {
        matches!(self.kind, Kind::Secret | Kind::SecretUrl | Kind::Secrets)
    }

    /// The environment variable, with `<NAME>` where the user chooses.
    pub fn env_name(&self) -> String {
        let parts: Vec<String> =
            self.segments().map(|part| if part == "*" { "<NAME>".into() } else { env_form(part) }).collect();
        format!("{ENV_PREFIX}{}", parts.join("_"))
    }

    pub(super) fn matches(&self, path: &[String]) -> bool {
        self.segments().count() == path.len() && self.starts_with(path)
    }

    pub(super) fn starts_with(&self, path: &[String]) -> bool {
        let mut own = self.segments();
        path.iter().all(|part| own.next().is_some_and(|segment| segment == "*" || segment == part))
    }
}

/// A bound of a span of time; whole years of 365 days as such.
pub fn show_ms(ms: u64) -> String {
    const YEAR_MS: u64 = 365 * 24 * 3_600 * 1_000;
    match ms % YEAR_MS {
        0 if ms > 0 => format!("{} years", ms / YEAR_MS),
        _ => humantime::format_duration(Duration::from_millis(ms)).to_string(),
    }
}

/// What the names of all our environment variables start with.
pub(super) const ENV_PREFIX: &str = "OUTBOXD_";

/// A key's part or a user's name as it is written in an environment variable.
pub(super) fn env_form(part: &str) -> String {
    part.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}

/// A path to one value, with the user's names filled in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyPath(pub(super) Vec<String>);

impl KeyPath {
    /// The path that a table's dotted text means; for paths whose parts hold no dots.
    pub(super) fn dotted(text: &str) -> Self {
        Self(text.split('.').map(str::to_owned).collect())
    }

    pub(super) fn join(&self, rest: &str) -> Self {
        Self(self.0.iter().cloned().chain(rest.split('.').map(str::to_owned)).collect())
    }

    pub(super) fn child(&self, name: &str) -> Self {
        Self(self.0.iter().cloned().chain([name.to_owned()]).collect())
    }
}

/// As one would write it in TOML.
impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, part) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(".")?;
            }
            let bare = !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
            if bare { f.write_str(part)? } else { write!(f, "{part:?}")? }
        }
        Ok(())
    }
}
