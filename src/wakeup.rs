//! See the commit: poll while there is work, sleep until the doorbell rings while there is none.
//!
//! A NOTIFY in every app transaction would serialise commits, so the app rings only while that is no burden: one
//! sequence holds a time outside MVCC, ahead of now while an instance is busy and polls without pause, refreshed
//! while it dozes or sleeps, stale when it is down. Dozing is being awake with little to do: polls are seldom and the
//! bell makes up for it, so a commit now and then is seen at once although nobody polls for it a thousand times a second.
//!
//! **Going to sleep** must not miss a commit that read the doorbell before we set it. So: set it, note the
//! transactions that hold the insert's lock (they may have read the old value), and keep polling until none of
//! them is left and the poll after that found nothing. Whoever takes the lock later reads the new value and rings.
//! One that read an old value takes the bell down, to spare others the look; should that come after we set it, we find it
//! down at the end and begin again.
//!
//! Without LISTEN (a transaction-mode pooler, `wakeup = "poll"`) polling alone works.

use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::config::{Config, Wakeup};
use crate::producer::Producer;
use crate::publisher::{Error, Publisher};
use crate::relay::{Relay, Scan};
use crate::store::Store;
use crate::store::doorbell::{self, Holders};

mod listener;
mod pace;
use listener::{Bell, Listener};
use pace::Pace;

/// How often the doorbell is set while awake.
const AWAKE_REFRESH: Duration = Duration::from_millis(120);
/// Idle for so long, we go to sleep.
const IDLE_BEFORE_SLEEP: Duration = Duration::from_millis(250);
/// Between polls while a backlog has filled its share of the queue, which stands before all that others write meanwhile.
const WINDOW_PAUSE: Duration = Duration::from_millis(5);
/// Between looks at who still holds the lock, while going to sleep.
const HOLDERS_EVERY: Duration = Duration::from_millis(20);
/// Waits after errors: the first, and at most.
const ERROR_WAIT_MIN: Duration = Duration::from_millis(50);
const ERROR_WAIT_MAX: Duration = Duration::from_secs(2);

/// What this process can tell the loop: a retry was set, a notification was written.
#[derive(Debug, Default)]
pub struct Nudge(Notify);

impl Nudge {
    /// There may be something to do.
    pub fn nudge(&self) {
        self.0.notify_one();
    }
}

/// What the loop drives; an instance may have either role or both.
#[derive(Debug)]
pub struct Pump {
    /// Releases due rows.
    pub producer: Option<Producer>,
    /// Publishes what is ready.
    pub relay: Option<Relay>,
    /// Confirms before a pause.
    pub publisher: Publisher,
    /// The doorbell.
    pub store: Store,
}

#[derive(Debug, Clone, Copy, Default)]
struct Found {
    rows: u64,
    /// Rows among them that the producer released and nobody has published yet.
    released: u64,
    is_full: bool,
    /// A lane had more than might be taken of it.
    has_more: bool,
}

impl Pump {
    async fn pass(&mut self, scan: Scan) -> Result<Found, Error> {
        let mut found = Found::default();
        // What has just been committed first; what the producer releases is published in the next pass.
        if let Some(relay) = &mut self.relay {
            let counts = relay.pass(scan).await?;
            found.rows += counts.found;
            (found.is_full, found.has_more) = (counts.is_full, counts.has_more);
            relay.move_bounds().await?;
        }
        if let Some(producer) = &mut self.producer {
            found.released = producer.pass().await?.released;
            found.rows += found.released;
        }
        Ok(found)
    }

    /// How long until something is due by itself.
    async fn next(&mut self) -> Result<Option<Duration>, Error> {
        let due = match &mut self.producer {
            Some(producer) => producer.next_due().await?,
            None => None,
        };
        let timer = match &mut self.relay {
            Some(relay) => relay.next_timer().await?,
            None => None,
        };
        Ok(due.into_iter().chain(timer).min())
    }

    fn on_control(&mut self) {
        if let Some(relay) = &mut self.relay {
            relay.reload_topics();
        }
    }

    fn on_timer(&mut self) {
        if let Some(relay) = &mut self.relay {
            relay.look_at_timers();
        }
    }

    fn on_error(&mut self) {
        if let Some(relay) = &mut self.relay {
            relay.rewind();
        }
    }
}

/// Runs until `shutdown`: waits, polls, sleeps, and outlasts any outage of Postgres or the queue.
pub async fn run(mut pump: Pump, config: &Config, nudge: &Nudge, shutdown: &CancellationToken) {
    let mut listener = Listener::new(config);
    let mut pace = Pace::new();
    let mut error_wait = ERROR_WAIT_MIN;
    let mut is_down = false;
    while !shutdown.is_cancelled() {
        let mut day = Day {
            pump: &mut pump,
            listener: &mut listener,
            pace: &mut pace,
            nudge,
            shutdown,
            pause_max: config.relay.poll,
            idle_poll: config.relay.idle_poll,
        };
        match day.live().await {
            Ok(()) => (error_wait, is_down) = (ERROR_WAIT_MIN, false),
            Err(error) => {
                // Said once per outage, not once per try.
                if !is_down {
                    warn!(%error, "publishing waits");
                }
                is_down = true;
                pump.on_error();
                let jitter = error_wait.mul_f64(rand::random_range(0.5..1.5));
                error_wait = (error_wait * 2).min(ERROR_WAIT_MAX);
                shutdown.run_until_cancelled(tokio::time::sleep(jitter)).await;
                continue;
            }
        }
        if is_down {
            info!("publishing goes on");
        }
    }
    // What has arrived need not be found unconfirmed by a sweep.
    if let Err(error) = pump.publisher.confirm().await {
        warn!(%error, "the last publications are left unconfirmed; they will be published again as copies");
    }
}

