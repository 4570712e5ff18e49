//! Connecting for commands that read or act: they need the database, and nothing else of the configuration.

use std::io::Write;

use tokio_postgres::error::DbError;

use super::Failure;
use crate::config::{self, Database, Sources};
use crate::printable;
use crate::store::command::Session;

/// What is configured of the database; what of it is not used is told.
pub(super) fn load(sources: &Sources) -> Result<Database, Failure> {
    let database = config::load_database(sources)?;
    for warning in &database.warnings {
        tracing::warn!("{warning}");
    }
    Ok(database)
}

/// Connects to the configured database, without the daemon's own settings.
pub(super) async fn connect(sources: &Sources) -> Result<Session, Failure> {
    open(&load(sources)?).await
}

/// Connects to this database.
pub(super) async fn open(database: &Database) -> Result<Session, Failure> {
    Ok(Session::connect(&database.url, &database.settings, tell).await?)
}

/// A notice that a function raised beside its answer. Where nobody reads stderr any more, the command goes on.
fn tell(notice: &DbError) {
    let hint = notice.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
    let said = format!("{}{hint}", notice.message());
    let _ = writeln!(std::io::stderr(), "outboxd: {}", printable::line(&said));
}
