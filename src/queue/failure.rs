//! Redis's answers, sorted by what is to be done.

use redis::{ErrorKind, RedisError};

use super::Error;

/// Why a call to Redis failed, before it becomes the caller's [`Error`].
#[derive(Debug, Clone)]
pub(super) enum Failure {
    /// Redis, or the way to it, said no.
    Redis(RedisError),
    /// The server may not be used, however healthy it is.
    Unusable(String),
    /// Nothing takes our writes right now.
    NoPrimary(String),
}

/// What to do about one server error, by its code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Remedy {
    /// Nothing was done there; another server takes writes now. Find it and ask again.
    Elsewhere,
    /// Wait; the caller comes back.
    Wait,
    /// It refuses more for now.
    Full,
    /// Somebody must act.
    Act,
}

fn remedy(code: &str) -> Remedy {
    match code {
        "MOVED" | "READONLY" => Remedy::Elsewhere,
        "OOM" => Remedy::Full,
        "WRONGTYPE" | "NOPERM" | "NOAUTH" | "WRONGPASS" | "CROSSSLOT" => Remedy::Act,
        // ASK: the slot is on its way to another node, MOVED will tell when it has arrived.
        // LOADING, TRYAGAIN, CLUSTERDOWN, MASTERDOWN, MISCONF, BUSY, NOREPLICAS, UNBLOCKED and whatever
        // comes next: a queue that waits loses nothing.
        _ => Remedy::Wait,
    }
}

/// Codes that a script's error carries in its text on Redis 6.2 (7 passes the code through).
const CODES_IN_SCRIPTS: [&str; 6] = ["OOM", "READONLY", "NOGROUP", "LOADING", "WRONGTYPE", "NOPERM"];

impl Failure {
    /// The codes of all server errors in it: a pipeline has several, a transaction keeps its commands' own.
    pub(super) fn codes(&self) -> Vec<String> {
        let Failure::Redis(error) = self else { return Vec::new() };
        let Some(errors) = error.clone().into_server_errors() else { return Vec::new() };
        let code = |detail: &str, code: &str| {
            let inner = CODES_IN_SCRIPTS.iter().find(|inner| detail.contains(&format!("-{inner} ")));
            inner.map_or_else(|| code.to_string(), ToString::to_string)
        };
        errors.iter().map(|(_, error)| code(error.details().unwrap_or_default(), error.code())).collect()
    }

    pub(super) fn has_code(&self, code: &str) -> bool {
        self.codes().iter().any(|found| found == code)
    }

    /// Of two, the one to report: what somebody must act on comes first, then the later one.
    pub(super) fn worse(self, later: Failure) -> Failure {
        if matches!(self, Failure::Unusable(_)) { self } else { later }
    }

    /// The command was refused before it did anything, because this server no longer takes our writes.
    pub(super) fn is_elsewhere(&self) -> bool {
        let codes = self.codes();
        !codes.is_empty() && codes.iter().all(|code| remedy(code) == Remedy::Elsewhere)
    }

    /// The connection it happened on must not be used again.
    pub(super) fn breaks_connection(&self) -> bool {
        match self {
            Failure::Redis(error) if error.kind() == ErrorKind::Io => true,
            Failure::Redis(error) => {
                error.is_unrecoverable_error()
                    || self
                        .codes()
                        .iter()
                        .any(|code| remedy(code) == Remedy::Elsewhere || code == "CLUSTERDOWN" || code == "MASTERDOWN")
            }
            Failure::Unusable(_) | Failure::NoPrimary(_) => true,
        }
    }
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Failure {
        Failure::Redis(error)
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        let codes = failure.codes();
        let error = match failure {
            Failure::Unusable(why) => return Error::Unusable(why),
            Failure::NoPrimary(why) => return Error::Unavailable(why),
            Failure::Redis(error) => error,
        };
        let text = error.to_string();
        if codes.iter().any(|code| remedy(code) == Remedy::Full) {
            return Error::Full(text);
        }
        let unknown_command = codes.iter().any(|code| code == "ERR") && text.contains("unknown command");
        let config = matches!(error.kind(), ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig);
        if config || unknown_command || codes.iter().any(|code| remedy(code) == Remedy::Act) {
            return Error::Unusable(text);
        }
        Error::Unavailable(text)
    }
}
