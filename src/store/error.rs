//! What went wrong, sorted by what the caller does next.

use tokio_postgres::error::SqlState;

use super::connect;
use crate::queue;

/// The result of a store call.
pub type Result<T> = std::result::Result<T, Error>;

/// Why Postgres did not do it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Away, restarting, out of connections, out of disk, timed out: wait and try again. A change may or may not
    /// have been made.
    #[error("Postgres is unavailable: {0}")]
    Unavailable(String),
    /// Deadlock, serialization failure, unique violation, statement timeout: the change was not made; try again.
    #[error("Postgres was contended: {0}")]
    Contention(String),
    /// Another's open transaction holds a lock: the change was not made. Of a batch only the rows it holds need wait:
    /// see [`super::locks`].
    #[error("another transaction holds a lock: {0}")]
    Locked(String),
    /// The login may not do this, or the schema is not what we expect: someone must act.
    #[error("Postgres refused: {0}")]
    Refused(String),
    /// A value that Postgres does not take, or that cannot be read: the change was not made, and never will be with it.
    /// Of a batch only the row that has it is to blame: see [`super::refusal`].
    #[error("a value cannot be taken: {0}")]
    Value(String),
    /// A statement of ours is wrong.
    #[error("a statement failed unexpectedly: {0}")]
    Bug(String),
}

/// Why a stage stopped: Postgres or the queue did not do its part.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// Postgres.
    #[error(transparent)]
    Store(#[from] Error),
    /// The queue.
    #[error(transparent)]
    Queue(#[from] queue::Error),
}

impl Error {
    /// Sorts a driver's error; the one place that knows SQLSTATEs.
    pub(super) fn of(error: &tokio_postgres::Error) -> Error {
        let Some(db) = error.as_db_error() else {
            // The driver does not tell otherwise that it was not the connection.
            let is_value = error.to_string().starts_with("error serializing parameter");
            return if is_value { Error::Value(root_cause(error)) } else { Error::Unavailable(root_cause(error)) };
        };
        Error::of_code(db.code(), format!("{} ({})", db.message(), db.code().code()))
    }

    fn of_code(code: &SqlState, text: String) -> Error {
        let contention = [
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::QUERY_CANCELED,
            SqlState::UNIQUE_VIOLATION,
        ];
        if *code == SqlState::LOCK_NOT_AVAILABLE {
            return Error::Locked(text);
        }
        if contention.contains(code) {
            return Error::Contention(text);
        }
        let refused = [
            SqlState::INSUFFICIENT_PRIVILEGE,
            SqlState::UNDEFINED_TABLE,
            SqlState::UNDEFINED_COLUMN,
            SqlState::INVALID_SCHEMA_NAME,
            SqlState::UNDEFINED_FUNCTION,
            SqlState::INVALID_PASSWORD,
            SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
        ];
        if refused.contains(code) {
            return Error::Refused(text);
        }
        if [SqlState::CHECK_VIOLATION, SqlState::NOT_NULL_VIOLATION].contains(code) {
            return Error::Value(text);
        }
        match &code.code()[..2] {
            // Data exceptions, and values too big for an index or a row.
            "22" | "54" => Error::Value(text),
            // Connection exceptions, insufficient resources, operator intervention, system errors, read-only
            // transactions of a standby, statements that a session remembers wrongly.
            "08" | "53" | "57" | "58" | "25" | "0A" => Error::Unavailable(text),
            _ => Error::Bug(text),
        }
    }

    /// Whether another connection would do better: this one leads to a server that takes no writes any more, or
    /// remembers the schema as it was (a statement whose result has another type now).
    pub(super) fn is_of_this_connection(error: &tokio_postgres::Error) -> bool {
        error.code().is_some_and(|code| {
            *code == SqlState::READ_ONLY_SQL_TRANSACTION || *code == SqlState::FEATURE_NOT_SUPPORTED
        })
    }

    /// Whether waiting and trying again can help.
    pub fn is_passing(&self) -> bool {
        matches!(self, Error::Unavailable(_) | Error::Contention(_) | Error::Locked(_))
    }
}

impl connect::Error {
    /// Whether waiting and trying again can help.
    pub fn is_passing(&self) -> bool {
        match self {
            connect::Error::Unreachable { .. } | connect::Error::Standby => true,
            // A server that starts, stops or has no connection left says no for now.
            connect::Error::Refused { code, .. } => {
                Error::of_code(&SqlState::from_code(code), String::new()).is_passing()
            }
            connect::Error::Url(_) | connect::Error::Tls(_) => false,
        }
    }
}

impl From<connect::Error> for Error {
    fn from(error: connect::Error) -> Self {
        let text = error.to_string();
        if error.is_passing() { Error::Unavailable(text) } else { Error::Refused(text) }
    }
}

fn root_cause(error: &tokio_postgres::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
