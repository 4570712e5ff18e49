//! One suite, every backend.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::poll;
use outboxd::config::QueueKind;
use outboxd::queue::fallback::FallbackQueue;
use outboxd::queue::{Delivery, Depth, Message, Queue};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{PATIENCE, TTL, assert_nothing_arrives, ids, messages, open, take_all};
use crate::support::wait::until;

const NO_WAIT: Duration = Duration::from_millis(1);

async fn fallback_on_redis() -> Arc<dyn Queue> {
    Arc::new(FallbackQueue::new(open(QueueKind::Stream).await, 10_000))
}

async fn fallback_on_memory() -> Arc<dyn Queue> {
    let queue = FallbackQueue::new(open(QueueKind::Stream).await, 10_000);
    queue.leave_redis();
    Arc::new(queue)
}

/// Makes a test of each function for each backend.
macro_rules! for_every_backend {
    ($($name:ident),* $(,)?) => {
        for_every_backend!(@ memory, super::open(super::QueueKind::Memory), $($name),*);
        for_every_backend!(@ list, super::open(super::QueueKind::List), $($name),*);
        for_every_backend!(@ stream, super::open(super::QueueKind::Stream), $($name),*);
        for_every_backend!(@ fallback_on_redis, super::fallback_on_redis(), $($name),*);
        for_every_backend!(@ fallback_on_memory, super::fallback_on_memory(), $($name),*);
    };
    (@ $module:ident, $open:expr, $($name:ident),*) => {
        mod $module {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name($open.await).await;
                }
            )*
        }
    };
}

for_every_backend!(
    messages_are_taken_in_the_order_they_were_pushed,
    many_messages_pushed_at_once_are_taken_a_few_at_a_time,
    a_waiting_take_ends_as_soon_as_a_message_arrives,
    a_take_with_nothing_there_returns_empty_after_its_wait,
    an_empty_push_and_an_empty_take_do_nothing,
    depth_counts_what_waits_and_what_is_in_flight,
    an_acknowledged_message_never_comes_back,
    acknowledging_twice_is_no_error,
    what_a_crashed_consumer_held_is_delivered_again_in_order,
    what_a_closing_consumer_held_is_there_for_others_at_once,
    acknowledging_after_another_took_over_is_no_error,
    a_take_that_nobody_waits_for_any_more_loses_nothing,
    copies_of_one_message_are_each_delivered,
    a_message_arrives_as_it_was_pushed_whatever_is_in_its_topic,
    ten_thousand_messages_reach_four_consumers_of_which_one_is_killed,
);

async fn messages_are_taken_in_the_order_they_were_pushed(queue: Arc<dyn Queue>) {
    queue.push(&messages(0..3)).await.unwrap();
    queue.push(&messages(3..10)).await.unwrap();
    let mut consumer = queue.consumer("a").await.unwrap();
    let mut taken = consumer.take(4, NO_WAIT).await.unwrap();
    assert_eq!(taken.len(), 4);
    taken.extend(consumer.take(100, NO_WAIT).await.unwrap());
    assert_eq!(ids(&taken), (0..10).collect::<Vec<_>>());
    assert!(taken.iter().all(|delivery| delivery.times_delivered == 1 && delivery.message.epoch == 1));
}

async fn many_messages_pushed_at_once_are_taken_a_few_at_a_time(queue: Arc<dyn Queue>) {
    queue.push(&messages(0..200)).await.unwrap();
    assert_eq!(queue.depth().await.unwrap(), Depth { waiting: 200, in_flight: 0 });
    let mut consumer = queue.consumer("a").await.unwrap();
    let mut all = Vec::new();
    while all.len() < 200 {
        let taken = consumer.take(5, NO_WAIT).await.unwrap();
        assert!((1..=5).contains(&taken.len()), "{taken:?}");
        all.extend(ids(&taken));
        consumer.acker().ack(&taken).await.unwrap();
    }
    assert_eq!(all, (0..200).collect::<Vec<_>>());
    assert_eq!(queue.depth().await.unwrap(), Depth::default());
}

async fn a_waiting_take_ends_as_soon_as_a_message_arrives(queue: Arc<dyn Queue>) {
    let mut consumer = queue.consumer("a").await.unwrap();
    let mut waiting = pin!(consumer.take(10, PATIENCE * 60));
    assert!(poll!(&mut waiting).is_pending(), "it waits");
    queue.push(&messages(7..8)).await.unwrap();
    let taken = tokio::time::timeout(PATIENCE, waiting).await.expect("it does not wait to its end");
    assert_eq!(ids(&taken.unwrap()), [7]);
}

