//! What is wrong with a configuration, all of it at once.
//!
//! **Guarantee.** Errors come in the order of the file's lines, then the environment, then the rest, and read as
//! sentences; only names that exist are suggested. **Limit.** The text is for people; programs have the exit code
//! alone.

use std::fmt;
use std::path::PathBuf;

use super::key::KeyPath;

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Nobody gave it.
    Default,
    /// The configuration file, in this line.
    File {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
    },
    /// This environment variable.
    Env(String),
    /// A flag of the command line.
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::Env(name) => f.write_str(name),
            Origin::Flag => f.write_str("--set"),
        }
    }
}

/// One error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// Where it was written; absent when the error is that nothing was.
    pub origin: Option<Origin>,
    /// The key it is about; absent for the file as a whole.
    pub path: Option<KeyPath>,
    /// What is wrong and what to do.
    pub what: String,
}

/// Reads as a sentence: `outboxd.toml:3: worker.lease takes …`.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(origin) = &self.origin {
            write!(f, "{origin}: ")?;
        }
        if let Some(path) = &self.path {
            write!(f, "{path} ")?;
        }
        f.write_str(&self.what)
    }
}

/// Every error that was found, in the order of the file's lines, then the environment, then the rest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Errors(pub Vec<Error>);

impl Errors {
    pub(super) fn sorted(mut errors: Vec<Error>) -> Self {
        errors.sort_by(|a, b| (a.origin.is_none(), &a.origin).cmp(&(b.origin.is_none(), &b.origin)));
        Self(errors)
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.len() {
            1 => f.write_str("the configuration has an error:")?,
            n => write!(f, "the configuration has {n} errors:")?,
        }
        self.0.iter().try_for_each(|error| write!(f, "\n  - {error}"))
    }
}

/// The end of a sentence: `; did you mean "x"?`, or nothing when nothing is near.
pub(super) fn did_you_mean<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(written, known).map(|name| format!("; did you mean {name:?}?")).unwrap_or_default()
}

/// The known name nearest to what was written, if it is near at all.
pub(super) fn nearest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lowered = written.to_lowercase();
    known
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(&lowered, &name.to_lowercase()), name))
        // A third of the letters wrong is a typo; more is another word.
        .filter(|(distance, name)| *distance <= name.chars().count() / 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_typo_finds_its_word_and_another_word_finds_none() {
        let known = ["concurrency", "lease", "heartbeat"];
        assert_eq!(nearest("concurency", known), Some("concurrency"));
        assert_eq!(nearest("Leese", known), Some("lease"));
        assert_eq!(nearest("colour", known), None);
    }
}
