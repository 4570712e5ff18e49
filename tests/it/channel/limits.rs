//! Limits: exact, per origin, and without a queue of waiters.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use outboxd::channel::CHANNEL_WIDE;
use outboxd::channel::limit::{Full, Limits};
use outboxd::config::{ChannelConfig, RateLimit};

use super::{Note, assert_sent, channel, config};
use crate::support::provider::{Provider, Reply};

fn origin(name: &str) -> Arc<str> {
    Arc::from(name)
}

fn topic() -> Arc<str> {
    Arc::from("orders")
}

fn with_rate(count: u32, per: Duration) -> Arc<Limits> {
    let mut config = config("https://a.example/");
    config.rate_limit = Some(RateLimit { count, per });
    Limits::new(&config)
}

/// Starts a call that is over at once, if one may start.
fn start(limits: &Arc<Limits>, now: Instant) -> Result<(), Full> {
    limits.try_acquire(&topic(), &origin(CHANNEL_WIDE), now).map(|mut permit| permit.start(now))
}

#[test]
fn no_more_than_the_rate_starts_in_any_span() {
    let per = Duration::from_secs(1);
    let limits = with_rate(100, per);
    let begin = Instant::now();
    let mut starts: Vec<Instant> = Vec::new();
    // Ten asks per millisecond for 3.5 s of made-up time, with a pause that fills any bucket.
    for millisecond in (0..1500).chain(2300..4300) {
        let now = begin + Duration::from_millis(millisecond);
        starts.extend((0..10).filter(|_| start(&limits, now).is_ok()).map(|_| now));
    }
    let most_within = |span: Duration| {
        let after = |index: usize| starts[index..].iter().take_while(|later| **later - starts[index] < span).count();
        (0..starts.len()).map(after).max()
    };
    assert_eq!(most_within(per), Some(100), "{} starts", starts.len());
    assert!(most_within(Duration::from_millis(100)) <= Some(11), "evenly spread");
    assert!(starts.len() >= 350, "and all of the rate is used: {}", starts.len());
}

#[test]
fn who_asks_again_after_the_wait_it_was_told_uses_all_of_the_rate() {
    let limits = with_rate(10, Duration::from_secs(1));
    let begin = Instant::now();
    let (mut now, mut started, mut refused) = (begin, 0, 0);
    while started < 40 {
        match start(&limits, now) {
            Ok(()) => started += 1,
            Err(Full::Rate(wait)) => {
                refused += 1;
                now += wait;
            }
            Err(full) => panic!("{full:?}"),
        }
    }
    let took = now - begin;
    assert!(took > Duration::from_secs(3) && took <= Duration::from_secs(4), "{took:?}");
    assert!(refused <= 80, "and does not have to ask often: {refused}");
}

#[test]
fn a_permit_without_a_call_takes_nothing_of_the_rate() {
    let begin = Instant::now();
    let at = |n: u32| begin + n * Duration::from_millis(100);
    for (is_called, then) in [(false, Ok(())), (true, Err(Full::Rate(Duration::from_millis(50))))] {
        let limits = with_rate(10, Duration::from_secs(1));
        for n in 0..10 {
            let mut permit = limits.try_acquire(&topic(), &origin(CHANNEL_WIDE), at(n)).unwrap();
            if is_called {
                permit.start(at(n));
            }
        }
        assert_eq!(start(&limits, begin + Duration::from_millis(950)), then);
    }
}

#[test]
fn those_who_cannot_start_within_a_second_are_told_different_times() {
    let limits = with_rate(10, Duration::from_secs(1));
    let now = Instant::now();
    start(&limits, now).expect("one has ended: how long a call takes is known");
    let promise = |at| limits.promise(&topic(), &origin(CHANNEL_WIDE), 64, at).as_millis();
    let waits: Vec<u128> = (0..20).map(|_| promise(now)).collect();
    assert!(waits.is_sorted(), "{waits:?}");
    assert_eq!((waits[0], waits[4], waits[5], waits[19]), (500, 500, 600, 2_000), "ten a second, none at once");
    assert_eq!(promise(now + Duration::from_secs(1)), 1_100, "after those who were told before");
    assert_eq!(promise(now + Duration::from_secs(60)), 500, "whose times are over by then");
    let last = (0..1_000).fold(None, |_, _| Some(promise(now)));
    assert_eq!(last, Some(60_000), "nobody is sent away for longer than a minute");
}