async fn a_take_with_nothing_there_returns_empty_after_its_wait(queue: Arc<dyn Queue>) {
    let mut consumer = queue.consumer("a").await.unwrap();
    let started = Instant::now();
    assert_eq!(consumer.take(10, TTL).await.unwrap(), []);
    assert!(started.elapsed() >= TTL && started.elapsed() < TTL * 4, "{:?}", started.elapsed());
}

async fn an_empty_push_and_an_empty_take_do_nothing(queue: Arc<dyn Queue>) {
    queue.push(&[]).await.unwrap();
    queue.push(&messages(1..2)).await.unwrap();
    let mut consumer = queue.consumer("a").await.unwrap();
    assert_eq!(consumer.take(0, NO_WAIT).await.unwrap(), []);
    consumer.acker().ack(&[]).await.unwrap();
    assert_eq!(queue.depth().await.unwrap(), Depth { waiting: 1, in_flight: 0 });
}

async fn depth_counts_what_waits_and_what_is_in_flight(queue: Arc<dyn Queue>) {
    assert_eq!(queue.depth().await.unwrap(), Depth::default());
    queue.push(&messages(0..10)).await.unwrap();
    let mut consumer = queue.consumer("a").await.unwrap();
    let taken = consumer.take(4, NO_WAIT).await.unwrap();
    assert_eq!(queue.depth().await.unwrap(), Depth { waiting: 6, in_flight: 4 });
    consumer.acker().ack(&taken).await.unwrap();
    assert_eq!(queue.depth().await.unwrap(), Depth { waiting: 6, in_flight: 0 });
}

async fn an_acknowledged_message_never_comes_back(queue: Arc<dyn Queue>) {
    queue.push(&messages(0..3)).await.unwrap();
    let mut first = queue.consumer("a").await.unwrap();
    let taken = first.take(3, NO_WAIT).await.unwrap();
    first.acker().ack(&taken).await.unwrap();
    drop(first);
    assert_nothing_arrives(&mut queue.consumer("b").await.unwrap()).await;
    assert_eq!(queue.depth().await.unwrap(), Depth::default());
}

async fn acknowledging_twice_is_no_error(queue: Arc<dyn Queue>) {
    queue.push(&messages(0..3)).await.unwrap();
    let mut consumer = queue.consumer("a").await.unwrap();
    let taken = consumer.take(2, NO_WAIT).await.unwrap();
    consumer.acker().ack(&taken).await.unwrap();
    consumer.acker().ack(&taken).await.unwrap();
    assert_eq!(queue.depth().await.unwrap(), Depth { waiting: 1, in_flight: 0 });
}

async fn what_a_crashed_consumer_held_is_delivered_again_in_order(queue: Arc<dyn Queue>) {
    queue.push(&messages(0..6)).await.unwrap();
    let mut crashed = queue.consumer("crashed").await.unwrap();
    let taken = crashed.take(5, NO_WAIT).await.unwrap();
    crashed.acker().ack(&taken[..2]).await.unwrap();
    drop(crashed);
    let mut next = queue.consumer("next").await.unwrap();
    let first = take_all(&mut next, 4).await;
    // Message 5 was never taken; the crashed consumer's come in order among themselves.
    let mut again = ids(&first);
    again.retain(|id| *id != 5);
    assert_eq!(again, [2, 3, 4]);
    for delivery in &first {
        let expected = if delivery.message.id == 5 { 1 } else { 2 };
        assert_eq!(delivery.times_delivered, expected, "{delivery:?}");
    }
}

async fn what_a_closing_consumer_held_is_there_for_others_at_once(queue: Arc<dyn Queue>) {
    queue.push(&messages(0..5)).await.unwrap();
    let mut closing = queue.consumer("closing").await.unwrap();
    let taken = closing.take(5, NO_WAIT).await.unwrap();
    closing.acker().ack(&taken[..1]).await.unwrap();
    closing.close().await.unwrap();
    let mut other = queue.consumer("other").await.unwrap();
    let again = other.take(10, NO_WAIT).await.unwrap();
    assert_eq!(ids(&again), [1, 2, 3, 4]);
    assert!(again.iter().all(|delivery| delivery.times_delivered == 2), "{again:?}");
}

async fn acknowledging_after_another_took_over_is_no_error(queue: Arc<dyn Queue>) {
    queue.push(&messages(0..2)).await.unwrap();
    let mut slow = queue.consumer("slow").await.unwrap();
    let taken = slow.take(2, NO_WAIT).await.unwrap();
    let acker = slow.acker();
    drop(slow);
    let mut other = queue.consumer("other").await.unwrap();
    let again = take_all(&mut other, 2).await;
    acker.ack(&taken).await.unwrap();
    other.acker().ack(&again).await.unwrap();
    assert_eq!(queue.depth().await.unwrap(), Depth::default());
}

