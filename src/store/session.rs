//! What every session of ours pins, whatever the database, its roles or the URL set by default.
//!
//! The one list: the pools, the listener, the migrator and the commands have their sessions from here. Over a
//! transaction-mode pooler a session is not ours to set, so the same list goes with each transaction.

use std::time::Duration;

/// What a session is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The daemon's statements, whose commits are told when they are on disk.
    Durable,
    /// The daemon's statements, whose commits are told at once: for what a crash may undo without harm.
    Relaxed,
    /// What callers over HTTP ask: the plans that anybody's session would have, and little time.
    Request,
    /// One that listens, or asks how another one fares.
    Idle,
    /// One that reads an audience, somebody else's code, and nothing else: see [`super::audience`].
    Audience,
    /// A person's command.
    Command,
    /// A migration, which takes as long as it takes.
    Migration,
}

/// How long a statement of the daemon waits for what another's open transaction has locked: see [`super::locks`].
/// People and callers wait as long as their statements may take, and so does a migration.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// A statement of a caller over HTTP ends before its request does.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// A person waits for a command's statement at most this long.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(300);

/// Names mean what they say: nothing that somebody put into another schema is found, and temporary objects come last.
/// Texts and spans are read and written as we write them.
const NAMES_AND_TEXTS: [(&str, &str); 4] = [
    ("search_path", "pg_catalog, pg_temp"),
    ("row_security", "on"),
    ("standard_conforming_strings", "on"),
    ("IntervalStyle", "postgres"),
];

/// What a transaction is unless told otherwise; `BEGIN` says it where these cannot be set.
const TRANSACTIONS: [(&str, &str); 2] =
    [("default_transaction_isolation", "'read committed'"), ("default_transaction_read_only", "off")];

/// The plans we measured: index paths only, no parallel workers, no JIT. Never-analysed tables and generic plans
/// otherwise turn a 0.1 ms poll into a scan of the backlog.
const PLANS: [(&str, &str); 9] = [
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("enable_indexscan", "on"),
    ("enable_indexonlyscan", "on"),
    ("enable_nestloop", "on"),
    ("max_parallel_workers_per_gather", "0"),
    ("jit", "off"),
];

/// Times in answers are in UTC, and an answer takes no more than its one process.
const REQUESTS: [(&str, &str); 3] = [("TimeZone", "'UTC'"), ("max_parallel_workers_per_gather", "0"), ("jit", "off")];

const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; ";
const BEGIN_READ_ONLY: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY; ";

/// A limit that servers before 17 do not know.
const TRANSACTION_TIMEOUT: &str = "SELECT pg_catalog.set_config('transaction_timeout', '0', $local) \
     WHERE pg_catalog.current_setting('transaction_timeout', true) IS NOT NULL";

/// The settings of one kind of session.
#[derive(Debug, Clone)]
pub struct Settings {
    purpose: Purpose,
    statement_timeout: Duration,
}

impl Settings {
    /// `statement_timeout` is that of the daemon's statements.
    pub fn new(purpose: Purpose, statement_timeout: Duration) -> Settings {
        let statement_timeout = match purpose {
            Purpose::Durable | Purpose::Relaxed | Purpose::Idle | Purpose::Audience => statement_timeout,
            Purpose::Request => statement_timeout.min(REQUEST_TIMEOUT),
            Purpose::Command => COMMAND_TIMEOUT,
            Purpose::Migration => Duration::ZERO,
        };
        Settings { purpose, statement_timeout }
    }

    /// For as long as the connection lasts.
    pub fn for_session(&self) -> String {
        let mut all: Vec<(&str, String)> = self.for_any();
        all.extend(TRANSACTIONS.map(|(name, value)| (name, value.to_owned())));
        all.push(("idle_session_timeout", "0".to_owned()));
        if self.is_work() {
            all.push(("plan_cache_mode", "force_generic_plan".to_owned()));
        }
        let set = all.iter().map(|(name, value)| format!("SET {name} = {value}; "));
        format!("{}{}", set.collect::<String>(), TRANSACTION_TIMEOUT.replace("$local", "false"))
    }

