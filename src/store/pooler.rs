//! Whether a transaction-mode pooler, which the configuration does not mention, shares our sessions with others.

use std::time::Duration;

use secrecy::SecretString;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::connect::Target;
use super::{Error, Result, Store};
use crate::config::Config;

const REFUSAL: &str = "a transaction-mode pooler (such as PgBouncer) stands in between and shares sessions, so settings, \
     prepared statements and LISTEN do not last: set database.pooler = true (OUTBOXD_DATABASE_POOLER=true), or connect \
     directly or in session mode. `outboxd migrate` needs a direct connection";
/// Whose session is asked for what it was told, in this order. However a pooler deals its connections out (always the
/// same one, the one used last, each in turn), one of these meets another's or a new one.
const ROUND: [usize; 8] = [0, 0, 1, 0, 1, 1, 0, 1];

/// Fails if sessions are shared and the configuration does not know. Says nothing against session-mode poolers and
/// proxies: behind them a session keeps what it is told.
pub async fn refuse_shared(config: &Config) -> Result<()> {
    if !config.database.pooler && are_sessions_shared(&config.database_url, config.database.connect_timeout).await? {
        return Err(Error::Refused(REFUSAL.to_owned()));
    }
    Ok(())
}

/// Whether two sessions, each told something else, mix it up. What cannot be found out counts as no.
pub async fn are_sessions_shared(url: &SecretString, limit: Duration) -> Result<bool> {
    are_shared(&Target::parse(url)?, limit).await
}

impl Store {
    /// Whether they are shared now and the configuration does not know. What cannot be found out counts as no.
    pub async fn are_sessions_shared(&self) -> bool {
        !self.is_pooled && are_shared(&self.liveness.target, self.liveness.timeout).await.unwrap_or(false)
    }
}

async fn are_shared(target: &Target, limit: Duration) -> Result<bool> {
    let (first, connection) = target.connect(limit).await?;
    let first_driver = tokio::spawn(connection);
    let shared = match target.connect(limit).await {
        Ok((second, connection)) => {
            let second_driver = tokio::spawn(connection);
            let shared = tokio::time::timeout(limit, mix_up(&[first, second])).await;
            second_driver.abort();
            // In session mode a second session may have to wait for the first to end.
            shared.unwrap_or(false)
        }
        Err(_) => false,
    };
    first_driver.abort();
    Ok(shared)
}

async fn mix_up(sessions: &[Client; 2]) -> bool {
    // A name of ours and harmless: whoever shares the session sees one parameter more.
    let words = [rand::random::<u64>(), rand::random::<u64>()].map(|word| word.to_string());
    for (session, word) in sessions.iter().zip(&words) {
        if session.batch_execute(&format!("SET outboxd.session = '{word}'")).await.is_err() {
            return false;
        }
    }
    let mut is_shared = false;
    for n in ROUND {
        if let Some(heard) = word_of(&sessions[n]).await {
            is_shared |= heard != words[n];
        }
    }
    for session in sessions {
        // A session that is gone has nothing to forget.
        let _gone = tokio::time::timeout(Duration::from_secs(1), session.batch_execute("RESET outboxd.session")).await;
    }
    is_shared
}

async fn word_of(session: &Client) -> Option<String> {
    let ask = "SELECT pg_catalog.current_setting('outboxd.session', true)";
    let messages = session.simple_query(ask).await.ok()?;
    messages.into_iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row.try_get(0).ok().flatten().unwrap_or_default().to_owned()),
        _ => None,
    })
}
