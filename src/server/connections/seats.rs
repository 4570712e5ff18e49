//! Who has which connection, and whose goes first when all are taken.
//!
//! A connection is *known* once a request on it showed who asks: a token, a session, or, where there are no tokens,
//! anything. When all seats are taken, a newcomer gets that of an unknown one, at work or not; else that of a known one
//! that idles. In each of these classes the address with the most connections gives, and of its connections the one
//! that has been at the same thing for longest. A known connection at work is never cut off.
//!
//! So the share of an address is a share of what is there, and counts only while there is too little. A proxy or a NAT
//! that brings all clients gives among its own, and those with a token go last.
//!
//! **Guarantee.** Unknown connections, however many, keep nobody out. **Limit.** If all are known and at work, there is
//! no seat.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// An address, as shares are counted: of IPv6 the network, because a host has all of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::server) struct Peer(IpAddr);

impl Peer {
    pub(in crate::server) fn of(addr: SocketAddr) -> Peer {
        match addr.ip().to_canonical() {
            IpAddr::V6(ip) => Peer(Ipv6Addr::from_bits(ip.to_bits() & !u128::from(u64::MAX)).into()),
            ip @ IpAddr::V4(_) => Peer(ip),
        }
    }

    /// Where a request comes from that came over no connection.
    pub(in crate::server) const NOBODY: Peer = Peer(IpAddr::V6(Ipv6Addr::UNSPECIFIED));
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            IpAddr::V4(ip) => write!(f, "{ip}"),
            IpAddr::V6(ip) => write!(f, "{ip}/64"),
        }
    }
}

#[derive(Debug)]
struct Seat {
    peer: Peer,
    is_known: bool,
    is_at_work: bool,
    since: Instant,
    /// Its connection is cut off.
    end: CancellationToken,
}

/// All connections, so many at most.
#[derive(Debug)]
pub(super) struct Seats {
    max: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    seats: HashMap<u64, Seat>,
}

impl Seats {
    pub(super) fn new(max: usize) -> Arc<Seats> {
        Arc::new(Seats { max, taken: Mutex::default() })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A seat for a newcomer; `None`: all are of those who are known and at work.
    pub(super) fn take(self: &Arc<Seats>, peer: Peer) -> Option<Visitor> {
        let mut taken = self.taken();
        if taken.seats.len() >= self.max {
            let number = taken.to_give()?;
            if let Some(seat) = taken.seats.remove(&number) {
                seat.end.cancel();
            }
        }
        let (number, end) = (taken.next, CancellationToken::new());
        taken.next += 1;
        let seat = Seat { peer, is_known: false, is_at_work: false, since: Instant::now(), end: end.clone() };
        taken.seats.insert(number, seat);
        drop(taken);
        Some(Visitor { peer, place: Some(Arc::new(Place { number, seats: Arc::clone(self), end })) })
    }
}

impl Taken {
    fn to_give(&self) -> Option<u64> {
        let mut of_peer: HashMap<(bool, Peer), usize> = HashMap::new();
        for seat in self.seats.values() {
            *of_peer.entry((seat.is_known, seat.peer)).or_default() += 1;
        }
        let gives = self.seats.iter().filter(|(_, seat)| !(seat.is_known && seat.is_at_work));
        let order = |seat: &Seat| {
            let share = of_peer.get(&(seat.is_known, seat.peer)).copied().unwrap_or(0);
            (seat.is_known, std::cmp::Reverse(share), seat.since)
        };
        gives.min_by_key(|(_, seat)| order(seat)).map(|(number, _)| *number)
    }
}

/// Whoever is at the other end of a connection; goes with each of its requests.
#[derive(Debug, Clone)]
pub(in crate::server) struct Visitor {
    peer: Peer,
    /// `None`: one of the reserve.
    place: Option<Arc<Place>>,
}

/// A seat; it is free again when nobody holds it.
#[derive(Debug)]
struct Place {
    number: u64,
    seats: Arc<Seats>,
    end: CancellationToken,
}

impl Visitor {
    /// One for whom there is no seat.
    pub(super) fn of_reserve(peer: Peer) -> Visitor {
        Visitor { peer, place: None }
    }

