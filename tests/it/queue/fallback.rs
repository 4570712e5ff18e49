//! What only a queue does that can leave Redis.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use outboxd::config::QueueKind;
use outboxd::queue::fallback::FallbackQueue;
use outboxd::queue::{Depth, Error, Queue};

use super::{PATIENCE, config, ids, messages, open, open_at, take_all};
use crate::support::proxy::{Fault, Proxy};
use crate::support::redis::{RedisServer, shared};
use crate::support::wait::until_ok;

/// Far less than Redis may take until it is given up.
const AT_ONCE: Duration = Duration::from_millis(900);
const WAIT: Duration = Duration::from_millis(200);

/// On both kinds of queue in Redis, behind a proxy.
async fn behind_a_proxy(kind: QueueKind) -> (Arc<FallbackQueue>, Arc<dyn Queue>, Proxy) {
    let proxy = Proxy::start(shared().port()).await;
    let config = config(kind);
    let redis = open_at(&config, &format!("redis://127.0.0.1:{}", proxy.port())).await.unwrap();
    let direct = open_at(&config, shared().url()).await.unwrap();
    (Arc::new(FallbackQueue::new(redis, 10_000)), direct, proxy)
}

#[tokio::test]
async fn what_is_left_in_memory_after_the_return_is_taken_first() {
    let queue = FallbackQueue::new(open(QueueKind::Stream).await, 10_000);
    queue.push(&messages(0..2)).await.unwrap();
    queue.leave_redis();
    assert_eq!(queue.kind(), "memory");
    assert_eq!(queue.push(&messages(2..4)).await.unwrap().counter, 0);
    assert_eq!(queue.depth().await.unwrap().waiting, 2, "Redis is not asked");
    assert!(queue.return_to_redis());
    assert!(!queue.return_to_redis(), "it is there already");
    assert_eq!(queue.kind(), "stream");
    assert!(queue.push(&messages(4..5)).await.unwrap().counter > 0);
    assert_eq!(queue.depth().await.unwrap(), Depth { waiting: 5, in_flight: 0 });
    assert!(queue.uses_memory());
    let mut consumer = queue.consumer("a").await.unwrap();
    let taken = take_all(&mut consumer, 5).await;
    assert_eq!(ids(&taken), [2, 3, 0, 1, 4]);
    assert!(queue.uses_memory(), "taken is not acknowledged");
    consumer.acker().ack(&taken).await.unwrap();
    assert_eq!(queue.depth().await.unwrap(), Depth::default());
    assert!(!queue.uses_memory());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_waits_for_a_silent_redis_goes_on_as_soon_as_it_is_left() {
    for kind in [QueueKind::Stream, QueueKind::List] {
        let (queue, direct, proxy) = behind_a_proxy(kind).await;
        let mut consumer = queue.consumer("a").await.unwrap();
        queue.push(&messages(0..1)).await.unwrap();
        let held = take_all(&mut consumer, 1).await;
        let acker = consumer.acker();
        proxy.set(Fault::BlackHole);
        let taking = tokio::spawn(async move {
            let taken = consumer.take(10, Duration::from_secs(60)).await.unwrap();
            (consumer, taken)
        });
        let pushing = tokio::spawn({
            let queue = Arc::clone(&queue);
            async move { queue.push(&messages(1..3)).await }
        });
        let asking = tokio::spawn({
            let queue = Arc::clone(&queue);
            async move { (queue.depth().await, queue.check_loss(0).await) }
        });
        assert!(matches!(tokio::time::timeout(WAIT, queue.probe()).await, Err(_) | Ok(Err(Error::Unavailable(_)))));
        let left = Instant::now();
        queue.leave_redis();
        acker.ack(&held).await.unwrap();
        assert_eq!(pushing.await.unwrap().unwrap().counter, 0);
        let (depth, loss) = asking.await.unwrap();
        assert!(depth.is_ok() && matches!(loss, Ok(None)), "{depth:?} {loss:?}");
        let (mut consumer, taken) = taking.await.unwrap();
        assert_eq!(ids(&taken), [1, 2]);
        consumer.maintain().await.unwrap();
        acker.ack(&taken).await.unwrap();
        assert!(left.elapsed() < AT_ONCE, "{:?}", left.elapsed());

        // The acknowledgement that Redis did not hear goes along with the next heartbeat.
        proxy.heal();
        until_ok("Redis answers", async || queue.probe().await).await;
        queue.return_to_redis();
        // The push may have come to Redis after all: then its copies are there to be taken.
        let started = Instant::now();
        while direct.depth().await.unwrap() != Depth::default() {
            assert!(started.elapsed() < PATIENCE, "{kind:?}: {:?}", direct.depth().await);
            let _tried_again = consumer.maintain().await;
            let copies = consumer.take(10, WAIT).await.unwrap_or_default();
            assert!(copies.iter().all(|copy| copy.message.id != 0), "what was acknowledged does not come back");
            let _tried_again = acker.ack(&copies).await;
        }
    }
}

#[tokio::test]
async fn a_consumer_made_while_redis_is_away_joins_it_later() {
    let mut server = RedisServer::durable();
    let redis = open_at(&config(QueueKind::Stream), server.url()).await.unwrap();
    let queue = FallbackQueue::new(redis, 10_000);
    server.kill();
    queue.leave_redis();
    let mut consumer = queue.consumer("a").await.unwrap();
    let acker = consumer.acker();
    queue.push(&messages(0..1)).await.unwrap();
    acker.ack(&take_all(&mut consumer, 1).await).await.unwrap();
    server.restart();
    queue.return_to_redis();
    until_ok("Redis takes a push", async || queue.push(&messages(1..2)).await).await;
    let taken = take_all(&mut consumer, 1).await;
    assert_eq!(ids(&taken), [1]);
    acker.ack(&taken).await.unwrap();
    assert_eq!(queue.depth().await.unwrap(), Depth::default());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_by_leaving_and_returning_while_others_push_and_take() {
    const SWITCHES: usize = 20;
    let queue = Arc::new(FallbackQueue::new(open(QueueKind::Stream).await, 1_000));
    let switching = tokio::spawn({
        let queue = Arc::clone(&queue);
        async move {
            for _ in 0..SWITCHES {
                queue.leave_redis();
                tokio::task::yield_now().await;
                queue.return_to_redis();
                // Whoever pushes to memory after the return would be seen here.
                while queue.uses_memory() {
                    tokio::task::yield_now().await;
                }
            }
        }
    });
    let (pushed, mut all) = tokio::sync::watch::channel(None);
    let taking = tokio::spawn({
        let queue = Arc::clone(&queue);
        async move {
            let mut consumer = queue.consumer("a").await.unwrap();
            let acker = consumer.acker();
            let mut seen = HashSet::new();
            while all.borrow_and_update().is_none_or(|all| seen.len() < all) {
                let taken = consumer.take(100, WAIT).await.unwrap();
                acker.ack(&taken).await.unwrap();
                seen.extend(ids(&taken));
            }
        }
    });
    // For as long as there are switches, so that they always fall among the pushes.
    let mut next = 0;
    while !switching.is_finished() {
        match queue.push(&messages(next..next + 20)).await {
            Err(Error::Full(_)) => tokio::task::yield_now().await,
            pushed => {
                pushed.unwrap();
                next += 20;
            }
        }
    }
    switching.await.unwrap();
    pushed.send_replace(usize::try_from(next).ok());
    tokio::time::timeout(PATIENCE, taking).await.expect("all arrive").unwrap();
}
