//! What is wrong with a configuration, all of it at once.
//!
//! **Guarantee.** Errors come in the order of the file's lines, then the environment, then the rest, and read as
//! sentences. **Limit.** The text is for people; programs have the exit code alone.

use std::fmt;
use std::path::PathBuf;

use super::key::KeyPath;
use crate::printable;

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
        match &self.origin {
            None | Some(Origin::Default) => {}
            Some(origin) => write!(f, "{origin}: ")?,
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
        self.0.iter().try_for_each(|error| write!(f, "\n  - {}", printable::line(&error.to_string())))
    }
}
