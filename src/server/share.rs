//! How many streams one ticket, one token or one address may have, so that whoever holds them does not take the place
//! of all others.
//!
//! While there is room, only a right's own limit counts: a ticket's, a token's. When all places are taken, a newcomer
//! gets the newest place of the address that has most, if the newcomer's has at least two fewer; else of the token that
//! has most, by the same rule. Tickets count for the token that made them. A proxy that brings all clients so has
//! everything, until another address comes.
//!
//! **Guarantee.** What a stream held is given back however it ends. **Limit.** Counted by this instance alone.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use super::connections::Peer;

/// By which right somebody listens, and from where.
#[derive(Debug, Clone)]
pub(super) struct Right {
    /// The ticket, or the token if there is none.
    pub name: String,
    /// How many may by the same.
    pub max: usize,
    /// The token; of a ticket, the one that made it.
    pub token: String,
    pub peer: Peer,
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// This right has as many as it may.
    OfRight,
    /// All places are taken, by those who have no more than the newcomer.
    Full,
}

/// The places of one kind of stream.
#[derive(Debug, Clone)]
pub(super) struct Shares {
    max: usize,
    held: Arc<Mutex<Held>>,
}

#[derive(Debug, Default)]
struct Held {
    next: u64,
    places: HashMap<u64, Place>,
    /// How many there are by each right, address and token.
    by_name: Counts<String>,
    by_peer: Counts<Peer>,
    by_token: Counts<String>,
}

#[derive(Debug)]
struct Counts<K>(HashMap<K, usize>);

impl<K> Default for Counts<K> {
    fn default() -> Self {
        Counts(HashMap::new())
    }
}

impl<K: Eq + Hash + Clone> Counts<K> {
    fn of(&self, key: &K) -> usize {
        self.0.get(key).copied().unwrap_or(0)
    }

    fn raise(&mut self, key: &K) {
        *self.0.entry(key.clone()).or_default() += 1;
    }

    fn lower(&mut self, key: &K) {
        if let Some(count) = self.0.get_mut(key) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(key);
            }
        }
    }

    /// What whoever has most has, if that is two more than this one at least: none would change hands twice.
    fn ahead_of(&self, key: &K) -> Option<usize> {
        let most = *self.0.values().max()?;
        (most >= self.of(key) + 2).then_some(most)
    }
}

#[derive(Debug)]
struct Place {
    right: Right,
    taken_away: CancellationToken,
}

/// One stream's place; it is given back with the stream.
#[derive(Debug)]
pub(super) struct Share {
    number: u64,
    /// It was given to another.
    pub taken_away: CancellationToken,
    held: Arc<Mutex<Held>>,
}

fn lock(held: &Mutex<Held>) -> MutexGuard<'_, Held> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shares {
    /// So many places.
    pub(super) fn new(max: usize) -> Shares {
        Shares { max, held: Arc::default() }
    }

    pub(super) fn take(&self, right: Right) -> Result<Share, Refusal> {
        let mut held = lock(&self.held);
        // Who may have all is not told that it has too many, but that all are taken.
        if right.max < self.max && held.by_name.of(&right.name) >= right.max {
            return Err(Refusal::OfRight);
        }
        if held.places.len() >= self.max {
            let number = held.to_give(&right).ok_or(Refusal::Full)?;
            if let Some(place) = held.remove(number) {
                place.taken_away.cancel();
            }
        }
        let (number, taken_away) = (held.next, CancellationToken::new());
        held.next += 1;
        held.by_name.raise(&right.name);
        held.by_peer.raise(&right.peer);
        held.by_token.raise(&right.token);
        held.places.insert(number, Place { right, taken_away: taken_away.clone() });
        Ok(Share { number, taken_away, held: Arc::clone(&self.held) })
    }
}

impl Held {
    /// The newest place of those who have most.
    fn to_give(&self, newcomer: &Right) -> Option<u64> {
        let newest = |is_theirs: &dyn Fn(&Right) -> bool| {
            self.places.iter().filter(|(_, place)| is_theirs(&place.right)).map(|(number, _)| *number).max()
        };
        if let Some(most) = self.by_peer.ahead_of(&newcomer.peer) {
            return newest(&|right| self.by_peer.of(&right.peer) == most);
        }
        let most = self.by_token.ahead_of(&newcomer.token)?;
        newest(&|right| self.by_token.of(&right.token) == most)
    }

    fn remove(&mut self, number: u64) -> Option<Place> {
        let place = self.places.remove(&number)?;
        self.by_name.lower(&place.right.name);
        self.by_peer.lower(&place.right.peer);
        self.by_token.lower(&place.right.token);
        Some(place)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        lock(&self.held).remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn right(name: &str, peer: &str) -> Right {
        let peer = Peer::of(peer.parse().unwrap());
        Right { name: name.to_owned(), max: 4, token: name.to_owned(), peer }
    }

    const HERE: &str = "192.0.2.1:1";
    const THERE: &str = "192.0.2.2:1";

    #[test]
    fn what_is_given_back_can_be_taken_again_and_leaves_nothing_behind() {
        let shares = Shares::new(9);
        let mut held: Vec<Share> = (0..4).map(|_| shares.take(right("a", HERE)).unwrap()).collect();
        assert_eq!(shares.take(right("a", THERE)).err(), Some(Refusal::OfRight));
        held.push(shares.take(right("b", HERE)).unwrap());
        held.remove(0);
        held.push(shares.take(right("a", HERE)).unwrap());
        drop(held);
        let held = lock(&shares.held);
        assert!(held.places.is_empty() && held.by_name.0.is_empty() && held.by_peer.0.is_empty());
    }

    #[test]
    fn when_all_are_taken_whoever_has_most_gives_until_all_have_alike() {
        let shares = Shares::new(6);
        let wall: Vec<Share> =
            ["a", "a", "a", "a", "b", "b"].map(|name| shares.take(right(name, HERE)).unwrap()).into();
        let gone = |held: &[Share]| held.iter().map(|share| share.taken_away.is_cancelled()).collect::<Vec<bool>>();
        let there: Vec<Share> = (0..3).map(|_| shares.take(right("c", THERE)).unwrap()).collect();
        assert_eq!(gone(&wall), [false, false, false, true, true, true], "the newest");
        assert_eq!(shares.take(right("d", THERE)).err(), None, "the same address, and another token has three");
        assert_eq!(gone(&there), [false, false, true]);
        assert_eq!(lock(&shares.held).places.len(), 5, "what was not kept was given back");
        let last = shares.take(right("d", THERE)).unwrap();
        assert_eq!(shares.take(right("c", THERE)).err(), Some(Refusal::Full));
        drop(last);
    }
}
