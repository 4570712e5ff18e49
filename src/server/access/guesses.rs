//! Wrong tokens: counted, told in bounds, and answered ever more slowly to whoever goes on.
//!
//! A right token is served at once wherever it comes from: behind one address there may be a guesser and an honest
//! client, and a lock would shut out both. A wrong one waits for its answer, the longer the more there were from its
//! address; its connection is among the first to go meanwhile (`connections`).
//!
//! **Guarantee.** What is kept and logged is bounded, whoever guesses. **Limit.** Who does not wait for answers is not
//! slowed. What protects a token is that nobody guesses it: `outboxd check` warns of those that somebody may.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use metrics::counter;
use tokio::time::Instant;
use tracing::warn;

use crate::server::connections::Peer;

/// Wrong tokens from one address that are answered at once: somebody mistyped, or a program has an old one.
const FREE: u32 = 10;
/// How long the answer to the next one waits; to each after it twice as long, up to [`WAIT_MAX`].
const WAIT_MIN: Duration = Duration::from_millis(100);
const WAIT_MAX: Duration = Duration::from_secs(2);
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
    peers: HashMap<Peer, (u32, Instant)>,
    told_at: Option<Instant>,
    untold: u64,
}

impl Guesses {
    /// Counts a wrong token, and waits as long as its answer has to.
    pub(super) async fn slow_down(&self, by: By, peer: Peer) {
        let wait = self.note(by, peer, Instant::now());
        tokio::time::sleep(wait).await;
    }

    fn note(&self, by: By, peer: Peer, now: Instant) -> Duration {
        counter!("outboxd_http_wrong_tokens_total", "by" => by.name()).increment(1);
        let mut recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        recent.untold += 1;
        if recent.told_at.is_none_or(|at| now - at >= TOLD_EVERY) {
            let count = std::mem::take(&mut recent.untold);
            recent.told_at = Some(now);
            warn!(%peer, by = by.name(), count, "a wrong token was presented; told once a minute, with how many since");
        }
        if recent.peers.len() >= PEERS_MAX && !recent.peers.contains_key(&peer) {
            recent.peers.retain(|_, (_, last)| now - *last < KEPT);
            let oldest = recent.peers.iter().min_by_key(|(_, (_, last))| *last).map(|(peer, _)| *peer);
            if let Some(oldest) = oldest.filter(|_| recent.peers.len() >= PEERS_MAX) {
                recent.peers.remove(&oldest);
            }
        }
        let (count, last) = recent.peers.entry(peer).or_insert((0, now));
        if now - *last >= KEPT {
            *count = 0;
        }
        (*count, *last) = (count.saturating_add(1), now);
        match count.checked_sub(FREE + 1) {
            None => Duration::ZERO,
            Some(more) => WAIT_MIN.saturating_mul(1 << more.min(8)).min(WAIT_MAX),
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
        let waits: Vec<u128> = (0..18).map(|_| guesses.note(By::Bearer, peer(1), now).as_millis()).collect();
        assert_eq!(waits[..11], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 100]);
        assert_eq!(waits[11..], [200, 400, 800, 1600, 2000, 2000, 2000]);
        assert_eq!(guesses.note(By::Login, peer(2), now), Duration::ZERO, "another address");
        assert_eq!(guesses.note(By::Bearer, peer(1), now + KEPT), Duration::ZERO);
    }

    #[test]
    fn whoever_comes_from_many_addresses_is_not_remembered_without_end() {
        let (guesses, now) = (Guesses::default(), Instant::now());
        for n in 0..3_000 {
            guesses.note(By::Bearer, peer(n), now + Duration::from_millis(n.into()));
        }
        assert_eq!(guesses.0.lock().unwrap().peers.len(), PEERS_MAX);
    }
}