#[test]
fn a_second_of_work_is_what_the_limits_let_start_in_a_second() {
    let with = |change: fn(&mut ChannelConfig)| {
        let mut config = config("{{ recipient }}");
        change(&mut config);
        Limits::new(&config)
    };
    // Before a call has ended one is assumed to take 50 ms.
    let unlimited = with(|config| config.max_in_flight_per_origin = 1_000);
    assert_eq!(
        unlimited.per_second("orders", CHANNEL_WIDE, 64, Instant::now()),
        usize::MAX,
        "topics share the instance's calls"
    );
    assert_eq!(unlimited.per_second("orders", "http://a:80", 64, Instant::now()), 64 * 20);
    assert_eq!(
        with(|config| config.max_in_flight = Some(4)).per_second("orders", CHANNEL_WIDE, 64, Instant::now()),
        4 * 20
    );
    assert_eq!(
        with(|config| config.max_in_flight_per_origin = 2).per_second("orders", "http://a:80", 64, Instant::now()),
        2 * 20
    );
    let rate = Some(RateLimit { count: 30, per: Duration::from_secs(60) });
    let slow = Limits::new(&ChannelConfig { rate_limit: rate, ..config("{{ recipient }}") });
    assert_eq!(
        (
            slow.per_second("orders", "http://a:80", 64, Instant::now()),
            slow.per_second("orders", CHANNEL_WIDE, 64, Instant::now())
        ),
        (1, 1),
        "never none"
    );
}

#[test]
fn a_channel_has_room_for_a_second_of_work_less_what_waits_and_what_is_on_its_way() {
    let limits = with_rate(100, Duration::from_secs(1));
    let now = Instant::now();
    let room = |after_ms| limits.room("orders", now + Duration::from_millis(after_ms));
    assert_eq!(room(0), 91, "the rest is left to other topics");
    limits.note_published(&topic(), 60, now);
    limits.note_published(&topic(), 30, now + Duration::from_millis(50));
    assert_eq!((room(50), room(199)), (1, 1), "they may not have been taken yet");
    limits.begin_waiting(&topic(), 90);
    assert_eq!(room(199), 0, "counted twice rather than not at all");
    assert_eq!(room(200), 1);
    assert_eq!(limits.room("others", now + Duration::from_millis(200)), 8, "what those leave, but for its root");
    limits.end_waiting(&topic(), 90);
    assert_eq!(room(200), 91);
}

/// Claims that waited for Postgres, and calls of a process that was stopped, would let messages be told to come back in
/// a minute.
#[test]
fn an_outage_says_nothing_of_how_long_a_call_takes() {
    let mut config = config("https://a.example/");
    config.timeout = Duration::from_secs(2);
    config.max_in_flight = Some(15);
    let limits = Limits::new(&config);
    let Some(long_ago) = Instant::now().checked_sub(Duration::from_secs(30)) else { return };
    for _ in 0..100 {
        limits.try_acquire(&topic(), &origin(CHANNEL_WIDE), long_ago).unwrap().start(Instant::now());
    }
    assert!(
        limits.per_second("orders", CHANNEL_WIDE, 32, Instant::now()) >= 290,
        "{} a second",
        limits.per_second("orders", CHANNEL_WIDE, 32, Instant::now())
    );
    for _ in 0..100 {
        limits.try_acquire(&topic(), &origin(CHANNEL_WIDE), long_ago).unwrap().start(long_ago);
    }
    assert!(
        limits.per_second("orders", CHANNEL_WIDE, 32, Instant::now()) >= 7,
        "{} a second",
        limits.per_second("orders", CHANNEL_WIDE, 32, Instant::now())
    );
}

#[test]
fn a_very_high_rate_is_kept_over_a_shorter_span() {
    let limits = with_rate(1_000_000, Duration::from_secs(1));
    let now = Instant::now();
    // Two asks for each start that there may be, within ten milliseconds.
    let asks = (0..20_000).map(|n| now + n * Duration::from_nanos(499));
    let started = asks.filter(|at| start(&limits, *at).is_ok()).count();
    assert!((9_900..=10_000).contains(&started), "{started}");
    assert_eq!(start(&limits, now + Duration::from_millis(11)), Ok(()));
}

#[test]
fn one_origin_at_its_cap_leaves_the_others_their_calls() {
    let mut config = config("{{ recipient }}");
    config.max_in_flight_per_origin = 4;
    config.max_in_flight = Some(15);
    let limits = Limits::new(&config);
    let now = Instant::now();
    let dead = origin("http://dead:80");
    let held: Vec<_> = (0..4).map(|_| limits.try_acquire(&topic(), &dead, now).unwrap()).collect();
    assert_eq!(limits.try_acquire(&topic(), &dead, now).unwrap_err(), Full::Origin);
    let others: Vec<_> =
        (0..11).map(|n| limits.try_acquire(&topic(), &origin(&format!("http://other-{n}:80")), now).unwrap()).collect();
    assert_eq!(limits.try_acquire(&topic(), &origin("http://one-more:80"), now).unwrap_err(), Full::Channel);
    assert_eq!((limits.in_flight(), limits.origins()), (15, 12));
    drop(held);
    assert!(limits.try_acquire(&topic(), &dead, now).is_ok(), "a permit given back can be taken");
    drop(others);
    assert_eq!((limits.in_flight(), limits.origins()), (0, 0), "idle origins are forgotten");
}

