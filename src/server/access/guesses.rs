//! Wrong tokens: counted, told in bounds, and judged ever more slowly for whoever goes on.
//!
//! From an address with few wrong tokens behind it each one is judged at once. From any other a token has to wait for
//! one of a few turns before it is told right or wrong; a wrong one takes its turn with it for as long as its answer
//! waits, also when nobody waits for the answer any more. So neither hanging up nor asking in parallel makes guessing
//! quicker, and an answer that does not come at once says nothing.
//!
//! There is no lock: behind one address there may be a guesser and an honest client. What waits for no turn is a
//! token that was shown on the same connection before, a session, a ticket, and a probe. A right token gives its turn
//! back at once.
//!
//! **Guarantee.** An address beyond its first wrong tokens has [`TURNS`] judged within [`WAIT_MAX`] at most. What is kept
//! and logged is bounded, whoever guesses. **Limit.** Whoever has many addresses has many turns; and while somebody
//! guesses without end from one, who comes from there on a new connection waits among the guesses. What protects a token
//! is that nobody guesses it: `outboxd check` warns of those that somebody may.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use metrics::counter;
use tokio::time::Instant;
use tracing::warn;

use crate::server::connections::{Peer, Visitor};

/// Wrong tokens from one address that are judged at once: somebody mistyped, or a program has an old one.
const FREE: u32 = 10;
/// How long the answer to the next one waits; to each after it twice as long, up to [`WAIT_MAX`].
const WAIT_MIN: Duration = Duration::from_millis(100);
const WAIT_MAX: Duration = Duration::from_secs(2);
/// Tokens from one address that are judged at a time, beyond the first wrong ones.
const TURNS: usize = 8;
/// An address is forgotten so long after its last wrong token.
const KEPT: Duration = Duration::from_secs(60);
/// Addresses that are kept; beyond them the one that has been silent for longest is forgotten.
const PEERS_MAX: usize = 1_000;
/// Between two lines of the log.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// How a token was presented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    Bearer,
    Login,
}

impl By {
    fn name(self) -> &'static str {
        match self {
            By::Bearer => "bearer",
            By::Login => "login",
        }
    }
}

/// The wrong tokens of the last minute.
#[derive(Debug, Default)]
pub(super) struct Guesses(Mutex<Recent>);

#[derive(Debug, Default)]
struct Recent {
    peers: HashMap<Peer, Failures>,
    told_at: Option<Instant>,
    untold: u64,
}

/// The wrong tokens of one address.
#[derive(Debug)]
struct Failures {
    count: u32,
    last: Instant,
    /// Until when each turn is taken.
    taken: [Instant; TURNS],
}

impl Failures {
    /// How long the answer to its last one waits.
    fn wait(&self) -> Duration {
        match self.count.checked_sub(FREE + 1) {
            None => Duration::ZERO,
            Some(more) => WAIT_MIN.saturating_mul(1 << more.min(8)).min(WAIT_MAX),
        }
    }
}

/// The right to be told. `None`: its address has few wrong ones.
type Turn = Option<usize>;

impl Guesses {
    /// Waits until it may be told whether a token is right, counts a wrong one, and waits as long as its answer has to.
    /// `right`: whose it is.
    pub(super) async fn judge(&self, by: By, visitor: &Visitor, right: Option<&str>) {
        if right.is_some_and(|token| visitor.has_shown(token)) {
            return;
        }
        let peer = visitor.peer();
        let turn = loop {
            match self.turn(peer, Instant::now()) {
                Ok(turn) => break turn,
                Err(free_at) => tokio::time::sleep_until(free_at).await,
            }
        };
        match right {
            Some(_) => self.give_back(peer, turn, Instant::now()),
            None => tokio::time::sleep(self.note(by, peer, turn, Instant::now())).await,
        }
    }

    /// Takes a turn, or says when the next one is free.
    fn turn(&self, peer: Peer, now: Instant) -> Result<Turn, Instant> {
        let mut recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_slowed = |failures: &&mut Failures| failures.count >= FREE && now - failures.last < KEPT;
        let Some(failures) = recent.peers.get_mut(&peer).filter(is_slowed) else { return Ok(None) };
        let free = (0..TURNS).min_by_key(|turn| failures.taken[*turn]).filter(|turn| failures.taken[*turn] <= now);
        let free = free.ok_or_else(|| failures.taken.iter().copied().min().unwrap_or(now))?;
        // Until it is told right or wrong.
        failures.taken[free] = now + WAIT_MAX;
        Ok(Some(free))
    }

