//! What went wrong, sorted by what the caller does next.

use tokio_postgres::error::SqlState;

use super::connect;

/// The result of a store call.
pub type Result<T> = std::result::Result<T, Error>;

/// Why Postgres did not do it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Away, restarting, out of connections, out of disk, timed out: wait and try again. A change may or may not
    /// have been made.
    #[error("Postgres is unavailable: {0}")]
    Unavailable(String),
    /// Deadlock, serialization failure, lock or statement timeout: the change was not made; try again.
    #[error("Postgres was contended: {0}")]
    Contention(String),
    /// The login may not do this, or the schema is not what we expect: someone must act.
    #[error("Postgres refused: {0}")]
    Refused(String),
    /// A statement of ours is wrong.
    #[error("a statement failed unexpectedly: {0}")]
    Bug(String),
}

impl Error {
    /// Sorts a driver's error; the one place that knows SQLSTATEs.
    pub(super) fn of(error: &tokio_postgres::Error) -> Error {
        let Some(db) = error.as_db_error() else {
            return Error::Unavailable(root_cause(error));
        };
        let text = format!("{} ({})", db.message(), db.code().code());
        let code = db.code();
        let contention = [
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::LOCK_NOT_AVAILABLE,
            SqlState::QUERY_CANCELED,
            SqlState::UNIQUE_VIOLATION,
        ];
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
        match &code.code()[..2] {
            // Connection exceptions, insufficient resources, operator intervention, system errors, read-only
            // transactions of a standby.
            "08" | "53" | "57" | "58" | "25" => Error::Unavailable(text),
            _ => Error::Bug(text),
        }
    }

    /// Whether waiting and trying again can help.
    pub fn is_passing(&self) -> bool {
        matches!(self, Error::Unavailable(_) | Error::Contention(_))
    }
}

impl From<connect::Error> for Error {
    fn from(error: connect::Error) -> Self {
        match error {
            connect::Error::Unreachable { .. } => Error::Unavailable(error.to_string()),
            other => Error::Refused(other.to_string()),
        }
    }
}

fn root_cause(error: &tokio_postgres::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