/// One day: awake until there is nothing to do, then asleep until there is.
struct Day<'a> {
    pump: &'a mut Pump,
    listener: &'a mut Listener,
    pace: &'a mut Pace,
    nudge: &'a Nudge,
    shutdown: &'a CancellationToken,
    pause_max: Duration,
    /// A sleeper's, which also refreshes the doorbell.
    idle_poll: Duration,
}

impl Day<'_> {
    async fn live(&mut self) -> Result<(), Error> {
        self.stay_awake().await?;
        if self.shutdown.is_cancelled() || !self.fall_asleep().await? {
            return Ok(());
        }
        self.sleep().await
    }

    /// Polls while there is work, and a while longer.
    async fn stay_awake(&mut self) -> Result<(), Error> {
        let is_bell = self.listener.wakeup == Wakeup::Bell;
        let mut idle_since = Instant::now();
        let mut refreshed_at: Option<Instant> = None;
        self.pace.wake(self.listener.hears().await);
        let mut pause = self.pace.pause_min().min(self.pause_max);
        while !self.shutdown.is_cancelled() {
            if is_bell && refreshed_at.is_none_or(|at| at.elapsed() > AWAKE_REFRESH) {
                self.pump.store.set_doorbell(self.pace.doorbell_ahead()).await?;
                refreshed_at = Some(Instant::now());
            }
            let found = self.pump.pass(Scan::Quick).await?;
            // Who writes what we may not publish (a paused topic) rings as well.
            if self.pace.changes(found.rows, self.listener.take_rings()) {
                refreshed_at = None;
                idle_since = Instant::now();
            }
            if found.rows > 0 || found.is_full {
                idle_since = Instant::now();
                pause = self.pace.pause_min().min(self.pause_max);
                let has_more = found.has_more || self.pace.has_much();
                if found.released > 0 || (has_more && !found.is_full) {
                    continue;
                }
            } else {
                let pause_min = if found.has_more { WINDOW_PAUSE } else { Duration::ZERO };
                pause = (pause * 3 / 2).max(pause_min).min(self.pause_max);
            }
            // With the next reservation, unless there is none to come soon.
            if found.rows == 0 || found.is_full {
                self.pump.publisher.confirm().await?;
            }
            self.pace.can_hear = self.listener.hears().await;
            if self.pace.may_sleep() && idle_since.elapsed() > IDLE_BEFORE_SLEEP {
                return Ok(());
            }
            self.pause(pause).await;
        }
        Ok(())
    }

    /// Pauses between polls; a bell, a nudge or the end cuts it short.
    async fn pause(&mut self, pause: Duration) {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            bell = self.listener.rung() => self.heed(bell),
            () = self.nudge.0.notified() => self.pump.on_timer(),
            () = self.shutdown.cancelled() => {}
        }
    }

    fn heed(&mut self, bell: Bell) {
        if bell == Bell::Control {
            self.pump.on_control();
        }
    }

    /// The dance: true if we may sleep, false if there is something to do.
    async fn fall_asleep(&mut self) -> Result<bool, Error> {
        let (mut bell, mut holders) = self.set_bell().await?;
        let mut refreshed_at = Instant::now();
        loop {
            let none_left = holders.is_empty();
            let found = self.pump.pass(Scan::Exact).await?;
            if found.rows > 0 || found.is_full || self.shutdown.is_cancelled() || !self.listener.hears().await {
                return Ok(false);
            }
            if none_left {
                if self.pump.store.bell_is_up(&bell).await? {
                    return Ok(true);
                }
                // Whoever has begun since may have found it down: once more.
                (bell, holders) = self.set_bell().await?;
                continue;
            }
            if refreshed_at.elapsed() > self.idle_poll {
                bell = self.pump.store.set_doorbell(Duration::ZERO).await?;
                refreshed_at = Instant::now();
            }
            self.pause(HOLDERS_EVERY).await;
            let current = self.pump.store.holders().await?;
            holders.retain(|holder| current.contains(holder));
        }
    }

    /// Sets the bell for sleep. The transactions that may have read it before are those to wait for.
    async fn set_bell(&self) -> Result<(doorbell::Bell, Holders), Error> {
        let bell = self.pump.store.set_doorbell(Duration::ZERO).await?;
        Ok((bell, self.pump.store.holders().await?))
    }

    /// Sleeps until the bell, a nudge, something due, or work found by a slow poll.
    async fn sleep(&mut self) -> Result<(), Error> {
        loop {
            let due = self.pump.next().await?.unwrap_or(self.idle_poll).min(self.idle_poll);
            tokio::select! {
                () = tokio::time::sleep(due) => {}
                bell = self.listener.rung() => {
                    self.heed(bell);
                    return Ok(());
                }
                () = self.nudge.0.notified() => {}
                () = self.shutdown.cancelled() => return Ok(()),
            }
            self.pump.on_timer();
            self.pump.store.set_doorbell(Duration::ZERO).await?;
            let found = self.pump.pass(Scan::Exact).await?;
            if found.rows > 0 || found.is_full {
                return Ok(());
            }
        }
    }
}
