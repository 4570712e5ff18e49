//! A link to Redis that survives the connection under it.
//!
//! Every call is bounded: finding and connecting, then the response. A link whose call timed out is given up,
//! because a half-open connection looks just like a slow one. Calls that a server refused because it no
//! longer takes our writes are asked once more of the one that does; nothing else is repeated here, since a
//! push that failed may have arrived.
//!
//! The redis crate's `ConnectionManager` has no step between a new connection and its first command, and the generation
//! must be opened there (`a_tail_lost_by_a_restart_is_told_by_those_who_pushed_it_and_by_those_who_did_not`).

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, Pipeline};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::failure::Failure;
use super::loss::PushCounter;
use super::server::Server;

/// How long a command may take that does not block.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Finding the primary and connecting to it, however many hosts are tried.
const REACH_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a connection is used until it is asked again whose the keys are: a FLUSHALL took the answer along, and
/// another installation may have come first.
const CLAIM_EVERY: Duration = Duration::from_secs(3);

/// One connection at a time, remade when it breaks.
#[derive(Debug)]
pub(super) struct Link {
    server: Arc<Server>,
    counter: Arc<PushCounter>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    connection: Option<MultiplexedConnection>,
    /// When it was last heard that the keys are ours.
    claimed: Option<Instant>,
    /// Counts connections, so that a late failure of an old one does not end the new one.
    serial: u64,
    failed: Option<Failed>,
}

#[derive(Debug)]
struct Failed {
    failure: Failure,
    at: Instant,
    backoff: Duration,
}

impl Link {
    pub(super) fn new(server: Arc<Server>, counter: Arc<PushCounter>) -> Link {
        Link { server, counter, state: Mutex::default() }
    }

    /// A further link to the same server, for commands that block: they would hold up everything else on a shared one.
    pub(super) fn sibling(&self) -> Link {
        Link::new(self.server.clone(), self.counter.clone())
    }

    /// Runs commands that do not block.
    pub(super) async fn query<T: FromRedisValue>(&self, pipe: &Pipeline) -> Result<T, Failure> {
        self.query_blocking(pipe, Duration::ZERO).await
    }

    /// Runs commands that block for up to `block` on the server.
    pub(super) async fn query_blocking<T: FromRedisValue>(
        &self,
        pipe: &Pipeline,
        block: Duration,
    ) -> Result<T, Failure> {
        match self.query_once(pipe, block).await {
            Err(failure) if failure.is_elsewhere() => self.query_once(pipe, block).await,
            result => result,
        }
    }

    async fn query_once<T: FromRedisValue>(&self, pipe: &Pipeline, block: Duration) -> Result<T, Failure> {
        let (mut connection, serial) = self.connection().await?;
        connection.set_response_timeout(block + RESPONSE_TIMEOUT);
        match pipe.query_async(&mut connection).await {
            Ok(reply) => Ok(reply),
            Err(error) => {
                let failure = Failure::from(error);
                if failure.breaks_connection() {
                    self.give_up(serial).await;
                }
                Err(failure)
            }
        }
    }

    async fn give_up(&self, serial: u64) {
        let mut state = self.state.lock().await;
        if state.serial == serial {
            state.connection = None;
        }
    }

    async fn connection(&self) -> Result<(MultiplexedConnection, u64), Failure> {
        let asked = Instant::now();
        let mut state = self.state.lock().await;
        self.claim_again(&mut state).await?;
        if let Some(connection) = &state.connection {
            return Ok((connection.clone(), state.serial));
        }
        if let Some(failed) = &state.failed {
            // Whoever queued behind a failing attempt shares its result, or the waits would add up.
            if failed.at > asked {
                return Err(failed.failure.clone());
            }
            tokio::time::sleep_until(failed.at + failed.backoff).await;
        }
        match self.reach().await {
            Ok(connection) => {
                state.serial += 1;
                state.failed = None;
                state.claimed = Some(Instant::now());
                state.connection = Some(connection.clone());
                Ok((connection, state.serial))
            }
            Err(failure) => {
                let (first, longest) = (Duration::from_millis(50), Duration::from_secs(1));
                let backoff = state.failed.as_ref().map_or(first, |failed| failed.backoff * 2).min(longest);
                let backoff = backoff.mul_f64(rand::rng().random_range(0.8..1.0));
                state.failed = Some(Failed { failure: failure.clone(), at: Instant::now(), backoff });
                Err(failure)
            }
        }
    }

    /// Asks on a connection that stands for a while whose the keys are.
    async fn claim_again(&self, state: &mut State) -> Result<(), Failure> {
        let is_due = state.claimed.is_none_or(|claimed| claimed.elapsed() >= CLAIM_EVERY);
        let Some(connection) = state.connection.as_mut().filter(|_| is_due) else { return Ok(()) };
        connection.set_response_timeout(RESPONSE_TIMEOUT);
        let claimed = self.server.claim(connection).await;
        state.claimed = Some(Instant::now());
        if claimed.as_ref().is_err_and(Failure::breaks_connection) {
            state.connection = None;
        }
        claimed
    }

    /// Connects and opens the generation that counts there, before anything is pushed.
    async fn reach(&self) -> Result<MultiplexedConnection, Failure> {
        let reach = async {
            let mut primary = self.server.connect().await?;
            self.server.claim(&mut primary.connection).await?;
            self.counter.open_generation(&mut primary).await?;
            Ok(primary.connection)
        };
        within_reach_timeout(reach).await
    }
}

/// Gives up on a server that is not reached in time.
pub(super) async fn within_reach_timeout<T>(reach: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    match tokio::time::timeout(REACH_TIMEOUT, reach).await {
        Ok(result) => result,
        Err(_) => Err(Failure::NoPrimary(format!("no primary was reached within {REACH_TIMEOUT:?}"))),
    }
}
