//! Why the schema is not what this binary needs. The texts say what to do.

use tokio_postgres::error::DbError;

/// Why the schema could not be brought up to date.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server is older than we support.
    #[error("Postgres {found} is too old: outboxd needs 14 or newer (14 to 18 are supported)")]
    ServerTooOld {
        /// As the server names itself.
        found: String,
    },
    /// Texts could not be sent as they were written.
    #[error(
        "the database {database} is encoded in {encoding}, and outboxd needs UTF8: let it have a database of its own, CREATE \
         DATABASE … ENCODING 'UTF8' TEMPLATE template0"
    )]
    NotUtf8 {
        /// Its name.
        database: String,
        /// As the server names it.
        encoding: String,
    },
    /// A pooler in between keeps us from migrating, and there is something to migrate.
    #[error(
        "the schema is at migration {schema} and this binary needs {binary}, but a pooler is in between: run `outboxd migrate` \
         with a direct connection first"
    )]
    NeedsDirectConnection {
        /// What the database has.
        schema: i64,
        /// What this binary has.
        binary: i64,
    },
    /// A newer outboxd was here.
    #[error(
        "the schema is at migration {schema}, newer than this binary, which knows {binary}: \
         use a binary at least as new as the newest instance"
    )]
    SchemaNewer {
        /// What the database has.
        schema: i64,
        /// What this binary has.
        binary: i64,
    },
    /// A build from before the first release was here.
    #[error(
        "the schema outboxd was made by a build from before 0.1.0 (its first migration is `{found}`) and cannot be brought \
         up to date: let that build deliver what waits, then DROP SCHEMA outboxd CASCADE and migrate again, or use another \
         database. Its history and dead letters go with it; copy what you need first"
    )]
    BeforeFirstRelease {
        /// The name of the first migration there.
        found: String,
    },
    /// The login may not do it.
    #[error("{user} lacks rights: {message}. {hint}")]
    MissingRights {
        /// The login.
        user: String,
        /// What the server said.
        message: String,
        /// What to do.
        hint: String,
    },
    /// An applied migration differs from the one in this binary.
    #[error("an applied migration differs from this binary's: {0}")]
    Diverged(String),
    /// A migration failed; it was rolled back.
    #[error("a migration failed and was rolled back: {}", describe(.0))]
    Migration(#[source] refinery::Error),
    /// Anything else the server said.
    #[error("{}", describe(.0))]
    Database(#[from] tokio_postgres::Error),
}

/// What `tokio_postgres` itself only says as "db error", wherever it stands in the chain of causes.
fn describe(error: &(dyn std::error::Error + 'static)) -> String {
    match db_error(error) {
        Some(db) => format!("Postgres said: {} ({})", db.message(), db.code().code()),
        None => error.to_string(),
    }
}

/// What the server said, wherever it stands in the chain of causes.
pub(super) fn db_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a DbError> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(postgres) = error.downcast_ref::<tokio_postgres::Error>() {
            return postgres.as_db_error();
        }
        cause = error.source();
    }
    None
}