    /// Begins a transaction that has them. If any cannot be set, the transaction has failed, and nothing runs without.
    pub fn begin(&self) -> String {
        if self.purpose == Purpose::Audience {
            return format!("{BEGIN_READ_ONLY}{}", self.for_transaction());
        }
        format!("{BEGIN}SET LOCAL transaction_read_only = off; {}", self.for_transaction())
    }

    /// The same where nothing can be written: on a standby.
    pub fn begin_reading(&self) -> String {
        format!("{BEGIN}{}", self.for_transaction())
    }

    fn for_transaction(&self) -> String {
        let set = self.for_any().into_iter().map(|(name, value)| format!("SET LOCAL {name} = {value}; "));
        format!("{}{}", set.collect::<String>(), TRANSACTION_TIMEOUT.replace("$local", "true"))
    }

    /// Gives a session back as it was by default.
    pub fn reset(&self) -> String {
        let mut names: Vec<&str> = self.for_any().into_iter().map(|(name, _)| name).collect();
        names.extend(TRANSACTIONS.map(|(name, _)| name));
        names.push("idle_session_timeout");
        names.iter().map(|name| format!("RESET {name}; ")).collect()
    }

    fn for_any(&self) -> Vec<(&'static str, String)> {
        let timeout_ms = self.statement_timeout.as_millis().to_string();
        let lock_timeout = if self.is_work() { LOCK_TIMEOUT } else { Duration::ZERO };
        // The limits first: whatever they were holds until they are set.
        let mut all = vec![
            ("statement_timeout", timeout_ms.clone()),
            ("lock_timeout", lock_timeout.as_millis().to_string()),
            ("idle_in_transaction_session_timeout", timeout_ms),
        ];
        all.extend(NAMES_AND_TEXTS.map(|(name, value)| (name, value.to_owned())));
        if self.is_work() {
            all.extend(PLANS.map(|(name, value)| (name, value.to_owned())));
        }
        match self.purpose {
            Purpose::Durable => all.push(("synchronous_commit", "on".to_owned())),
            Purpose::Relaxed => all.push(("synchronous_commit", "off".to_owned())),
            Purpose::Request => {
                all.push(("synchronous_commit", "on".to_owned()));
                all.extend(REQUESTS.map(|(name, value)| (name, value.to_owned())));
            }
            // A command tells its user what the functions note.
            Purpose::Command => all.push(("client_min_messages", "notice".to_owned())),
            // Nobody listens; the audience may say otherwise, and is then bounded by the connection.
            Purpose::Audience => all.push(("client_min_messages", "error".to_owned())),
            Purpose::Idle | Purpose::Migration => {}
        }
        all
    }

    fn is_work(&self) -> bool {
        matches!(self.purpose, Purpose::Durable | Purpose::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_and_a_transaction_have_the_same_settings() {
        let settings = Settings::new(Purpose::Durable, Duration::from_secs(30));
        let (session, transaction) = (settings.for_session(), settings.begin());
        for (name, value) in settings.for_any() {
            assert!(session.contains(&format!("SET {name} = {value};")), "{session}");
            assert!(transaction.contains(&format!("SET LOCAL {name} = {value};")), "{transaction}");
        }
        // Read-write before anything else: a default of read only must not refuse what follows.
        assert!(transaction.starts_with(&format!("{BEGIN}SET LOCAL transaction_read_only = off; SET LOCAL ")));
        assert!(!settings.begin_reading().contains("transaction_read_only"));
    }

    #[test]
    fn only_the_daemons_statements_have_their_plans_pinned() {
        for (purpose, is_pinned) in [(Purpose::Relaxed, true), (Purpose::Command, false), (Purpose::Migration, false)] {
            let settings = Settings::new(purpose, Duration::from_secs(30));
            assert_eq!(settings.for_session().contains("enable_seqscan"), is_pinned, "{purpose:?}");
        }
    }
}
