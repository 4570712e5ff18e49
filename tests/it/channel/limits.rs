//! Limits: exact, per origin, and without a queue of waiters.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use outboxd::channel::CHANNEL_WIDE;
use outboxd::channel::limit::{Full, Limits};
use outboxd::config::RateLimit;

use super::{Note, assert_sent, channel, config};
use crate::support::provider::{Provider, Reply};

fn origin(name: &str) -> Arc<str> {
    Arc::from(name)
}

#[test]
fn no_more_than_the_rate_starts_in_any_span() {
    let mut config = config("https://a.example/");
    let per = Duration::from_secs(1);
    config.rate_limit = Some(RateLimit { count: 100, per });
    let limits = Limits::new(&config);
    let begin = Instant::now();
    let mut starts: Vec<Instant> = Vec::new();
    // Ten asks per millisecond for 3.5 s of made-up time, with a pause that fills any bucket.
    for millisecond in (0..1500).chain(2300..4300) {
        let now = begin + Duration::from_millis(millisecond);
        starts.extend((0..10).filter_map(|_| limits.try_acquire(&origin(CHANNEL_WIDE), now).ok()).map(|_| now));
    }
    for (index, start) in starts.iter().enumerate() {
        let in_span = starts[index..].iter().take_while(|later| later.duration_since(*start) < per).count();
        assert!(in_span <= 100, "{in_span} starts within one span");
    }
    assert_eq!(starts.len(), 400, "and all of the rate is used");
}

#[test]
fn those_who_come_too_early_are_told_different_times() {
    let mut config = config("https://a.example/");
    config.rate_limit = Some(RateLimit { count: 10, per: Duration::from_secs(1) });
    let limits = Limits::new(&config);
    let now = Instant::now();
    let here = origin(CHANNEL_WIDE);
    let _started: Vec<_> = (0..10).map(|_| limits.try_acquire(&here, now).unwrap()).collect();
    let waits: Vec<_> = (0..20).map(|_| limits.try_acquire(&here, now).unwrap_err()).collect();
    assert!(waits.iter().all(|wait| wait.full == Full::Rate));
    let waits: Vec<u128> = waits.iter().map(|wait| wait.wait.as_millis()).collect();
    assert_eq!((waits[0], waits[1], waits[19]), (1000, 1100, 2900), "{waits:?}");
    let later = now + Duration::from_secs(1);
    assert!(limits.try_acquire(&here, later).is_ok(), "and the first finds its place");
}

#[test]
fn a_very_high_rate_is_kept_over_a_shorter_span() {
    let mut config = config("https://a.example/");
    config.rate_limit = Some(RateLimit { count: 1_000_000, per: Duration::from_secs(1) });
    let limits = Limits::new(&config);
    let now = Instant::now();
    let granted = (0..20_000).filter(|_| limits.try_acquire(&origin(CHANNEL_WIDE), now).is_ok()).count();
    assert_eq!(granted, 10_000);
    assert!(limits.try_acquire(&origin(CHANNEL_WIDE), now + Duration::from_millis(10)).is_ok());
}

#[test]
fn one_origin_at_its_cap_leaves_the_others_their_slots() {
    let mut config = config("{{ recipient }}");
    config.max_in_flight_per_origin = 4;
    config.max_in_flight = Some(100);
    let limits = Limits::new(&config);
    let now = Instant::now();
    let dead = origin("http://dead:80");
    let held: Vec<_> = (0..4).map(|_| limits.try_acquire(&dead, now).unwrap()).collect();
    let refused = limits.try_acquire(&dead, now).unwrap_err();
    assert_eq!(refused.full, Full::Origin);
    assert!(refused.wait >= Duration::from_millis(10) && refused.wait <= Duration::from_secs(5));
    let others: Vec<_> =
        (0..96).map(|n| limits.try_acquire(&origin(&format!("http://other-{n}:80")), now).unwrap()).collect();
    assert_eq!(limits.try_acquire(&origin("http://one-more:80"), now).unwrap_err().full, Full::Channel);
    assert_eq!((limits.in_flight(), limits.origins()), (100, 97));
    drop(held);
    assert!(limits.try_acquire(&dead, now).is_ok(), "a slot given back can be taken");
    drop(others);
    assert_eq!((limits.in_flight(), limits.origins()), (0, 0), "idle origins are forgotten");
}

#[test]
fn a_refused_call_uses_up_nothing() {
    let mut config = config("{{ recipient }}");
    config.max_in_flight_per_origin = 1;
    config.rate_limit = Some(RateLimit { count: 2, per: Duration::from_secs(60) });
    let limits = Limits::new(&config);
    let now = Instant::now();
    let (first, second) = (origin("http://a:80"), origin("http://b:80"));
    let _held = limits.try_acquire(&first, now).unwrap();
    for _ in 0..10 {
        assert_eq!(limits.try_acquire(&first, now).unwrap_err().full, Full::Origin);
    }
    assert!(limits.try_acquire(&second, now).is_ok(), "the second of two is still there");
    assert_eq!(limits.try_acquire(&second, now).unwrap_err().full, Full::Rate);
}

#[test]
fn the_operators_own_host_has_no_cap_per_origin() {
    let mut config = config("https://a.example/");
    config.max_in_flight_per_origin = 1;
    let limits = Limits::new(&config);
    let held: Vec<_> = (0..50).map(|_| limits.try_acquire(&origin(CHANNEL_WIDE), Instant::now()).unwrap()).collect();
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
    // A worker of 16 slots, and 20 rows for each destination in turn.
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
                match limits.try_acquire(target.origin(), Instant::now()) {
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
