//! A command's session. Each statement brings its settings with its transaction: through a pooler that nobody
//! mentioned, settings of a session would be left to whoever shares it.

use std::future::poll_fn;

use secrecy::SecretString;
use tokio_postgres::error::DbError;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Row, SimpleQueryMessage, SimpleQueryRow};

use super::connect::{self, Opened, Target};
use super::session::{Purpose, Settings};
use crate::config::{Config, DatabaseConfig};

/// A standby cannot be asked for a transaction that writes. By a name of its own: what `connect` asks under its name
/// refuses standbys.
const IS_READ_ONLY: &str = "SELECT pg_catalog.pg_is_in_recovery() AS is_read_only";

/// A statement's parameters with their types: nothing is prepared.
pub type Parameters<'a> = &'a [(&'a (dyn ToSql + Sync), Type)];

/// A session for a person's statements. Ends when dropped.
#[derive(Debug)]
pub struct Session {
    client: Client,
    begin: String,
    is_read_only: bool,
}

impl Session {
    /// Connects as configured.
    pub async fn open(config: &Config) -> Result<Session, connect::Error> {
        Session::connect(&config.database_url, &config.database, |_| ()).await
    }

    /// Connects by what commands know that need only the database. A standby is good enough to read. `tell` gets the
    /// notices that the server's functions raise, before their answer.
    pub async fn connect(
        url: &SecretString,
        database: &DatabaseConfig,
        tell: fn(&DbError),
    ) -> Result<Session, connect::Error> {
        let Opened { client, mut connection, rows } =
            Target::parse(url)?.open(database.connect_timeout, IS_READ_ONLY).await?;
        // Ends with the client. What breaks the connection is told to whoever waits for an answer.
        tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
                if let AsyncMessage::Notice(notice) = message {
                    tell(&notice);
                }
            }
        });
        let settings = Settings::new(Purpose::Command, database.statement_timeout);
        let is_read_only = rows.iter().any(|row| row.try_get("is_read_only").ok().flatten() == Some("t"));
        let begin = if is_read_only { settings.begin_reading() } else { settings.begin() };
        Ok(Session { client, begin, is_read_only })
    }

    /// Whether the server takes no writes.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Runs one statement as a transaction of its own.
    pub async fn query(&self, sql: &str, params: Parameters<'_>) -> Result<Vec<Row>, tokio_postgres::Error> {
        let typed: Vec<_> = params.iter().map(|(value, kind)| (*value, kind.clone())).collect();
        // Sent together: if the statement fails, COMMIT rolls back.
        let (began, rows, committed) = tokio::join!(
            self.client.batch_execute(&self.begin),
            self.client.query_typed(sql, &typed),
            self.client.batch_execute("COMMIT")
        );
        began?;
        let rows = rows?;
        committed?;
        Ok(rows)
    }

    /// Runs statements without parameters in one transaction; their rows as text.
    pub async fn simple_rows(&self, sql: &str) -> Result<Vec<SimpleQueryRow>, tokio_postgres::Error> {
        let ended = self.client.simple_query(&format!("{}; {sql}; COMMIT", self.begin)).await;
        if ended.is_err() {
            // What failed left its transaction open. A session that is gone has none.
            let _gone = self.client.batch_execute("ROLLBACK").await;
        }
        let row = |message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        };
        // The settings may answer too; what they say is of no interest.
        let rows = ended?.into_iter().filter_map(row);
        Ok(rows.filter(|row| row.columns().iter().all(|column| column.name() != "set_config")).collect())
    }
}