    fn give_back(&self, peer: Peer, turn: Turn, now: Instant) {
        let mut recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(turn), Some(failures)) = (turn, recent.peers.get_mut(&peer)) {
            failures.taken[turn] = now;
        }
    }

    /// Counts a wrong one; how long its answer waits.
    fn note(&self, by: By, peer: Peer, turn: Turn, now: Instant) -> Duration {
        counter!("outboxd_http_wrong_tokens_total", "by" => by.name()).increment(1);
        let mut recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        recent.tell(by, peer, now);
        recent.make_room(peer, now);
        let failures = recent.peers.entry(peer).or_insert(Failures { count: 0, last: now, taken: [now; TURNS] });
        if now - failures.last >= KEPT {
            failures.count = 0;
        }
        (failures.count, failures.last) = (failures.count.saturating_add(1), now);
        let wait = failures.wait();
        if let Some(turn) = turn {
            failures.taken[turn] = now + wait;
        }
        wait
    }
}

impl Recent {
    fn tell(&mut self, by: By, peer: Peer, now: Instant) {
        self.untold += 1;
        if self.told_at.is_none_or(|at| now - at >= TOLD_EVERY) {
            let count = std::mem::take(&mut self.untold);
            self.told_at = Some(now);
            warn!(%peer, by = by.name(), count, "a wrong token was presented; told once a minute, with how many since");
        }
    }

    fn make_room(&mut self, peer: Peer, now: Instant) {
        if self.peers.len() < PEERS_MAX || self.peers.contains_key(&peer) {
            return;
        }
        self.peers.retain(|_, failures| now - failures.last < KEPT);
        let oldest = self.peers.iter().min_by_key(|(_, failures)| failures.last).map(|(peer, _)| *peer);
        if let Some(oldest) = oldest.filter(|_| self.peers.len() >= PEERS_MAX) {
            self.peers.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(n: u16) -> Peer {
        let [high, low] = n.to_be_bytes();
        Peer::of(std::net::SocketAddr::from(([10, 0, high, low], 1)))
    }

    #[test]
    fn answers_come_later_and_later_to_one_address_until_it_gives_up_for_a_minute() {
        let (guesses, now) = (Guesses::default(), Instant::now());
        let waits: Vec<u128> = (0..18).map(|_| guesses.note(By::Bearer, peer(1), None, now).as_millis()).collect();
        assert_eq!(waits[..11], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 100]);
        assert_eq!(waits[11..], [200, 400, 800, 1600, 2000, 2000, 2000]);
        assert_eq!(guesses.note(By::Login, peer(2), None, now), Duration::ZERO, "another address");
        assert_eq!(guesses.note(By::Bearer, peer(1), None, now + KEPT), Duration::ZERO);
    }

    #[test]
    fn beyond_the_first_ones_so_many_are_judged_at_a_time_and_right_ones_count_for_none() {
        let (guesses, now) = (Guesses::default(), Instant::now());
        (0..20).for_each(|_| _ = guesses.note(By::Bearer, peer(1), None, now));
        let all = || (0..TURNS).map(|_| guesses.turn(peer(1), now).unwrap()).collect::<Vec<Turn>>();
        for _ in 0..3 {
            let turns = all();
            assert!(turns.iter().all(Option::is_some) && guesses.turn(peer(1), now).is_err());
            turns.into_iter().for_each(|turn| guesses.give_back(peer(1), turn, now));
        }
        for turn in all() {
            assert_eq!(guesses.note(By::Bearer, peer(1), turn, now), WAIT_MAX);
        }
        assert_eq!(guesses.turn(peer(1), now), Err(now + WAIT_MAX), "whether they wait for the answers or not");
        assert!(guesses.turn(peer(1), now + WAIT_MAX).is_ok());
        assert_eq!(guesses.turn(peer(2), now), Ok(None), "another address");
    }

    #[test]
    fn whoever_comes_from_many_addresses_is_not_remembered_without_end() {
        let (guesses, now) = (Guesses::default(), Instant::now());
        for n in 0..3_000 {
            guesses.note(By::Bearer, peer(n), None, now + Duration::from_millis(n.into()));
        }
        assert_eq!(guesses.0.lock().unwrap().peers.len(), PEERS_MAX);
    }
}
