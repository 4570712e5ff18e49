//! What a setting is: its path, what it takes, what happens without it, what it means; and the macro that makes of one
//! line both the field and this.
//!
//! **Guarantee.** One entry says all that is known of a setting. **Limit.** How two of them stand to each other is not
//! said here: see `validate`.

use std::fmt;
use std::time::Duration;

use super::KEYS;
use super::legal::Check;

/// One setting. The table of them ([`super::KEYS`]) drives parsing, the names of environment variables, the detection
/// of unknown keys, what `check` prints, the example file and the reference documentation.
#[derive(Debug)]
pub struct Key {
    /// Dotted; `*` stands for a name that the user chooses.
    pub path: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// What happens without it.
    pub fallback: Fallback,
    /// What each of its texts must be beyond that.
    pub(super) checks: &'static [Check],
    /// Its meaning, by lines; the first paragraph tells enough.
    pub doc: &'static [&'static str],
}

/// Makes tables of the configuration: of each line a field with its comment, and an entry of `KEYS`. The literal is the
/// path of the table; fields behind the `+` are tables of their own.
macro_rules! settings {
    ($(
        $(#[$about:meta])* $table:ident $path:literal {$(
            $(#[doc = $doc:literal])*
            $field:ident $(.$star:tt)?: $type:ty $([$attribute:meta])? = $kind:expr, $fallback:expr $(, $check:expr)?;
        )*} $(+ { $($tables:tt)* })?
    )*) => {
        $(
            $(#[$about])*
            #[derive(Clone, Deserialize)]
            #[serde(deny_unknown_fields)]
            pub struct $table {
                $($(#[doc = $doc])* $(#[$attribute])? pub $field: $type,)*
                $($($tables)*)?
            }
        )*

        /// Every setting there is, in the order of the example file.
        pub const KEYS: &[Key] = &[$($(Key {
            path: concat!($path, stringify!($field) $(, ".", stringify!($star))?),
            kind: $kind,
            fallback: $fallback,
            checks: &[$($check)?],
            doc: &[$($doc),*],
        },)*)*];
    };
}
pub(super) use settings;

pub(super) const SECOND: u64 = 1_000;
pub(super) const MINUTE: u64 = 60 * SECOND;
pub(super) const HOUR: u64 = 60 * MINUTE;
pub(super) const DAY: u64 = 24 * HOUR;
/// Spans that pass while something waits: at least a hundredth of a second, at most an hour.
pub(super) const PAUSE: Kind = Kind::Span(10, HOUR);
/// How long ended rows are kept.
pub(super) const KEPT: Kind = Kind::Span(MINUTE, 3650 * DAY);

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
    Span(u64, u64),
    /// A span of time as above, or `never`.
    SpanOrNever(u64, u64),
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
    /// What the text says, worked out from other keys.
    Derived(&'static str),
    /// Nothing; the text says what that means.
    Absent(&'static str),
}

impl Key {
    /// Its meaning in short.
    pub fn meaning(&self) -> String {
        self.doc.iter().map(|line| line.trim()).take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
    }

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

    /// The key that a path leads to.
    pub(super) fn find(path: &KeyPath) -> Option<&'static Key> {
        KEYS.iter().find(|key| key.segments().count() == path.0.len() && key.starts_with(&path.0))
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

    /// With this name for the first `*`.
    pub(super) fn named(mut self, name: &str) -> Self {
        self.0.iter_mut().find(|part| *part == "*").into_iter().for_each(|part| *part = name.to_owned());
        self
    }

    pub(super) fn child(&self, name: &str) -> Self {
        Self(self.0.iter().cloned().chain([name.to_owned()]).collect())
    }
}

/// As one would write it in TOML.
impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let shown = |part: &String| match part.as_str() {
            bare if !bare.is_empty() && bare.chars().all(is_bare) => bare.to_owned(),
            quoted => format!("{quoted:?}"),
        };
        f.write_str(&self.0.iter().map(shown).collect::<Vec<_>>().join("."))
    }
}