#[test]
fn topics_leave_each_other_calls_of_a_channel_and_of_an_origin() {
    let mut config = config("{{ recipient }}");
    config.max_in_flight_per_origin = 20;
    config.max_in_flight = Some(100);
    let (limits, now) = (Limits::new(&config), Instant::now());
    let fill = |topic: &str, hosts: usize| {
        let (topic, hosts) =
            (Arc::from(topic), (0..hosts).map(|n| origin(&format!("http://{n}:80"))).collect::<Vec<_>>());
        let granted = (0..200).filter_map(|n| limits.try_acquire(&topic, &hosts[n % hosts.len()], now).ok());
        granted.collect::<Vec<_>>()
    };
    let first = fill("first", 1);
    assert_eq!(
        (first.len(), limits.try_acquire(&origin("first"), &origin("http://0:80"), now).err()),
        (16, Some(Full::Origin))
    );
    let second = fill("second", 1);
    assert_eq!(second.len(), 3, "of the four that are left");
    let third = fill("third", 50);
    assert_eq!(third.len(), 73, "of the 81 that are left");
    assert_eq!(limits.try_acquire(&origin("third"), &origin("http://1:80"), now).err(), Some(Full::Topic));
    assert!(limits.try_acquire(&origin("fourth"), &origin("http://1:80"), now).is_ok());
    drop((first, second, third));
    assert_eq!((limits.in_flight(), limits.origins()), (0, 0));
}

#[test]
fn a_call_that_pauses_leaves_its_start_to_another_and_asks_for_one_again() {
    let (limits, now) = (with_rate(10, Duration::from_secs(1)), Instant::now());
    let at = |ms: u64| now + Duration::from_millis(ms);
    let mut first = limits.try_acquire(&topic(), &origin(CHANNEL_WIDE), now).unwrap();
    assert!(limits.try_acquire(&topic(), &origin(CHANNEL_WIDE), now).is_err());
    first.pause();
    let mut second = limits.try_acquire(&topic(), &origin(CHANNEL_WIDE), now).expect("the first one's start");
    second.start(now);
    assert!(first.resume(now).is_err());
    assert_eq!(first.resume(at(100)), Ok(()));
    first.start(at(100));
    let started = (0..20).filter(|n| start(&limits, at(200 + n * 50)).is_ok()).count();
    assert_eq!(started, 10, "each start was counted once");
}

#[test]
fn a_refused_call_uses_up_nothing() {
    let mut config = config("{{ recipient }}");
    config.max_in_flight_per_origin = 1;
    config.rate_limit = Some(RateLimit { count: 20, per: Duration::from_secs(1) });
    let limits = Limits::new(&config);
    let now = Instant::now();
    let (first, second) = (origin("http://a:80"), origin("http://b:80"));
    let _held = limits.try_acquire(&topic(), &first, now).unwrap();
    for _ in 0..100 {
        assert_eq!(limits.try_acquire(&topic(), &first, now).unwrap_err(), Full::Origin);
    }
    let soon = now + Duration::from_millis(50);
    let _held = limits.try_acquire(&topic(), &second, soon).expect("the rate is still there");
}

#[test]
fn the_operators_own_host_has_no_cap_per_origin() {
    let mut config = config("https://a.example/");
    config.max_in_flight_per_origin = 1;
    let limits = Limits::new(&config);
    let held: Vec<_> =
        (0..50).map(|_| limits.try_acquire(&topic(), &origin(CHANNEL_WIDE), Instant::now()).unwrap()).collect();
    assert_eq!((held.len(), limits.origins()), (50, 0));
}

#[tokio::test]
async fn a_black_holed_destination_of_many_does_not_delay_the_others() {
    let mut config = config("{{ recipient }}");
    config.allow_private = true;
    config.max_in_flight_per_origin = 4;
    config.timeout = Duration::from_secs(30);
    config.first_byte_timeout = Duration::from_secs(30);
    let (channel, limits) = (channel(&config), Limits::new(&config));
    let providers: Vec<Provider> = (0..100).map(|_| Provider::start()).collect();
    providers[0].answer(Reply::hang());
    // A worker of 16 calls, and 20 rows for each destination in turn.
    let notes: Vec<Note> =
        (0..20).flat_map(|_| providers.iter().map(|provider| Note::to(&provider.url("/")))).collect();
    let mut queue: VecDeque<&Note> = notes.iter().collect();
    let mut calls = FuturesUnordered::new();
    let mut delivered = 0;
    let mut turned_away = 0;
    let finish = async {
        while delivered < 99 * 20 {
            while calls.len() < 16
                && let Some(note) = queue.pop_front()
            {
                let outgoing = note.attempt(1);
                let target = channel.target(&outgoing).unwrap();
                match limits.try_acquire(&topic(), target.origin(), Instant::now()) {
                    Ok(permit) => calls.push(async {
                        let outcome = channel.send_to(target, &note.attempt(1)).await;
                        drop(permit);
                        outcome
                    }),
                    Err(_) => turned_away += 1,
                }
            }
            assert_sent(&calls.next().await.unwrap());
            delivered += 1;
        }
    };
    tokio::time::timeout(Duration::from_secs(25), finish).await.expect("all others before the dead one's timeout");
    assert_eq!((providers[0].count(), limits.in_flight(), turned_away), (4, 4, 16));
}
