//! See the commit: poll while there is much to do, listen for the doorbell while there is little.
//!
//! A NOTIFY in every app transaction would serialise commits. So a sequence, which is outside MVCC, holds a time, the
//! doorbell. It is ahead of now while an instance is busy and polls, refreshed every second while one listens, and
//! stale when all are down. The app rings only while it is neither ahead nor stale.
//!
//! **From busy to listening** must not miss a commit whose transaction read the bell before we set it. So: set it, poll
//! after a millisecond, and again, each time a half later, up to two seconds. Whoever kept its transaction open for d is
//! found after about d/2 more; nobody later than the slow poll.
//!
//! Without LISTEN (a transaction-mode pooler, `wakeup = "poll"`) polling alone works.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::config::Config;
use crate::producer::Producer;
use crate::relay::Relay;
use crate::relay::listener::{Bell, Listener};
use crate::relay::pace::Pace;
use crate::relay::publisher::Publisher;
use crate::retry::ErrorWait;
use crate::store::{StageError, Store};

/// Between polls while the window is full or a channel has enough waiting.
const FULL_PAUSE: Duration = Duration::from_millis(5);
/// Before a pause as long as this, what has arrived is confirmed by a statement of its own.
const CONFIRM_BEFORE: Duration = Duration::from_millis(5);

/// What the loop drives; an instance may have either role or both.
#[derive(Debug)]
pub struct Stages {
    /// Releases due rows.
    pub producer: Option<Producer>,
    /// Publishes what is ready.
    pub relay: Option<Relay>,
    /// Confirms before a pause.
    pub publisher: Publisher,
    /// The doorbell, which events hear too.
    pub store: Store,
}

#[derive(Debug, Clone, Copy, Default)]
struct Found {
    /// Rows pushed, released or admitted.
    rows: u64,
    /// There is more, to be gone on with at once.
    has_more: bool,
    /// Something waits for room.
    is_full: bool,
}

impl Stages {
    async fn pass(&mut self) -> Result<Found, StageError> {
        let mut found = Found::default();
        // What was just committed first; what the producer releases is published by the next pass.
        if let Some(relay) = &mut self.relay {
            let counts = relay.pass().await?;
            found.rows += counts.pushed + counts.admitted;
            found.is_full = counts.is_full;
            found.has_more |= counts.admitted > 0 || (counts.has_more && !counts.is_full);
        }
        if let Some(producer) = &mut self.producer {
            let released = producer.pass().await?.released;
            found.rows += released;
            found.has_more |= released > 0;
            if let Some(relay) = self.relay.as_mut().filter(|_| released > 0) {
                relay.wake();
            }
        }
        Ok(found)
    }

    /// How long until something is due by itself.
    fn next_due(&self) -> Duration {
        let producer = self.producer.as_ref().and_then(Producer::next_due);
        let relay = self.relay.as_ref().map(Relay::next_due);
        // What is due may be locked by somebody else: then it is asked for once in a millisecond.
        producer.into_iter().chain(relay).min().unwrap_or(Duration::MAX).max(Duration::from_millis(1))
    }

    fn on_event(&mut self, event: Event) {
        if matches!(event, Event::Bell(Bell::Commit)) {
            self.store.wake_events();
        }
        let Some(relay) = &mut self.relay else { return };
        match event {
            Event::Bell(Bell::Control) | Event::Failed => relay.rescan(),
            Event::Woken => relay.wake(),
            Event::Bell(Bell::Commit) | Event::Time | Event::Shutdown => {}
        }
    }
}

/// What ended a pause.
#[derive(Debug, Clone, Copy)]
enum Event {
    Time,
    Bell(Bell),
    Woken,
    Shutdown,
    Failed,
}

/// Runs until `shutdown`: waits, polls, listens, and outlasts any outage of Postgres or the queue.
pub async fn run(mut stages: Stages, config: &Config, shutdown: &CancellationToken) {
    let mut listener = Listener::new(config);
    let mut error_wait = ErrorWait::default();
    let mut is_down = false;
    while !shutdown.is_cancelled() {
        let mut loop_ = Loop { stages: &mut stages, listener: &mut listener, pace: Pace::new(), config };
        let ended = loop_.run(shutdown, &mut is_down).await;
        if let Err(error) = ended {
            if !is_down {
                warn!(%error, "publishing waits");
                error_wait = ErrorWait::default();
            }
            is_down = true;
            stages.on_event(Event::Failed);
            shutdown.run_until_cancelled(tokio::time::sleep(error_wait.next(rand::random()))).await;
        }
    }
    // What has arrived need not be found unconfirmed by a sweep.
    if let Err(error) = stages.publisher.confirm().await {
        warn!(%error, "the last publications are left unconfirmed; they will be published again as copies");
    }
}

/// The loop between two errors.
struct Loop<'a> {
    stages: &'a mut Stages,
    listener: &'a mut Listener,
    pace: Pace,
    config: &'a Config,
}

impl Loop<'_> {
    async fn run(&mut self, shutdown: &CancellationToken, is_down: &mut bool) -> Result<(), StageError> {
        while !shutdown.is_cancelled() {
            let can_hear = self.listener.hears().await;
            let found = self.stages.pass().await?;
            // Said once per outage.
            if std::mem::take(is_down) {
                info!("publishing goes on");
            }
            self.pace.note(found.rows, self.listener.take_rings(), can_hear);
            if let Some(ahead) = self.pace.bell() {
                self.stages.store.set_doorbell(ahead).await?;
            }
            if found.has_more {
                continue;
            }
            let pause = self.pace.pause(self.config.relay.poll, self.config.relay.idle_poll);
            let pause = pause.min(if found.is_full { FULL_PAUSE } else { self.stages.next_due() });
            // With the next reservation, unless there is none to come soon.
            if found.rows == 0 || pause >= CONFIRM_BEFORE {
                self.stages.publisher.confirm().await?;
            }
            let event = self.wait(pause, shutdown).await;
            self.stages.on_event(event);
        }
        Ok(())
    }

    async fn wait(&mut self, pause: Duration, shutdown: &CancellationToken) -> Event {
        tokio::select! {
            () = tokio::time::sleep(pause) => Event::Time,
            bell = self.listener.rung() => Event::Bell(bell),
            () = self.stages.store.woken() => Event::Woken,
            () = shutdown.cancelled() => Event::Shutdown,
        }
    }
}
