//! The session that hears the bell. It notices its own death and is made anew; until then we poll.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_postgres::AsyncMessage;
use tracing::{debug, warn};

use crate::config::{Config, Wakeup};
use crate::store;

/// Between attempts to listen again.
const RECONNECT_EVERY: Duration = Duration::from_secs(1);
/// Bells that may wait to be heard; more say nothing more.
const BELLS_MAX: usize = 16;

/// Why the bell rang.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bell {
    /// A commit.
    Commit,
    /// An operator said something.
    Control,
}

/// Listens on a connection of its own.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) wakeup: Wakeup,
    config: Config,
    session: Option<Session>,
    tried_at: Option<Instant>,
    rings: u64,
}

#[derive(Debug)]
struct Session {
    bells: mpsc::Receiver<Bell>,
    driver: JoinHandle<()>,
    /// LISTEN lasts as long as its client.
    client: tokio_postgres::Client,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Listener {
    pub(super) fn new(config: &Config) -> Listener {
        Listener { wakeup: config.relay.wakeup, config: config.clone(), session: None, tried_at: None, rings: 0 }
    }

    /// Whether a bell would be heard now; tries to listen if not.
    pub(super) async fn hears(&mut self) -> bool {
        if self.wakeup == Wakeup::Poll {
            return false;
        }
        if self.session.as_ref().is_some_and(|session| !session.driver.is_finished()) {
            return true;
        }
        if self.tried_at.is_some_and(|at| at.elapsed() < RECONNECT_EVERY) {
            return false;
        }
        self.tried_at = Some(Instant::now());
        self.session = match self.listen().await {
            Ok(session) => Some(session),
            Err(error) => {
                warn!(%error, "cannot listen for commits; polling instead");
                None
            }
        };
        self.session.is_some()
    }

    async fn listen(&self) -> store::Result<Session> {
        let (client, mut connection) = store::dedicated(&self.config).await?;
        let (ring, bells) = mpsc::channel(BELLS_MAX);
        let driver = tokio::spawn(async move {
            let mut messages = futures_util::stream::poll_fn(move |context| connection.poll_message(context));
            while let Some(message) = messages.next().await {
                match message {
                    Ok(AsyncMessage::Notification(note)) => {
                        let bell = if note.payload() == "control" { Bell::Control } else { Bell::Commit };
                        // A full channel already says that there is something to do.
                        let _ = ring.try_send(bell);
                    }
                    Ok(_) => {}
                    Err(error) => {
                        debug!(%error, "the listening session ended");
                        break;
                    }
                }
            }
        });
        let limit = self.config.database.connect_timeout;
        let session = Session { bells, driver, client };
        match tokio::time::timeout(limit, session.client.batch_execute("LISTEN outboxd")).await {
            Ok(Ok(())) => Ok(session),
            Ok(Err(error)) => Err(store::Error::Unavailable(error.to_string())),
            // The pump waits for us: a link that falls silent now must not stop it.
            Err(_) => Err(store::Error::Unavailable("no answer to LISTEN".to_owned())),
        }
    }

    /// How often the bell was heard since this was last asked.
    pub(super) fn take_rings(&mut self) -> u64 {
        std::mem::take(&mut self.rings)
    }

    /// Waits for a bell; forever, if there is nothing to hear it with.
    pub(super) async fn rung(&mut self) -> Bell {
        let Some(session) = &mut self.session else {
            return std::future::pending().await;
        };
        match session.bells.recv().await {
            Some(mut bell) => {
                self.rings += 1;
                // One look serves all that have rung by now.
                while let Ok(another) = session.bells.try_recv() {
                    self.rings += 1;
                    if another == Bell::Control {
                        bell = another;
                    }
                }
                bell
            }
            None => {
                // The session died: whatever it would have heard may be there now.
                self.session = None;
                Bell::Commit
            }
        }
    }
}
