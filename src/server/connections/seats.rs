//! Who has which connection, and whose goes first when all are taken.
//!
//! A connection is *known* once a request on it showed who asks: a token, a session, or, where there are no tokens,
//! anything. When all seats are taken, a newcomer gets that of an unknown one, at work or not; else that of a known one
//! that idles, or is asked something by who does not show it again. In each of these classes the address with the most
//! connections gives, and of its connections the one that has been at the same thing for longest. A request that showed
//! who asks is never cut off; so one token has a number of them at most, whatever they ask.
//!
//! So the share of an address is a share of what is there, and counts only while there is too little. A proxy or a NAT
//! that brings all clients gives among its own, and those with a token go last.
//!
//! **Guarantee.** Unknown connections, however many, keep nobody out, and neither does one token. **Limit.** If all are
//! at work for those who showed who they are, there is no seat.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::server::problem::{Kind, Problem};

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
    /// The token that was shown on it last.
    shown: Option<Arc<str>>,
    work: Work,
    since: Instant,
    /// Its connection is cut off.
    end: CancellationToken,
}

/// What a connection does.
#[derive(Debug, PartialEq, Eq)]
enum Work {
    /// Nothing.
    None,
    /// A request that did not show who asks, or not yet.
    Asked,
    /// A request that did, by this token; `None`: without one.
    Known(Option<Arc<str>>),
}

/// All connections, so many at most.
#[derive(Debug)]
pub(super) struct Seats {
    max: usize,
    of_token_max: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    seats: HashMap<u64, Seat>,
}

impl Seats {
    /// So many, of which as many may be at work for one token.
    pub(super) fn new(max: usize, of_token_max: usize) -> Arc<Seats> {
        Arc::new(Seats { max, of_token_max, taken: Mutex::default() })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A seat for a newcomer; `None`: all are at work for those who showed who they are.
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
        let (shown, since) = (None, Instant::now());
        let seat = Seat { peer, is_known: false, shown, work: Work::None, since, end: end.clone() };
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
        let gives = self.seats.iter().filter(|(_, seat)| !matches!(seat.work, Work::Known(_)));
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

    /// Its request showed who asks: this token, or what needs none. Refused if the token has too many of them under way.
    pub(in crate::server) fn is_known(&self, token: Option<&str>) -> Result<(), Problem> {
        let Some(place) = &self.place else { return Ok(()) };
        let max = place.seats.of_token_max;
        let mut taken = place.seats.taken();
        let is_of_token = |seat: &Seat| matches!(&seat.work, Work::Known(Some(of))  if Some(&**of) == token);
        let has_room = token.is_none() || taken.seats.values().filter(|seat| is_of_token(seat)).count() < max;
        let Some(seat) = taken.seats.get_mut(&place.number) else { return Ok(()) };
        seat.is_known = true;
        let name = token.map(Arc::<str>::from);
        if name.is_some() {
            seat.shown.clone_from(&name);
        }
        if !has_room {
            let detail = format!("{max} requests of this token are under way on this instance; try again");
            return Err(Problem::new(Kind::Overloaded, detail));
        }
        seat.work = Work::Known(name);
        Ok(())
    }

    /// Whether this token was shown on its connection before.
    pub(in crate::server) fn has_shown(&self, token: &str) -> bool {
        let Some(place) = &self.place else { return false };
        let taken = place.seats.taken();
        taken.seats.get(&place.number).is_some_and(|seat| seat.shown.as_deref() == Some(token))
    }

    /// A request begins; it ends when what is returned is dropped.
    pub(super) fn at_work(&self) -> AtWork {
        self.turn_to(Work::Asked);
        AtWork(self.clone())
    }

    /// Waits until the seat is given to another.
    pub(super) async fn ended(&self) {
        match &self.place {
            Some(place) => place.end.cancelled().await,
            None => std::future::pending().await,
        }
    }

    fn turn_to(&self, work: Work) {
        let Some(place) = &self.place else { return };
        if let Some(seat) = place.seats.taken().seats.get_mut(&place.number) {
            (seat.work, seat.since) = (work, Instant::now());
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
        self.0.turn_to(Work::None);
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
        let seats = Seats::new(4, 4);
        let honest = seats.take(peer(1)).unwrap();
        let flood: Vec<Visitor> = (0..10).map(|_| seats.take(peer(2)).unwrap()).collect();
        assert!(!is_gone(&honest));
        assert_eq!(flood.iter().map(is_gone).collect::<Vec<_>>(), [[true; 7].as_slice(), &[false; 3]].concat());
    }

    #[test]
    fn the_known_go_last_those_at_work_never_and_who_left_makes_room() {
        let seats = Seats::new(3, 3);
        let known = |visitor: &Visitor| visitor.is_known(Some("t")).unwrap();
        let visitors: Vec<Visitor> = (0..3).map(|_| seats.take(peer(1)).unwrap()).collect();
        let before = visitors[0].at_work();
        known(&visitors[0]);
        drop(before);
        let work = visitors[1].at_work();
        known(&visitors[1]);
        let (unknown, other) = (visitors[2].at_work(), seats.take(peer(2)).unwrap());
        assert!(is_gone(&visitors[2]) && !is_gone(&visitors[0]), "an unknown one gives although it is at work");
        let before = other.at_work();
        known(&other);
        drop(before);
        let third = seats.take(peer(3)).unwrap();
        assert!(is_gone(&visitors[0]) && !is_gone(&visitors[1]) && !is_gone(&other), "then a known one that idles");
        drop((unknown, third));
        let working = [seats.take(peer(4)).unwrap(), other];
        let all: Vec<AtWork> = working.iter().map(Visitor::at_work).collect();
        working.iter().for_each(known);
        assert!(seats.take(peer(5)).is_none());
        drop(work);
        assert!(seats.take(peer(5)).is_some() && is_gone(&visitors[1]));
        drop((all, working));
        assert_eq!(seats.taken().seats.len(), 0);
    }

    #[test]
    fn a_token_has_a_share_of_what_is_at_work_and_none_of_what_it_does_not_show() {
        let seats = Seats::new(4, 2);
        let visitors: Vec<Visitor> = (0..4).map(|_| seats.take(peer(1)).unwrap()).collect();
        let mut work: Vec<AtWork> = visitors.iter().map(Visitor::at_work).collect();
        let served = |token| visitors.iter().filter(|visitor| visitor.is_known(token).is_ok()).count();
        assert_eq!(served(Some("t")), 2);
        work.pop();
        let last = visitors[3].at_work();
        assert!(visitors[3].has_shown("t") && !visitors[3].has_shown("u"));
        assert!(visitors[3].is_known(Some("u")).is_ok() && visitors[3].has_shown("u"), "another has its own");
        let newcomers = [seats.take(peer(2)), seats.take(peer(3))];
        assert!(is_gone(&visitors[2]), "who showed it before and is refused now gives as one that idles");
        assert!(newcomers.iter().all(Option::is_some) && !is_gone(&visitors[3]));
        drop((work, last));
    }

    #[test]
    fn a_host_with_a_network_of_its_own_is_one_address() {
        let of = |text: &str| Peer::of(text.parse().unwrap());
        assert_eq!(of("[2001:db8::1]:1"), of("[2001:db8::ffff:2]:9"));
        assert_ne!(of("[2001:db8::1]:1"), of("[2001:db8:0:1::1]:1"));
        assert_eq!((of("[::ffff:192.0.2.1]:1"), of("[2001:db8::7]:1").to_string()), (peer(1), "2001:db8::/64".into()));
    }
}
