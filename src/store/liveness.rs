//! Whether a session that has not answered for a while is still at work.
//!
//! A server that is frozen, a link that is half-open and a primary that was replaced say nothing, and the kernel at the
//! other end may go on acknowledging. `statement_timeout` bounds only servers that work. So whoever waits for longer
//! than a few seconds asks through a new connection, to whichever server takes writes now, whether the session is there
//! and working. If it is not, or nobody lets us in, the connection is given up, and with it all that were made before.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio_postgres::SimpleQueryRow;
use tracing::warn;

use super::connect::{self, Target};
use super::session::{Purpose, Settings};

/// How long a session may be silent before somebody asks, and between questions.
pub(super) const SILENT_AFTER: Duration = Duration::from_secs(3);

/// Tells which backend serves a session.
pub(super) const WHO: &str = "SELECT a.pid || ' ' || extract(epoch FROM a.backend_start) AS backend \
     FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()) a";
/// The backends of this login that are at work. One that has answered just now may be about to be asked again.
const AT_WORK: &str = "SELECT a.pid || ' ' || extract(epoch FROM a.backend_start) AS backend \
     FROM pg_catalog.pg_stat_activity a \
     WHERE a.usename = session_user \
       AND (coalesce(a.state, '') NOT LIKE 'idle%' OR a.state_change > clock_timestamp() - interval '2 s')";

/// A session's server process, by its number and when it was started: numbers come again, on another server at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Backend(String);

impl Backend {
    /// From the answer to [`WHO`]; `None`: it was not asked.
    pub(super) fn of(opened: &connect::Opened) -> Option<Backend> {
        backends(opened).pop()
    }

    /// From a row of that answer.
    pub(super) fn told(row: &SimpleQueryRow) -> Option<Backend> {
        row.try_get("backend").ok().flatten().map(|backend| Backend(backend.to_owned()))
    }

    /// As it was told.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

fn backends(opened: &connect::Opened) -> Vec<Backend> {
    opened.rows.iter().filter_map(Backend::told).collect()
}

/// What was said, and when it was known.
#[derive(Debug)]
struct Answer {
    known_at: Instant,
    said: Said,
}

#[derive(Debug)]
enum Said {
    /// These are at work; others are gone, or wait for us.
    AtWork(Vec<Backend>),
    /// The server is there, and cannot say more.
    IsThere,
    /// Nobody lets us in.
    Nothing,
}

/// Asks for all sessions of a store.
pub(super) struct Liveness {
    pub(super) target: Target,
    pub(super) timeout: Duration,
    question: String,
    /// Who asks at the same time shares the answer.
    last: tokio::sync::Mutex<Option<Answer>>,
    /// Connections made before this are not to be used any more.
    given_up: Mutex<Instant>,
    /// Whether the last call was answered.
    answers: watch::Sender<bool>,
}

impl std::fmt::Debug for Liveness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Liveness").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl Liveness {
    /// `is_pooled`: a backend is not ours for longer than a transaction, so only whether anybody answers is asked.
    pub(super) fn new(target: Target, timeout: Duration, is_pooled: bool) -> Liveness {
        let settings = Settings::new(Purpose::Idle, timeout);
        let question = match is_pooled {
            true => format!("{}; COMMIT", settings.begin()),
            false => format!("{}; {AT_WORK}", settings.for_session()),
        };
        let last = tokio::sync::Mutex::new(None);
        let (answers, _) = watch::channel(true);
        Liveness { target, timeout, question, last, given_up: Mutex::new(Instant::now()), answers }
    }

    /// A call was answered, or it was not.
    pub(super) fn note(&self, answered: bool) {
        self.answers.send_if_modified(|answers| std::mem::replace(answers, answered) != answered);
    }

    /// Ends when calls are answered, or when they are not; at once, if that is so now.
    pub(super) async fn until(&self, answers: bool) {
        // It cannot fail: the sender is in `self`.
        let _ = self.answers.subscribe().wait_for(|now| *now == answers).await;
    }

    /// Whether the last call was answered.
    pub(super) fn answers(&self) -> bool {
        *self.answers.borrow()
    }

    /// Whether nothing is to be expected any more of a session that is silent.
    pub(super) async fn is_gone(&self, backend: Option<&Backend>) -> bool {
        let asked_at = Instant::now();
        let mut last = self.last.lock().await;
        if last.as_ref().is_none_or(|answer| answer.known_at < asked_at) {
            let said = self.ask().await;
            *last = Some(Answer { known_at: Instant::now(), said });
        }
        match (last.as_ref().map(|answer| &answer.said), backend) {
            (Some(Said::AtWork(at_work)), Some(backend)) => !at_work.contains(backend),
            (Some(Said::Nothing), _) => true,
            _ => false,
        }
    }

    async fn ask(&self) -> Said {
        match self.target.open(self.timeout, &self.question).await {
            Ok(opened) => match backends(&opened) {
                at_work if at_work.is_empty() => Said::IsThere,
                at_work => Said::AtWork(at_work),
            },
            Err(connect::Error::Unreachable { .. } | connect::Error::Standby) => Said::Nothing,
            // Out of connections, starting up: it speaks.
            Err(_) => Said::IsThere,
        }
    }

    /// Nothing made up to now is used again.
    pub(super) fn give_up(&self) {
        warn!("a session of Postgres fell silent; connections are made anew");
        *self.given_up.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Whether a connection made then may still be used.
    pub(super) fn may_use(&self, made_at: Instant) -> bool {
        made_at > *self.given_up.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