    pub(in crate::server) fn peer(&self) -> Peer {
        self.peer
    }

    /// It showed who it is.
    pub(in crate::server) fn is_known(&self) {
        self.change(|seat| seat.is_known = true);
    }

    /// A request begins; it ends when what is returned is dropped.
    pub(super) fn at_work(&self) -> AtWork {
        self.change(|seat| (seat.is_at_work, seat.since) = (true, Instant::now()));
        AtWork(self.clone())
    }

    /// Waits until the seat is given to another.
    pub(super) async fn ended(&self) {
        match &self.place {
            Some(place) => place.end.cancelled().await,
            None => std::future::pending().await,
        }
    }

    fn change(&self, change: impl FnOnce(&mut Seat)) {
        let Some(place) = &self.place else { return };
        if let Some(seat) = place.seats.taken().seats.get_mut(&place.number) {
            change(seat);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.seats.taken().seats.remove(&self.number);
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct AtWork(Visitor);

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.change(|seat| (seat.is_at_work, seat.since) = (false, Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> Peer {
        Peer::of(SocketAddr::from(([192, 0, 2, last], 1)))
    }

    fn is_gone(visitor: &Visitor) -> bool {
        visitor.place.as_ref().is_some_and(|place| place.end.is_cancelled())
    }

    #[test]
    fn the_unknown_of_the_address_with_the_most_go_first_and_the_oldest_of_them() {
        let seats = Seats::new(4);
        let honest = seats.take(peer(1)).unwrap();
        let flood: Vec<Visitor> = (0..10).map(|_| seats.take(peer(2)).unwrap()).collect();
        assert!(!is_gone(&honest));
        assert_eq!(flood.iter().map(is_gone).collect::<Vec<_>>(), [[true; 7].as_slice(), &[false; 3]].concat());
    }

    #[test]
    fn the_known_go_last_those_at_work_never_and_who_left_makes_room() {
        let seats = Seats::new(3);
        let visitors: Vec<Visitor> = (0..3).map(|_| seats.take(peer(1)).unwrap()).collect();
        visitors[0].is_known();
        visitors[1].is_known();
        let work = visitors[1].at_work();
        let (unknown, other) = (visitors[2].at_work(), seats.take(peer(2)).unwrap());
        assert!(is_gone(&visitors[2]) && !is_gone(&visitors[0]), "an unknown one gives although it is at work");
        other.is_known();
        let third = seats.take(peer(3)).unwrap();
        assert!(is_gone(&visitors[0]) && !is_gone(&visitors[1]) && !is_gone(&other), "then a known one that idles");
        drop((unknown, third));
        let working = [seats.take(peer(4)).unwrap(), other];
        let all: Vec<AtWork> = working.iter().map(Visitor::at_work).collect();
        working.iter().for_each(Visitor::is_known);
        assert!(seats.take(peer(5)).is_none());
        drop(work);
        assert!(seats.take(peer(5)).is_some() && is_gone(&visitors[1]));
        drop((all, working));
        assert_eq!(seats.taken().seats.len(), 0);
    }

    #[test]
    fn a_host_with_a_network_of_its_own_is_one_address() {
        let of = |text: &str| Peer::of(text.parse().unwrap());
        assert_eq!(of("[2001:db8::1]:1"), of("[2001:db8::ffff:2]:9"));
        assert_ne!(of("[2001:db8::1]:1"), of("[2001:db8:0:1::1]:1"));
        assert_eq!((of("[::ffff:192.0.2.1]:1"), of("[2001:db8::7]:1").to_string()), (peer(1), "2001:db8::/64".into()));
    }
}
