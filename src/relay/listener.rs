//! The session that listens for the doorbell. When it breaks it is made anew; until then we poll. A server that hangs
//! does not end the session, so a query every few seconds checks it.

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
/// Said again and again: it changes nothing, and shows whether anybody is there to ring.
const LISTEN: &str = "LISTEN outboxd";
const PING_EVERY: Duration = Duration::from_secs(4);

/// Why the bell rang.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bell {
    /// A commit.
    Commit,
    /// An operator said something.
    Control,
}

/// Listens on a connection of its own.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) wakeup: Wakeup,
    config: Config,
    session: Option<Session>,
    tried_at: Option<Instant>,
    rings: u64,
}

#[derive(Debug)]
struct Session {
    bells: mpsc::Receiver<Bell>,
    driver: JoinHandle<()>,
    /// LISTEN lasts as long as its client, which this task has. It ends when there is no answer.
    pings: JoinHandle<()>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.driver.abort();
        self.pings.abort();
    }
}

impl Listener {
    pub(crate) fn new(config: &Config) -> Listener {
        Listener { wakeup: config.relay.wakeup, config: config.clone(), session: None, tried_at: None, rings: 0 }
    }

    /// Whether a bell would be heard now; tries to listen if not.
    pub(crate) async fn hears(&mut self) -> bool {
        if self.wakeup == Wakeup::Poll {
            return false;
        }
        if self.session.as_ref().is_some_and(|session| !session.driver.is_finished() && !session.pings.is_finished()) {
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
        // More bells that wait to be heard would say nothing more.
        let (ring, bells) = mpsc::channel(16);
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
        let heard = tokio::time::timeout(limit, client.batch_execute(LISTEN)).await;
        let session = Session { bells, driver, pings: tokio::spawn(ping(client, limit)) };
        match heard {
            Ok(Ok(())) => Ok(session),
            Ok(Err(error)) => Err(store::Error::Unavailable(error.to_string())),
            // The loop waits for us: a link that falls silent now must not stop it.
            Err(_) => Err(store::Error::Unavailable("no answer to LISTEN".to_owned())),
        }
    }

    /// How often the bell was heard since this was last asked.
    pub(crate) fn take_rings(&mut self) -> u64 {
        std::mem::take(&mut self.rings)
    }

    /// Waits for a bell; forever, if there is nothing to hear it with.
    pub(crate) async fn rung(&mut self) -> Bell {
        let Some(session) = &mut self.session else {
            return std::future::pending().await;
        };
        match session.bells.recv().await {
            Some(mut bell) => {
                self.rings += 1;
                // One poll serves all that have rung by now.
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

/// Asks for a word until there is none.
async fn ping(client: tokio_postgres::Client, limit: Duration) {
    loop {
        tokio::time::sleep(PING_EVERY).await;
        match tokio::time::timeout(limit, client.batch_execute(LISTEN)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return debug!(%error, "the listening session ended"),
            Err(_) => return warn!("the listening session fell silent; it is made anew"),
        }
    }
}
