//! Requests of callers over HTTP: on connections of their own, and with the server's own message when it refuses.

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::{Error, Failed, Query, Store};

/// What is asked for cannot be done, for a reason that the caller can mend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    /// Of what kind.
    pub reason: Reason,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

/// Why something cannot be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// There is nothing of that name or number.
    NotFound,
    /// It is not in a state in which that can be done.
    WrongState,
    /// A value is not one that can be taken.
    Invalid,
}

/// Why a request was not answered.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The caller's to mend.
    #[error("{}", .0.message)]
    Denied(Denied),
    /// It would have taken longer than a request may: the change was not made.
    #[error("it takes longer than a request may")]
    OutOfTime,
    /// Ours or the server's.
    #[error(transparent)]
    Store(#[from] Error),
}

/// The result of a request.
pub type Answer<T> = std::result::Result<T, RequestError>;

impl RequestError {
    /// What a function of ours raises has its code for this reason.
    fn of(error: &tokio_postgres::Error) -> RequestError {
        let Some(db) = error.as_db_error() else {
            return match Error::of(error) {
                Error::Value(message) => RequestError::invalid(message),
                other => other.into(),
            };
        };
        let code = db.code().code();
        let reason = match code {
            "P0002" => Reason::NotFound,
            "55000" => Reason::WrongState,
            "57014" => return RequestError::OutOfTime,
            "23514" | "23502" => Reason::Invalid,
            _ if code.starts_with("22") || code.starts_with("54") => Reason::Invalid,
            _ => return Error::of(error).into(),
        };
        let (message, hint) = (db.message().to_owned(), db.hint().map(str::to_owned));
        RequestError::Denied(Denied { reason, message, hint })
    }

    /// A value cannot be taken.
    pub fn invalid(message: impl Into<String>) -> RequestError {
        RequestError::Denied(Denied { reason: Reason::Invalid, message: message.into(), hint: None })
    }

    /// It is not in a state in which that can be done.
    pub(super) fn wrong_state(message: impl Into<String>) -> RequestError {
        RequestError::Denied(Denied { reason: Reason::WrongState, message: message.into(), hint: None })
    }
}

impl Store {
    /// Runs one statement as a transaction of its own.
    pub(super) async fn ask(&self, query: &Query, params: &[&(dyn ToSql + Sync)]) -> Answer<Vec<Row>> {
        self.try_call(query.commit, async |client| self.run(client, query, params).await).await.map_err(|failed| {
            match failed {
                Failed::Said(error) => RequestError::of(&error),
                Failed::Away(error) => error.into(),
            }
        })
    }
}