async fn a_take_that_nobody_waits_for_any_more_loses_nothing(queue: Arc<dyn Queue>) {
    let mut consumer = queue.consumer("a").await.unwrap();
    for id in 0..20 {
        let abandoned = tokio::time::timeout(Duration::from_millis(5), consumer.take(10, PATIENCE)).await;
        assert!(abandoned.is_err(), "nothing was there yet");
        queue.push(&messages(id..id + 1)).await.unwrap();
        // Without tending in between: the call itself has to search for what the abandoned one moved.
        let taken = consumer.take(10, Duration::from_secs(5)).await.unwrap();
        assert_eq!(ids(&taken), [id]);
        consumer.acker().ack(&taken).await.unwrap();
    }
    assert_eq!(queue.depth().await.unwrap(), Depth::default());
}

async fn copies_of_one_message_are_each_delivered(queue: Arc<dyn Queue>) {
    queue.push(&[messages(1..2), messages(1..2)].concat()).await.unwrap();
    let mut consumer = queue.consumer("a").await.unwrap();
    let taken = consumer.take(10, NO_WAIT).await.unwrap();
    assert_eq!(ids(&taken), [1, 1]);
    consumer.acker().ack(&taken[..1]).await.unwrap();
    assert_eq!(queue.depth().await.unwrap().in_flight, 1);
    consumer.maintain().await.unwrap();
    assert_eq!(consumer.take(10, NO_WAIT).await.unwrap(), [], "the other copy is in flight, not lost");
    consumer.acker().ack(&taken[1..]).await.unwrap();
    assert_eq!(queue.depth().await.unwrap(), Depth::default());
}

async fn a_message_arrives_as_it_was_pushed_whatever_is_in_its_topic(queue: Arc<dyn Queue>) {
    let message = |id, epoch, route_step, topic: &str| Message { id, epoch, route_step, topic: Arc::from(topic) };
    let pushed = [
        message(1, 0, 0, "orders"),
        message(i64::MAX, i32::MAX, i16::MAX, "a:1:2:b"),
        message(2, 3, 1, " 결제\r\n완료 "),
        message(3, 1, 2, &"t".repeat(200)),
    ];
    queue.push(&pushed).await.unwrap();
    let arrived = |taken: Vec<Delivery>| taken.into_iter().map(|delivery| delivery.message).collect::<Vec<_>>();
    let mut first = queue.consumer("first").await.unwrap();
    assert_eq!(arrived(first.take(10, NO_WAIT).await.unwrap()), pushed);
    // And again after it was given back, which rewrites it.
    first.close().await.unwrap();
    let again = queue.consumer("again").await.unwrap().take(10, NO_WAIT).await.unwrap();
    assert!(again.iter().all(|delivery| delivery.times_delivered == 2), "{again:?}");
    assert_eq!(arrived(again), pushed);
}

async fn ten_thousand_messages_reach_four_consumers_of_which_one_is_killed(queue: Arc<dyn Queue>) {
    const COUNT: i64 = 10_000;
    let stop = CancellationToken::new();
    let mut workers = JoinSet::new();
    for worker in 0..4 {
        let mut consumer = queue.consumer(&format!("w{worker}")).await.unwrap();
        let stop = stop.clone();
        workers.spawn(async move {
            let acker = consumer.acker();
            let mut acknowledged = Vec::new();
            while !stop.is_cancelled() {
                consumer.maintain().await.unwrap();
                let taken = consumer.take(100, Duration::from_millis(50)).await.unwrap();
                // The first worker dies with a batch in flight.
                if worker == 0 && acknowledged.len() > 500 {
                    return acknowledged;
                }
                acker.ack(&taken).await.unwrap();
                acknowledged.extend(ids(&taken));
            }
            acknowledged
        });
    }
    for first in (0..COUNT).step_by(500) {
        queue.push(&messages(first..first + 500)).await.unwrap();
    }
    until("the queue is empty", async || queue.depth().await.unwrap() == Depth::default()).await;
    stop.cancel();
    let acknowledged: Vec<i64> = workers.join_all().await.into_iter().flatten().collect();
    assert_eq!(acknowledged.len(), COUNT as usize, "each exactly once");
    assert_eq!(acknowledged.iter().collect::<HashSet<_>>().len(), COUNT as usize);
}
